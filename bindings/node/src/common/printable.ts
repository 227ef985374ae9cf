import { shownCharacters } from "../../../../core/engine/src/limits.jsonc";

/** The words of a server, on one line and not too long, so that it cannot forge lines in a log. */
export function printable(said: string): string {
  return said.slice(0, shownCharacters).replace(/\p{Cc}/gu, " ");
}

/** The message of whatever was thrown, even if reading that throws again. */
export function messageOf(error: unknown): string {
  let message: unknown;
  try {
    // Not `instanceof`: it may come from another realm.
    message = (error as { message?: unknown } | null | undefined)?.message ?? String(error);
  } catch {
    return "an error that cannot be read";
  }
  return printable((typeof message === "string" && message) || "an error without a message");
}
