import { config } from "../../common/check.js";
import { LeaseholdError } from "../../common/errors.js";
import { messageOf } from "../../common/printable.js";
import { StaleTokenError } from "../stale.js";
import type { Dialect, Isolation } from "./dialect.js";
import type { AsyncDriver, Driver, Session, SyncDriver } from "./drivers.js";
import { failureOf, notCommitted, wrongShape } from "./failure.js";
import { Retry } from "./retry.js";
import { drive, driveSync, type Statement, type Steps } from "./steps.js";

/** A token to check for a resource. Both are known to be valid. */
export interface Claim {
  readonly resource: string;
  readonly token: number;
}

/** Locks the resource's row, refuses a stale token, and returns the server's name of the transaction. */
function* takeFence(dialect: Dialect, { resource, token }: Claim): Steps<string> {
  const { highest: found, transaction } = yield* dialect.take(resource, token);
  const highest = Number(found ?? Number.NaN);
  if (highest === token) {
    return transaction;
  }
  if (Number.isSafeInteger(highest) && highest > token) {
    throw new StaleTokenError(resource, token, highest);
  }
  // The column has cut or rounded the token, or somebody else has written something that is not a token.
  throw wrongShape(`the token ${token} was written and ${String(found)} read`);
}

/** Takes the fence, and marks the transaction so that {@link mustBeMarked} can recognize it. */
export function* takeAndMark(dialect: Dialect, claim: Claim): Steps<string> {
  const name = yield* takeFence(dialect, claim);
  if (dialect.mark !== undefined) {
    yield { sql: dialect.mark };
  }
  return name;
}

/** Fails unless this is the transaction that {@link takeAndMark} ran in. */
export function* mustBeMarked(dialect: Dialect, name: string): Steps<void> {
  if (!(yield* dialect.isMarked(name))) {
    throw config(
      "the commit is refused: the transaction that checked the token had ended before, by a statement " +
        "that commits (COMMIT; on MySQL also DDL, TRUNCATE, LOCK TABLES, START TRANSACTION) or by a " +
        "rollback whose error was ignored (such as a deadlock); what was written before such a commit, " +
        "or after the end, took effect",
    );
  }
}

/** Takes the fence inside a transaction of the program's own. */
export function* takeFenceInside(dialect: Dialect, claim: Claim): Steps<void> {
  if (!(yield* dialect.mustBeOpen())) {
    throw config("a fence must be checked inside a transaction, and none is open: begin one first");
  }
  yield* takeFence(dialect, claim);
}

/** Takes the fence inside a transaction of the program's own, and records the tick. Returns false if it is not new. */
export function* completeInside(dialect: Dialect, claim: Claim, tick: number): Steps<boolean> {
  yield* takeFenceInside(dialect, claim);
  return yield* dialect.complete(claim.resource, tick);
}

/** Single connections on which this package has a transaction open. */
const busy = new WeakSet<object>();

/** The parts of a transaction. */
export interface Work<S, T> {
  /** Runs first. Only these steps are retried after a race. */
  readonly first: () => Steps<S>;
  readonly work: (connection: object, done: S) => T;
  /** Runs before the commit, and prevents it by failing. */
  readonly last?: (done: S) => Steps<void>;
}

/**
 * Opens a transaction, does the work in it, and commits. With a synchronous driver each try is one turn of
 * the event loop.
 */
export async function inTransaction<S, T>(
  driver: Driver,
  isolation: Isolation | undefined,
  work: Work<S, Promise<T> | T>,
): Promise<T> {
  const retry = new Retry();
  for (;;) {
    let end: () => Promise<T> | T;
    try {
      end = driver.sync ? tryNow(driver, isolation, work) : await tryLater(driver, isolation, work);
    } catch (error) {
      const { race, error: failure } = failureOf(driver.dialect, error);
      // No transaction is open during the wait.
      if (race && (await retry.wait())) {
        continue;
      }
      throw failure;
    }
    return end();
  }
}

