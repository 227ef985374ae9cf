import { attempt, config, readOptions, shown } from "../../common/check.js";
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
import type { Dialect, Isolation } from "./dialect.js";
import { type AsyncDriver, driverOf } from "./drivers.js";
import { failureOf } from "./failure.js";
import { drive, driveSync, type Steps } from "./steps.js";
import { makeTable } from "./table.js";
import {
  type Claim,
  completeInside,
  inTransaction,
  mustBeMarked,
  takeAndMark,
  takeFenceInside,
} from "./transaction.js";

export type * from "./clients.js";
export type { Isolation } from "./dialect.js";

/** Options of {@link fencedTransaction}. */
export interface FencedTransactionOptions {
  /** The isolation level; by default the database's own. Every SQLite transaction is serializable. */
  readonly isolation?: Isolation;
}

/**
 * Creates the fence table, or changes nothing if it exists.
 *
 * Programs may call it at each start, and several at once. Only creating the table needs the right to do so.
 * Rust uses the same table.
 *
 * An existing table must match what this function creates, in each column, constraint and index. It must have
 * no triggers, rules, row security, parents or children. On Postgres its owner must be this user, one of this
 * user's roles, the owner of the schema or the database, or a superuser. Any other table is refused: it may
 * forget a token, take two resources for one, or run its creator's code with this user's rights.
 *
 * This check is no protection. Whoever may change the table can do so later, {@link fencedTransaction} does
 * not check again, and MySQL shows triggers only to users with the right `TRIGGER`. So let only users create
 * tables there whom you would trust with the data.
 *
 * Rejects with a {@link LeaseholdError}:
 *
 * - `config` if a table or view named `leasehold_fence` is refused. It is left unchanged, and the error says
 *   what it is and how to create the right one.
 * - `auth`, `unavailable`, `readOnly` or `store`, as the database reports
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
 * Runs work in a transaction that has checked the token and holds the resource's row of the fence table.
 *
 * All SQL that the work runs on its connection is guarded. It takes effect together with the check or not at
 * all, and holders of the same resource run one after another. The transaction is committed when the work has
 * returned, and rolled back if the work throws. The work must await everything that it starts: later
 * statements on the connection are outside of the transaction.
 *
 * ```ts
 * await fencedTransaction(pool, "account/7", lease, async (tx) => {
 *   await tx.query("UPDATE account SET balance = balance - 10 WHERE id = 7");
 * });
 * ```
 *
 * The database is a `Pool` or `Client` of pg, a `Pool` or `Connection` of mysql2/promise, or a database of
 * better-sqlite3 or node:sqlite. On SQLite the work must not be async: the transaction is one turn of the
 * event loop, so that nothing else in the process gets into it. Do not use a single `Client` or `Connection`
 * for anything else meanwhile.
 *
 * If another transaction holds the row, it waits as long as the database allows. Set `lock_timeout` and
 * `idle_in_transaction_session_timeout` (Postgres), `innodb_lock_wait_timeout` and `idle_transaction_timeout`
 * (MariaDB), or SQLite's timeout, which blocks the whole process. After a deadlock or a serialization failure
 * before the work has begun it retries; no try begins later than 10 s after the first.
 *
 * Rejects with what the work throws, and with
 *
 * - {@link StaleTokenError} if a greater token was seen; the work was not run
 * - {@link LeaseholdError} with the code `config` if an argument is not valid; if the resource is empty,
 *   longer than 512 bytes or has a NUL character; if a transaction is already open on the connection; if the
 *   fence table is missing or has another shape (call {@link createFenceTable}); or if the work ended the
 *   transaction
 * - `unavailable` if the database could not be reached, if other transactions were in the way for too long,
 *   or if the commit failed; the message says whether it is certain that nothing was written
 * - `auth`, `readOnly`, `shutdown` (the pool is closed) or `store`, as the database reports; the `cause` is
 *   the driver's own error
 *
 * At `repeatable read` and above, a statement of the work or the commit may fail with a serialization
 * failure, as in any transaction. Then run all of it again.
 *
 * Some statements *end* the transaction:
 *
 * - `COMMIT` and `ROLLBACK`
 * - on MySQL and MariaDB [those that commit](https://dev.mysql.com/doc/refman/8.4/en/implicit-commit.html):
 *   DDL, `TRUNCATE`, `LOCK TABLES`, `START TRANSACTION` and others
 * - on MySQL and MariaDB a deadlock, and on SQLite an error such as a full disk: both roll back
 *
 * Statements after that end are in no transaction. They are written at once, whoever holds the resource by
 * then. So run no such statements here, and do not catch a statement's error. The call notices the end when
 * the work has returned, and rejects with the code `config`. *That is too late for what was written*: what
 * came before a statement that committed was written under the fence, and what came after the end without it.
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
    throw config(`the work of a transaction must be a function; got ${shown(work)}`);
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

/** `never` for a promise: a type that only synchronous functions may return. */
export type NotAsync<T> = T extends PromiseLike<unknown> ? never : unknown;

