// Writers in Rust and in Node on one fence table. The Rust one is the program sql_writer of
// tests/guards: it writes under a token, says so, and never commits.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { pause } from "../support/wait.mjs";
import { fence } from "./bundle.mjs";
import { kill } from "./checks.mjs";
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
  const stale = spawn(program, [url, resource, "39"], { stdio: ["ignore", "ignore", "pipe"] });
  let said = "";
  stale.stderr.on("data", (data) => {
    said += data;
  });
  const [code] = await once(stale, "close");
  assert.notEqual(code, 0, "Rust took a stale token");
  assert.match(said, /stale/i);
  assert.match(said, /40/);

  const rust = spawn(program, [url, resource, "41"], { stdio: ["ignore", "pipe", "inherit"] });
  const [line] = await once(rust.stdout, "data");
  assert.match(String(line), /written/);
  if (db.name !== "sqlite") {
    const waiting = fence.fencedTransaction(pool, resource, 40, () => "free");
    waiting.catch(() => {});
    const first = await Promise.race([waiting, pause(150).then(() => "waits")]);
    assert.equal(first, "waits", "Node did not see that Rust holds the row");
    await kill(rust);
    assert.equal(await waiting, "free", "41 was never committed");
    return;
  }
  await kill(rust);
  assert.equal(await fence.fencedTransaction(pool, resource, 40, () => "free"), "free");
}
