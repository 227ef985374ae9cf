import { commandTimeout, connectTimeout, driftMargin, longestTtl, patience, timeToLive, tokenRetention } from "../../../../core/engine/src/limits.jsonc";
import type { OptionKind } from "../common/check.js";

/**
 * Settings of a locker. Each is read once, during the call. Inherited ones and getters count, so an
 * object of a class will do.
 */
export interface LockerOptions {
  /**
   * Keeps the names of this locker apart from those of other programs on the same server: 1 to 128
   * bytes; `"leasehold"` by default.
   */
  readonly namespace?: string | undefined;
  /**
   * The owner of all locks that are given none of their own: an identity of 1 to 128 bytes that may
   * reclaim what it holds. No two lockers that run at the same time should share one. By default locks
   * show the machine and the process, and nobody can reclaim them.
   */
  readonly owner?: string | undefined;
  /**
   * Milliseconds that a connection may take to be made, with TLS, and then the reply to each of the requests
   * that it begins with: 1 to 60,000; 3,000 by default. `Locker.connect` gives up after twice that, and each
   * attempt to get a lost connection back, too. It is of connections that this package makes: a client that
   * the program has keeps its own settings.
   */
  readonly connectTimeout?: number | undefined;
  /**
   * Milliseconds that one attempt waits for the store's reply: 1 to 60,000; 2,000 by default. If it is
   * less, an acquisition waits for the lease's time to live, and a renewal for a third of that.
   */
  readonly commandTimeout?: number | undefined;
  /**
   * Milliseconds that a call keeps trying while the store does not reply, before it fails with the last
   * error: at least one `commandTimeout`, at most 3,600,000 (an hour); 10,000 by default. Waiting for a
   * lock that somebody else holds does not count, because the store does reply then.
   */
  readonly patience?: number | undefined;
  /**
   * By how much the rates of the store's clock and of this machine's clock may differ, in parts per
   * million: 1,000 to 250,000; 2,000 by default, which is 1 in 500. Deadlines are that much earlier than
   * the store's expiry. Exclusion depends on it: as long as the rates differ by less, no two leases on a
   * name are valid at once.
   *
   * The default covers two clocks that are steered by up to 500 ppm each, as ntpd, the kernel and
   * systemd-timesyncd do. chrony slews by up to 83,333 ppm unless `maxslewrate` says less: set that to
   * 500 on the store's machine and on this one, or set 90,000 here if one of them may be slewed that
   * fast, and 170,000 if both may. If the rates differ by more than the margin, that is noticed within a
   * second or two where there is much traffic, else after about three renewals; on a cluster of ioredis
   * or node-redis for each server. The margin is then widened, and the event `clockDrift` says so. Deadlines from before that may be too
   * late.
   *
   * No margin covers a clock that is *set*. If the store's clock is set forward, its keys expire that
   * much too early; if it is set back, a dead holder's lock stays that much longer. Nor does a margin
   * cover a virtual machine that its hypervisor pauses, if its clock stands still meanwhile.
   */
  readonly driftMargin?: number | undefined;
  /**
   * Milliseconds that the store remembers the last token of an unused name, at the least: 1,000 to
   * 31,622,400,000 (366 days); 86,400,000 (24 hours) by default. It matters only if the server's clock is
   * set back by more than the name was unused: else tokens grow anyway, because they follow that clock.
   *
   * Less than an hour is kept to exactly, which makes renewals somewhat dearer; from an hour on a name may
   * be remembered for up to 2,000 s longer.
   */
  readonly tokenRetention?: number | undefined;
  /**
   * The longest time to live in milliseconds that a lease of `Locker.quorum` may have, and for as long a
   * server that may have forgotten locks does not vote: 10 to 86,400,000 (a day); 60,000 by default. One server
   * alone ignores it.
   *
   * Restart servers one at a time, and the next one only when all lockers with leases have emitted
   * `readmitted` for the last; without the events, twice this time and 5 s later.
   *
   * All lockers of a quorum must have the same. Servers that vote keep it: with another value every call that
   * acquires fails with the code `config`, and the error says both. To change it, stop all lockers, wait for the
   * old time, delete the key `{NAMESPACE:}` at every server, and start the lockers with the new one.
   */
  readonly longestTtl?: number | undefined;
  /**
   * Whether a holder hears at once, and not at its next renewal, that somebody else has deleted or
   * overwritten its lock, flushed the database, or let the server evict keys: `true` by default. It costs
   * one read of each lock that lives for a second or more, after it was held for some milliseconds and
   * after each renewal, by `CLIENT TRACKING` on the connection for commands. Not with clusters, sentinels
   * and pools of node-redis, with Upstash and objects with `eval`, without the rights, or with a client
   * that tracks keys itself: those learn of it at the next renewal, and `locker.findings` says what the server
   * refuses. Lockers that share a client share its tracking, which is turned off when the last of them is shut down.
   */
  readonly tracking?: boolean | undefined;
}