/** Statements, and functions of the program between them. */
type Tasks<R> = Generator<Statement | (() => unknown), R, any>;

function tryNow<S, T>(driver: SyncDriver, isolation: Isolation | undefined, work: Work<S, T>): () => T {
  return driveSync(tasks(driver, driver, isolation, work), (task) =>
    typeof task === "function" ? noPromise(task()) : driver.query(task),
  );
}

async function tryLater<S, T>(
  driver: AsyncDriver,
  isolation: Isolation | undefined,
  work: Work<S, Promise<T> | T>,
): Promise<() => T> {
  const session = await opened(driver);
  return drive(tasks(driver, session, isolation, work), async (task) =>
    typeof task === "function" ? task() : session.query(task),
  );
}

/**
 * Does one try. It throws if the work has not begun; otherwise it returns a function that gives the work's
 * result or throws its error.
 */
function* tasks<S, T>(
  driver: Driver,
  session: Pick<Session, "connection" | "release">,
  isolation: Isolation | undefined,
  { first, work, last }: Work<S, Promise<T> | T>,
): Tasks<() => T> {
  const { dialect, sync } = driver;
  let done: S;
  // Until BEGIN has succeeded, an open transaction on a SQLite database is the program's own.
  let ours = !sync;
  try {
    for (const sql of dialect.begin(isolation)) {
      yield { sql };
    }
    ours = true;
    done = yield* first();
  } catch (error) {
    // Roll back now, so that nothing is held until the connection is used again.
    leave(session, ours && !(yield* rolledBack()));
    throw !ours && /within a transaction/.test(messageOf(error)) ? openAlready() : error;
  }
  let result: T;
  try {
    result = yield () => work(session.connection, done);
  } catch (error) {
    leave(session, !(yield* rolledBack()));
    return () => {
      throw error;
    };
  }
  try {
    if (last !== undefined) {
      yield* last(done);
    }
    yield { sql: "COMMIT" };
  } catch (error) {
    // If something ended the transaction, the connection may be in any state, such as after LOCK TABLES.
    const ended = error instanceof LeaseholdError;
    const answers = sync || ended || dialect.classify(error) !== undefined;
    leave(session, !(answers && (yield* rolledBack())) || ended);
    return () => {
      throw notCommitted(dialect, error);
    };
  }
  leave(session, false);
  return () => result;
}

/**
 * Opens a connection. On a connection without a pool, makes sure that no transaction is open, because MySQL
 * would commit it.
 */
async function opened(driver: AsyncDriver): Promise<Session> {
  const session = await driver.open();
  if (driver.pool) {
    return session;
  }
  if (busy.has(session.connection)) {
    session.release(false);
    throw openAlready();
  }
  busy.add(session.connection);
  try {
    if (await driver.isOpen(session)) {
      throw openAlready();
    }
  } catch (error) {
    leave(session, false);
    throw error;
  }
  return session;
}

function openAlready(): LeaseholdError {
  return config("a transaction is open on this connection already: call check() in it, or give a pool");
}

function leave(session: Pick<Session, "connection" | "release">, broken: boolean): void {
  busy.delete(session.connection);
  session.release(broken);
}

/**
 * Rolls back. If that fails, the connection is broken or SQLite has rolled back by itself: the transaction is
 * over in any case.
 */
function* rolledBack(): Steps<boolean> {
  try {
    yield { sql: "ROLLBACK" };
    return true;
  } catch {
    return false;
  }
}

function noPromise(result: unknown): unknown {
  if (typeof (result as PromiseLike<unknown> | null | undefined)?.then === "function") {
    (result as PromiseLike<unknown>).then(undefined, () => {});
    throw config(
      "the work on a SQLite database must not be async: what it does after its first await would be " +
        "outside of the transaction",
    );
  }
  return result;
}
