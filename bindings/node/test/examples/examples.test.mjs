// The example programs of examples/node, as a reader would run them: each checks what it shows and
// ends with 1 if it came otherwise.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { startRedis } from "../support/redis.mjs";
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

test("the worker, on workerd", async () => {
  assert.match(await run("worker/run.mjs"), /visits/);
});

test("wrong arguments are named, and help is given", async () => {
  for (const program of ["events.mjs", "oversell.mjs", "worker/run.mjs"]) {
    assert.match(await run(program, "--help"), /--url/);
    const failed = await run(program, "--nonsense").catch((error) => error);
    assert.equal(failed.code, 2);
    assert.match(failed.stderr, /nonsense/);
  }
  const failed = await run("events.mjs", "--url", "redis://127.0.0.1:1").catch((error) => error);
  assert.equal(failed.code, 1);
  assert.match(failed.stderr, /error \(unavailable\)/);
});
