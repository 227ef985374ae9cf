/** A value in a row, as drivers give it. */
export type Cell = string | number | bigint | boolean | null | undefined;

/** A statement for a database. */
export interface Statement {
  readonly sql: string;
  /** The arguments: texts and whole numbers. */
  readonly args?: readonly (string | number)[];
}

export interface Answer {
  readonly rows: readonly (readonly Cell[])[];
  /** True if the first column has a whole-number type; `undefined` if the server does not say. */
  readonly whole?: boolean;
  /** The number of rows that were changed; `undefined` for a statement that returns rows. */
  readonly changed?: number;
  /** True if a transaction is open afterwards; `undefined` if the server does not say. */
  readonly inTransaction?: boolean;
  /**
   * True if each statement outside a transaction commits by itself; `undefined` if the server does not say.
   */
  readonly autocommit?: boolean;
}

/**
 * Work on a database. It yields statements and gets their answers, so the same code serves synchronous
 * drivers and drivers with promises.
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

/** Runs the steps with a synchronous driver, so that nothing else in the process runs in between. */
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

/** Returns a value as text; empty if there is none. */
export function text(cell: Cell): string {
  return cell === null || cell === undefined ? "" : String(cell);
}

/** Returns true if a statement succeeds, and false if it fails with an expected error. */
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
