/** What a server said, on one line and not too long: it does not get to write lines of its own. */
export function printable(said: string): string {
  return said.slice(0, 300).replace(/\p{Cc}/gu, " ");
}

/** The message of whatever was thrown, even if that throws again as it is asked. */
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
