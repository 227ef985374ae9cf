import type { ErrorCode } from "../../common/errors.js";
import type { Answer, Cell, Steps } from "./steps.js";

/** The isolation level of a transaction. */
export type Isolation = "read committed" | "repeatable read" | "serializable";

/** The differences between databases. */
export interface Dialect {
  /** Returns the statements that open a transaction, in this isolation level or the default one. */
  begin(isolation: Isolation | undefined): readonly string[];
  /**
   * Locks the resource's row for the rest of the transaction, writes the token to it unless it has a greater
   * one, and reads the result.
   */
  take(resource: string, token: number): Steps<Taken>;
  /**
   * Records a completed tick in the row, which the transaction has taken. Returns false if the row has this tick
   * or a later one already.
   */
  complete(resource: string, tick: number): Steps<boolean>;
  /** A statement that marks the transaction, for databases that do not name transactions. */
  readonly mark?: string;
  /** Returns true if the open transaction is the marked one, or has this name. */
  isMarked(name: string): Steps<boolean>;
  /** Returns false if no transaction is open. */
  mustBeOpen(): Steps<boolean>;
  /**
   * Describes the object with the fence table's name, in one row if it exists: null for a fence table. Where
   * possible, it prevents changes by others during the transaction.
   */
  shape(): Steps<Answer["rows"]>;
  /** The statement that creates the fence table. */
  readonly create: string;
  /** Returns the meaning of a server's error; `undefined` for any other error. */
  classify(error: unknown): ErrorClass | undefined;
}

/** The content of a resource's row. */
export interface Taken {
  /** The token that is there now; `undefined` if the table has another shape. */
  readonly highest: Cell;
  /** The server's name of the transaction; empty if a savepoint marks it. */
  readonly transaction: string;
}

/**
 * The meaning of a database's own error.
 *
 * - `race`: another transaction was in the way and this one is over, so all of it may be tried again
 * - `shape`: the fence table is missing or has another shape
 * - otherwise a code
 */
export type ErrorClass = "race" | "shape" | ErrorCode;
