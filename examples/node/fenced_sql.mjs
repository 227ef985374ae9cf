// Writes to a database behind a guard, which refuses a holder that was replaced and does not know it yet. Node has SQLite
// since 22.13; the guard also takes better-sqlite3, pg and mysql2.
//
//   node fenced_sql.mjs      with LEASEHOLD_URL=redis://… on a server
import { DatabaseSync } from "node:sqlite";
import { Locker } from "leasehold";
import { createFenceTable, fencedTransaction } from "leasehold/fence";

const database = new DatabaseSync(":memory:");
database.exec("CREATE TABLE account (id, balance); INSERT INTO account VALUES (7, 100)");
await createFenceTable(database); // Where the guard keeps tokens. Once, such as in a migration.

const locker = await Locker.connect(process.env.LEASEHOLD_URL ?? "memory://fenced_sql");
const lock = locker.lock("account/7");
// Suppose that this holder is paused for too long: others get the lock meanwhile.
const stale = await lock.acquire();
await stale.release();
const lease = await lock.acquire();
console.log(`balance: ${await withdraw(lease)}`);
await withdraw(stale).catch(({ code, message }) => console.log(`late: ${code}: ${message}`));
await lease.release();
await locker.shutdown();

/** Reads and writes in one transaction, which checks the account's token at its start. */
function withdraw(token) {
  const change = "UPDATE account SET balance = balance - 30 WHERE id = 7 RETURNING balance";
  return fencedTransaction(database, "account/7", token, (tx) => tx.prepare(change).get().balance);
}
