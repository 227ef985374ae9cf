import { LeaseholdError } from "../../common/errors.js";
import { messageOf } from "../../common/printable.js";
import { StaleTokenError } from "../stale.js";
import type { Dialect, Isolation } from "./dialect.js";
import type { AsyncDriver, Session, SyncDriver } from "./drivers.js";
import { failureOf, notCommitted, wrongShape } from "./failure.js";
import { Retry } from "./retry.js";
import { drive, driveSync, type Steps } from "./steps.js";

/** A token to be checked for a resource; both were found to be valid. */
export interface Claim {
  readonly resource: string;
  readonly token: number;
}

/** Takes the resource's row, refuses a stale token, and returns the server's name of the transaction. */
function* takeFence(dialect: Dialect, { resource, token }: Claim): Steps<string> {
  const { highest: found, transaction } = yield* dialect.take(resource, token);
  const highest = Number(found ?? Number.NaN);
  if (highest === token) {
    return transaction;
  }
  if (Number.isSafeInteger(highest) && highest > token) {
    throw new StaleTokenError(resource, token, highest);
  }
  // The column has cut or rounded it, or somebody else has written something that is no token.
  throw wrongShape(`the token ${token} was written and ${String(found)} read`);
}

/** As {@link takeFence}; {@link mustBeMarked} can then recognise the transaction. */
export function* takeAndMark(dialect: Dialect, claim: Claim): Steps<string> {
  const name = yield* takeFence(dialect, claim);
  if (dialect.mark !== undefined) {
    yield { sql: dialect.mark };
  }
  return name;
}

/** Fails unless the transaction is the one that {@link takeAndMark} was run in. */
export function* mustBeMarked(dialect: Dialect, name: string): Steps<void> {
  if (!(yield* dialect.isMarked(name))) {
    throw new LeaseholdError(
      "config",
      "the commit is refused: the transaction that checked the token was ended before, by a statement " +
        "in it that commits (such as COMMIT; on MySQL also DDL, TRUNCATE, LOCK TABLES, START " +
        "TRANSACTION) or by one that was rolled back and whose error was passed over (such as a " +
        "deadlock); what was done before such a commit, and after its end, is written",
    );
  }
}

/** As {@link takeFence}, in a transaction of the program's own. */
export function* takeFenceInside(dialect: Dialect, claim: Claim): Steps<void> {
  if (!(yield* dialect.mustBeOpen())) {
    const message = "a fence is checked inside a transaction, and none is open";
    throw new LeaseholdError("config", message);
  }
  yield* takeFence(dialect, claim);
}

/** Single connections that a transaction of ours is open on. */
const busy = new WeakSet<object>();

/** What is done in a transaction. */
export interface Work<S, T> {
  /** Comes first. Only these steps are tried again after a race. */
  readonly first: () => Steps<S>;
  readonly work: (connection: object, done: S) => T;
  /** Comes before the commit, and prevents it by failing. */
  readonly last?: (done: S) => Steps<void>;
}

/** Opens a transaction, does the work in it, and commits. */
export async function inTransaction<S, T>(
  driver: AsyncDriver,
  isolation: Isolation | undefined,
  { first, work, last }: Work<S, Promise<T> | T>,
): Promise<T> {
  const retry = new Retry();
  for (;;) {
    let begun: { session: Session; done: S };
    try {
      begun = await begin(driver, isolation, first);
    } catch (error) {
      const { race, error: failure } = failureOf(driver.dialect, error);
      if (race && (await retry.wait())) {
        continue;
      }
      throw failure;
    }
    const { session, done } = begun;
    return finish(driver, session, async () => work(session.connection, done), () => last?.(done));
  }
}

