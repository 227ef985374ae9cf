import { LeaseholdError } from "../common/errors.js";
import { messageOf } from "../common/printable.js";

/**
 * Settings of a locker. Each is read once, as the call is made; inherited ones and those of getters
 * count, so that an object of a class will do.
 */
export interface LockerOptions {
  /**
   * What its names are apart by from those of others on the same server: 1 to 128 bytes;
   * `"leasehold"` by default.
   */
  readonly namespace?: string | undefined;
  /**
   * The owner of all locks that have none of their own: a reclaimable identity, 1 to 128 bytes, which
   * no two lockers that run at the same time should share. By default locks show the machine and the
   * process, and nobody reclaims them.
   */
  readonly owner?: string | undefined;
  /**
   * Milliseconds that one attempt waits for the store's answer: 1 to 60,000; 2,000 by default. An
   * acquisition waits its lease's time to live, and a renewal a third of it, if that is less.
   */
  readonly commandTimeout?: number | undefined;
  /**
   * Milliseconds that a call goes on trying while the store gives no answer, before it fails with the
   * last error: up to 3,600,000 (an hour), and one `commandTimeout` at least; 10,000 by default.
   * Waiting for a lock that somebody else holds does not count: there the store does answer.
   */
  readonly patience?: number | undefined;
  /**
   * How far the rates of the store's clock and of this machine's may differ, in parts per million: 1,000
   * to 250,000; 2,000 by default, which is 1 in 500. Deadlines come so much earlier than the store's
   * expiry. Exclusion rests on it: as long as the clocks differ by less, no two leases on a name are
   * valid at once.
   *
   * The default covers two clocks that are steered by up to 500 ppm each, as ntpd, the kernel and
   * systemd-timesyncd do. chrony slews by up to 83,333 ppm unless `maxslewrate` says less: set that to
   * 500 on the store's machine and on this one, or set 90,000 here if one of them is steered so, and
   * 170,000 if both are. Rates that differ by more are noticed within a second or two where there is
   * much traffic, else after three renewals or so, but not on a cluster; then the margin is widened, and
   * the event `clockDrift` says so. What was promised before that may be too long.
   *
   * No margin covers a clock that is *set*: if the store's is set forward, its keys expire so much early,
   * and if it is set back, a dead holder's lock stays so much longer; nor a virtual machine that its
   * hypervisor holds up, if its clock stands still meanwhile.
   */
  readonly driftMargin?: number | undefined;
  /**
   * Milliseconds that the store remembers the last token of an unused name: 1,000 to 31,622,400,000
   * (366 days); 604,800,000 (7 days) by default. Tokens grow even past it, as long as the server's
   * clock does.
   */
  readonly tokenRetention?: number | undefined;
}

/** What a lock is; read as {@link LockerOptions} are. */
export interface LockOptions {
  /** Milliseconds that a lease lives unless it is renewed: 10 ms to 366 days; 30,000 by default. */
  readonly ttl?: number | undefined;
  /** Leases end by themselves after the `ttl`, unless `lease.renew()` is called. */
  readonly fixed?: boolean | undefined;
  /**
   * An identity that outlives the process: who restarts and asks under the same owner takes the lock
   * over at once, with a new token. 1 to 128 bytes. Never share one between lockers that run at the
   * same time.
   */
  readonly owner?: string | undefined;
  /**
   * Acquisitions by this handle share one tenure and token: while one has the lock, the next `acquire`
   * returns at once, and the lock is freed when the last of their leases is released. By default each
   * acquisition excludes every other one, also by the same handle.
   */
  readonly reentrant?: boolean | undefined;
  /** Tokens count 1, 2, 3, … They fall back if the store loses its data. */
  readonly denseTokens?: boolean | undefined;
}

/** How an acquisition waits; read as {@link LockerOptions} are. */
export interface AcquireOptions {
  /** Gives up when it is aborted, with its reason. */
  readonly signal?: AbortSignal | undefined;
  /**
   * Milliseconds to wait in line at the most. 0 takes the lock only if it is free and nobody waits for
   * it; `Infinity`, the default, is no limit. What then comes is of the code `timeout`, as it is if the
   * store gave no answer; the message tells which.
   */
  readonly timeout?: number | undefined;
}

/** How a lease is extended. */
export interface RenewOptions {
  /**
   * Another time to live in milliseconds, 10 ms to 366 days, for this renewal and for those that follow,
   * also in the background. What is left of the lease is never cut short.
   */
  readonly ttl?: number | undefined;
}

export const LOCKER_DEFAULTS = {
  namespace: "leasehold",
  commandTimeout: 2_000,
  patience: 10_000,
  driftMargin: 2_000,
  tokenRetention: 7 * 24 * 60 * 60 * 1_000,
} as const;

export const DEFAULT_TTL = 30_000;

/**
 * Reads each option once, and checks its type; its value is checked by the engine. Nobody is to look
 * at the object again: a getter may give something else by then.
 *
 * Inherited options and getters count, as those of a class of settings. Names that are not known are
 * refused if they are the object's own.
 */
