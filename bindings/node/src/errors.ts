import type { LossReason } from "./types.js";

/**
 * What went wrong, to match on: the codes of the Rust crate, and two more. `lost` is the reason of
 * an aborted `lease.signal`; `internal` is a failure of this package itself.
 */
export type ErrorCode =
  | "config"
  | "unavailable"
  | "timeout"
  | "auth"
  | "readOnly"
  | "unsupported"
  | "wrongType"
  | "store"
  | "notHeld"
  | "staleToken"
  | "overloaded"
  | "shutdown"
  | "lost"
  | "internal";

/** An error of this package: a `code` to match on, and a message that names the culprit. */
export class LeaseholdError extends Error {
  /** What went wrong. */
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.code = code;
  }

  /** An error of another copy of this package, such as its other module format, is one too. */
  static override [Symbol.hasInstance](value: unknown): boolean {
    if (this !== LeaseholdError) {
      return Function.prototype[Symbol.hasInstance].call(this, value);
    }
    try {
      return typeof value === "object" && value !== null && BRAND in value;
    } catch {
      // A proxy may refuse to be looked at.
      return false;
    }
  }

  /** Whether the same call may succeed later with nothing changed by the caller. */
  get transient(): boolean {
    return TRANSIENT.has(this.code);
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

const BRAND = Symbol.for("leasehold.error");
Object.defineProperty(LeaseholdError.prototype, BRAND, { value: true });

/** Errors show their class even if the bundle is minified, and without a field in each. */
for (const [type, name] of [
  [LeaseholdError, "LeaseholdError"],
  [LeaseLostError, "LeaseLostError"],
] as const) {
  Object.defineProperty(type.prototype, "name", { value: name, configurable: true });
}

const TRANSIENT: ReadonlySet<ErrorCode> = new Set([
  "unavailable",
  "timeout",
  "readOnly",
  "overloaded",
]);

const WHY: Record<LossReason, string> = {
  expired: "it expired",
  deleted: "its key was deleted",
  superseded: "somebody else holds the lock",
  revoked: "the lock was force-released",
  shutdown: "the locker was shut down",
  crashed: "the lock engine failed",
};
