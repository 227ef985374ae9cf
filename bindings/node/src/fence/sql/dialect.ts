import type { ErrorCode } from "../../common/errors.js";
import { printable } from "../../common/printable.js";
import type { Cell, Steps } from "./steps.js";

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
export const CURRENT: Shape = { is: "current" };

export function alien(why: string): Shape {
  return { is: "alien", why };
}

/** Somebody else made or changed the table: it may do more than it should. */
export function strange(what: string): Shape {
  return alien(
    `it ${printable(what)} (such a table may do with the rights of its users what its maker likes: find ` +
      "out who made it, and take this away; or drop the table while nobody holds a lease, and have it " +
      "made anew)",
  );
}

export function alienColumn(name: string, wanted: string, found: string): Shape {
  return alien(
    found === "" ? `it has no column ${name} ${wanted}` : `its column ${name} is ${found}, not ${wanted}`,
  );
}
