/** What a server said, on one line and not too long: it does not get to write lines of its own. */
export function printable(said: string): string {
  return said.slice(0, 300).replace(/\p{Cc}/gu, " ");
}

/** The message of whatever was thrown. */
export function messageOf(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  return printable(message || "an error without a message");
}
