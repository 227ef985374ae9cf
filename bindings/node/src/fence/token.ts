import { attempt, config } from "../common/check.js";
import type { LeaseholdError } from "../common/errors.js";

/**
 * A fencing token: a whole number from 1 to 2^53-1, its plain digits, or an object with such a `token`, for
 * example a `Lease`.
 */
export type Token = number | string | { readonly token: number | string };

/**
 * Returns the number of a token. Throws a {@link LeaseholdError} with the code `config` if it is not valid.
 */
export function tokenOf(token: Token): number {
  const has = typeof token === "object" && token !== null;
  return number(has ? attempt("a fencing token cannot be read", () => token.token) : token);
}

function number(token: unknown): number {
  const most = Number.MAX_SAFE_INTEGER;
  if (typeof token !== "string" && typeof token !== "number") {
    const what = token === null ? "null" : `a value of type ${typeof token}`;
    throw config(`a fencing token must be a number from 1 to ${most}, its digits, or a lease; got ${what}`);
  }
  if (typeof token === "string" && !/^[1-9][0-9]{0,15}$/.test(token)) {
    throw config(`a fencing token must be plain digits from 1 to ${most}`);
  }
  const read = Number(token);
  // This check also refuses a number that was rounded.
  if (!Number.isSafeInteger(read) || read < 1) {
    throw config(`a fencing token must be from 1 to ${most}; got ${token}`);
  }
  return read;
}
