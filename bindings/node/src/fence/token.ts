import { attempt, config } from "../common/check.js";
import type { LeaseholdError } from "../common/errors.js";

/**
 * A fencing token: a whole number from 1 to 2^53-1, the same in plain digits, or whatever has one as
 * its `token`, such as a `Lease`.
 */
export type Token = number | string | { readonly token: number | string };

/** The number of a token. Throws a {@link LeaseholdError} of code `config` if it is none. */
export function tokenOf(token: Token): number {
  const has = typeof token === "object" && token !== null;
  return number(has ? attempt("a fencing token cannot be read", () => token.token) : token);
}

function number(token: unknown): number {
  const most = Number.MAX_SAFE_INTEGER;
  if (typeof token !== "string" && typeof token !== "number") {
    const what = token === null ? "null" : `of type ${typeof token}`;
    throw config(`a fencing token is a number from 1 to ${most}, its digits, or a lease that has it; this is ${what}`);
  }
  if (typeof token === "string" && !/^[1-9][0-9]{0,15}$/.test(token)) {
    throw config(`a fencing token must be plain digits from 1 to ${most}`);
  }
  const read = Number(token);
  // So no number that was rounded is taken for a token.
  if (!Number.isSafeInteger(read) || read < 1) {
    throw config(`a fencing token must be from 1 to ${most}; got ${token}`);
  }
  return read;
}
