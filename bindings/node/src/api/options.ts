import { bundleNames, commandTimeout, connectTimeout, driftMargin, longestTtl, patience, timeToLive, tokenRetention } from "../../../../core/engine/src/limits.jsonc";
import { type OptionKind, SIGNAL_OPTION } from "../common/check.js";
import type { Missed } from "./missed.js";

/**
 * Settings of a locker. Each is read once, during the call. Inherited properties and getters count, so an
 * instance of a class will do.
 */
export interface LockerOptions {
  /**
   * Separates this locker's names from those of other programs on the same server: 1 to 128 bytes;
   * `"leasehold"` by default.
   */
  readonly namespace?: string | undefined;
  /**
   * The owner of all locks that have no `owner` of their own: an identity of 1 to 128 bytes that may reclaim
   * its locks.
   *
   * Lockers that run at the same time must not share one. By default locks show the machine and the process,
   * and nobody can reclaim them.
   */
  readonly owner?: string | undefined;
  /**
   * Milliseconds to make a connection, with TLS, and then for the reply to each of its first requests: 1 to
   * 60,000; 3,000 by default.
   *
   * `Locker.connect` and each attempt to reconnect give up after twice this time. It applies to
   * connections that this package makes: the program's own client keeps its settings.
   */
  readonly connectTimeout?: number | undefined;
  /**
   * Milliseconds that one attempt waits for the store's reply: 1 to 60,000; 2,000 by default. An acquisition
   * waits no longer than the lease's time to live, and a renewal no longer than a third of it.
   */
  readonly commandTimeout?: number | undefined;
  /**
   * Milliseconds that a call keeps retrying while the store does not reply: at least one `commandTimeout`, at
   * most 3,600,000 (an hour); 10,000 by default.
   *
   * Then the call fails with the last error. Waiting for a held lock does not count, because the store
   * replies meanwhile.
   */
  readonly patience?: number | undefined;
  /**
   * The largest expected difference in rate between the store's clock and this machine's, in parts per
   * million: 1,000 to 250,000; 2,000 by default (1 in 500).
   *
   * Deadlines come that much earlier than the store's expiry. Exclusion depends on it: no two leases on a
   * name are valid at once as long as the rates differ by less.
   *
   * The default covers two clocks that are each slewed by up to 500 ppm, as ntpd, the kernel and
   * systemd-timesyncd do. chrony slews by up to 83,333 ppm unless `maxslewrate` says less. Set `maxslewrate`
   * to 500 on the store's machine and on this one. Otherwise set this margin to 90,000 if one of them may
   * slew that fast, or to 170,000 if both may.
   *
   * The locker notices a larger difference within a second or two under heavy traffic, and otherwise after
   * about three renewals. On a cluster of ioredis or node-redis it watches each server. It then widens the
   * margin and emits `clockDrift`. Deadlines from before that may have been too late.
   *
   * No margin covers a clock that is *set*. If the store's clock is set forward, keys expire that much too
   * early. If it is set back, a crashed holder's lock stays that much longer. Nor does a margin cover a
   * virtual machine whose clock stops while its hypervisor pauses it.
   */
  readonly driftMargin?: number | undefined;
  /**
   * The least time in milliseconds that the store remembers the last token of an unused name: 1,000 to
   * 31,622,400,000 (366 days); 86,400,000 (24 hours) by default.
   *
   * It matters only if the server's clock is set back by more than the time the name was unused. Otherwise
   * tokens grow anyway, because they follow that clock.
   *
   * Values below an hour are kept exactly, which makes renewals slightly more expensive. From an hour on, a
   * name may be remembered for up to 2,000 s longer.
   */
  readonly tokenRetention?: number | undefined;
  /**
   * The longest `ttl` of a lease of `Locker.quorum`, in milliseconds: 10 to 86,400,000 (a day); 60,000 by
   * default. A locker on a single server ignores it.
   *
   * A server that may have forgotten locks does not vote for this long. Restart servers one at a time, and
   * the next one only after all lockers that hold leases have emitted `readmitted` for the last. Without
   * these events, wait for twice this time plus 5 s.
   *
   * All lockers of a quorum must use the same value. The servers store it, and every acquisition with another
   * value fails with the code `config`; the error has both values. To change it, stop all lockers, wait for
   * the old time, delete the key `{NAMESPACE:}` on every server, and start the lockers with the new value.
   */
  readonly longestTtl?: number | undefined;
  /**
   * Lets a holder learn at once, and not at its next renewal, that another client deleted or overwrote its
   * lock, flushed the database, or made the server evict keys: `true` by default.
   *
   * It uses `CLIENT TRACKING` on the connection for commands. It costs one read of each lock that lives for a
   * second or more, after it was held for some milliseconds and after each renewal. Lockers that share a
   * client share its tracking, and the shutdown of the last of them turns it off.
   *
   * It does not work with clusters, with node-redis sentinels and pools, with Upstash, with objects with
   * `eval`, without the needed rights, or with a client that itself tracks keys. These holders learn of
   * changes at the next renewal. `locker.findings` shows what the server refused.
   */
  readonly tracking?: boolean | undefined;
  /**
   * True to run the locker's engine, connections and timers in a worker thread, so that leases are renewed
   * while the program blocks its event loop: `false` by default. One thread serves all such lockers of the
   * process.
   *
   * `lease.valid` and `lease.remaining` then read shared memory: they are right even in a loop that never
   * yields. Events, signals and the answers of calls still need the event loop. **A program that hangs keeps
   * its locks**, because nothing but its own progress would tell the thread.
   *
   * If the thread fails, the leases of all its lockers are lost with the reason `crashed`, and their pending
   * calls fail with the code `internal`. The next call starts another thread.
   *
   * It needs Node 20.16 or 22.3, Deno or Bun, and URLs of servers: the program's own clients and in-memory
   * stores cannot go to another thread.
   */
  readonly thread?: boolean | undefined;
}

