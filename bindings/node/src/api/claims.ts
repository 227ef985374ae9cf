import { config } from "../common/check.js";
import { messageOf } from "../common/printable.js";
import { orAborted } from "../common/signals.js";
import type { CompletedInfo, Inspection } from "../common/types.js";
import type { LockHost } from "../host/lock-host.js";
import type { Backlog, LockSpec } from "../module/wasm.js";
import { Lock } from "./lock.js";
import type { Schedule } from "./schedule.js";
import { Turn } from "./turn.js";

/** The outcome of a claim of a tick: the turn, or why there is none. */
export type Claimed =
  /** The tick is this runner's. */
  | { readonly type: "turn"; readonly turn: Turn }
  /** The tick was completed before, or a later one was: who completed the latest, and when. */
  | { readonly type: "completed"; readonly completed: CompletedInfo }
  /** Another runner has the tick. */
  | { readonly type: "inProgress" };

/** A job's questions to the store. */
export class Claims {
  #loaded: Promise<Schedule | undefined> | undefined;

  /**
   * @param spec the lock of a tick, which has no tick yet
   * @param load returns the job's schedule, if it has one
   */
  constructor(
    private readonly host: LockHost,
    private readonly spec: LockSpec,
    private readonly load: () => Schedule | Promise<Schedule> | undefined,
  ) {}

  get name(): string {
    return this.spec.name;
  }

  /** Returns the schedule; `undefined` if the job has none. Throws what is wrong with its cron text. */
  schedule(): Promise<Schedule | undefined> {
    return (this.#loaded ??= this.#load());
  }

  async #load(): Promise<Schedule | undefined> {
    try {
      return await this.load();
    } catch (cause) {
      throw this.error(messageOf(cause), cause);
    }
  }

  /** Returns the schedule. Throws if the job has none. */
  async needed(): Promise<Schedule> {
    const schedule = await this.schedule();
    if (schedule === undefined) {
      throw this.error("the job has no schedule; give it `every` or `cron`, or claim ticks of your own");
    }
    return schedule;
  }

  inspect(signal?: AbortSignal): Promise<Inspection> {
    return orAborted(this.host.inspect(this.name), signal);
  }

  /**
   * Claims a tick, and waits in line for at most `wait` milliseconds.
   *
   * @param backlog the ticks of the schedule before this one
   */
  async ask(tick: number, wait: number, signal: AbortSignal | undefined, backlog?: Backlog): Promise<Claimed> {
    const retention = (await this.schedule())?.retention ?? 0;
    const lock = new Lock(this.host, this.host.newLock({ ...this.spec, tick, retention, backlog }));
    const lease = await lock.ask(wait, signal);
    if (lease !== undefined) {
      return { type: "turn", turn: new Turn(lease, tick, backlog?.missed) };
    }
    const completed = (await this.inspect(signal)).job?.completed;
    return completed != null && completed.tick >= tick ? { type: "completed", completed } : { type: "inProgress" };
  }

  error(message: string, cause?: unknown): Error {
    return config(`lock ${JSON.stringify(this.name)}: ${message}`, cause);
  }
}
