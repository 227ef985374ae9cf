import { LeaseholdError } from "../../errors.js";
import { messageOf } from "../printable.js";
import { StaleTokenError } from "../stale.js";
import type { Dialect, Isolation } from "./dialect.js";
import type { AsyncDriver, Session, SyncDriver } from "./drivers.js";
import { failureOf, wrongShape } from "./failure.js";
import { Retry } from "./retry.js";
import { drive, driveSync, type Steps } from "./steps.js";

/** A token that is to be checked for a resource. Both are valid. */
export interface Claim {
  readonly resource: string;
  readonly token: number;
}

/** Takes the resource's row, and refuses a stale token. */
export function* takeFence(dialect: Dialect, { resource, token }: Claim): Steps<void> {
  const found = yield* dialect.take(resource, token);
  const highest = Number(found ?? Number.NaN);
  if (highest === token) {
    return;
  }
  if (Number.isSafeInteger(highest) && highest > token) {
    throw new StaleTokenError(resource, token, highest);
  }
  // The column cut or rounded it, or somebody else wrote what is not a token.
  throw wrongShape(`the token ${token} was written and ${String(found)} read`);
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

/** Opens a transaction, does steps in it and then work, and commits. Only the steps are tried again. */
export async function inTransaction<S, T>(
  driver: AsyncDriver,
  isolation: Isolation | undefined,
  steps: () => Steps<S>,
  work: (connection: object, done: S) => Promise<T> | T,
): Promise<T> {
  const retry = new Retry();
  for (;;) {
    let begun: { session: Session; done: S };
    try {
      begun = await begin(driver, isolation, steps);
    } catch (error) {
      const { race, error: told } = failureOf(driver.dialect, error);
      if (race && (await retry.wait())) {
        continue;
      }
      throw told;
    }
    const { session, done } = begun;
    return finish(driver, session, async () => work(session.connection, done));
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
    // Now, not whenever the connection is used again.
    leave(session, !(await rolledBack(session)));
    throw error;
  }
}

/** Makes sure that nobody else's transaction is on a single connection: MySQL would commit it. */
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

/** If it fails the connection is broken, and with it the transaction is gone. */
async function rolledBack(session: Session): Promise<boolean> {
  try {
    await session.query({ sql: "ROLLBACK" });
    return true;
  } catch {
    return false;
  }
}

async function finish<T>(driver: AsyncDriver, session: Session, work: () => Promise<T>): Promise<T> {
  let result: T;
  try {
    result = await work();
  } catch (error) {
    leave(session, !(await rolledBack(session)));
    throw error;
  }
  let command: string | undefined;
  try {
    ({ command } = await session.query({ sql: "COMMIT" }));
  } catch (error) {
    const said = driver.dialect.classify(error) !== undefined;
    leave(session, !(said && (await rolledBack(session))));
    throw notCommitted(driver.dialect, error, said);
  }
  leave(session, false);
  if (command === "ROLLBACK") {
    const message =
      "a statement of the transaction had failed, so the database rolled it back: nothing was written";
    throw new LeaseholdError("store", message);
  }
  return result;
}

function notCommitted(dialect: Dialect, error: unknown, said: boolean): LeaseholdError {
  const told = failureOf(dialect, error).error as LeaseholdError;
  const what = said
    ? "the commit was refused, and nothing was written"
    : "the connection broke during the commit, so whether it was done is unknown";
  const code = said ? told.code : "unavailable";
  return new LeaseholdError(code, `${what}: ${messageOf(error)}`, { cause: error });
}

/** As {@link inTransaction}, for a database that answers at once: each try is one turn of the event loop. */
export async function inSyncTransaction<S, T>(
  driver: SyncDriver,
  steps: () => Steps<S>,
  work: (connection: object, done: S) => T,
): Promise<T> {
  const retry = new Retry();
  for (;;) {
    let done: S;
    try {
      done = beginSync(driver, steps);
    } catch (error) {
      const { race, error: told } = failureOf(driver.dialect, error);
      if (race && (await retry.wait())) {
        // While it waited, nothing was open: it begins anew.
        continue;
      }
      throw told;
    }
    return finishSync(driver, () => work(driver.connection, done));
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

function finishSync<T>(driver: SyncDriver, work: () => T): T {
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
    driver.query({ sql: "COMMIT" });
  } catch (error) {
    rollBackSync(driver);
    throw notCommitted(driver.dialect, error, true);
  }
  return result;
}

function rollBackSync(driver: SyncDriver): void {
  try {
    driver.query({ sql: "ROLLBACK" });
  } catch {
    // SQLite has rolled it back by itself.
  }
}

function isPromise(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as PromiseLike<unknown> | null | undefined)?.then === "function";
}
