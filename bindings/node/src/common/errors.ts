/**
 * What went wrong, to match on: the codes of the Rust crate, and two more. `lost` is the code of the
 * error that aborts a `lease.signal`; `internal` is a failure of this package itself.
 */
export type ErrorCode =
  | "config"
  | "unavailable"
  | "timeout"
  | "auth"
  | "tls"
  | "readOnly"
  | "unsupported"
  | "wrongType"
  | "store"
  | "notHeld"
  | "staleToken"
  | "notReplicated"
  | "overloaded"
  | "shutdown"
  | "lost"
  | "internal";

/** Why a lease was lost. `crashed` is the engine's own failure, and JavaScript's alone. */
export type LossReason =
  | "expired"
  | "deleted"
  | "superseded"
  | "revoked"
  | "shutdown"
  | "crashed";

/** An error of this package: a `code` to match on, and a message that names the culprit. */
export class LeaseholdError extends Error {
  /** What went wrong. */
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.code = code;
  }

  /** True also for errors of another copy of this package, such as its other module format. */
  static override [Symbol.hasInstance](value: unknown): boolean {
    const mark = MARKS.get(this);
    return mark === undefined ? Function.prototype[Symbol.hasInstance].call(this, value) : hasMark(value, mark);
  }

  /** Whether the same call may succeed later with nothing changed by the caller. */
  get transient(): boolean {
    return TRANSIENT.has(this.code);
  }

  /**
   * Its name, code and message, and its other fields, for logs and other processes. `structuredClone`
   * and `postMessage` would copy the message without the class and the code: send this instead.
   */
  toJSON(): { name: string; code: ErrorCode; message: string } {
    const { name, code, message } = this;
    return { name, code, message, ...(this as object) };
  }
}

/** A lease ended while it was in use: the reason of its `signal`. */
export class LeaseLostError extends LeaseholdError {
  /** What was locked. */
  readonly lock: string;
  /** The tenure's token. */
  readonly token: number;
  /** Why it was lost. */
  readonly reason: LossReason;

  constructor(lock: string, token: number, reason: LossReason) {
    super("lost", `the lease on ${JSON.stringify(lock)} with token ${token} was lost: ${WHY[reason]}`);
    this.lock = lock;
    this.token = token;
    this.reason = reason;
  }
}

/**
 * The mark on the objects of a class. All copies of this package in a process use the same marks,
 * because each copy has a class of its own.
 *
 * @internal
 */
export function markOf(name: string): symbol {
  return Symbol.for(`leasehold.${name}`);
}

/** Whether a value has the mark; false for a proxy that throws when it is asked. @internal */
export function hasMark(value: unknown, mark: symbol): boolean {
  try {
    return typeof value === "object" && value !== null && mark in value;
  } catch {
    return false;
  }
}

/**
 * Gives a class of errors its name, which a minified bundle would change, and its mark. Both are on the
 * prototype, so the errors have no fields for them.
 *
 * @internal
 */
export function nameErrors(type: { readonly prototype: LeaseholdError }, name: string): void {
  const mark = markOf(name);
  MARKS.set(type, mark);
  Object.defineProperty(type.prototype, mark, { value: true });
  Object.defineProperty(type.prototype, "name", { value: name, configurable: true });
}

/** The marks of this package's own classes of errors; a class that a program derives has none. */
const MARKS = new Map<unknown, symbol>();

nameErrors(LeaseholdError, "LeaseholdError");
nameErrors(LeaseLostError, "LeaseLostError");

/** As Rust has them: `tests/vectors/codes.json`. */
const TRANSIENT: ReadonlySet<ErrorCode> = new Set(["unavailable", "timeout", "readOnly", "notReplicated", "overloaded"]);

/** Why, in words. @internal */
export const WHY: Readonly<Record<LossReason, string>> = {
  expired: "it expired",
  deleted: "its key was deleted",
  superseded: "somebody else holds the lock",
  revoked: "the lock was force-released",
  shutdown: "the locker was shut down",
  crashed: "the lock engine failed",
};
