import { messageOf } from "../../common/printable.js";
import { rowsOf } from "../rows.js";
import type { Dialect, ErrorClass } from "./dialect.js";

/**
 * What a database's errors mean by their codes, which `codeOf` finds: the first row of a table that fits. A code
 * there that ends in `*` is all that begin so, and if there is a third field the message must have that in it.
 */
export function classifier(table: string, codeOf: (error: unknown) => string | number | undefined): Dialect["classify"] {
  return (error) => {
    const code = codeOf(error)?.toString();
    if (code === undefined) {
      return undefined;
    }
    const is = (known: string) => (known.endsWith("*") ? code.startsWith(known.slice(0, -1)) : code === known);
    const message = messageOf(error);
    const row = rowsOf(table).find(
      ([codes = "", , part = ""]) => codes.split(" ").some(is) && message.includes(part),
    );
    return (row?.[1] as ErrorClass | undefined) ?? "store";
  };
}
