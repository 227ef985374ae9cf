// The example programs of examples/node, run as a reader would. tests/programs checks that they are short and
// match the Rust ones.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { Locker } from "../../dist/index.js";
import { startProgram } from "../support/program.mjs";
import { freePort, startRedis } from "../support/redis.mjs";
import { test } from "../support/test.mjs";
import { waitFor } from "../support/wait.mjs";

const FOLDER = fileURLToPath(new URL("../../../../examples/node", import.meta.url));
/** More than any of them takes. */
const LIMIT = 30_000;

/** Starts an example on the store of this URL; without one, on its in-memory store if it has one. */
function start(file, url, { node = process.execPath, args = [], ...env } = {}) {
  const { LEASEHOLD_URL: _, ...others } = process.env;
  return startProgram(node, [file, ...args], {
    cwd: FOLDER,
    env: { ...others, ...(url && { LEASEHOLD_URL: url }), ...env },
  });
}

/** Runs an example, which must succeed, and returns its output. */
async function run(...args) {
  const program = start(...args);
  assert.equal(await program.end(LIMIT), 0, program.output());
  return program.output();
}

/** Starts a server and a locker that inspects its locks. */
async function open(t) {
  const server = await startRedis();
  const operator = await Locker.connect(server.url);
  t.after(() => Promise.all([operator.shutdown(), server.stop()]));
  const waiting = (name) => waitFor(async () => (await operator.inspect(name)).waiting === 1, LIMIT);
  return { url: server.url, operator, waiting };
}

const tokenOf = async (program, words) => parseInt(await program.says(words, LIMIT));

test("lock: one holds it, and Ctrl-C hands it over", async (t) => {
  const { url, operator, waiting } = await open(t);
  // Both start at once, because the first one holds the lock for a few seconds only.
  const programs = [start("lock.mjs", url), start("lock.mjs", url)];
  const tokens = programs.map((program) => tokenOf(program, "held with token "));
  const holder = await Promise.race(tokens.map(async (token, at) => (await token, at)));
  const [first, second] = [programs[holder], programs[1 - holder]];
  const one = await tokens[holder];
  await waiting("orders/42");
  first.kill("SIGINT");
  assert.equal(await first.end(LIMIT), 1);
  assert.match(first.output(), /was lost: the locker was shut down/);
  // Long before the lease of 10 s would have expired.
  await waitFor(async () => (await operator.inspect("orders/42")).holder?.token > one, LIMIT / 6);
  assert.ok((await tokens[1 - holder]) > one);
  assert.equal(await second.end(LIMIT), 0);
  assert.match(second.output(), /released/);
});

test("events: a loss, and the next tenure", async (t) => {
  const { url, operator } = await open(t);
  const program = start("events.mjs", url);
  const acquired = '{"type":"acquired","name":"example","token":';
  const first = await tokenOf(program, acquired);
  await operator.forceRelease("example");
  assert.match(await program.says("work must stop:", LIMIT), /was lost/);
  assert.ok((await tokenOf(program, acquired)) > first);
  program.kill("SIGINT");
  assert.equal(await program.end(LIMIT), 0, program.output());
  assert.match(program.output(), /"type":"lost",[^]*"type":"acquired"/);
  assert.equal((await operator.inspect("example")).holder, null);
});

test("leader: one leads at a time", async (t) => {
  const { url, operator, waiting } = await open(t);
  const one = start("leader.mjs", url);
  const first = await tokenOf(one, "leading with token ");
  const other = start("leader.mjs", url);
  await waiting("leader");
  // The former leader goes to the end of the line.
  await operator.forceRelease("leader");
  await one.says("no longer leading", LIMIT);
  const second = await tokenOf(other, "leading with token ");
  await waiting("leader");
  other.kill("SIGINT");
  assert.equal(await other.end(LIMIT), 0, other.output());
  const third = await tokenOf(one, "leading with token ");
  assert.ok(first < second && second < third);
});

test("cancellation: nothing is left behind", async (t) => {
  const { url } = await open(t);
  const steps = /for the whole timeout of 500 ms\nno longer wanted\nwaiters in line: 0\n.*force-released\n/;
  assert.match(await run("cancellation.mjs", url), steps);
  assert.match(await run("cancellation.mjs"), steps);
});

