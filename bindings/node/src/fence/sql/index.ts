import { readOptions, shown } from "../../common/check.js";
import { LeaseholdError } from "../../common/errors.js";
import { checkResource } from "../resource.js";
import { StaleTokenError } from "../stale.js";
import { type Token, tokenOf } from "../token.js";
import type {
  AsyncDatabase,
  MysqlConnection,
  PgClient,
  SqliteDatabase,
  TransactionOf,
} from "./clients.js";
import type { Isolation } from "./dialect.js";
import { driverOf } from "./drivers.js";
import { failureOf } from "./failure.js";
import { drive, driveSync } from "./steps.js";
import { makeTable } from "./table.js";
import {
  type Claim,
  inSyncTransaction,
  inTransaction,
  mustBeMarked,
  takeAndMark,
  takeFenceInside,
} from "./transaction.js";

export type {
  AsyncDatabase,
  MysqlConnection,
  MysqlPool,
  PgClient,
  PgPool,
  SqliteDatabase,
  TransactionOf,
} from "./clients.js";
export type { Isolation } from "./dialect.js";

/** Options of {@link fencedTransaction}. */
export interface FencedTransactionOptions {
  /**
   * How far it is isolated from others; the database's default if it is not given. Every transaction
   * of SQLite is serializable.
   */
  readonly isolation?: Isolation;
}

/**
 * Makes the fence table, or brings one of an older shape to the present one; if there is nothing to
 * do it changes nothing. Several programs may call it at once, at each start of theirs. Only making
 * or migrating needs the right to do so. The table is the same that Rust uses.
 *
 * A table that is there is looked at, since another one than this program may have made it: nothing
 * is done with one that has triggers, rules, row security, parents or children, defaults, generated
 * columns, or other constraints than its key; nor, on Postgres, with one that belongs to somebody who is
 * neither this user or a role of theirs, nor the owner of the schema or the database, nor a superuser.
 * This is a look and no lock: whoever may change the table can do so later, and on MySQL triggers are
 * seen only by those who have the right `TRIGGER`. So let nobody make tables there whom you would not
 * trust with the data, and {@link fencedTransaction} does not look again.
 *
 * Rejects with a {@link LeaseholdError} of code `config` if there is a table or view of the name
 * `leasehold_fence` that is not a fence table, or is one of those, which is left as it is; `auth`, `unavailable`,
 * `readOnly` and `store` as the database says.
 *
 * ```ts
 * const pool = new pg.Pool();
 * await createFenceTable(pool);
 * ```
 */
export async function createFenceTable(database: AsyncDatabase | SqliteDatabase): Promise<void> {
  await makeTable(driverOf(database));
}

/**
 * Runs work in a transaction that has checked the token and holds the resource's row of the fence
 * table. The SQL that is run in it, with the connection that the work is given, is guarded: it takes
 * effect with the check or not at all, and holders of the same resource go one after the other. It is
 * committed when the work has returned, and rolled back if the work throws. It must wait for all that
 * it has begun: what uses the connection later is in no transaction.
 *
 * ```ts
 * await fencedTransaction(pool, "account/7", lease, async (tx) => {
 *   await tx.query("UPDATE account SET balance = balance - 10 WHERE id = 7");
 * });
 * ```
 *
 * The database is a `Pool` or `Client` of pg, a `Pool` or `Connection` of mysql2/promise, or a
 * database of better-sqlite3 or node:sqlite. The work on SQLite must not be async: the transaction is
 * one turn of the event loop, so that nothing else of the process gets into it. On a single `Client`
 * or `Connection` do nothing else meanwhile.
 *
 * It waits for another transaction that holds the row as long as the database lets it: set
 * `lock_timeout` and `idle_in_transaction_session_timeout` (Postgres), `innodb_lock_wait_timeout` and
 * `idle_transaction_timeout` (MariaDB), or the time-out of SQLite, which stops the whole process
 * meanwhile. A deadlock or a serialization failure before the work has begun is tried again; no try
 * begins later than 10 s after the first.
 *
 * Rejects with what the work throws, and with
 *
 * - {@link StaleTokenError} if a greater token was seen; the work was not run
 * - {@link LeaseholdError} of code `config` if an argument is not valid, the resource is empty, longer
 *   than 512 bytes or has a NUL character, a transaction is open on the connection already, or the
 *   fence table is missing or of another shape: call {@link createFenceTable}; and if the transaction
 *   was ended inside of the work
 * - `unavailable` if the database was not to be had, if others were in the way for too long, or if the
 *   commit failed; the message says whether it is known that nothing was written
 * - `auth`, `readOnly`, `shutdown` (the pool is closed) and `store` as the database says; the `cause`
 *   is the driver's own error
 *
 * From `repeatable read` on, a statement of the work or the commit may fail with a serialization
 * failure, as in any transaction; then run all of it again.
 *
 * Some statements *end* the transaction: `COMMIT` and `ROLLBACK`; on MySQL and MariaDB also
 * [those that commit](https://dev.mysql.com/doc/refman/8.4/en/implicit-commit.html), which are DDL,
 * `TRUNCATE`, `LOCK TABLES`, `START TRANSACTION` and others, and a deadlock, which rolls back; on
 * SQLite an error that rolls back, such as of a full disk. What follows is in no transaction, and is
 * written at once, whoever holds the resource by then. So run no such statements here, and let an error
 * of a statement leave the work. When the work has returned such an end is found out, and the call
 * rejects with code `config`. *That comes too late for what is written by then*: what was done before a
 * statement that committed, under the fence, and what was done after the end, without it.
 */
