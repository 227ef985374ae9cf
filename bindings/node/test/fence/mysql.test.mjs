// The guard for MySQL and MariaDB, with mysql2.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import callbacks from "mysql2";
import mysql from "mysql2/promise";
import { startMariaDb } from "../support/mariadb.mjs";
import { test } from "../support/test.mjs";
import { pause } from "../support/wait.mjs";
import { fence } from "./bundle.mjs";
import { checkAll } from "./checks.mjs";
import { fails, refused } from "./conformance.mjs";
import { byHand, endsAreRefused, savepointsAreFine } from "./ended.mjs";
import { mixed } from "./mixed.mjs";
import { checkShapes } from "./shapes.mjs";
import { mysql as db } from "./sql.mjs";

const { check, createFenceTable, fencedTransaction } = fence;

let server;
let pool;
let other;
const ends = [];

function poolOf(options) {
  const made = mysql.createPool({ connectionLimit: 20, ...server.options, ...options });
  ends.push(() => made.end().catch(() => {}));
  return made;
}

async function single(options) {
  const connection = await mysql.createConnection({ ...server.options, ...options });
  ends.push(() => connection.end().catch(() => {}));
  return connection;
}

before(async () => {
  server = await startMariaDb();
  pool = poolOf();
  other = poolOf();
});
after(async () => {
  // Not awaited, because they also end when the server is gone.
  ends.forEach((end) => void end());
  await server?.stop();
});

checkAll(() => ({
  db,
  pool,
  other,
  single,
  open: async ({ pool: core }) => core._allConnections.length - core._freeConnections.length,
  options: server.options,
}));

test("Rust and Node fence one another", (t) => mixed(t, { db, pool, url: server.url }));

// Catches an isolation level that is set for another transaction.
test("the level is the one asked for", async () => {
  const sql =
    "SELECT trx_isolation_level = 'SERIALIZABLE' FROM information_schema.innodb_trx " +
    "WHERE trx_mysql_thread_id = CONNECTION_ID()";
  const read = (tx) => db.query(tx, sql);
  const options = { isolation: "serializable" };
  assert.deepEqual(await fencedTransaction(pool, "level", 1, read, options), [[1]]);
  // The server shows the same state to requests within 0.1 s.
  await pause(200);
  assert.deepEqual(await fencedTransaction(pool, "level", 1, read), [[0]]);
});

// Catches a commit that succeeds although something was written without the fence.
test("a transaction that was ended is not committed", async () => {
  await pool.query("CREATE TABLE other_table (id INT PRIMARY KEY, n INT NOT NULL)");
  await pool.query("INSERT INTO other_table VALUES (1, 0), (2, 0)");
  const commits = [
    ["CREATE TABLE made_inside (id INT)"],
    ["DROP TABLE made_inside"],
    ["ALTER TABLE other_table ADD COLUMN more INT"],
    ["CREATE INDEX made_inside ON other_table (n)"],
    ["START TRANSACTION", "COMMIT"],
    ["LOCK TABLES history WRITE"],
    ["SET autocommit = 0", "SET autocommit = 1"],
    ["TRUNCATE TABLE other_table"],
  ];
  await endsAreRefused({ db, pool }, [
    ...byHand("START TRANSACTION"),
    { does: (tx) => deadlock(tx), keeps: [2] },
    ...commits.map((does) => ({ does, keeps: [1, 2] })),
    { does: ["START TRANSACTION"], keeps: [1] },
    { does: ["CREATE TABLE made_again (id INT)", "START TRANSACTION"], keeps: [1] },
  ]);
  await savepointsAreFine({ db, pool });
});

/** Causes a real deadlock, whose victim is this connection; the error is ignored. */
async function deadlock(tx) {
  const heavier = await other.getConnection();
  try {
    await heavier.query("START TRANSACTION");
    const rows = Array.from({ length: 200 }, (_, id) => [id + 100, 0]);
    await heavier.query("INSERT INTO other_table (id, n) VALUES ?", [rows]);
    await heavier.query("UPDATE other_table SET n = 1 WHERE id = 2");
    await tx.query("UPDATE other_table SET n = 1 WHERE id = 1");
    const first = heavier.query("UPDATE other_table SET n = 1 WHERE id = 1");
    // The last request closes the cycle. The lighter transaction is the victim.
    const error = await tx.query("UPDATE other_table SET n = 1 WHERE id = 2").catch((error) => error);
    assert.equal(error.errno, 1213, `${error}`);
    await first;
  } finally {
    await heavier.query("ROLLBACK");
    heavier.release();
  }
}

test("other tables are refused", () => checkShapes("mysql", pool, (sql) => pool.query(sql)));

test("a connection that is lost inside of the work is an error and no more", async () => {
  const work = async (tx) => {
    await other.query(`KILL ${tx.threadId}`);
    await tx.query("SELECT 1");
  };
  await assert.rejects(fencedTransaction(pool, "lost", 9, work), /lost|closed|ended|ECONNRESET/i);
  const idle = async (tx) => other.query(`KILL ${tx.threadId}`);
  await fails(fencedTransaction(pool, "lost", 8, idle), "unavailable", /unknown/);
  await fencedTransaction(pool, "lost", 7, () => {});
});

test("limits of the database end a wait", async () => {
  const impatient = poolOf({ connectionLimit: 1 });
  await impatient.query("SET innodb_lock_wait_timeout = 0");
  await fencedTransaction(pool, "limits", 33, async () => {
    // It is retried for 10 s, as a deadlock is.
    await fails(fencedTransaction(impatient, "limits", 34, () => {}), "unavailable", /another transaction conflicted/);
  });
});

// Catches options of the program that change the form of rows.
test("options of the program's own do not matter", async () => {
  const own = poolOf({
    namedPlaceholders: true,
    supportBigNumbers: true,
    bigNumberStrings: true,
    nestTables: true,
    typeCast: () => "nonsense",
  });
  await createFenceTable(own);
  await fencedTransaction(own, "options", Number.MAX_SAFE_INTEGER, () => {});
  await refused(fencedTransaction(own, "options", 5, () => {}), { highest: Number.MAX_SAFE_INTEGER });
  const manual = await single();
  await manual.query("SET autocommit = 0");
  await check(manual, "options/manual", 5);
  await manual.query("ROLLBACK");
  await fencedTransaction(manual, "options/manual", 4, () => {});
});

test("rights, passwords and databases that are gone", async () => {
  const connection = await single();
  await connection.query("START TRANSACTION READ ONLY");
  await fails(check(connection, "a", 1), "readOnly");
  await connection.query("ROLLBACK");
  const wrong = poolOf({ password: "a-wrong-secret" });
  for (const call of [() => fencedTransaction(wrong, "a", 1, () => {}), () => createFenceTable(wrong)]) {
    const error = await call().catch((error) => error);
    assert.equal(error.code, "auth");
    assert.doesNotMatch(`${error.stack} ${JSON.stringify(error)} ${error.cause?.stack}`, /secret/);
  }
  const old = callbacks.createPool(server.options);
  await fails(fencedTransaction(old, "a", 1, () => {}), "config", /promise/);
  await fencedTransaction(old.promise(), "callbacks", 1, () => {});
  old.end();
  await other.end();
  await fails(fencedTransaction(other, "a", 1, () => {}), "shutdown");
  const gone = poolOf({ socketPath: "/nowhere" });
  await fails(fencedTransaction(gone, "a", 1, () => {}), "unavailable");
});