/** Options of a lock, read as {@link LockerOptions} are. */
export interface LockOptions {
  /** Milliseconds that a lease lives unless it is renewed: 10 ms to 366 days; 30,000 by default. */
  readonly ttl?: number | undefined;
  /**
   * True for leases that end after the `ttl`, unless `lease.renew()` is called. By default leases are renewed
   * in the background.
   */
  readonly fixed?: boolean | undefined;
  /**
   * An identity of 1 to 128 bytes that outlives the process.
   *
   * A program that restarts and acquires the lock under the same owner takes it over at once, with a new
   * token. Lockers that run at the same time must not share one.
   */
  readonly owner?: string | undefined;
  /**
   * True if acquisitions by this handle share one tenure and token.
   *
   * While one of them has the lock, the next `acquire` returns at once. The lock is freed when the last of
   * their leases is released. By default each acquisition excludes every other one, even by the same handle.
   */
  readonly reentrant?: boolean | undefined;
  /**
   * True for tokens that count 1, 2, 3, … They start again from a smaller number if the store loses its data.
   */
  readonly denseTokens?: boolean | undefined;
  /**
   * The number of the server's replicas that must have the lock before it counts. A failover to one of these
   * replicas does not lose the lock.
   *
   * The server is asked with `WAIT` in the same round trip. If fewer replicas confirm within the
   * `replicasTimeout`, the lock is given back and the call fails with the code `notReplicated`; the message
   * has both numbers. A renewal that too few replicas confirm does not extend the lease: the locker emits
   * `atRisk` and retries. A lock that a release handed over counts after one more round trip.
   *
   * It needs one connection for both commands: ioredis, also with sentinels, or a node-redis client.
   * Acquiring fails with the code `unsupported` on clusters, node-redis sentinels and pools, Upstash, objects
   * with `eval`, and in-memory stores.
   */
  readonly replicas?: number | undefined;
  /**
   * Milliseconds to wait for `replicas` or for the disk: 1 to 60,000; 1,000 by default; at most a third of
   * the `ttl` is used.
   *
   * Meanwhile the server handles no other commands of this connection, so renewals of other leases may be
   * late. Give locks with a long timeout a locker with its own client.
   */
  readonly replicasTimeout?: number | undefined;
  /**
   * True if the server, and the `replicas` if any, must have the lock in their append-only file on disk
   * before it counts.
   *
   * It works as `replicas` does, with `WAITAOF`, which needs Redis 7.2. Without it, or without `appendonly
   * yes`, acquiring fails with the code `unsupported`.
   */
  readonly fsynced?: boolean | undefined;
  /**
   * The longest time in milliseconds that a lease may be held, however often it is renewed: from the `ttl` to
   * 366 days; no limit by default.
   *
   * The time counts from the request, or the handover, that got the lock. When the deadline has reached it, renewals end, and
   * `atRisk` says so with the code `overheld`, at least a third of the `ttl` ahead as a rule. Then the lease
   * is lost with the reason `overheld`, and the next waiter has the lock at once. The store ends the lease at
   * about that age even if the holder was cut off meanwhile.
   */
  readonly atMost?: number | undefined;
  /**
   * Keeps the name taken after a release until the lease would have this age, in milliseconds: up to 366
   * days, and not more than `atMost`; 0 by default.
   *
   * A machine whose clock is a little behind then does not run a short job again. The lease
   * itself ends at once and emits `released`. Until the name is free, nobody gets it, not even its `owner`,
   * except after a forced release. If less than 5 s were left at the release, a waiter may notice up to that
   * much later that the name is free.
   *
   * Only a release keeps the name: after a loss, a crash or a shutdown it is free at the latest when the `ttl`
   * is over.
   *
   * At a quorum a release is confirmed once a majority keeps the name. Otherwise it fails, and the lease is lost as
   * `expired`. Until a waiter notices that the name is free, a later caller may come first there.
   */
  readonly atLeast?: number | undefined;
}

