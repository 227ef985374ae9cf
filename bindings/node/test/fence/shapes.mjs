// Tables that are not fence tables, from the vectors that Rust reads, too.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { fence } from "./bundle.mjs";

const { createFenceTable, fencedTransaction } = fence;

const vectors = JSON.parse(readFileSync(new URL("../../../../tests/vectors/sql_shapes.json", import.meta.url)));

/**
 * Checks each table that the vectors have for a database, and leaves a fence table behind. `run` runs a
 * statement.
 */
export async function checkShapes(name, database, run) {
  const runAll = async (statements) => {
    for (const sql of statements) await run(sql);
  };
  for (const { says, make = [], add, drop = ["DROP TABLE leasehold_fence"], writes = true } of vectors[name]) {
    await run("DROP TABLE IF EXISTS leasehold_fence");
    if (add !== undefined) await createFenceTable(database);
    await runAll([...make, ...(add ?? [])]);
    for (const newer of [34, 2 ** 52]) {
      const write = (token) => fencedTransaction(database, "a", token, () => "accepted").catch((error) => error.code);
      const written = await write(newer);
      assert.ok([...(writes ? ["accepted"] : []), "config"].includes(written), `${says}: ${written}`);
      if (written === "accepted") {
        assert.match(await write(newer - 1), /^(staleToken|config)$/, says);
      }
    }
    // Twice, because the first check must not have changed it.
    for (let look = 0; look < 2; look += 1) {
      const error = await createFenceTable(database).catch((error) => error);
      assert.equal(error?.code, "config", `${says}: ${error}`);
      for (const part of [says, "leasehold_fence is not a fence table: ", fence[name].create.replace("\n", " ")]) {
        assert.ok(error.message.includes(part), `${part}: ${error}`);
      }
    }
    await runAll(drop);
    // It also works on connections that know the other table.
    await createFenceTable(database);
    await fencedTransaction(database, "made anew", 2 ** 52, () => {});
  }
}
