// Transactions that end inside of the work: later statements are in none, so the commit is refused.
import assert from "node:assert/strict";
import { fence } from "./bundle.mjs";
import { fails } from "./conformance.mjs";
import { reading } from "./sql.mjs";

const { fencedTransaction } = fence;

const INSERT = "INSERT INTO history (resource, token, value) VALUES (?, 1, ?)";

/** The ends that every database has. */
export const byHand = (begin) => [
  { does: ["COMMIT"], keeps: [1, 2] },
  { does: ["ROLLBACK"], keeps: [2] },
  // Catches a check that only asks whether any transaction is open.
  { does: ["COMMIT", begin], keeps: [1] },
  { does: ["ROLLBACK", begin], keeps: [] },
];

/**
 * Checks that each end is refused, and leaves written what the documentation says. An end is statements, or a
 * function of the connection, between a write of 1 and one of 2; `keeps` has the writes that stay.
 */
export async function endsAreRefused({ db, pool }, ends) {
  for (const [index, { does, keeps, how = "config", says = /ended before/ }] of ends.entries()) {
    const resource = `ended ${index}`;
    const write = (value) => [INSERT, [resource, value]];
    const steps = [write(1), ...(typeof does === "function" ? [does] : does.map((sql) => [sql])), write(2)];
    const run = (tx, step) => (typeof step === "function" ? step(tx) : db.query(tx, ...step));
    const work =
      db.name === "sqlite"
        ? (tx) => steps.forEach((step) => void run(tx, step))
        : async (tx) => {
            for (const step of steps) {
              // In a failed Postgres transaction the second write fails, too.
              await (step === steps.at(-1) ? run(tx, step).catch(() => {}) : run(tx, step));
            }
          };
    const done = fencedTransaction(pool, resource, 7, work);
    await fails(done, how, says);
    const values = (await reading(db, pool).history(resource)).map(([, value]) => value);
    assert.deepEqual(values, keeps, `${does}`);
    // The token is kept if the write before the end is.
    const older = fencedTransaction(pool, resource, 6, () => {});
    await (keeps[0] === 1 ? fails(older, "staleToken", /7 was seen/) : older);
  }
}

/** Catches a mark that gets in the way of legitimate statements. */
export async function savepointsAreFine({ db, pool }) {
  const steps = [
    ["SAVEPOINT own"],
    [INSERT, ["savepoints", 1]],
    ["ROLLBACK TO SAVEPOINT own"],
    ["RELEASE SAVEPOINT own"],
    ["SAVEPOINT own"],
    [INSERT, ["savepoints", 2]],
  ];
  await fencedTransaction(pool, "savepoints", 7, (tx) => {
    const done = steps.map((step) => db.query(tx, ...step));
    return db.name === "sqlite" ? undefined : Promise.all(done);
  });
  assert.deepEqual(await reading(db, pool).history("savepoints"), [[1, 2]]);
}