/**
 * Options of `Locker.all` and `Locker.allAtOnce`, which hold for every name.
 *
 * A `fixed` lease would expire while another name is awaited. `atLeast` would keep names taken that were acquired
 * in vain. Re-entrant handles share single tenures. So these are missing.
 */
export type LockSetOptions = Omit<LockOptions, "fixed" | "reentrant" | "atLeast">;

/**
 * Options of a name that several holders share, read as {@link LockerOptions} are.
 *
 * `ttl`, `fixed` and `atMost` are those of {@link LockOptions}, and hold for each permit. The other options
 * of locks are missing: a permit cannot be re-entrant, reclaimed, or kept taken after its release.
 */
export interface SharedOptions extends Pick<LockOptions, "ttl" | "fixed" | "atMost"> {
  /**
   * The label that others see, of 1 to 128 bytes; by default the locker's `owner`, or the machine and
   * process. It reclaims nothing: an owner may hold several permits.
   */
  readonly owner?: string | undefined;
  /**
   * The most waiters: an acquisition that finds this many ahead of it fails at once with the code
   * `overloaded`. No limit by default.
   */
  readonly maxLine?: number | undefined;
}

/** Options of a semaphore or quota, read as {@link LockerOptions} are. */
export interface SemaphoreOptions extends SharedOptions {
  /**
   * True to refuse a name whose capacity at the store is not this handle's: an acquisition fails with the
   * code `config` as soon as it would get a permit. By default it continues with the store's capacity, and
   * emits `capacityDiffers`; `Locker.findings` lists the name.
   */
  readonly strict?: boolean | undefined;
}

/** Options of a job, read as {@link LockerOptions} are. A job without a schedule takes ticks of your own. */
export interface JobOptions {
  /**
   * Milliseconds between two ticks, from 10 to 31,622,400,000 (366 days). The job is due at the multiples of
   * this period since 1970, by the server's clock. Fractions do not count.
   */
  readonly every?: number | undefined;
  /**
   * A cron text by which the job is due, such as `0 6 * * *`: five fields, or six with seconds first. It needs
   * a `timeZone`.
   *
   * The package [croner](https://www.npmjs.com/package/croner) reads the text when the job is first used. If
   * the text is not valid or never due, that use fails with the code `config`.
   */
  readonly cron?: string | undefined;
  /**
   * The time zone of `cron`: a name of the IANA database that the runtime knows, such as `Europe/Berlin`, or
   * `UTC`.
   */
  readonly timeZone?: string | undefined;
  /** Chooses which missed ticks are run: `"skip"` by default. See {@link Missed}. */
  readonly missed?: Missed | undefined;
  /**
   * Milliseconds that a turn's lease lives unless it is renewed: 10 ms to 366 days; 30,000 by default. After a
   * crash the tick goes to the next runner when this time is over.
   */
  readonly ttl?: number | undefined;
  /**
   * The longest time in milliseconds that a turn may last, however often its lease is renewed: see
   * {@link LockOptions.atMost}. The same tick then goes to the next runner.
   */
  readonly atMost?: number | undefined;
}