/**
 * Checks the token inside a transaction that the program opened itself on this connection, and holds the
 * resource's fence row until the transaction ends. On SQLite it is synchronous.
 *
 * The transaction's other statements are guarded *only if the transaction is rolled back when this call
 * fails*. Check before the first read: at `repeatable read` a snapshot that is older than the check may lack
 * an earlier holder's writes. On SQLite open the transaction with `BEGIN IMMEDIATE` (in better-sqlite3
 * `db.transaction(…).immediate()`).
 *
 * The statements that end a transaction, which {@link fencedTransaction} lists, end this one, too. Nothing
 * here notices, because the program commits by itself. To notice, use `SAVEPOINT s` after the check and
 * `RELEASE SAVEPOINT s` before the `COMMIT`: after such an end the `RELEASE` fails.
 *
 * Errors are those of {@link fencedTransaction}, except that nothing is retried: after `unavailable`, the
 * whole transaction may be. The code is `config` also if no transaction is open, or for a pool.
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
  return inside("check", connection, (dialect) => takeFenceInside(dialect, claimOf(resource, token)));
}

/** A job's turn, for {@link doneIn}: a `Turn`, or what it told another process. */
export interface TickOfTurn {
  /** The name of the job, which is the resource of the guard. */
  readonly name: string;
  /** The tick. */
  readonly tick: number;
  /** The fencing token. */
  readonly token: number | string;
}

/**
 * Completes a job's tick in the transaction of its work. Returns true if the work is to be done in this
 * transaction, and false if an earlier transaction has completed this tick or a later one: then skip the work.
 * On SQLite it is synchronous.
 *
 * It checks the turn's token, as {@link check} does for the resource with the job's name. It then records the
 * tick in the resource's fence row, which it holds until the transaction ends. Call it before the work, in
 * {@link fencedTransaction} or in a transaction of your own. After the commit call `turn.done()`, or return from
 * the work of `job.run`, to tell the locks' store.
 *
 * The writes of the transaction take effect exactly once per tick. If the runner dies after the commit and before
 * `done`, the next runner of the tick gets false, and only has to call `done`. Effects outside of the transaction
 * are not covered.
 *
 * The database remembers the greatest tick forever, as it does the token. So each tick also takes effect once
 * after the locks' store lost its data. A job whose ticks start again from small numbers needs another name, or
 * its row deleted.
 *
 * Errors are those of {@link check}, after which the transaction must be rolled back, and the code `config` if the
 * tick is not valid. A {@link StaleTokenError} means that a later runner was here.
 *
 * ```ts
 * await job.run((turn) =>
 *   fencedTransaction(pool, turn.name, turn, async (tx) => {
 *     if (await doneIn(tx, turn)) {
 *       await tx.query("INSERT INTO report (tick) VALUES ($1)", [turn.tick]);
 *     }
 *   }),
 * );
 * ```
 */
export function doneIn(connection: SqliteDatabase, turn: TickOfTurn): boolean;
export function doneIn(connection: PgClient | MysqlConnection, turn: TickOfTurn): Promise<boolean>;
export function doneIn(
  connection: SqliteDatabase | PgClient | MysqlConnection,
  turn: TickOfTurn,
): boolean | Promise<boolean> {
  return inside("doneIn", connection, (dialect) => {
    const { claim, tick } = attempt("a job's turn cannot be read", () => ({
      claim: claimOf(turn.name, turn.token),
      tick: turn.tick,
    }));
    if (!Number.isSafeInteger(tick) || tick < 1) {
      throw config(`a tick must be a number from 1 to ${Number.MAX_SAFE_INTEGER}; got ${shown(tick)}`);
    }
    return completeInside(dialect, claim, tick);
  });
}

/** Runs steps in an open transaction: now on SQLite, and otherwise later. */
function inside<R>(caller: string, connection: unknown, steps: (dialect: Dialect) => Steps<R>): R | Promise<R> {
  const driver = driverOf(connection);
  if (!driver.sync) {
    return insideLater(caller, driver, steps);
  }
  try {
    return driveSync(steps(driver.dialect), driver.query);
  } catch (error) {
    throw failureOf(driver.dialect, error).error;
  }
}

async function insideLater<R>(
  caller: string,
  driver: AsyncDriver,
  steps: (dialect: Dialect) => Steps<R>,
): Promise<R> {
  const ours = steps(driver.dialect);
  if (driver.pool) {
    throw config(`${caller}() needs the connection of an open transaction; got a pool`);
  }
  const session = await driver.open();
  try {
    return await drive(ours, session.query);
  } catch (error) {
    throw failureOf(driver.dialect, error).error;
  } finally {
    session.release(false);
  }
}

/**
 * Returns the outcome of a guarded `UPDATE … SET …, fence = token WHERE … AND fence <= token` of your own
 * row: true if it wrote, false if nothing matched for another reason than the token, such as a missing row.
 *
 * Throws a {@link StaleTokenError} if a greater token was seen, and a {@link LeaseholdError} with the code
 * `config` if an argument is not valid.
 *
 * `highest` is the fence in the row. Omit it if there is no row, or if you did not read it because
 * `rowsAffected` is not 0. Read it *after* the write and in the same transaction, on MySQL with `FOR UPDATE`.
 * On MySQL `affectedRows` counts the rows that matched if the connection has the flag `FOUND_ROWS`, which
 * mysql2 sets by default.
 *
 * Create the row beforehand, with the fence 0, in a transaction of its own. A deleted row forgets its token.
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
  const affected = typeof rowsAffected === "bigint" ? Number(rowsAffected) : rowsAffected;
  if (!Number.isSafeInteger(affected) || (affected as number) < 0) {
    throw config(`the number of affected rows must be a number; got ${shown(rowsAffected)}`);
  }
  const seen = numberOf(highest ?? 0);
  if (affected !== 0) {
    return true;
  }
  if (Number.isNaN(seen)) {
    throw config(`a row's fence must be a number; got ${shown(highest)}`);
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

/** Converts a value to a number; `NaN` if JavaScript cannot. */
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
    throw config(`isolation must be one of ${ISOLATIONS.join(", ")}; got ${shown(isolation)}`);
  }
  return isolation;
}
