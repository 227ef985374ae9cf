// Writers in Rust and in Node on one fence table. The Rust one is the program sql_writer of tests/guards: it
// writes under a token, says so, and never commits.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { startProgram } from "../support/program.mjs";
import { fence } from "./bundle.mjs";
import { kill, waits } from "./checks.mjs";
import { write } from "./sql.mjs";

const root = fileURLToPath(new URL("../../../../", import.meta.url));
const folders = [process.env.CARGO_TARGET_DIR, `${root}target`].filter(Boolean);
const program = folders.map((folder) => `${folder}/debug/sql_writer`).find((path) => existsSync(path));

export async function mixed(t, { db, pool, url }) {
  if (!program) {
    t.skip(`there is no sql_writer in ${folders.join(" or ")}: cargo build -p leasehold-guard-tests`);
    return;
  }
  const resource = "Rust and Node";
  await fence.fencedTransaction(pool, resource, 40, (tx) => write(db, tx, resource, 40, 1));
  const stale = startProgram(program, [url, resource, "39"]);
  assert.notEqual(await stale.end(60_000), 0, "Rust took a stale token");
  assert.match(stale.output(), /stale/i);
  assert.match(stale.output(), /40/);

  const rust = startProgram(program, [url, resource, "41"]);
  await rust.says("written", 60_000);
  if (db.name !== "sqlite") {
    const waiting = fence.fencedTransaction(pool, resource, 40, () => "free");
    await waits(waiting);
    await kill(rust);
    assert.equal(await waiting, "free", "41 was never committed");
    return;
  }
  await kill(rust);
  assert.equal(await fence.fencedTransaction(pool, resource, 40, () => "free"), "free");
}
