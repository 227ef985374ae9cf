import { checkAttached, checkFunction, config, MADE, readOptions, shown, SIGNAL_OPTION } from "../common/check.js";
import { now, warn } from "../common/platform.js";
import { messageOf } from "../common/printable.js";
import { following } from "../common/signals.js";
import type { Claimed, Claims } from "./claims.js";
import type { Missed } from "./missed.js";
import { ACQUIRE_OPTIONS, type ClaimOptions, type JobOptions } from "./options.js";
import { sleep } from "./persist.js";
import { soon } from "./schedule.js";
import { type Asked, INSPECT, printed } from "./show.js";
import type { Turn } from "./turn.js";
import { Turns } from "./turns.js";

/**
 * A piece of work that runs once per tick in a whole fleet, made by `locker.job()`. Making one does no I/O.
 *
 * A tick is a number. With a schedule, `every` or `cron`, it is the time at which the job is due, in
 * milliseconds since 1970. The *server's* clock decides when that is; no machine's clock matters. Without a
 * schedule, `claim` takes ticks of your own, such as the number of a day.
 *
 * A completed tick is given to nobody again while the store keeps its data. A tick that is not completed is
 * given to one runner at a time, each with a greater token. So each tick runs at least once while some runner
 * lives, and takes effect exactly once if the storage checks the token and records what it did.
 *
 * The store remembers the greatest completed tick. Ticks below it count as completed. It remembers it for at
 * least two periods after the last turn, and for the locker's `tokenRetention`. If the store loses its data,
 * the latest tick may run once more.
 *
 * A name is used for a job or for a lock. The other use fails with the code `wrongType`. A quorum cannot run
 * jobs: claiming fails with the code `unsupported`.
 */
export class Job {
  /** @internal */
  static [MADE](self: object): boolean {
    return #claims in self;
  }

  readonly #claims: Claims;
  readonly #options: Readable;
  readonly #shutdown: AbortSignal;
  /** The name of the job. */
  readonly name: string;

  /**
   * @param shutdown is aborted when the locker is shut down
   *
   * @internal
   */
  constructor(claims: Claims, options: Readable, shutdown: AbortSignal) {
    this.#claims = claims;
    this.#options = options;
    this.#shutdown = shutdown;
    this.name = claims.name;
  }

  /**
   * Runs the work once per tick, for as long as the program runs.
   *
   * It sleeps until a tick is due and claims it; while another runner has it, it waits in line. If the work
   * returns, the tick is completed. If it throws, a process warning named `LeaseholdWarning` has its error, and
   * the same tick goes to the next runner that waits for it; each runner tries a failing tick once.
   *
   * The work gets the turn and a signal. The signal is aborted when the lease is lost, the option `signal` is
   * aborted, or the locker shuts down. The work should then stop, because `run` waits for it.
   *
   * Resolves once the locker is shut down or the option `signal` is aborted. It retries while the store cannot
   * be reached.
   *
   * @throws LeaseholdError `config` if the cron text or time zone is not valid, or the job has no schedule
   * @throws any other error of the store that a retry does not fix
   * @example
   * ```ts
   * await locker.job("report", { cron: "0 6 * * *", timeZone: "Europe/Berlin" }).run(async (turn, signal) => {
   *   await report(turn.scheduledFor, { token: turn.token, signal });
   * });
   * ```
   */
  async run(
    work: (turn: Turn, signal: AbortSignal) => unknown,
    options?: { readonly signal?: AbortSignal | undefined },
  ): Promise<void> {
    checkAttached(this, Job, "job.run");
    checkFunction("run: the work", work);
    const turns = this.turns(options);
    for await (const turn of turns) {
      await runOne(turn, work, turns.stop);
    }
  }

