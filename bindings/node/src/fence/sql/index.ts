import { config, readOptions, shown } from "../../common/check.js";
import type { LeaseholdError } from "../../common/errors.js";
import { checkResource } from "../resource.js";
import { quoted, StaleTokenError } from "../stale.js";
import { type Token, tokenOf } from "../token.js";
import type {
  AsyncDatabase,
  MysqlConnection,
  PgClient,
  SqliteDatabase,
  TransactionOf,
} from "./clients.js";
import type { Isolation } from "./dialect.js";
import { type AsyncDriver, driverOf } from "./drivers.js";
import { failureOf } from "./failure.js";
import { drive, driveSync } from "./steps.js";
import { makeTable } from "./table.js";
import { type Claim, inTransaction, mustBeMarked, takeAndMark, takeFenceInside } from "./transaction.js";

export type * from "./clients.js";
export type { Isolation } from "./dialect.js";

/** Options of {@link fencedTransaction}. */
export interface FencedTransactionOptions {
  /**
   * The isolation level; the database's default if it is not given. Every transaction of SQLite is
   * serializable.
   */
  readonly isolation?: Isolation;
}

/**
 * Creates the fence table; if there is one it changes nothing. Programs may call it each time they start, and
 * several at once. Only creating the table needs the right to do so. The table is the same that Rust uses.
 *
 * A table that exists must be as this function creates it, in each column, constraint and index, and without
 * triggers, rules, row security, parents or children. On Postgres its owner must be this user or a role of
 * theirs, the owner of the schema or the database, or a superuser. Any other table is refused, because it may
 * forget a token, take two resources for one, or run its maker's code with this user's rights. This is a check
 * and no protection: whoever may change the table can do so later, {@link fencedTransaction} does not check
 * again, and MySQL shows triggers only to users with the right `TRIGGER`. So let nobody make tables there whom
 * you would not trust with the data.
 *
 * Rejects with a {@link LeaseholdError} of code `config` if a table or view of the name `leasehold_fence` is
 * refused; it is left as it is, and the error says what it is and how to make the right one. Also `auth`,
 * `unavailable`, `readOnly` and `store` as the database says.
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
 * table. The SQL that the work runs on the connection that it gets is guarded: it takes effect together
 * with the check or not at all, and holders of the same resource go one after the other. The transaction
 * is committed when the work has returned, and rolled back if the work throws. The work must wait for all
 * that it has begun: what uses the connection later is in no transaction.
 *
 * ```ts
 * await fencedTransaction(pool, "account/7", lease, async (tx) => {
 *   await tx.query("UPDATE account SET balance = balance - 10 WHERE id = 7");
 * });
 * ```
 *
 * The database is a `Pool` or `Client` of pg, a `Pool` or `Connection` of mysql2/promise, or a
 * database of better-sqlite3 or node:sqlite. The work on SQLite must not be async: the transaction is
 * one turn of the event loop, so that nothing else in the process gets into it. On a single `Client`
 * or `Connection` do nothing else meanwhile.
 *
 * It waits for another transaction that holds the row as long as the database lets it: set
 * `lock_timeout` and `idle_in_transaction_session_timeout` (Postgres), `innodb_lock_wait_timeout` and
 * `idle_transaction_timeout` (MariaDB), or the time-out of SQLite, during which the whole process stands
 * still. After a deadlock or a serialization failure before the work has begun it tries again; no try
 * begins later than 10 s after the first.
 *
 * Rejects with what the work throws, and with
 *
 * - {@link StaleTokenError} if a greater token was seen; the work was not run
 * - {@link LeaseholdError} of code `config` if an argument is not valid, the resource is empty, longer
 *   than 512 bytes or has a NUL character, a transaction is open on the connection already, or the
 *   fence table is missing or of another shape: call {@link createFenceTable}; and if the transaction
 *   was ended inside of the work
 * - `unavailable` if the database could not be reached, if others were in the way for too long, or if the
 *   commit failed; the message says whether it is certain that nothing was written
 * - `auth`, `readOnly`, `shutdown` (the pool is closed) and `store` as the database says; the `cause`
 *   is the driver's own error
 *
 * From `repeatable read` on, a statement of the work or the commit may fail with a serialization
 * failure, as in any transaction; then run all of it again.
 *
 * Some statements *end* the transaction: `COMMIT` and `ROLLBACK`; on MySQL and MariaDB also
 * [those that commit](https://dev.mysql.com/doc/refman/8.4/en/implicit-commit.html), which are DDL,
 * `TRUNCATE`, `LOCK TABLES`, `START TRANSACTION` and others, and a deadlock, which rolls back; on
 * SQLite an error that rolls back, such as that of a full disk. What follows is in no transaction, and is
 * written at once, whoever holds the resource by then. So run no such statements here, and do not catch
 * an error of a statement. When the work has returned such an end is noticed, and the call rejects with
 * code `config`. *That is too late for what has been written*: under the fence, what was done before a
 * statement that committed; without it, what was done after the end.
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
    throw config(`the work of a transaction is a function, not ${typeof work}`);
  }
  const { dialect } = driver;
  const steps = {
    first: () => takeAndMark(dialect, claim),
    work: (tx: object) => work(tx as never),
    last: (name: string) => mustBeMarked(dialect, name),
  };
  if (driver.sync && Object.prototype.toString.call(work) === "[object AsyncFunction]") {
    throw config("the work on a SQLite database must not be async");
  }
  return inTransaction(driver, isolation, steps);
}

/** What a synchronous function returns. */
export type NotAsync<T> = T extends PromiseLike<unknown> ? never : unknown;

