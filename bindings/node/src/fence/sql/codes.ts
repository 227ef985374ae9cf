import { messageOf } from "../../common/printable.js";
import { rowsOf } from "../rows.js";
import type { Dialect, ErrorClass } from "./dialect.js";

/**
 * Makes a dialect's `classify`: the first row of a table that fits an error's code, which `codeOf` finds. A code in
 * the table that ends in `*` stands for all that begin so; a third field must be in the error's message.
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
