/** A value in a row, as drivers give it. */
export type Cell = string | number | bigint | boolean | null | undefined;

/** A statement for a database. */
export interface Statement {
  readonly sql: string;
  /** Texts and whole numbers. */
  readonly args?: readonly (string | number)[];
}

export interface Answer {
  readonly rows: readonly (readonly Cell[])[];
  /** Whether the first column is of whole numbers, if the server says so. */
  readonly whole?: boolean;
  /** Whether a transaction is open after it, if the server says so. */
  readonly inTransaction?: boolean;
  /** Whether each statement outside a transaction commits by itself, if the server says so. */
  readonly autocommit?: boolean;
}

/**
 * Work on a database: it yields statements and gets their answers, so that the same code serves
 * synchronous drivers and those with promises.
 */
export type Steps<R> = Generator<Statement, R, Answer>;

/** Runs the steps with a driver that returns promises. */
export async function drive<Y, A, R>(steps: Generator<Y, R, A>, query: (statement: Y) => Promise<A>): Promise<R> {
  let next = steps.next();
  while (!next.done) {
    next = await query(next.value).then((answer) => steps.next(answer), (error: unknown) => steps.throw(error));
  }
  return next.value;
}

/** Runs the steps with a synchronous driver, so nothing else in the process comes in between. */
export function driveSync<Y, A, R>(steps: Generator<Y, R, A>, query: (statement: Y) => A): R {
  let next = steps.next();
  while (!next.done) {
    let answer: A;
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

/** A value as a text; empty if there is none. */
export function text(cell: Cell): string {
  return cell === null || cell === undefined ? "" : String(cell);
}

/** Returns true if a statement succeeds, and false if it fails with an error that is expected. */
export function* succeeds(sql: string, isExpected: (error: unknown) => boolean): Steps<boolean> {
  try {
    yield { sql };
    return true;
  } catch (error) {
    if (isExpected(error)) {
      return false;
    }
    throw error;
  }
}
