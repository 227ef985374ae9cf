import { shownCharacters } from "../../../../core/engine/src/limits.jsonc";

/** Puts a server's words on one line and cuts them short, so that they cannot forge lines in a log. */
export function printable(said: string): string {
  return said.slice(0, shownCharacters).replace(/\p{Cc}/gu, " ");
}

/** Returns the message of any thrown value, even if reading it throws again. */
export function messageOf(error: unknown): string {
  let message: unknown;
  try {
    // Not `instanceof`, because the error may come from another realm.
    message = (error as { message?: unknown } | null | undefined)?.message ?? String(error);
  } catch {
    return "an error that cannot be read";
  }
  return printable((typeof message === "string" && message) || "an error without a message");
}
