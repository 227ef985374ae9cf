/**
 * Parses a table that Rust reads, too. Fields are separated by `|`; lines that begin with `#` are comments.
 */
export function rowsOf(table: string): readonly (readonly string[])[] {
  const lines = table.split("\n").map((line) => line.trim());
  const rows = lines.filter((line) => line !== "" && !line.startsWith("#"));
  return rows.map((row) => row.split("|").map((field) => field.trim()));
}
