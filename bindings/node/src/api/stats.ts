/**
 * What a locker has done since it was made: two gauges, counters that never fall, and histograms.
 *
 * Of tenures, each was `acquired` and then `released`, or `lost` for a reason, or it is `held`, or its
 * release is under way. Calls that the program gave up are in no counter of calls.
 */
export interface Stats {
  /** Tenures that are held now. A gauge. */
  readonly held: number;
  /**
   * Acquisitions that are under way now: in line, or not answered yet. Calls that wait through one
   * re-entrant handle are one. A gauge.
   */
  readonly waiting: number;
  /** Tenures that began. */
  readonly acquired: number;
  /** Calls that were answered that somebody else has the lock: at once, or when their time to wait was over. */
  readonly busy: number;
  /** Calls to acquire that failed with another error. */
  readonly failed: number;
  /** Tenures whose release the store has confirmed. */
  readonly released: number;
  /** Tenures that were lost, by reason. */
  readonly lost: Losses;
  /** Renewals that lengthened a lease. */
  readonly renewals: number;
  /**
   * Renewals that failed, and times that a holder was warned because the store cannot be reached: the
   * events `atRisk`.
   */
  readonly renewalFailures: number;
  /**
   * How long calls that got a lock had waited for it. A call that shares a tenure that there is already is
   * not among them.
   */
  readonly waitingTimes: Histogram;
  /** How long tenures lasted that are over, whether they were released or lost. */
  readonly holdingTimes: Histogram;
  /** Calls of the script, questions for the server's clock among them. */
  readonly scriptCalls: number;
  /** Operations in these calls, such as an acquisition or a renewal. */
  readonly operations: number;
  /** Script calls that were not answered in time. */
  readonly timeouts: number;
  /** Messages that were heard on the client's channel: grants, and what was taken away. */
  readonly pushes: number;
  /** How long script calls took that were answered, as the locker sees it. */
  readonly roundTrips: Histogram;
}

/** Counts by {@link LossReason}. */
export interface Losses {
  readonly expired: number;
  readonly deleted: number;
  readonly superseded: number;
  readonly revoked: number;
  readonly shutdown: number;
  readonly crashed: number;
}

/** How long something took, as counts in buckets with fixed bounds. Times are milliseconds. */
export interface Histogram {
  /** How many there were. */
  readonly count: number;
  /** How long they took together, in whole milliseconds. */
  readonly sum: number;
  /** The longest time of each bucket but the last, which has none: from 0.1 to 3,600,000. */
  readonly bounds: readonly number[];
  /**
   * How many took no longer than each of the bounds, and longer than the one before; and how many took
   * longer than the last.
   */
  readonly buckets: readonly number[];
}

const MINUTE = 60_000;
const BOUNDS: readonly number[] = Object.freeze([
  ...[0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000],
  ...[MINUTE, 5 * MINUTE, 15 * MINUTE, 60 * MINUTE],
]);

/** How many numbers the engine has counted, and how many of them, which come first, are gauges. */
export const COUNTS = [17 + 3 * (BOUNDS.length + 2), 2] as const;

/** The engine's numbers with their names: those of `Counts` in Rust, in their order. */
export function statsOf([counts, crashed]: readonly [readonly number[], number]): Stats {
  let at = 0;
  const next = () => counts[at++] as number;
  const histogram = (): Histogram => {
    const sum = Math.floor(next() / 1_000);
    const buckets = counts.slice(at, (at += BOUNDS.length + 1));
    return { count: buckets.reduce((count, more) => count + more, 0), sum, bounds: BOUNDS, buckets };
  };
  // Properties are made in the order in which they stand here.
  return {
    held: next(),
    waiting: next(),
    acquired: next(),
    busy: next(),
    failed: next(),
    released: next(),
    lost: {
      expired: next(),
      deleted: next(),
      superseded: next(),
      revoked: next(),
      shutdown: next(),
      crashed,
    },
    renewals: next(),
    renewalFailures: next(),
    waitingTimes: histogram(),
    holdingTimes: histogram(),
    scriptCalls: next(),
    operations: next(),
    timeouts: next(),
    pushes: next(),
    roundTrips: histogram(),
  };
}
