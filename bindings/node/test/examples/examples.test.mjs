// The example programs of examples/node, as a reader would run them: each checks what it shows and
// ends with 1 if it came otherwise.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { freePort, startRedis } from "../support/redis.mjs";
import { startProgram } from "../support/program.mjs";
import { test } from "../support/test.mjs";

const FOLDER = fileURLToPath(new URL("../../../../examples/node", import.meta.url));

/** What it prints. The leases there are short: if one expired, since the machine stood still, it is run again. */
async function run(...args) {
  const options = { cwd: FOLDER, timeout: 30_000 };
  for (let tries = 1; ; tries++) {
    try {
      return (await promisify(execFile)(process.execPath, args, options)).stdout;
    } catch (error) {
      if (tries === 3 || !/expired/.test(`${error.stdout}${error.stderr}`)) {
        throw error;
      }
    }
  }
}

async function redis(t) {
  const server = await startRedis();
  t.after(() => server.stop());
  return server.url;
}

test("events, in memory", async () => {
  assert.match(await run("events.mjs"), /lost .*"revoked"[^]*acquired[^]*released/);
});

test("events, on a server", async (t) => {
  const printed = await run("events.mjs", "--json", "--url", await redis(t));
  const types = printed.trim().split("\n").map((line) => JSON.parse(line).type);
  assert.equal(types[0], "acquired");
  assert.equal(types.at(-1), "released");
});

test("events, watching for a second", async (t) => {
  const printed = await run("events.mjs", "--watch", "--seconds", "1", "--url", await redis(t));
  assert.match(printed, /held with token \d+/);
});

test("oversell, in memory", async () => {
  assert.match(await run("oversell.mjs"), /5 sold, 0 left[^]*refused: the token/);
});

test("oversell, by processes on a server", async (t) => {
  assert.match(await run("oversell.mjs", "--url", await redis(t)), /5 sold, 0 left[^]*refused: the token/);
});

test("metrics, in memory", async () => {
  assert.match(await run("metrics.mjs"), /leasehold_lost_total\{reason="revoked",service="example"\} 1\n/);
});

test("metrics, on a server", async (t) => {
  assert.match(await run("metrics.mjs", "--url", await redis(t)), /leasehold_pushes_total\{.*\} [1-9]/);
});

