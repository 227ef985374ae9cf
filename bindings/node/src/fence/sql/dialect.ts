import type { ErrorCode } from "../../common/errors.js";
import type { Answer, Cell, Steps } from "./steps.js";

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
  /**
   * Describes what has the fence table's name, one row if there is anything: null for a fence table. Nobody
   * else changes it during the transaction, where that can be prevented.
   */
  shape(): Steps<Answer["rows"]>;
  /** Creates the fence table. */
  readonly create: string;
  /** What an error of the database means; undefined if it is none of the server's. */
  classify(error: unknown): ErrorClass | undefined;
}

/** What is in a resource's row. */
export interface Taken {
  /** The token that is there now; `undefined` if the table is of another shape. */
  readonly highest: Cell;
  /** What the server calls the transaction; empty where a savepoint marks it. */
  readonly transaction: string;
}

/**
 * What a database's own error means to a guard: `race` if another transaction was in the way, and this
 * one is over, so that the whole of it may be tried again; `shape` if the fence table is missing or of
 * another shape; otherwise a code.
 */
export type ErrorClass = "race" | "shape" | ErrorCode;