/** What a lock is; read as {@link LockerOptions} are. */
export interface LockOptions {
  /** Milliseconds that a lease lives unless it is renewed: 10 ms to 366 days; 30,000 by default. */
  readonly ttl?: number | undefined;
  /** Leases end by themselves after the `ttl`, unless `lease.renew()` is called. */
  readonly fixed?: boolean | undefined;
  /**
   * An identity that outlives the process, of 1 to 128 bytes: a program that restarts and acquires the
   * lock under the same owner takes it over at once, with a new token. Never share one between lockers
   * that run at the same time.
   */
  readonly owner?: string | undefined;
  /**
   * Acquisitions by this handle share one tenure and token: while one has the lock, the next `acquire`
   * returns at once, and the lock is freed when the last of their leases is released. By default each
   * acquisition excludes every other one, even by the same handle.
   */
  readonly reentrant?: boolean | undefined;
  /** Tokens count 1, 2, 3, … They fall back to smaller ones if the store loses its data. */
  readonly denseTokens?: boolean | undefined;
  /**
   * The lock counts only once so many replicas of the server have it, which is asked with `WAIT` in the same
   * round trip: a failover to one of them does not lose it. With fewer within the `replicasTimeout` the lock
   * is given back, and the call fails with the code `notReplicated`; the message says how many of how many
   * there were. The same holds for each renewal: one that too few acknowledge does not extend the lease, the
   * event `atRisk` says so, and it is tried again. A lock that comes from the one before in line counts
   * after one more round trip.
   *
   * It needs one connection for both: ioredis, also by sentinels, or a client of node-redis. With clusters,
   * with sentinels and pools of node-redis, with Upstash, with objects with `eval` and with a store in memory
   * acquiring fails with the code `unsupported`.
   */
  readonly replicas?: number | undefined;
  /**
   * Milliseconds to wait for `replicas`, or for the disk: 1 to 60,000; 1,000 by default. No more is used than a
   * third of the `ttl`. Meanwhile the server serves nothing else on this connection, so renewals of other
   * leases may be late: give locks with a long one a locker with a client of its own.
   */
  readonly replicasTimeout?: number | undefined;
  /**
   * The lock counts only once the server, and so the `replicas` if there are any, have it on the disk, in the
   * append-only file: as of `replicas`. It is asked with `WAITAOF`, which Redis has since 7.2; without that,
   * or without `appendonly yes`, acquiring fails with the code `unsupported`.
   */
  readonly fsynced?: boolean | undefined;
}

/** How an acquisition waits; read as {@link LockerOptions} are. */
export interface AcquireOptions {
  /** When it is aborted, the call gives up and rejects with its reason. */
  readonly signal?: AbortSignal | undefined;
  /**
   * Milliseconds to wait in line at most. 0 takes the lock only if it is free and nobody waits for it;
   * `Infinity`, the default, is no limit. After that the call fails with the code `timeout`, as it also
   * does if the store does not reply; the message says which.
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
  connectTimeout,
  commandTimeout,
  patience,
  driftMargin,
  tokenRetention,
  longestTtl,
  tracking: true,
} as const;

export const DEFAULT_TTL = timeToLive;

export const LOCKER_OPTIONS: Readonly<Record<keyof LockerOptions, OptionKind>> = {
  namespace: "string",
  owner: "string",
  connectTimeout: "number",
  commandTimeout: "number",
  patience: "number",
  driftMargin: "parts",
  tokenRetention: "number",
  longestTtl: "number",
  tracking: "boolean",
};

export const LOCK_OPTIONS: Readonly<Record<keyof LockOptions, OptionKind>> = {
  ttl: "number",
  fixed: "boolean",
  reentrant: "boolean",
  owner: "string",
  denseTokens: "boolean",
  replicas: "count",
  replicasTimeout: "number",
  fsynced: "boolean",
};

export const ACQUIRE_OPTIONS: Readonly<Record<keyof AcquireOptions, OptionKind>> = {
  signal: "signal",
  timeout: "limit",
};

export const RENEW_OPTIONS: Readonly<Record<keyof RenewOptions, OptionKind>> = {
  ttl: "number",
};
