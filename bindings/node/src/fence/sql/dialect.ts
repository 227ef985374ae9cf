import type { ErrorCode } from "../../common/errors.js";
import { printable } from "../../common/printable.js";
import { type Cell, isTrue, type Steps, text } from "./steps.js";

/** The isolation level of a transaction. */
export type Isolation = "read committed" | "repeatable read" | "serializable";

/** What the databases differ in. */
export interface Dialect {
  /** Statements that open a transaction, in the default isolation level or in this one. */
  begin(isolation: Isolation | undefined): readonly string[];
  /**
   * Takes the resource's row for the rest of the transaction, writes the token to it unless a
   * greater one is there, and reads what is there now.
   */
  take(resource: string, token: number): Steps<Taken>;
  /** A statement that marks the transaction, for databases that give it no name. */
  readonly mark?: string;
  /** Whether the transaction is still the one that was marked, or has this name. */
  isMarked(name: string): Steps<boolean>;
  /** Fails if no transaction is open. */
  mustBeOpen(): Steps<boolean>;
  /** Lets nobody else change the table's shape during the transaction, where that takes a statement. */
  readonly lockShape?: string;
  /** Looks at the fence table. */
  shape(): Steps<Shape>;
  /** Makes the fence table. */
  readonly create: string;
  /** What an error of the database means; undefined if it is none of the server's. */
  classify(error: unknown): Class | undefined;
}

/** What is in a resource's row. */
export interface Taken {
  /** The token that is there now; `undefined` if the table is of another shape. */
  readonly highest: Cell;
  /** What the server calls the transaction; empty where a savepoint marks it. */
  readonly transaction: string;
}

/** What the database has under the name of the fence table. */
export type Shape =
  | { readonly is: "missing" | "current" }
  /** Its columns hold too little; the statement that widens them. */
  | { readonly is: "older"; readonly migrate: string }
  /** Not a fence table, and why. */
  | { readonly is: "alien"; readonly why: string };

/**
 * What a database's own error means to a guard: `race` if another transaction was in the way, and this
 * one is over, so that the whole of it may be tried again; `shape` if the fence table is missing or of
 * another shape; else a code.
 */
export type Class = "race" | "shape" | ErrorCode;

export const MISSING: Shape = { is: "missing" };

/**
 * By what `inspect.sql` says of a table that is there: what is wrong with it, what it has that one of
 * ours has not, and whether its columns hold too little; `migrate` widens them.
 */
export function shapeOf(row: readonly Cell[] | undefined, migrate = ""): Shape {
  if (row === undefined) {
    return MISSING;
  }
  const [wrong, strange] = row.map(text);
  if (wrong) {
    return alien(wrong);
  }
  if (strange) {
    return alien(`it ${printable(strange)} (${ADVICE})`);
  }
  return isTrue(row[2]) ? { is: "older", migrate } : { is: "current" };
}

export function alien(why: string): Shape {
  return { is: "alien", why };
}

/** Of a table that somebody else made, or changed: it may do more than it is asked for. */
const ADVICE =
  "such a table may do with the rights of its users what its maker likes: find out who made it, and take " +
  "this away; or drop the table while nobody holds a lease, and have it made anew";
