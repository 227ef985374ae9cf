/** A value in a row, as drivers give it. */
export type Cell = string | number | bigint | boolean | null | undefined;

/** What is asked of a database. */
export interface Statement {
  readonly sql: string;
  /** A text, or a whole number. */
  readonly args?: readonly (string | number)[];
}

export interface Answer {
  readonly rows: readonly (readonly Cell[])[];
  /** Whether the first column is of whole numbers, if the server says so. */
  readonly whole?: boolean;
  /** Whether a transaction is open after it, if the server says so. */
  readonly inTransaction?: boolean;
  /** Whether each statement outside of a transaction is one of its own, if the server says so. */
  readonly autocommit?: boolean;
}

/**
 * Work on a database: it yields statements and is given their answers, so that one text of it serves
 * drivers that answer at once and drivers that answer later.
 */
export type Steps<R> = Generator<Statement, R, Answer>;

/** Runs the steps with a driver that answers later. */
export async function drive<R>(
  steps: Steps<R>,
  query: (statement: Statement) => Promise<Answer>,
): Promise<R> {
  let next = steps.next();
  while (!next.done) {
    let answer: Answer;
    try {
      answer = await query(next.value);
    } catch (error) {
      next = steps.throw(error);
      continue;
    }
    next = steps.next(answer);
  }
  return next.value;
}

/** Runs the steps with a driver that answers at once. Nothing else of the process comes in between. */
export function driveSync<R>(steps: Steps<R>, query: (statement: Statement) => Answer): R {
  let next = steps.next();
  while (!next.done) {
    let answer: Answer;
    try {
      answer = query(next.value);
    } catch (error) {
      next = steps.throw(error);
      continue;
    }
    next = steps.next(answer);
  }
  return next.value;
}

/** As a text, empty if there is none. */
export function text(cell: Cell): string {
  return cell === null || cell === undefined ? "" : String(cell);
}

/** Whatever a driver makes of true. */
export function isTrue(cell: Cell): boolean {
  return cell === true || cell === "true" || cell === "t" || text(cell) === "1";
}
