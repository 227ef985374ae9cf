// Tokens as the page shows them.
import { BEGIN } from "./service.mjs";

/** The least token that follows the clock of the lock service, in microseconds. */
const FIRST = BigInt(BEGIN) * 1_000n;

/** Returns a text of a few digits: a dense token itself, or a token of the clock in milliseconds of the page. */
export function short(token) {
  const number = BigInt(token);
  return String(number < FIRST ? number : (number - FIRST) / 1_000n);
}
