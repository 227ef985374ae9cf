import { LeaseholdError, nameErrors } from "../common/errors.js";

/**
 * The error of a guard that refused a write because it has seen a greater token. Its code is `staleToken`.
 *
 * It is not transient: the lease is over, so stop the work.
 *
 * @example
 * ```ts
 * try {
 *   await gate.guard("account/7", lease, write);
 * } catch (error) {
 *   if (!(error instanceof StaleTokenError)) throw error;
 *   console.error(`token ${error.offered} is stale; ${error.highest} was seen`);
 * }
 * ```
 */
export class StaleTokenError extends LeaseholdError {
  declare readonly code: "staleToken";
  /** The resource that the write was for. */
  readonly resource: string;
  /** The token of the write. */
  readonly offered: number;
  /** The greatest token that was seen. */
  readonly highest: number;

  constructor(resource: string, offered: number, highest: number) {
    const seen = `${highest} was seen for the resource ${quoted(resource)}`;
    super("staleToken", `the token ${offered} is stale: ${seen}`);
    this.resource = resource;
    this.offered = offered;
    this.highest = highest;
  }
}

nameErrors(StaleTokenError, "StaleTokenError");

/** Quotes a text as Rust's `{:?}` does: on one line, with invisible characters as numbers. */
export function quoted(text: string): string {
  const escapes: Record<string, string> = { "\0": "\\0", "\t": "\\t", "\r": "\\r", "\n": "\\n" };
  const shown = String(text).replace(/["\\]|\p{C}|(?! )\p{Z}/gu, (character) => {
    if (character === '"' || character === "\\") {
      return `\\${character}`;
    }
    return escapes[character] ?? `\\u{${character.codePointAt(0)?.toString(16)}}`;
  });
  return `"${shown}"`;
}
