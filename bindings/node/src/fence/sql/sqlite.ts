import codes from "../../../../../core/src/fence/sql/sqlite/codes.txt";
import create from "../../../../../core/src/fence/sql/sqlite/create.sql";
import highest from "../../../../../core/src/fence/sql/sqlite/highest.sql";
import inspect from "../../../../../core/src/fence/sql/sqlite/inspect.sql";
import mark from "../../../../../core/src/fence/sql/sqlite/mark.sql";
import marked from "../../../../../core/src/fence/sql/sqlite/marked.sql";
import take from "../../../../../core/src/fence/sql/sqlite/take.sql";
import { messageOf } from "../../common/printable.js";
import { meaningOf } from "./codes.js";
import { type Class, type Dialect, shapeOf } from "./dialect.js";

/** As `core/src/fence/sql/sqlite.rs` has it, with the same statements. */
export const sqlite: Dialect = {
  // Takes the right to write at once: a transaction that asks for it only after a read is refused if
  // somebody else has written since that read. Every transaction is serializable here.
  begin: () => ["BEGIN IMMEDIATE"],
  *take(resource, token) {
    const taken = yield { sql: take, args: [resource, token] };
    const [row] = taken.rows[0] ? taken.rows : (yield { sql: highest, args: [resource] }).rows;
    // A text, or a number with a fraction, comes from a column of another type.
    return { highest: typeof row?.[0] === "bigint" ? row[0] : undefined, transaction: "" };
  },
  mark,
  // Every end of the transaction takes its savepoints with it, whatever begins afterwards.
  *isMarked() {
    try {
      yield { sql: marked };
      return true;
    } catch (error) {
      if (messageOf(error).includes("no such savepoint")) {
        return false;
      }
      throw error;
    }
  },
  /** Transactions do not nest: if one can be opened, none was open. */
  *mustBeOpen() {
    try {
      yield { sql: "BEGIN" };
    } catch {
      return true;
    }
    yield { sql: "ROLLBACK" };
    return false;
  },
  *shape() {
    const [row] = (yield { sql: inspect }).rows;
    // Only a column's affinity counts here: lengths and sizes are not looked at by SQLite, so that there
    // is nothing to migrate.
    return shapeOf(row);
  },
  create,
  classify,
};

/** The primary error code, from the number that node:sqlite gives or from the name that others give. */
function primary(error: unknown): number | undefined {
  const { errcode, code } = (error ?? {}) as { errcode?: unknown; code?: unknown };
  if (typeof errcode === "number") {
    return errcode & 0xff;
  }
  const name = /^SQLITE_([A-Z]+)/.exec(typeof code === "string" ? code : "")?.[1];
  return name === undefined ? undefined : (NAMES[name] ?? 0);
}

const NAMES: Record<string, number> = {
  ERROR: 1,
  PERM: 3,
  BUSY: 5,
  LOCKED: 6,
  READONLY: 8,
  FULL: 13,
  CONSTRAINT: 19,
  MISMATCH: 20,
  AUTH: 23,
};

function classify(error: unknown): Class | undefined {
  const code = primary(error);
  return code === undefined ? undefined : meaningOf(codes, String(code), messageOf(error));
}