export function readOptions<Options extends object>(
  what: string,
  options: Options | undefined,
  types: Readonly<Record<keyof Options & string, Kind>>,
): Options {
  const values: Record<string, unknown> = {};
  if (options === undefined) {
    return values as Options;
  }
  if (typeof options !== "object" || options === null || isArray(options)) {
    throw config(`${what} are an object, not ${shown(options)}`);
  }
  const unknown = attempt(`${what} cannot be read`, () => Object.keys(options).find((key) => !Object.hasOwn(types, key)));
  if (unknown !== undefined) {
    const known = Object.keys(types).join(", ");
    throw config(`${what} have no ${JSON.stringify(unknown)}; there are: ${known}`);
  }
  for (const key of Object.keys(types) as (keyof Options & string)[]) {
    const option = `${what}: ${key}`;
    const value: unknown = attempt(`${option} cannot be read`, () => options[key]);
    if (value !== undefined) {
      attempt(`${option} cannot be read`, () => CHECKS[types[key]](option, value));
      values[key] = value;
    }
  }
  return values as Options;
}

/** What a value may be. */
export type Kind = "string" | "number" | "parts" | "limit" | "boolean" | "signal" | "function" | "any";

export const LOCKER_OPTIONS: Readonly<Record<keyof LockerOptions, Kind>> = {
  namespace: "string",
  owner: "string",
  commandTimeout: "number",
  patience: "number",
  driftMargin: "parts",
  tokenRetention: "number",
};

export const LOCK_OPTIONS: Readonly<Record<keyof LockOptions, Kind>> = {
  ttl: "number",
  fixed: "boolean",
  reentrant: "boolean",
  owner: "string",
  denseTokens: "boolean",
};

export const SIGNAL_OPTION: Readonly<Record<"signal", Kind>> = { signal: "signal" };

export const ACQUIRE_OPTIONS: Readonly<Record<keyof AcquireOptions, Kind>> = {
  signal: "signal",
  timeout: "limit",
};

export const RENEW_OPTIONS: Readonly<Record<keyof RenewOptions, Kind>> = {
  ttl: "number",
};

/** A text, with nothing in it that UTF-8 cannot carry. */
export function checkText(what: string, value: unknown): asserts value is string {
  if (typeof value !== "string") {
    throw config(`${what} is a string, not ${shown(value)}`);
  }
  // Two such names would be one in the store.
  if (LONE_SURROGATE.test(value)) {
    throw config(`${what} has half of a surrogate pair in it, which is not text`);
  }
}

/** Touches an object of the program, which may throw whatever is done to it; `failed` is then said. */
export function attempt<T>(failed: string, touch: () => T): T {
  try {
    return touch();
  } catch (cause) {
    throw cause instanceof LeaseholdError ? cause : config(`${failed}: ${messageOf(cause)}`, cause);
  }
}

/** Refuses what is no function. */
export function checkFunction(what: string, value: unknown): void {
  if (typeof value !== "function") {
    throw config(`${what} is a function, not ${shown(value)}`);
  }
}

export function config(message: string, cause?: unknown): LeaseholdError {
  return new LeaseholdError("config", message, cause === undefined ? undefined : { cause });
}

const LONE_SURROGATE = /\p{Surrogate}/u;

const CHECKS: Readonly<Record<Kind, (what: string, value: unknown) => void>> = {
  string: checkText,
  number(what, value) {
    if (!isTime(value) || value === Infinity) {
      throw config(`${what} is a number of milliseconds from 0 up, not ${shown(value)}`);
    }
  },
  parts(what, value) {
    if (!Number.isSafeInteger(value) || !isTime(value)) {
      throw config(`${what} is a whole number of parts per million from 0 up, not ${shown(value)}`);
    }
  },
  limit(what, value) {
    if (!isTime(value)) {
      throw config(`${what} is a number of milliseconds from 0 up, or Infinity, not ${shown(value)}`);
    }
  },
  boolean(what, value) {
    if (typeof value !== "boolean") {
      throw config(`${what} is true or false, not ${shown(value)}`);
    }
  },
  signal(what, value) {
    const signal = value as Partial<AbortSignal> | null;
    const methods = [signal?.addEventListener, signal?.removeEventListener];
    if (typeof signal?.aborted !== "boolean" || methods.some((method) => typeof method !== "function")) {
      throw config(`${what} is an AbortSignal, not ${shown(value)}`);
    }
  },
  function: checkFunction,
  any() {},
};

/** A proxy that was revoked is asked in vain. */
function isArray(value: object): boolean {
  try {
    return Array.isArray(value);
  } catch {
    return false;
  }
}

function isTime(value: unknown): value is number {
  return typeof value === "number" && value >= 0;
}

/** A value as messages show it: short, and never what is in an object. */
export function shown(value: unknown): string {
  switch (typeof value) {
    case "string":
      return JSON.stringify(value.length > 40 ? `${value.slice(0, 40)}…` : value);
    case "number":
    case "boolean":
    case "undefined":
      return String(value);
    case "object":
      return value === null ? "null" : isArray(value) ? "an array" : "an object";
    default:
      return `a ${typeof value}`;
  }
}
