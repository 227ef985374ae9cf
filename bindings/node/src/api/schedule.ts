import { comparedTicks, longestPeriod, longestSleep, missedTicks, shortestPeriod } from "../../../../core/engine/src/limits.jsonc";
import { config } from "../common/check.js";
import { messageOf } from "../common/printable.js";
import { startTimer } from "../common/platform.js";

/** When a job is due. Times are milliseconds since 1970 by the server's clock, and so are ticks. */
export interface Schedule {
  /** Twice the longest time between two ticks: how long a completed tick has to be remembered. */
  readonly retention: number;
  /** Returns the first tick after this time; `undefined` if there is none. */
  next(after: number): number | undefined;
  /** Returns the last tick up to this time; `undefined` if there is none. */
  latest(until: number): number | undefined;
  /** Counts the ticks after `from` and before `to`. A cron text's are counted up to `most`. */
  between(from: number, to: number, most?: number): Promise<number>;
  /** Returns the time before the last `count` ticks up to this time; 0 if there are fewer. */
  before(until: number, count: number): Promise<number>;
}

/** Returns a function that makes the schedule that a job's options ask for, if any. Checks only its period. */
export function scheduleOf({ every: period, cron: text, timeZone }: Options): () => Schedule | Promise<Schedule> | undefined {
  if ((text === undefined) !== (timeZone === undefined)) {
    throw config("`cron` and `timeZone` must be given together");
  }
  if (text !== undefined && timeZone !== undefined) {
    if (period !== undefined) {
      throw config("a job has `every` or `cron`; got both");
    }
    return () => cron(text, timeZone);
  }
  const schedule = period === undefined ? undefined : every(period);
  return () => schedule;
}

/**
 * Returns how long it is until the next tick, if that is due within a tenth of the time since the latest one,
 * and within a minute; otherwise 0.
 */
export function soon(schedule: Schedule, now: number, latest: number | undefined): number {
  const next = schedule.next(now);
  if (latest === undefined || next === undefined) {
    return 0;
  }
  return next - now <= Math.min((next - latest) / 10, longestSleep) ? next - now : 0;
}

interface Options {
  readonly every?: number | undefined;
  readonly cron?: string | undefined;
  readonly timeZone?: string | undefined;
}

/** Returns the schedule of the multiples of a period since 1970. Fractions of a millisecond do not count. */
function every(time: number): Schedule {
  if (time < shortestPeriod || time > longestPeriod) {
    throw config(`every must be from 10 ms to 366 days; got ${time} ms`);
  }
  const period = Math.floor(time);
  const count = (until: number) => Math.floor(until / period);
  return {
    retention: 2 * period,
    next: (after) => (count(after) + 1) * period,
    latest: (until) => count(until) * period || undefined,
    between: async (from, to) => Math.max(0, count(Math.max(0, to - 1)) - count(from)),
    before: async (until, many) => Math.max(0, (count(until) - many + 1) * period - 1),
  };
}

/** How many due times are counted while the event loop waits. */
const AT_ONCE = 100;

/** Returns the schedule of a cron text in a time zone. Loads the package that reads such texts. */
async function cron(text: string, timeZone: string): Promise<Schedule> {
  const { Cron } = await croner();
  checkTimeZone(timeZone);
  let read: InstanceType<typeof Cron>;
  try {
    checkFields(text);
    read = new Cron(text, { timezone: timeZone, paused: true });
  } catch (cause) {
    throw config(`the cron text ${JSON.stringify(text)} is not valid: ${messageOf(cause)}`, cause);
  }
  const following = (after: number, count: number) => read.nextRuns(count, new Date(after)).map(Number);
  // The package's search excludes its start.
  const earlier = (until: number, count: number) => read.previousRuns(count, new Date(until + 1)).map(Number);
  const compared = following(Date.now(), comparedTicks);
  if (compared.length === 0) {
    throw config(`the cron text ${JSON.stringify(text)} is never due`);
  }
  const pauses = compared.map((tick, at) => (compared[at + 1] ?? tick) - tick);
  return {
    retention: 2 * Math.max(...pauses),
    next: (after) => following(after, 1)[0],
    latest: (until) => earlier(until, 1)[0],
    async between(from, to, most = missedTicks) {
      let counted = 0;
      // Usually there is none.
      for (let last = from, size = 1; counted < most; size = AT_ONCE) {
        const ticks = following(last, size).filter((tick) => tick < to);
        counted += ticks.length;
        last = ticks.at(-1) ?? last;
        if (ticks.length < size) {
          break;
        }
        await othersRun();
      }
      return Math.min(counted, most);
    },
    async before(until, count) {
      let before = until;
      for (let left = count; left > 0 && before > 0; left -= AT_ONCE) {
        const size = Math.min(left, AT_ONCE);
        const ticks = earlier(before, size);
        before = Math.max(0, (ticks[size - 1] ?? 0) - 1);
        await othersRun();
      }
      return before;
    },
  };
}

/** The greatest step of each field: seconds, minutes, hours, days, months and days of the week. */
const MOST_STEPS = [60, 60, 24, 31, 12, 7];

/** Refuses what the package of one language reads and that of the other does not: the machines of a job may be of both. */
function checkFields(text: string): void {
  if (text.includes(":")) {
    throw new Error("it has a colon, as a date has");
  }
  const fields = text.trim().split(/\s+/);
  if (fields[0]!.startsWith("@")) {
    return;
  }
  const without = MOST_STEPS.length - fields.length;
  if (without !== 0 && without !== 1) {
    throw new Error(`it has ${fields.length} fields, not five or six`);
  }
  for (const [at, field] of fields.entries()) {
    const most = MOST_STEPS[at + without]!;
    for (const part of field.split(",")) {
      if (part === "" || part.includes("?")) {
        throw new Error(`\`${field}\` has an empty place or a question mark`);
      }
      if (Number(part.split("/")[1] ?? 0) > most) {
        throw new Error(`the step of \`${field}\` is greater than ${most}`);
      }
    }
  }
}

/** Lets the event loop run: a search takes a tenth of a millisecond for each tick. */
function othersRun(): Promise<void> {
  return new Promise((resolve) => startTimer(resolve, 0));
}

function checkTimeZone(timeZone: string): void {
  try {
    new Intl.DateTimeFormat("en", { timeZone });
    if (/^[A-Za-z]/.test(timeZone)) {
      return;
    }
  } catch {
    // It is unknown.
  }
  throw config(
    `the time zone ${JSON.stringify(timeZone)} is not known; give a name such as Europe/Berlin or UTC`,
  );
}

async function croner(): Promise<typeof import("croner")> {
  try {
    return await import("croner");
  } catch (cause) {
    throw config("the package croner could not be loaded, which reads cron texts; install it", cause);
  }
}
