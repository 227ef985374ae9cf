/**
 * The numbers that a locker has counted so far: two gauges, counters that never fall, and histograms.
 *
 * Every acquired tenure is in one of these states: held, being released, `released`, or `lost` for a reason.
 * Calls that the program canceled are in no counter of calls.
 */
export interface Stats {
  /** Tenures that are held now; a gauge. */
  readonly held: number;
  /**
   * Acquisitions that are pending now, in line or without an answer; a gauge. Calls that wait through one
   * re-entrant handle count as one.
   */
  readonly waiting: number;
  /** Tenures that began. */
  readonly acquired: number;
  /**
   * Calls that did not get the lock because another client held it: at once, or at the end of their timeout.
   */
  readonly busy: number;
  /** Calls to acquire that failed with another error. */
  readonly failed: number;
  /** Tenures whose release the store has confirmed, or that were passed on. */
  readonly released: number;
  /** Lost tenures, by reason. */
  readonly lost: Losses;
  /** Renewals that extended a lease. */
  readonly renewals: number;
  /** Failed renewals, and warnings that the store cannot be reached: the number of `atRisk` events. */
  readonly renewalFailures: number;
  /** Turns that completed their tick. */
  readonly ticksCompleted: number;
  /**
   * Turns of a schedule whose tick an earlier turn had begun and not completed, as far as the runner saw when it
   * asked for the tick.
   */
  readonly ticksRepeated: number;
  /**
   * The sum of the `missed` events: ticks that nobody completed before the turns. If such a turn fails, the next
   * runner counts its missed ticks again.
   */
  readonly ticksMissed: number;
  /**
   * Times that successful calls waited for their lock. A call that joined an existing tenure is not included.
   */
  readonly waitingTimes: Histogram;
  /** Durations of tenures that are over, by release or loss. */
  readonly holdingTimes: Histogram;
  /** Script calls to the store, including requests for the server's clock. */
  readonly scriptCalls: number;
  /** Operations in these script calls, such as acquisitions and renewals. */
  readonly operations: number;
  /** Script calls without a reply in time. */
  readonly timeouts: number;
  /** Messages received on the client's channel: grants, and notices of locks taken away. */
  readonly pushes: number;
  /** Durations of script calls that got a reply, as seen by the locker. */
  readonly roundTrips: Histogram;
}

/** The number of lost tenures for each {@link LossReason}. */
export interface Losses {
  readonly expired: number;
  readonly deleted: number;
  readonly superseded: number;
  readonly revoked: number;
  readonly shutdown: number;
  readonly overheld: number;
  readonly crashed: number;
}

/** A histogram of durations in milliseconds, in buckets with fixed bounds. */
export interface Histogram {
  /** The number of durations. */
  readonly count: number;
  /** The sum of all durations, in whole milliseconds. */
  readonly sum: number;
  /** The upper bounds of all buckets except the last, which has none: from 0.1 to 3,600,000. */
  readonly bounds: readonly number[];
  /**
   * The number of durations in each bucket: no longer than its bound, and longer than the bound before. The
   * last bucket has the durations above all bounds.
   */
  readonly buckets: readonly number[];
}

const MINUTE = 60_000;
const BOUNDS: readonly number[] = Object.freeze([
  ...[0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000],
  ...[MINUTE, 5 * MINUTE, 15 * MINUTE, 60 * MINUTE],
]);

/** The number of values that the engine counts, and how many of these, which come first, are gauges. */
export const COUNTS = [21 + 3 * (BOUNDS.length + 2), 2] as const;

/** Gives the engine's numbers their names. They come in the order of `Counts` in Rust. */
export function statsOf([counts, crashed]: readonly [readonly number[], number]): Stats {
  let at = 0;
  const next = () => counts[at++] as number;
  const histogram = (): Histogram => {
    const sum = Math.floor(next() / 1_000);
    const buckets = counts.slice(at, (at += BOUNDS.length + 1));
    return { count: buckets.reduce((count, more) => count + more, 0), sum, bounds: BOUNDS, buckets };
  };
  // The calls run in this order, which must be that of the engine's numbers.
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
      overheld: next(),
      crashed,
    },
    renewals: next(),
    renewalFailures: next(),
    ticksCompleted: next(),
    ticksRepeated: next(),
    ticksMissed: next(),
    waitingTimes: histogram(),
    holdingTimes: histogram(),
    scriptCalls: next(),
    operations: next(),
    timeouts: next(),
    pushes: next(),
    roundTrips: histogram(),
  };
}
