import { config } from "../../common/check.js";
import { type ErrorCode, LeaseholdError } from "../../common/errors.js";
import { messageOf } from "../../common/printable.js";
import type { ErrorClass, Dialect } from "./dialect.js";

/** An error, and whether it is a race, after which the transaction is tried again. */
export interface SqlFailure {
  readonly race: boolean;
  readonly error: unknown;
}

const WRONG_SHAPE =
  "the table leasehold_fence is missing or has another structure than this version needs; " +
  "call createFenceTable, which creates it or says what is wrong with it";

/** Returns the meaning of a database error. */
export function failureOf(dialect: Dialect, error: unknown): SqlFailure {
  if (error instanceof LeaseholdError) {
    return { race: false, error };
  }
  const meaning: ErrorClass = dialect.classify(error) ?? ownMeaning(error);
  const said = messageOf(error);
  const make = (code: ErrorCode, message: string) =>
    new LeaseholdError(code, message, { cause: error });
  if (meaning === "race") {
    const message = `another transaction conflicted with the fence check: ${said}`;
    return { race: true, error: make("unavailable", message) };
  }
  if (meaning === "shape") {
    return { race: false, error: make("config", `${WRONG_SHAPE}: ${said}`) };
  }
  return { race: false, error: make(meaning, `the database guard failed: ${said}`) };
}

/** Returns the error of a transaction that was not committed, or may not have been. */
export function notCommitted(dialect: Dialect, error: unknown): LeaseholdError {
  if (error instanceof LeaseholdError) {
    return error;
  }
  const meaning = dialect.classify(error);
  const what = meaning
    ? "the database refused the commit, and nothing was written"
    : "the connection broke during the commit, so it is unknown whether it took effect";
  // The fence table was right before, so at a commit this error concerns the program's own tables, such as a
  // constraint.
  const code = meaning === "shape" ? "store" : meaning === "race" ? "unavailable" : meaning;
  return new LeaseholdError(code ?? "unavailable", `${what}: ${messageOf(error)}`, { cause: error });
}

/** Returns the error for a value that no table of the right shape can hold. */
export function wrongShape(what: string): LeaseholdError {
  return config(`${WRONG_SHAPE}: ${what}`);
}

/** Returns the meaning of an error of the driver itself, not of the server. */
function ownMeaning(error: unknown): ErrorCode {
  const said = messageOf(error);
  const { code } = (error ?? {}) as { code?: unknown };
  if (/pool is closed|after calling end on the pool|database (connection )?is not open/i.test(said)) {
    return "shutdown";
  }
  if (/^SASL|password/i.test(said)) {
    return "auth";
  }
  if (/queue limit reached/i.test(said)) {
    return "overloaded";
  }
  const link = /connect|terminated|time-?out|timed out|closed|not queryable/i.test(said);
  const system = typeof code === "string" && /^(E[A-Z]{3,}|PROTOCOL_.*)$/.test(code);
  return link || (system && !code.startsWith("ERR_")) ? "unavailable" : "store";
}
