import { checkAttached, MADE } from "../common/check.js";
import type { Lease } from "./lease.js";
import { type Asked, INSPECT, printed } from "./show.js";

/**
 * One runner's right to run one tick of a {@link Job}.
 *
 * It has a {@link Lease}, which is renewed in the background. {@link Turn.done | done} completes the tick,
 * which then is given to nobody again. {@link Turn.giveBack | giveBack} gives the same tick to the next
 * runner that waits for it, and so does the loss of the lease; that runner gets a greater token. So a tick
 * runs at least once while any runner lives, and the storage you write to can refuse a former runner by the
 * `token`.
 *
 * End every turn. A forgotten turn is renewed until the process ends, and no runner gets a tick meanwhile.
 *
 * @example
 * ```ts
 * const claimed = await job.claim(20_261_127);
 * if (claimed.type === "turn") {
 *   const { turn } = claimed;
 *   console.log(`running tick ${turn.tick} with token ${turn.token}`);
 *   await turn.done();
 * }
 * ```
 */
export class Turn {
  /** @internal */
  static [MADE](self: object): boolean {
    return #completed in self;
  }

  /** The name of the job. */
  readonly name: string;
  /** The tick. For a job with a schedule it is the due time in milliseconds since 1970, by the server's clock. */
  readonly tick: number;
  /** The fencing token: greater than that of every earlier turn of the job. */
  readonly token: number;
  /** When the tick was due, by the server's clock; `undefined` if it was claimed by its number. */
  readonly scheduledFor: Date | undefined;
  /**
   * How many ticks of the schedule nobody completed between the last completed one and this one; at most
   * 10,000 for a cron text. 0 if the tick was claimed by its number.
   */
  readonly missed: number;
  /** The lease, which tells of a loss. */
  readonly lease: Lease;
  #completed: Promise<void> | undefined;

  /** @internal */
  constructor(lease: Lease, tick: number, missed?: number) {
    this.name = lease.name;
    this.tick = tick;
    this.token = lease.token;
    this.scheduledFor = missed === undefined ? undefined : new Date(tick);
    this.missed = missed ?? 0;
    this.lease = lease;
  }

  /**
   * Completes the tick and ends the turn. Resolves once the store has confirmed it, after one round trip.
   * Calling it again does nothing more.
   *
   * @throws LeaseholdError `notHeld` if the lease was lost (its cause is a `LeaseLostError`): another runner
   * may have run the tick, or may run it now
   * @throws LeaseholdError `notHeld` if the turn was given back
   * @throws LeaseholdError with any other code: it is unknown whether the tick is completed; the locker
   * repeats the request until the lease would have expired
   */
  async done(): Promise<void> {
    checkAttached(this, Turn, "turn.done");
    this.#completed ??= this.lease.complete();
    await this.#completed;
  }

  /**
   * Ends the turn without completing its tick, which the next waiting runner gets. Does nothing if the turn is
   * over.
   *
   * @throws LeaseholdError as `Lease.release`
   */
  async giveBack(): Promise<void> {
    checkAttached(this, Turn, "turn.giveBack");
    await this.lease.release();
  }

  /**
   * Ends the turn if it is open. Resolves to true if its tick may be unfinished although its runner did not
   * give it back.
   *
   * @internal
   */
  async close(): Promise<boolean> {
    if (this.#completed !== undefined) {
      return this.#completed.then(() => false, () => true);
    }
    const { lost } = this.lease;
    await this.lease.release().catch(() => {});
    return lost;
  }

  /** Gives the turn back unless it is done, for `await using`. A lost lease is no error here. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.lease[Symbol.asyncDispose]();
  }

  /** Returns what logs need, and what `JSON.stringify` writes. */
  toJSON(): { name: string; tick: number; token: number; missed: number; valid: boolean } {
    const { name, tick, token, missed, lease } = this;
    return { name, tick, token, missed, valid: lease.valid };
  }

  /** Prints the object on consoles. @internal */
  [INSPECT](...asked: Asked): string {
    return printed("Turn", this, ...asked);
  }
}