async function begin<S>(
  driver: AsyncDriver,
  isolation: Isolation | undefined,
  steps: () => Steps<S>,
): Promise<{ session: Session; done: S }> {
  const session = await driver.open();
  if (!driver.pool) {
    await occupy(driver, session);
  }
  try {
    for (const sql of driver.dialect.begin(isolation)) {
      await session.query({ sql });
    }
    return { session, done: await drive(steps(), session.query) };
  } catch (error) {
    // Rolled back now, so that nothing is held until the connection is used again.
    leave(session, !(await rolledBack(session)));
    throw error;
  }
}

/** Makes sure that no other transaction is open on a single connection: MySQL would commit that. */
async function occupy(driver: AsyncDriver, session: Session): Promise<void> {
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
}

function openAlready(): LeaseholdError {
  return new LeaseholdError(
    "config",
    "a transaction is open on this connection already: call check() in it, or give a pool",
  );
}

function leave(session: Session, broken: boolean): void {
  busy.delete(session.connection);
  session.release(broken);
}

/** Rolls back. If that fails the connection is broken, and so is the transaction over. */
async function rolledBack(session: Session): Promise<boolean> {
  try {
    await session.query({ sql: "ROLLBACK" });
    return true;
  } catch {
    return false;
  }
}

async function finish<T>(
  driver: AsyncDriver,
  session: Session,
  work: () => Promise<T>,
  last: () => Steps<void> | undefined,
): Promise<T> {
  let result: T;
  try {
    result = await work();
  } catch (error) {
    leave(session, !(await rolledBack(session)));
    throw error;
  }
  try {
    const steps = last();
    if (steps) {
      await drive(steps, session.query);
    }
    await session.query({ sql: "COMMIT" });
  } catch (error) {
    // If something ended the transaction, the connection may be in any state, such as that of LOCK TABLES.
    const ended = error instanceof LeaseholdError;
    const answers = ended || driver.dialect.classify(error) !== undefined;
    leave(session, !(answers && (await rolledBack(session))) || ended);
    throw notCommitted(driver.dialect, error);
  }
  leave(session, false);
  return result;
}

/** As {@link inTransaction}, for a synchronous driver: each try is one turn of the event loop. */
export async function inSyncTransaction<S, T>(
  driver: SyncDriver,
  { first, work, last }: Work<S, T>,
): Promise<T> {
  const retry = new Retry();
  for (;;) {
    let done: S;
    try {
      done = beginSync(driver, first);
    } catch (error) {
      const { race, error: failure } = failureOf(driver.dialect, error);
      if (race && (await retry.wait())) {
        // Nothing was open while it waited.
        continue;
      }
      throw failure;
    }
    return finishSync(driver, () => work(driver.connection, done), () => last?.(done));
  }
}

function beginSync<S>(driver: SyncDriver, steps: () => Steps<S>): S {
  for (const sql of driver.dialect.begin(undefined)) {
    try {
      driver.query({ sql });
    } catch (error) {
      throw /within a transaction/.test(messageOf(error)) ? openAlready() : error;
    }
  }
  try {
    return driveSync(steps(), driver.query);
  } catch (error) {
    rollBackSync(driver);
    throw error;
  }
}

function finishSync<T>(
  driver: SyncDriver,
  work: () => T,
  last: () => Steps<void> | undefined,
): T {
  let result: T;
  try {
    result = work();
    if (isPromise(result)) {
      result.then(undefined, () => {});
      throw new LeaseholdError(
        "config",
        "the work on a SQLite database must not be async: what it does after its first await would be " +
          "outside of the transaction",
      );
    }
  } catch (error) {
    rollBackSync(driver);
    throw error;
  }
  try {
    const steps = last();
    if (steps) {
      driveSync(steps, driver.query);
    }
    driver.query({ sql: "COMMIT" });
  } catch (error) {
    rollBackSync(driver);
    throw notCommitted(driver.dialect, error);
  }
  return result;
}

function rollBackSync(driver: SyncDriver): void {
  try {
    driver.query({ sql: "ROLLBACK" });
  } catch {
    // SQLite has rolled back by itself.
  }
}

function isPromise(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as PromiseLike<unknown> | null | undefined)?.then === "function";
}