  /** Returns the turns that this runner gets: see {@link Turns}. */
  turns(options?: { readonly signal?: AbortSignal | undefined }): Turns {
    checkAttached(this, Job, "job.turns");
    const { signal } = readOptions("the options of turns", options, SIGNAL_OPTION);
    return new Turns(this.#claims, this.#options.missed, signal, this.#shutdown);
  }

  /**
   * Claims a tick. While another runner has it, it waits in line until that runner completes it or fails.
   *
   * The tick is from 1 to 2^53-1. With a schedule, a tick that is not due yet by the server's clock is refused.
   *
   * @throws LeaseholdError as `Lock.acquire`, except `timeout` at the end of the option `timeout`
   * @throws LeaseholdError `config` for a tick out of bounds or not due yet, `wrongType` if the name is a
   * lock's, and `unsupported` at a quorum
   * @throws the reason of the `signal`, if that is aborted
   * @example
   * ```ts
   * const claimed = await locker.job("report").claim(7);
   * if (claimed.type === "turn") await claimed.turn.done();
   * if (claimed.type === "completed") console.log(`done by ${claimed.completed.by}`);
   * ```
   */
  async claim(tick: number, options?: ClaimOptions): Promise<Claimed> {
    checkAttached(this, Job, "job.claim");
    if (!Number.isSafeInteger(tick) || tick < 1) {
      throw config(`the tick must be a whole number from 1 to ${Number.MAX_SAFE_INTEGER}; got ${shown(tick)}`);
    }
    const { timeout = Infinity, signal } = readOptions("the options of claim", options, ACQUIRE_OPTIONS);
    const until = now() + timeout;
    if ((await this.#claims.schedule()) !== undefined && tick > (await this.#claims.inspect(signal)).serverTime) {
      throw this.#claims.error(`the tick ${tick} is not due yet by the server's clock`);
    }
    for (;;) {
      const claimed = await this.#claims.ask(tick, Math.max(0, until - now()), signal);
      // Without a limit, the store forgot the tick between its two answers.
      if (claimed.type !== "inProgress" || timeout !== Infinity) {
        return claimed;
      }
    }
  }

  /**
   * Returns the latest tick of the schedule that is due by the server's clock; `undefined` if there is none
   * yet.
   *
   * It is for programs that something else starts at about the right times, such as the machine's own cron:
   * each claims the tick that is due. That machine's clock may be ahead of the server's. So if the next tick is
   * due within a tenth of the time between the two, at most a minute, this waits for it and returns that one.
   *
   * @throws LeaseholdError `config` if the cron text or time zone is not valid, or the job has no schedule
   * @throws LeaseholdError as `Locker.inspect`
   */
  async due(): Promise<number | undefined> {
    checkAttached(this, Job, "job.due");
    const schedule = await this.#claims.needed();
    for (;;) {
      const { serverTime } = await this.#claims.inspect();
      const latest = schedule.latest(serverTime);
      const wait = soon(schedule, serverTime, latest);
      if (wait === 0) {
        return latest;
      }
      await sleep(wait, this.#shutdown);
    }
  }

  /** Returns the job's name and options, for logs and `JSON.stringify`. */
  toJSON(): { name: string } & JobOptions {
    return { name: this.name, ...this.#options };
  }

  /** Prints the object on consoles. @internal */
  [INSPECT](...asked: Asked): string {
    return printed("Job", this, ...asked);
  }
}

/** The options of a job, of which `missed` has its default. */
type Readable = JobOptions & { readonly missed: Missed };

/** Runs the work of one turn, and completes its tick. Neither the work nor the store can make it throw. */
async function runOne(
  turn: Turn,
  work: (turn: Turn, signal: AbortSignal) => unknown,
  stop: AbortSignal,
): Promise<void> {
  const [{ signal }, stopListening] = following(turn.lease.signal, stop);
  try {
    await work(turn, signal);
    if (!turn.lease.released) {
      await turn.done();
    }
  } catch (error) {
    // The next step gives the turn back.
    if (!stop.aborted) {
      const { name, tick, token } = turn;
      const which = `job ${JSON.stringify(name)}: the turn of tick ${tick} with token ${token}`;
      warn(`${which} ended without completing the tick: ${messageOf(error)}`);
    }
  } finally {
    stopListening();
  }
}
