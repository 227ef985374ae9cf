import { messageOf } from "../../common/printable.js";
import { rowsOf } from "../rows.js";
import type { Dialect, ErrorClass } from "./dialect.js";

/**
 * Makes a dialect's `classify`, from a table of error codes. It takes the first row that matches the code
 * found by `codeOf`.
 *
 * A code that ends in `*` stands for all codes that begin so. A third field must be part of the error's
 * message.
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
