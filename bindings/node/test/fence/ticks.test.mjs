// A tick's effect and its completion in one transaction, with runners in both languages that are killed between
// their commit and the moment at which the locks' store knows of it.
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before } from "node:test";
import { fileURLToPath } from "node:url";
import Database from "better-sqlite3";
import { createFenceTable, doneIn, fencedTransaction } from "../../dist/fence.js";
import { Locker } from "../../dist/index.js";
import { startNode, startProgram } from "../support/program.mjs";
import { startRedis } from "../support/redis.mjs";
import { test } from "../support/test.mjs";
import { within } from "../support/wait.mjs";

const TTL = 1_000;
const root = fileURLToPath(new URL("../../../../", import.meta.url));
const folders = [process.env.CARGO_TARGET_DIR, `${root}target`].filter(Boolean);
const rust = folders.map((folder) => `${folder}/debug/sql_runner`).find((path) => existsSync(path));

let server;
let locker;
let database;
let folder;
let file;

before(async () => {
  server = await startRedis();
  locker = await Locker.connect(server.url);
  folder = mkdtempSync(join(tmpdir(), "leasehold-ticks-"));
  file = join(folder, "ticks.db");
  database = new Database(file);
  await createFenceTable(database);
  database.exec("CREATE TABLE history (resource TEXT NOT NULL, token INTEGER NOT NULL, value INTEGER NOT NULL)");
});
after(async () => {
  database?.close();
  rmSync(folder, { recursive: true, force: true });
  await locker?.shutdown();
  await server?.stop();
});

/** Does a tick's work if the record lets it, or always. Returns true if it did. */
const work = (turn, how) =>
  fencedTransaction(database, turn.name, turn, (tx) => {
    if (how === "recorded" && !doneIn(tx, turn)) return false;
    tx.prepare("INSERT INTO history VALUES (?, ?, ?)").run(turn.name, turn.token, turn.tick);
    return true;
  });

const runners = {
  Node: (args) => startNode(fileURLToPath(new URL("runner.mjs", import.meta.url)), ...args),
  Rust: ([redis, path, ...args]) => startProgram(rust, [redis, `sqlite:${path}`, ...args]),
};

for (const [language, start] of Object.entries(runners)) {
  // Without the record, as the negative control, the work takes effect twice.
  for (const [how, times] of [["recorded", 1], ["unrecorded", 2]]) {
    test(`a runner in ${language} that is killed after its commit, ${how}`, async (t) => {
      if (language === "Rust" && !rust) {
        t.skip(`there is no sql_runner in ${folders.join(" or ")}: cargo build -p leasehold-guard-tests`);
        return;
      }
      const name = `${language} ${how}`;
      const runner = start([server.url, file, name, "7", String(TTL), how]);
      await runner.says("committed", 60_000);
      runner.kill("SIGKILL");
      await runner.end();
      const job = locker.job(name, { ttl: TTL });
      const { turn } = await within(job.claim(7), 30_000, "the end of the killed runner's lease");
      assert.equal(await work(turn, how), times === 2);
      await turn.done();
      assert.equal((await job.claim(7)).type, "completed");
      const effects = database.prepare("SELECT value FROM history WHERE resource = ?").all(name);
      assert.deepEqual(effects, Array(times).fill({ value: 7 }));
    });
  }
}