/**
 * Checks the token inside a transaction that the program has opened itself on this connection, and
 * holds the resource's fence row until the transaction ends. On SQLite it is synchronous.
 *
 * What the transaction does before and after is guarded *only if it is rolled back when this call fails*.
 * Check before the first read: at `repeatable read` a snapshot that is older than the check may lack what
 * an earlier holder wrote. On SQLite open the transaction with `BEGIN IMMEDIATE` (in better-sqlite3
 * `db.transaction(…).immediate()`).
 *
 * Statements that end a transaction, which {@link fencedTransaction} lists, end this one too, and nothing
 * here notices, because the program commits by itself. To notice, use `SAVEPOINT s` after the check and
 * `RELEASE SAVEPOINT s` before the `COMMIT`: after such an end the latter fails.
 *
 * Errors are as of {@link fencedTransaction}, but nothing is tried again: after `unavailable` the whole
 * transaction may be. Also `config` if no transaction is open, or if it is given a pool.
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
  driver: AsyncDriver,
  resource: string,
  token: Token,
): Promise<void> {
  const claim = claimOf(resource, token);
  if (driver.pool) {
    throw config("a fence is checked on the connection of a transaction, not on a pool");
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
 * done: true if it wrote, false if nothing matched for another reason than the token, such as a missing
 * row. Throws {@link StaleTokenError} if a greater token was seen, and a {@link LeaseholdError} of code
 * `config` if an argument is not valid.
 *
 * `highest` is the fence in the row; leave it out if there is no row, or if you did not read it because
 * `rowsAffected` is not 0. Read it *after* the write and in the same transaction, on MySQL with
 * `FOR UPDATE`. On MySQL `affectedRows` counts the rows that matched as long as the connection has the
 * flag `FOUND_ROWS`, which mysql2 sets by default.
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
    throw config(`the rows affected are a number, not ${shown(rowsAffected)}`);
  }
  const seen = numberOf(highest ?? 0);
  if (affected > 0) {
    return true;
  }
  if (Number.isNaN(seen)) {
    throw config(`the fence of a row is a number, not ${shown(highest)}`);
  }
  if (seen > claim.token) {
    throw new StaleTokenError(claim.resource, claim.token, tokenOf(seen));
  }
  return false;
}

function claimOf(resource: string, token: Token): Claim {
  checkResource(resource);
  if (resource.includes("\0")) {
    throw config(`a resource's name in a database must not contain a NUL character; got ${quoted(resource)}`);
  }
  return { resource, token: tokenOf(token) };
}

/** `NaN` for what JavaScript cannot convert. */
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
    throw config(`isolation is one of ${ISOLATIONS.join(", ")}, not ${shown(isolation)}`);
  }
  return isolation;
}
