import type { Kind } from "../common/check.js";

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

export const ACQUIRE_OPTIONS: Readonly<Record<keyof AcquireOptions, Kind>> = {
  signal: "signal",
  timeout: "limit",
};

export const RENEW_OPTIONS: Readonly<Record<keyof RenewOptions, Kind>> = {
  ttl: "number",
};