export function fencedTransaction<D extends SqliteDatabase, T>(
  database: D,
  resource: string,
  token: Token,
  work: (tx: D) => T & NotAsync<T>,
  options?: FencedTransactionOptions,
): Promise<T>;
export function fencedTransaction<D extends AsyncDatabase, T>(
  database: D,
  resource: string,
  token: Token,
  work: (tx: TransactionOf<D>) => Promise<T> | T,
  options?: FencedTransactionOptions,
): Promise<T>;
export async function fencedTransaction<T>(
  database: AsyncDatabase | SqliteDatabase,
  resource: string,
  token: Token,
  work: (tx: never) => Promise<T> | T,
  options: FencedTransactionOptions = {},
): Promise<T> {
  const driver = driverOf(database);
  const claim = claimOf(resource, token);
  const isolation = isolationOf(options);
  if (typeof work !== "function") {
    throw new LeaseholdError("config", `the work of a transaction is a function, not ${typeof work}`);
  }
  const { dialect } = driver;
  const steps = {
    first: () => takeAndMark(dialect, claim),
    work: (tx: object) => work(tx as never),
    last: (name: string) => mustBeMarked(dialect, name),
  };
  if (!driver.sync) {
    return inTransaction(driver, isolation, steps);
  }
  if (Object.prototype.toString.call(work) === "[object AsyncFunction]") {
    throw new LeaseholdError("config", "the work on a SQLite database must not be async");
  }
  return inSyncTransaction(driver, steps) as Promise<T>;
}

/** What a synchronous function returns. */
export type NotAsync<T> = T extends PromiseLike<unknown> ? never : unknown;

/**
 * Checks the token inside a transaction that the program has opened itself on this connection, and
 * holds the resource's fence row until its end. On SQLite it answers at once.
 *
 * What the transaction does before and after is guarded, *if an error of this call ends it*: on a
 * refusal roll it back. Check before the first read: at `repeatable read` a snapshot that is older
 * than the check may lack what an earlier holder wrote. On SQLite open the transaction with
 * `BEGIN IMMEDIATE` (in better-sqlite3 `db.transaction(…).immediate()`).
 *
 * Statements that end a transaction, as {@link fencedTransaction} has them, end this one too, and nobody
 * finds out: the program commits by itself. `SAVEPOINT s` after the check and `RELEASE SAVEPOINT s`
 * before the `COMMIT` tell it: the latter fails.
 *
 * Errors as of {@link fencedTransaction}, but nothing is tried again: `unavailable` means that the
 * whole transaction may be. Also `config` if no transaction is open, or if it is given a pool.
 *
 * ```ts
 * await client.query("BEGIN");
 * await check(client, "account/7", lease);
 * await check(client, "account/8", other);
 * ```
 */
