import { longestSleep, longestSpread } from "../../../../core/engine/src/limits.jsonc";
import { random } from "../common/platform.js";
import { following, reasonOf } from "../common/signals.js";
import type { Inspection } from "../common/types.js";
import type { Backlog } from "../module/wasm.js";
import type { Claims } from "./claims.js";
import { bound, choose, type Missed, start } from "./missed.js";
import { persist, sleep } from "./persist.js";
import type { Schedule } from "./schedule.js";
import { type Asked, INSPECT, printed } from "./show.js";
import type { Turn } from "./turn.js";

/**
 * The turns that this runner of a {@link Job} gets. Read it with `for await`.
 *
 * It sleeps until the next tick is due, by the server's clock, and claims it. While another runner has the
 * tick, it waits in line, and gets the tick if that runner fails. Complete each turn with `turn.done()`. A
 * turn that is still open when the next one is asked for, or when the loop is left, is given back: the next
 * runner gets its tick.
 *
 * It keeps trying while the store cannot be reached. An error that retrying cannot fix is thrown. The loop
 * ends when the locker shuts down or the signal is aborted. Nothing happens unless it is read.
 *
 * @example
 * ```ts
 * for await (const turn of locker.job("report", { every: 900_000 }).turns()) {
 *   await report(turn.scheduledFor);
 *   await turn.done();
 * }
 * ```
 */
export class Turns implements AsyncIterableIterator<Turn, undefined> {
  readonly #name: string;
  readonly #runner: Runner;
  readonly #stop: AbortController;
  readonly #stopListening: () => void;
  #queue: Promise<unknown> = Promise.resolve();
  #turn: Turn | undefined;

  /**
   * @param signals stop the turns when one of them is aborted
   *
   * @internal
   */
  constructor(claims: Claims, missed: Missed, ...signals: readonly (AbortSignal | undefined)[]) {
    this.#name = claims.name;
    this.#runner = new Runner(claims, missed);
    [this.#stop, this.#stopListening] = following(...signals);
  }

  /** Gives back the last turn if it is still open, and returns the next one. */
  next(): Promise<IteratorResult<Turn, undefined>> {
    const next = this.#queue.then(() => this.#next());
    this.#queue = next.catch(() => this.#end());
    return next;
  }

  /** Ends the iteration, leaves the line, and gives back the last turn if it is still open. */
  async return(): Promise<IteratorReturnResult<undefined>> {
    this.#end();
    await this.#close();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** Returns, for logs, the job's name, the tick of the last turn, and whether the loop has ended. */
  toJSON(): { name: string; tick?: number; ended: boolean } {
    const tick = this.#turn?.tick;
    return { name: this.#name, ...(tick !== undefined && { tick }), ended: this.#stop.signal.aborted };
  }

  /** Prints the object on consoles. @internal */
  [INSPECT](...asked: Asked): string {
    return printed("Turns", this, ...asked);
  }

  /** Ends it as `return` does, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.return();
  }

  /**
   * A signal that is aborted when the iteration ends.
   *
   * @internal
   */
  get stop(): AbortSignal {
    return this.#stop.signal;
  }

  async #next(): Promise<IteratorResult<Turn, undefined>> {
    await this.#close();
    const { signal } = this.#stop;
    const value = await persist(() => this.#runner.next(signal), signal);
    if (value === undefined) {
      this.#end();
      return { done: true, value };
    }
    this.#turn = value;
    return { done: false, value };
  }

  async #close(): Promise<void> {
    if (await this.#turn?.close()) {
      this.#runner.retry(this.#turn?.tick);
    }
  }

  #end(): void {
    this.#stopListening();
    this.#stop.abort();
  }
}

/** One process that runs the ticks of a job, among others. */
class Runner {
  /** The tick up to which this runner has nothing to do; `undefined` until it has seen the job. */
  #after: number | undefined;

  constructor(private readonly claims: Claims, private readonly missed: Missed) {}

  /** Notes that the turn of this tick ended, and that the tick may not be completed. */
  retry(tick: number | undefined): void {
    if (tick !== undefined && this.#after === tick) {
      this.#after = tick - 1;
    }
  }

  /** Waits for this runner's next turn. */
  async next(stop: AbortSignal): Promise<Turn> {
    const schedule = await this.claims.needed();
    while (!stop.aborted) {
      const seen = await this.claims.inspect(stop);
      const completed = seen.job?.completed?.tick;
      const after = await this.#upTo(schedule, seen, completed);
      const next = schedule.next(after);
      if (next === undefined) {
        throw this.claims.error("the job is never due again");
      }
      if (next > seen.serverTime) {
        await sleep(Math.min(withSpread(next - seen.serverTime), longestSleep), stop);
        continue;
      }
      const tick = choose(this.missed, schedule, next, seen.serverTime);
      const backlog = await backlogOf(schedule, seen, completed ?? after, tick);
      const claimed = await this.claims.ask(tick, Infinity, stop, backlog);
      if (claimed.type === "turn") {
        this.#after = tick;
        return claimed.turn;
      }
      if (claimed.type === "completed") {
        this.#after = Math.max(tick, claimed.completed.tick);
      }
    }
    throw reasonOf(stop);
  }

  /** Returns the tick up to which this runner has nothing to do. */
  async #upTo(schedule: Schedule, { serverTime, job }: Inspection, completed: number | undefined): Promise<number> {
    let after = this.#after;
    if (after === undefined) {
      const latest = schedule.latest(serverTime) ?? 0;
      after = start(this.missed, latest, job?.begun === latest, completed);
    }
    after = Math.max(after, completed ?? 0);
    return (this.#after = await bound(this.missed, schedule, after, serverTime));
  }
}

/** Returns what is known of the ticks after `from` and up to `tick`, which is about to be claimed. */
async function backlogOf(schedule: Schedule, seen: Inspection, from: number, tick: number): Promise<Backlog> {
  const { completed, begun } = seen.job ?? {};
  // An earlier tick whose turn is in progress is about to be completed: nobody has missed it.
  const isEarlier = seen.holder !== null && begun != null && begun >= from && begun < tick;
  from = isEarlier ? begun : from;
  const missed = await schedule.between(from, tick);
  // A turn after the last completed one had this tick if there is no other that it can have had.
  const isLater = completed != null && (seen.lastToken ?? 0) > completed.token;
  return { first: schedule.next(from) ?? tick, missed, again: begun === tick || (missed === 0 && isLater && !isEarlier) };
}

/** Returns a sleep with what this runner wakes late: up to a twentieth of the sleep. */
export function withSpread(time: number): number {
  const [word] = random();
  return time + Math.min(time / 20, longestSpread) * ((word >>> 0) / 2 ** 32);
}