/** Options of a claim, read as {@link LockerOptions} are. */
export interface ClaimOptions {
  /** A signal that cancels the call when it is aborted. The call then rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  /**
   * The longest time in milliseconds to wait for another runner; `Infinity` by default. With 0 the call does
   * not wait.
   */
  readonly timeout?: number | undefined;
}

/** Options of an acquisition, read as {@link LockerOptions} are. */
export interface AcquireOptions {
  /** A signal that cancels the call when it is aborted. The call then rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  /**
   * The longest time to wait in line, in milliseconds; `Infinity` by default.
   *
   * After that the call fails with the code `timeout`. It also does if the store does not reply; the message
   * says which. If the store cannot be reached until then, the code is `unavailable`. With 0 the call takes the
   * lock only if it is free and has no waiters.
   */
  readonly timeout?: number | undefined;
}

/** Options of the acquisition of a permit, read as {@link LockerOptions} are. */
export interface PermitOptions extends AcquireOptions {
  /** The number of slots, at most 64, or of units, all at once: from 1 to the capacity; 1 by default. */
  readonly weight?: number | undefined;
}

/** Options of a renewal. */
export interface RenewOptions {
  /**
   * Another time to live in milliseconds, 10 ms to 366 days, for this and all later renewals, including those
   * in the background. It never shortens the time that is left of the lease.
   */
  readonly ttl?: number | undefined;
}

/** Options of a request to yield. */
export interface YieldOptions {
  /** How long the holder has, in milliseconds, up to 366 days. */
  readonly within: number;
  /** True to free the lock by force if the holder still has it after that. */
  readonly force?: boolean | undefined;
  /** A signal that ends the waiting when it is aborted. The call then rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Options of `Locker.observe`, read as {@link LockerOptions} are. */
export interface ObserveOptions {
  /** Milliseconds between two looks at the lock, each one script call: 10 ms to 366 days; 1,000 by default. */
  readonly every?: number | undefined;
  /** A signal that ends the loop when it is aborted. */
  readonly signal?: AbortSignal | undefined;
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
  thread: false,
} as const;

export const DEFAULT_TTL = timeToLive;

/** The most names in one bundle. */
export const MOST_NAMES = bundleNames;

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
  thread: "boolean",
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
  atMost: "number",
  atLeast: "number",
};

export const LOCK_SET_OPTIONS: Readonly<Record<keyof LockSetOptions, OptionKind>> = {
  ttl: "number",
  owner: "string",
  denseTokens: "boolean",
  replicas: "count",
  replicasTimeout: "number",
  fsynced: "boolean",
  atMost: "number",
};

export const SHARED_OPTIONS: Readonly<Record<keyof SharedOptions, OptionKind>> = {
  ttl: "number",
  fixed: "boolean",
  owner: "string",
  atMost: "number",
  maxLine: "whole",
};

export const SEMAPHORE_OPTIONS: Readonly<Record<keyof SemaphoreOptions, OptionKind>> = {
  ...SHARED_OPTIONS,
  strict: "boolean",
};

export const JOB_OPTIONS: Readonly<Record<keyof JobOptions, OptionKind>> = {
  every: "number",
  cron: "string",
  timeZone: "string",
  missed: "any",
  ttl: "number",
  atMost: "number",
};

export const ACQUIRE_OPTIONS: Readonly<Record<keyof AcquireOptions, OptionKind>> = {
  signal: "signal",
  timeout: "limit",
};

export const PERMIT_OPTIONS: Readonly<Record<keyof PermitOptions, OptionKind>> = {
  ...ACQUIRE_OPTIONS,
  weight: "whole",
};

export const TRY_PERMIT_OPTIONS: Readonly<Record<"weight" | "signal", OptionKind>> = {
  ...SIGNAL_OPTION,
  weight: "whole",
};

export const RENEW_OPTIONS: Readonly<Record<keyof RenewOptions, OptionKind>> = {
  ttl: "number",
};

export const YIELD_OPTIONS: Readonly<Record<keyof YieldOptions, OptionKind>> = {
  within: "number",
  force: "boolean",
  signal: "signal",
};

export const OBSERVE_OPTIONS: Readonly<Record<keyof ObserveOptions, OptionKind>> = {
  every: "number",
  signal: "signal",
};
