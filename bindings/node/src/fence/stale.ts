import { LeaseholdError, nameErrors } from "../common/errors.js";

/**
 * Why a guard refused a write, of code `staleToken`: a greater token was seen. It is not transient:
 * the lease is over, and so is the work.
 */
export class StaleTokenError extends LeaseholdError {
  declare readonly code: "staleToken";
  /** What was to be written to. */
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

/** A text as Rust's `{:?}` shows it: on one line, with invisible characters as numbers. */
export function quoted(text: string): string {
  const escapes: Record<string, string> = { "\0": "\\0", "\t": "\\t", "\r": "\\r", "\n": "\\n" };
  const shown = text.replace(/["\\]|\p{C}|(?! )\p{Z}/gu, (character) => {
    if (character === '"' || character === "\\") {
      return `\\${character}`;
    }
    return escapes[character] ?? `\\u{${character.codePointAt(0)?.toString(16)}}`;
  });
  return `"${shown}"`;
}
