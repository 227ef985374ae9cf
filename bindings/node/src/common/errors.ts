/**
 * The code of an error, to match on. All codes except `lost` and `internal` are also those of the Rust crate.
 *
 * - `config`: a setting, URL or argument is not valid
 * - `unavailable`: the store cannot be reached
 * - `timeout`: another holder kept the lock for the whole `timeout`, or the store did not reply in time and the
 *   outcome is unknown; the message says which
 * - `auth`: the server refused the user or a command
 * - `tls`: one side does not trust the other's certificate
 * - `readOnly`: the server is a replica
 * - `unsupported`: the server, client or runtime lacks a feature
 * - `wrongType`: the key holds a value of another type, or the name is used in another way, as for a semaphore
 * - `store`: the server refused for another reason, or gave an answer that cannot be read
 * - `notHeld`: the lease was lost or released
 * - `staleToken`: a guard has seen a greater token
 * - `notReplicated`: too few replicas, or not the disk, confirmed in time
 * - `overloaded`: too many calls, waiters or writes wait
 * - `overheld`: the lease cannot be extended: it has been held for nearly as long as `atMost` allows
 * - `shutdown`: the locker, or a guard's pool, is shut down
 * - `lost`: the reason of a `lease.signal`, a {@link LeaseLostError}
 * - `internal`: this package itself failed
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
  | "overheld"
  | "shutdown"
  | "lost"
  | "internal";

/**
 * The reason why a lease was lost.
 *
 * - `expired`: it was not renewed before its deadline
 * - `deleted`: the lock's key was deleted, or the lock was force-released before the locker heard notifications
 * - `superseded`: another client holds the lock
 * - `revoked`: the lock was force-released
 * - `shutdown`: the locker was shut down
 * - `overheld`: the lease was held for as long as `atMost` allows
 * - `crashed`: the engine or its worker thread failed, which only JavaScript reports
 */
export type LossReason =
  | "expired"
  | "deleted"
  | "superseded"
  | "revoked"
  | "shutdown"
  | "overheld"
  | "crashed";

/**
 * An error of this package: a `code` to match on, and a message that names the culprit.
 *
 * @example
 * ```ts
 * try {
 *   await lock.acquire({ timeout: 1_000 });
 * } catch (error) {
 *   if (!(error instanceof LeaseholdError) || error.code !== "timeout") throw error;
 * }
 * ```
 */
export class LeaseholdError extends Error {
  /** The kind of error, to match on. */
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

  /** True if the same call may succeed later, without a change by the caller. */
  get transient(): boolean {
    return TRANSIENT.has(this.code);
  }

  /**
   * Returns the error's name, code, message and other fields, for logs and other processes.
   *
   * `structuredClone` and `postMessage` copy only the message, without the class and code: send this instead.
   */
  toJSON(): { name: string; code: ErrorCode; message: string } {
    const { name, code, message } = this;
    return { name, code, message, ...(this as object) };
  }
}

/** The reason of a lease's `signal`: the lease was lost while it was in use. Its code is `lost`. */
export class LeaseLostError extends LeaseholdError {
  /** The name of the lock. */
  readonly lock: string;
  /** The token of the lost tenure. */
  readonly token: number;
  /** The reason for the loss. */
  readonly reason: LossReason;

  constructor(lock: string, token: number, reason: LossReason) {
    super("lost", `the lease on ${JSON.stringify(lock)} with token ${token} was lost: ${WHY[reason]}`);
    this.lock = lock;
    this.token = token;
    this.reason = reason;
  }
}

/**
 * Returns the mark for the objects of a class. All copies of this package in a process use the same marks,
 * because each copy has its own class.
 *
 * @internal
 */
export function markOf(name: string): symbol {
  return Symbol.for(`leasehold.${name}`);
}

/**
 * True if a value has the mark. False for a proxy that throws when asked.
 *
 * @internal
 */
export function hasMark(value: unknown, mark: symbol): boolean {
  try {
    return typeof value === "object" && value !== null && mark in value;
  } catch {
    return false;
  }
}

/**
 * Gives an error class its name, which a minified bundle would change, and its mark. Both are on the
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

/** The marks of this package's own error classes. A class that a program derives from them has none. */
const MARKS = new Map<unknown, symbol>();

nameErrors(LeaseholdError, "LeaseholdError");
nameErrors(LeaseLostError, "LeaseLostError");

/** The codes that are transient, as in Rust: both are tested against `tests/vectors/codes.json`. */
const TRANSIENT: ReadonlySet<ErrorCode> = new Set(["unavailable", "timeout", "readOnly", "notReplicated", "overloaded"]);

/**
 * The reasons for a loss, in words.
 *
 * @internal
 */
export const WHY: Readonly<Record<LossReason, string>> = {
  expired: "it expired",
  deleted: "its key was deleted",
  superseded: "somebody else holds the lock",
  revoked: "the lock was force-released",
  shutdown: "the locker was shut down",
  overheld: "it was held for the longest time allowed",
  crashed: "the lock engine failed",
};
