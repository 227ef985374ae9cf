import mark from "../../../../../core/src/fence/sql/mark.sql";
import marked from "../../../../../core/src/fence/sql/marked.sql";
import codes from "../../../../../core/src/fence/sql/sqlite/codes.txt";
import complete from "../../../../../core/src/fence/sql/sqlite/complete.sql";
import create from "../../../../../core/src/fence/sql/sqlite/create.sql";
import highest from "../../../../../core/src/fence/sql/sqlite/highest.sql";
import shape from "../../../../../core/src/fence/sql/sqlite/shape.sql";
import take from "../../../../../core/src/fence/sql/sqlite/take.sql";
import { messageOf } from "../../common/printable.js";
import { classifier } from "./codes.js";
import type { Dialect } from "./dialect.js";
import { succeeds } from "./steps.js";

/** SQLite, with the statements of `core/src/fence/sql/sqlite.rs`. */
export const sqlite: Dialect = {
  // Takes the write lock at once. A transaction that asks for it only after a read is refused if another
  // connection has written since. Every transaction is serializable in SQLite.
  begin: () => ["BEGIN IMMEDIATE"],
  *take(resource, token) {
    const taken = yield { sql: take, args: [resource, token] };
    const [row] = taken.rows[0] ? taken.rows : (yield { sql: highest, args: [resource] }).rows;
    // A text, or a number with a fraction, comes from a column of another type.
    return { highest: typeof row?.[0] === "bigint" ? row[0] : undefined, transaction: "" };
  },
  *complete(resource, tick) {
    return (yield { sql: complete, args: [tick, resource, tick] }).rows.length === 1;
  },
  mark,
  // The end of a transaction, of any kind, removes its savepoints.
  isMarked: () => succeeds(marked, (error) => messageOf(error).includes("no such savepoint")),
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
    return (yield { sql: shape }).rows;
  },
  create,
  classify: classifier(codes, primary),
};

/** Returns the primary error code, from node:sqlite's number or from other drivers' names. */
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
