// Fence tables of another shape.
import { fence } from "./bundle.mjs";
import { fails, refused } from "./conformance.mjs";

const { createFenceTable, fencedTransaction } = fence;

const LARGE = 2 ** 52;
const LONG = "x".repeat(512);

/**
 * There is a table of an older shape with the token 34 of "a": writing is refused if `strict`, and
 * createFenceTable migrates it.
 */
export async function migrates(database, strict) {
  for (const [resource, token] of [["b", LARGE], [LONG, 1]]) {
    const taken = await fencedTransaction(database, resource, token, () => "taken").catch((error) => error);
    if (taken === "taken" ? strict && resource === "b" : taken.code !== "config") {
      throw new Error(`a table of an older shape: ${taken}`);
    }
  }
  await Promise.all([createFenceTable(database), createFenceTable(database)]);
  await refused(fencedTransaction(database, "a", 33, () => {}), { highest: 34 });
  for (const [resource, token] of [["A", 1], ["b", LARGE], [LONG, 2]]) {
    await fencedTransaction(database, resource, token, () => {});
  }
}

/** Neither call works with a table or view that is something else, nor changes it; `says` why. It is dropped. */
export async function refuses(database, run, table, says) {
  await run("DROP TABLE IF EXISTS leasehold_fence");
  await run(`CREATE ${table}`);
  for (let round = 0; round < 2; round += 1) {
    for (const token of [7, LARGE]) {
      await fails(fencedTransaction(database, "a", token, () => {}), "config", /leasehold_fence/);
    }
    const error = await createFenceTable(database).catch((error) => error);
    if (error?.code !== "config" || !error.message.endsWith(`is not a fence table: ${says}`)) {
      throw new Error(`${table}: ${error}`);
    }
  }
  await run(`DROP ${table.split(" ", 1)[0]} leasehold_fence`);
}

/**
 * A fence table that somebody has added to is not trusted, and what was added is named; without it, it
 * is. Each is statements, what the error says, and statements that take it away.
 */
export async function suspects(database, run, additions) {
  for (const { add, says, remove } of additions) {
    await run("DROP TABLE IF EXISTS leasehold_fence");
    await createFenceTable(database);
    for (const sql of add) await run(sql);
    for (let round = 0; round < 2; round += 1) {
      await fails(createFenceTable(database), "config", says);
      await fails(createFenceTable(database), "config", /not a fence table.*find out who made it/s);
    }
    for (const sql of remove) await run(sql);
    await createFenceTable(database);
  }
}