export function check(connection: SqliteDatabase, resource: string, token: Token): void;
export function check(
  connection: PgClient | MysqlConnection,
  resource: string,
  token: Token,
): Promise<void>;
export function check(
  connection: SqliteDatabase | PgClient | MysqlConnection,
  resource: string,
  token: Token,
): void | Promise<void> {
  const driver = driverOf(connection);
  if (!driver.sync) {
    return checkLater(driver, resource, token);
  }
  try {
    driveSync(takeFenceInside(driver.dialect, claimOf(resource, token)), driver.query);
  } catch (error) {
    throw failureOf(driver.dialect, error).error;
  }
}

async function checkLater(
  driver: Exclude<ReturnType<typeof driverOf>, { sync: true }>,
  resource: string,
  token: Token,
): Promise<void> {
  const claim = claimOf(resource, token);
  if (driver.pool) {
    throw new LeaseholdError("config", "a fence is checked on the connection of a transaction, not on a pool");
  }
  const session = await driver.open();
  try {
    await drive(takeFenceInside(driver.dialect, claim), session.query);
  } catch (error) {
    throw failureOf(driver.dialect, error).error;
  } finally {
    session.release(false);
  }
}

/**
 * What a guarded `UPDATE … SET …, fence = token WHERE … AND fence <= token` of a row of your own has
 * done: true if it wrote, false if nothing matched for another reason than the token, such as that
 * there is no row. Throws {@link StaleTokenError} if a greater token was seen, and a
 * {@link LeaseholdError} of code `config` if an argument is not valid.
 *
 * `highest` is what the row holds, and nothing if there is no row or if it was not looked at because
 * `rowsAffected` is not 0. Read it *after* the write and in the same transaction, on MySQL with
 * `FOR UPDATE`. On MySQL `affectedRows` counts what matched as long as the connection has the flag
 * `FOUND_ROWS`, which mysql2 sets by default.
 *
 * Make the row beforehand, with the fence 0, in a transaction of its own; a row that is deleted
 * forgets its token.
 *
 * ```ts
 * const written = await tx.query(
 *   "UPDATE account SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2", [100, lease.token, 7]);
 * const read = await tx.query("SELECT fence FROM account WHERE id = $1", [7]);
 * const exists = accepted(written.rowCount, "account/7", lease, read.rows[0]?.fence);
 * ```
 */
export function accepted(
  rowsAffected: number | bigint | null,
  resource: string,
  token: Token,
  highest?: number | bigint | string | null,
): boolean {
  const claim = claimOf(resource, token);
  const affected = numberOf(rowsAffected ?? Number.NaN);
  if (!(affected >= 0)) {
    const message = `the rows affected are a number, not ${shown(rowsAffected)}`;
    throw new LeaseholdError("config", message);
  }
  const seen = numberOf(highest ?? 0);
  if (affected > 0) {
    return true;
  }
  if (Number.isNaN(seen)) {
    throw new LeaseholdError("config", `the fence of a row is a number, not ${shown(highest)}`);
  }
  if (seen > claim.token) {
    throw new StaleTokenError(claim.resource, claim.token, tokenOf(seen));
  }
  return false;
}

function claimOf(resource: string, token: Token): Claim {
  checkResource(resource);
  if (resource.includes("\0")) {
    throw new LeaseholdError("config", "a resource's name in a database has no NUL character");
  }
  return { resource, token: tokenOf(token) };
}

/** Not a number for what JavaScript makes none of. */
function numberOf(value: unknown): number {
  try {
    return Number(value);
  } catch {
    return Number.NaN;
  }
}

const ISOLATIONS: readonly unknown[] = ["read committed", "repeatable read", "serializable"];

function isolationOf(options: FencedTransactionOptions): Isolation | undefined {
  const { isolation } = readOptions("the options of a transaction", options, { isolation: "any" });
  if (isolation !== undefined && !ISOLATIONS.includes(isolation)) {
    const message = `isolation is one of ${ISOLATIONS.join(", ")}, not ${shown(isolation)}`;
    throw new LeaseholdError("config", message);
  }
  return isolation;
}
