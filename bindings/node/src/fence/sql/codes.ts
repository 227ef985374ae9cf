import { rowsOf } from "../rows.js";
import type { ErrorClass } from "./dialect.js";

/**
 * What an error means by its code: the first row of a table that fits. A code there that ends in `*` is
 * all that begin so, and if there is a third field the message must have that in it.
 */
export function meaningOf(table: string, code: string, message: string): ErrorClass {
  const is = (known: string) => (known.endsWith("*") ? code.startsWith(known.slice(0, -1)) : code === known);
  const row = rowsOf(table).find(
    ([codes = "", , part = ""]) => codes.split(" ").some(is) && message.includes(part),
  );
  return (row?.[1] as ErrorClass | undefined) ?? "store";
}
