// docs/book/src/coming-from.md: its programs run, and moving a fleet by it keeps the exclusion that it promises.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { Locker } from "../../dist/index.js";
import { documented } from "../support/documented.mjs";
import { startNode } from "../support/program.mjs";
import { test } from "../support/test.mjs";
import { pause } from "../support/wait.mjs";

const CLIENT = "../../../../core/src/client";
const page = readFileSync(new URL("../../../../docs/book/src/coming-from.md", import.meta.url), "utf8");
/** The title of each program, and the program. */
const blocks = [...page.matchAll(/^```js\n([^]*?)^```$/gm)].map(({ 1: code, index }) => {
  const [title] = page.slice(0, index).match(/^(?:## .+|From .+:)$/gm).slice(-1);
  return [title.replace(/^## |:$/g, ""), code];
});
const tests = documented();

test("the page has a program for each of the packages that are in JavaScript", () => {
  assert.deepEqual(blocks.map(([title]) => title), ["redlock", "redis-semaphore", "From redlock", "From redis-semaphore"]);
});

test("the calls of ours in its tables are there", async () => {
  // Catches: a table with a renamed call, or one of the other language.
  const rows = [...page.matchAll(/^\|(.+)\|$/gm)].map(([, row]) => row.split(" | ")).filter(([first]) => !first.startsWith("-"));
  const calls = (cell = "") => [...cell.matchAll(/\b(locker|lock|lease)\.(\w+)/g)].map(([, on, name]) => [on, name]);

  const locker = Locker.inMemory();
  const lock = locker.lock("x");
  const objects = { locker, lock, lease: await lock.acquire() };
  const ours = rows.flatMap((row) => calls(row[row.length - 1]));
  assert.deepEqual(ours.filter(([on, name]) => !(name in objects[on])), []);
  await locker.shutdown();

  const source = (file) => readFileSync(new URL(`${CLIENT}/${file}.rs`, import.meta.url), "utf8");
  const sources = { lock: source("lock") + source("lock/options"), lease: source("lease"), locker: source("locker") };
  const rust = rows.filter(({ length }) => length === 3).flatMap(([, cell]) => calls(cell));
  const isPublic = ([on, name]) => new RegExp(`pub (async )?fn ${name}\\b`).test(sources[on]);
  assert.deepEqual(rust.filter((call) => !isPublic(call)), []);
  assert.ok(ours.length > 30 && rust.length > 15, `${ours.length} and ${rust.length}`);
});

for (const [at, [title, code]] of blocks.entries()) {
  test(`${title}: the program runs and ends`, async () => {
    const program = startNode(tests.put(`block-${at}`, code));
    assert.equal(await program.end(30_000), 0, program.output());
    assert.doesNotMatch(program.output(), /[Ee]rror/);
  });
}

/** The work of an old process, which uses only the old lock. */
const OLD = {
  "From redlock": `const old = (name, work) => redlock.using([name], 5_000, work);`,
  "From redis-semaphore": `const old = async (name, work) => {
    const mutex = new Mutex(client, name);
    await mutex.acquire();
    try { return await work(); } finally { await mutex.release(); }
  };`,
};

/** Adds to a counter in two steps, which only a lock makes atomic, in one of the phases. */
const VISITOR = (phase, turns) => `
const take = [old, underBoth, (name, work) => locker.lock(name).using(work)][${phase}];
for (let turn = 0; turn < ${turns}; turn++) {
  await take("fleet", async () => {
    const seen = Number(await client.get("count"));
    await new Promise((resolve) => setTimeout(resolve, 1));
    await client.set("count", seen + 1);
  });
}
await locker.shutdown();
client.disconnect();
`;

for (const [title, code] of blocks.filter(([title]) => title in OLD)) {
  /** Runs processes of two phases at once, and returns how many increments are missing at the end. */
  async function missing(...phases) {
    const TURNS = 40;
    await tests.server.command("SET", "count", 0);
    // Clients that poll do not queue: under contention they need more tries than the default.
    const patient = "new Redlock([client], { retryCount: -1, retryDelay: 5, retryJitter: 2 })";
    const set = code.slice(0, code.indexOf("await underBoth(")).replace("new Redlock([client])", patient);
    const files = phases.map((phase, at) => tests.put(`visitor-${at}`, set + OLD[title] + VISITOR(phase, TURNS)));
    const programs = files.map((file) => startNode(file));
    for (const program of programs) assert.equal(await program.end(60_000), 0, program.output());
    return phases.length * TURNS - Number(await tests.server.command("GET", "count"));
  }

  test(`${title}: phases 0 and 1 exclude each other, and so do 1 and 2`, async () => {
    assert.equal(await missing(0, 0, 1, 1), 0);
    assert.equal(await missing(1, 1, 2, 2), 0);
  });

  test(`${title}: phases 0 and 2 do not, as the page says`, async () => {
    // The control: the count would show a violation.
    for (let tries = 0; (await missing(0, 2)) === 0; tries++) {
      assert.ok(tries < 10, "they never met");
      await pause(10);
    }
  });
}