test("metrics are served, and named as in Rust", async () => {
  const program = startProgram(process.execPath, ["metrics.mjs", "--port", "0"], { cwd: FOLDER });
  const url = `http:${await program.says("# http:")}`;
  const page = await (await fetch(url)).text();
  assert.equal((await fetch(new URL("/", url))).status, 404);
  program.kill("SIGTERM");
  assert.equal(await program.end(), 143);
  const source = await readFile(`${FOLDER}/../../core/src/engine/stats/prometheus.rs`, "utf8");
  const [own] = source.split("#[cfg(test)]");
  const names = new Set([...own.matchAll(/"(leasehold_\w+)"/g)].map(([, name]) => name));
  assert.equal(names.size, 16);
  assert.deepEqual(new Set([...page.matchAll(/^# TYPE (\w+) /gm)].map(([, name]) => name)), names);
});

test("quorum", async () => {
  const printed = await run("quorum.mjs");
  assert.match(printed, /Two servers go[^]*atRisk .*2 of 5 servers are missing[^]*renewed[^]*forgets[^]*ada is refused: /);
});

test("the worker, on workerd", async () => {
  assert.match(await run("worker/run.mjs"), /visits/);
});

test("wrong arguments are named, and help is given", async () => {
  for (const program of ["events.mjs", "metrics.mjs", "oversell.mjs", "worker/run.mjs"]) {
    assert.match(await run(program, "--help"), /--url/);
    const failed = await run(program, "--nonsense").catch((error) => error);
    assert.equal(failed.code, 2);
    assert.match(failed.stderr, /nonsense/);
  }
});

test("arguments that mean nothing are refused, and none of them is shown that may be secret", async () => {
  const cases = [
    [["events.mjs", "--seconds", "3"], /--seconds is for --watch/],
    ...["abc", "0", "-1", "1e9", ""].map((seconds) => [
      ["events.mjs", "--watch", `--seconds=${seconds}`],
      /--seconds is a number above 0/,
    ]),
    ...["-1", "65536", "a"].map((port) => [["metrics.mjs", `--port=${port}`], /--port is a number up to 65535/]),
    [["oversell.mjs", "--url", "unix:///s3cret"], /--url .* redis:\/\/ or rediss:\/\//],
    [["worker/run.mjs", "--url", "redis://:s3cret@127.0.0.1"], /--url .* https:\/\/ or http:\/\//],
    [["worker/run.mjs", "--url", "https://s3cret.invalid"], /--url and --token go together/],
  ];
  for (const [args, why] of cases) {
    const failed = await run(...args).catch((error) => error);
    assert.equal(failed.code, 2, args.join(" "));
    assert.match(failed.stderr.split("\n")[0], why);
    assert.doesNotMatch(failed.stdout + failed.stderr, /s3cret|Upstash Redis client|\n {4}at /);
  }
});

test("a server that cannot be used is one line, without the password", async (t) => {
  const server = await startRedis({ password: "s3cret" });
  t.after(() => server.stop());
  const port = await freePort();
  const cases = [
    [`redis://:wr0ng@127.0.0.1:${server.port}`, /^error \(auth\): redis:\/\/127\.0\.0\.1:\d+: .*WRONGPASS.*\n$/],
    [`redis://127.0.0.1:${server.port}`, /^error \(auth\): .*NOAUTH.*\n$/],
    [`redis://:s3cret@127.0.0.1:${port}`, /^error \(unavailable\): redis:\/\/127\.0\.0\.1:\d+: .*ECONNREFUSED.*\n$/],
  ];
  for (const program of ["events.mjs", "metrics.mjs", "oversell.mjs"]) {
    for (const [url, line] of cases) {
      await failsInOneLine(line, program, "--url", url);
    }
  }
  const token = ["--token", "s3cret"];
  await failsInOneLine(/^error \(\w+\): .*\n$/, "worker/run.mjs", "--url", `http://127.0.0.1:${port}`, ...token);
});

async function failsInOneLine(line, ...args) {
  const failed = await run(...args).catch((error) => error);
  assert.equal(failed.code, 1, failed.stderr);
  assert.match(failed.stderr, line);
  assert.doesNotMatch(failed.stdout + failed.stderr, /s3cret|wr0ng/);
}

test("the buyers' processes have no password among their arguments", async (t) => {
  const server = await startRedis({ password: "s3cret" });
  t.after(() => server.stop());
  const program = startProgram(process.execPath, ["oversell.mjs", "--url", server.url], { cwd: FOLDER });
  const seen = new Set();
  while (program.running) {
    const { stdout } = await promisify(execFile)("ps", ["-eo", "ppid=,args="]);
    const lines = stdout.split("\n").filter((line) => line.trim().startsWith(`${program.pid} `));
    lines.forEach((line) => seen.add(line));
  }
  assert.equal(await program.end(), 0, program.output());
  const buyers = [...seen].filter((line) => line.includes("process.mjs"));
  assert.ok(buyers.length > 0, "they are seen");
  assert.deepEqual(buyers.filter((line) => line.includes("s3cret")), []);
  assert.ok(!program.output().includes("s3cret"));
});

test("the lock file of the examples knows what the package asks for", async () => {
  // Else `npm install` there changes it.
  const read = async (file) => JSON.parse(await readFile(`${FOLDER}/${file}`, "utf8"));
  const { dependencies, devDependencies, peerDependencies, peerDependenciesMeta, engines, license, version } = await read(
    "../../bindings/node/package.json",
  );
  const asked = { devDependencies, engines, license, peerDependencies, peerDependenciesMeta, version };
  const { packages } = await read("package-lock.json");
  const { name: _, ...locked } = packages["../../bindings/node"];
  assert.equal(dependencies, undefined);
  assert.deepEqual(locked, asked);
});