test("licenses: a late holder of a slot is refused", async (t) => {
  const { url } = await open(t);
  assert.match(await run("licenses.mjs", url), /late: .*licenses#0/);
  assert.match(await run("licenses.mjs"), /late: .*licenses#0/);
});

test("read_mostly: readers reject an old cache", async (t) => {
  const { url } = await open(t);
  const read = /(?:12, the cache was old: true[^]*){5}/;
  assert.match(await run("read_mostly.mjs", url), read);
  assert.match(await run("read_mostly.mjs"), read);
});

test("transfer: money moves in both directions", async (t) => {
  const { url } = await open(t);
  assert.match(await run("transfer.mjs", url), /balances: \[ 90, 110 \]/);
  assert.match(await run("transfer.mjs"), /balances: \[ 90, 110 \]/);
});

test("fenced_sql: the late write is refused", async (t) => {
  // Only newer versions of Node have SQLite.
  const path = fileURLToPath(new URL("../package/node_modules/node/bin/node", import.meta.url));
  const node = process.env.LEASEHOLD_NEWER_NODE ?? path;
  if (!existsSync(node)) {
    t.skip("there is no newer Node: npm ci in test/package");
    return;
  }
  const { url } = await open(t);
  const refused = /balance: 70\nlate: staleToken: .*account\/7/;
  assert.match(await run("fenced_sql.mjs", url, { node }), refused);
  assert.match(await run("fenced_sql.mjs", undefined, { node }), refused);
});

const outlived = /"acquired"[^]*"atRisk".*(2 of 5|1 of 3) servers[^]*"renewed"[^]*"released"/;

test("rolling_deploy: each leader hands over when it is asked", async (t) => {
  const { url } = await open(t);
  for (const printed of [await run("rolling_deploy.mjs", url), await run("rolling_deploy.mjs")]) {
    const lines = printed.trim().split("\n");
    // A leader may lead before the former one has told that it yielded.
    const yielded = lines.filter((line) => line.startsWith("yielded: true, "));
    assert.equal(yielded.length, 3, printed);
    const leads = lines.map((line) => /^version (\d) leads with token (\d+)$/.exec(line)).filter(Boolean);
    assert.deepEqual(leads.map(([, version]) => Number(version)), [1, 2, 3, 4], printed);
    const tokens = leads.map(([, , token]) => Number(token));
    assert.deepEqual(tokens, [...tokens].sort((one, other) => one - other), printed);
    assert.match(lines.at(-1), /^expired: \d+/, printed);
  }
});

test("quorum: two stores of five are cut off", async () => {
  const printed = await run("quorum.mjs");
  assert.match(printed, outlived);
  assert.doesNotMatch(printed, /"lost"/);
});

test("quorum: one server of three is killed", async (t) => {
  const servers = await Promise.all([startRedis(), startRedis(), startRedis()]);
  t.after(() => Promise.all(servers.map((server) => server.stop())));
  const program = start("quorum.mjs", undefined, { args: servers.map(({ url }) => url) });
  // By then, a server that granted the lease after the two others counts, too.
  await program.says('{"type":"renewed"', LIMIT);
  await servers[0].kill();
  assert.equal(await program.end(LIMIT), 0, program.output());
  assert.match(program.output(), outlived);
  assert.doesNotMatch(program.output(), /"lost"/);
});

test("metrics: they are served, right, and named as in Rust", async (t) => {
  const { url } = await open(t);
  const program = start("metrics.mjs", url, { PORT: "0" });
  const page = await (await fetch(`http:${await program.says("http:", LIMIT)}`)).text();
  program.kill("SIGINT");
  assert.equal(await program.end(LIMIT), 0, program.output());
  for (const [line, value] of [
    ['leasehold_acquired_total{service="example"}', 11],
    ['leasehold_released_total{service="example"}', 10],
    ['leasehold_lost_total{reason="revoked",service="example"}', 1],
    ['leasehold_holding_seconds_count{service="example"}', 11],
    ['leasehold_held{service="example"}', 0],
  ]) {
    assert.ok(page.includes(`\n${line} ${value}\n`), `${line} ${value}: ${page}`);
  }
  assert.match(page, /leasehold_pushes_total\{.*\} [1-9]/);
  const source = await readFile(`${FOLDER}/../../core/engine/src/engine/stats/prometheus.rs`, "utf8");
  const [own] = source.split("#[cfg(test)]");
  const names = new Set([...own.matchAll(/"(leasehold_\w+)"/g)].map(([, name]) => name));
  assert.equal(names.size, 19);
  assert.deepEqual(new Set([...page.matchAll(/^# TYPE (\w+) /gm)].map(([, name]) => name)), names);
});

test("the demonstration, in memory and on a server", async (t) => {
  const { url } = await open(t);
  const story = /without a lock: 8 sold[^]*with a lock: 5 sold, 0 left[^]*the paused buyer resumes: the token/;
  assert.match(await run("demos/oversell.mjs"), story);
  assert.match(await run("demos/oversell.mjs", url), story);
});

test("the worker, on workerd", async () => {
  assert.match(await run("worker/run.mjs"), /visits/);
});

test("a server that cannot be used is named, without the password", async (t) => {
  const server = await startRedis({ password: "s3cret" });
  t.after(() => server.stop());
  const port = await freePort();
  const fails = async (why, ...args) => {
    const program = start(...args);
    assert.equal(await program.end(LIMIT), 1, program.output());
    assert.match(program.output(), why);
    assert.doesNotMatch(program.output(), /s3cret|wr0ng/);
  };
  const away = `redis://:s3cret@127.0.0.1:${port}`;
  for (const file of ["cancellation", "demos/oversell", "events", "leader", "lock", "metrics", "rolling_deploy"]) {
    await fails(/127\.0\.0\.1:\d+: .*WRONGPASS/, `${file}.mjs`, `redis://:wr0ng@127.0.0.1:${server.port}`);
    await fails(/127\.0\.0\.1:\d+: .*ECONNREFUSED/, `${file}.mjs`, away);
    await fails(/redis:\/\//, `${file}.mjs`, "http://:s3cret@127.0.0.1");
  }
  await fails(/ECONNREFUSED/, "quorum.mjs", undefined, { args: [away, away.replace(port, 1), away.replace(port, 2)] });
  const upstash = { UPSTASH_REDIS_REST_URL: `http://127.0.0.1:${port}`, UPSTASH_REDIS_REST_TOKEN: "s3cret" };
  await fails(/unavailable/, "worker/run.mjs", undefined, upstash);
});

test("the lock file of the examples knows what the package asks for", async () => {
  // Otherwise `npm install` there would change it.
  const read = async (file) => JSON.parse(await readFile(`${FOLDER}/${file}`, "utf8"));
  const { dependencies, devDependencies, peerDependencies, peerDependenciesMeta, engines, license, version } = await read(
    "../../bindings/node/package.json",
  );
  const asked = { dependencies, devDependencies, engines, license, peerDependencies, peerDependenciesMeta, version };
  const { packages } = await read("package-lock.json");
  const { name: _, ...locked } = packages["../../bindings/node"];
  assert.deepEqual(locked, asked);
});
