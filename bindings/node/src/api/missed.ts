import { missedTicks } from "../../../../core/engine/src/limits.jsonc";
import { attempt, config, shown } from "../common/check.js";
import type { Schedule } from "./schedule.js";

/**
 * Chooses which missed ticks are run: those that passed before a runner started, or while a run took longer than a
 * period.
 *
 * - `skip`: a runner that starts waits for the next tick. Ticks that came due during a long run are skipped
 *   except the latest.
 * - `latest`: a runner that starts runs the latest tick at once if it was missed. Earlier ones are skipped.
 * - `{ all }`: all missed ticks run, the oldest first, up to this number of the latest, from 1 to 10,000;
 *   earlier ones are skipped.
 *
 * A tick that was begun and not completed does not count as missed: its next runner gets it.
 */
export type Missed = "skip" | "latest" | { readonly all: number };

/** Returns the option's value. Throws if it is not valid. */
export function missedOf(value: unknown = "skip"): Missed {
  if (value === "skip" || value === "latest") {
    return value;
  }
  const read = () => (value as { all?: unknown }).all;
  const all = typeof value === "object" && value !== null ? attempt("missed cannot be read", read) : undefined;
  if (typeof all !== "number" || !Number.isInteger(all) || all < 1 || all > missedTicks) {
    const got = all === undefined ? shown(value) : `{ all: ${shown(all)} }`;
    throw config(`missed must be "skip", "latest" or { all: 1 to 10,000 ticks }; got ${got}`);
  }
  return { all };
}

/**
 * Returns the tick up to which a runner that starts has nothing to do.
 *
 * @param latest the last tick that is due
 * @param isUnfinished true if a runner began that tick and has not completed it
 */
export function start(missed: Missed, latest: number, isUnfinished: boolean, completed: number | undefined): number {
  const before = Math.max(0, latest - 1);
  if (completed !== undefined && missed !== "skip") {
    return missed === "latest" ? before : completed;
  }
  return isUnfinished ? before : latest;
}

/** Returns the tick up to which a runner has nothing to do, so that no more ticks are left than may run. */
export async function bound(missed: Missed, schedule: Schedule, after: number, now: number): Promise<number> {
  if (typeof missed === "string" || (await schedule.between(after, now + 1, missed.all + 1)) <= missed.all) {
    return after;
  }
  return Math.max(after, await schedule.before(now, missed.all));
}

/** Returns the tick to claim, if `next` is the first that a runner has to do with and due at `now`. */
export function choose(missed: Missed, schedule: Schedule, next: number, now: number): number {
  return typeof missed === "string" ? Math.max(next, schedule.latest(now) ?? next) : next;
}
