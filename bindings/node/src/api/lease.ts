import { checkAttached, checkFunction, MADE, readOptions } from "../common/check.js";
import { LeaseholdError, WHY } from "../common/errors.js";
import { now } from "../common/platform.js";
import { onAbort } from "../common/signals.js";
import type { Host } from "../host/host.js";
import type { Tenure } from "../host/tenure.js";
import { RENEW_OPTIONS, type RenewOptions } from "./options.js";
import { type Asked, INSPECT, printed } from "./show.js";

/**
 * The time-limited right to a name, with a fencing token. Unless the lock is `fixed` it is renewed in
 * the background until it is released or lost. It can be lost at any time, so let the storage that
 * you write to check its `token`: a program that was paused cannot know that its lease is over.
 *
 * A lease has to be released: one that is forgotten is renewed until the process ends, and as long as
 * it is held it keeps the process from ending by itself. Where the runtime can tell that nothing else does, as
 * Node can, the process is warned of that once, after 5 seconds or more, by a `LeaseholdWarning`.
 */
export class Lease {
  /** @internal */
  static [MADE](self: object): boolean {
    return #tenure in self;
  }

  readonly #host: Host;
  readonly #tenure: Tenure;
  // Fields and not getters, so that `postMessage` and `structuredClone` copy them.
  /** What is locked. */
  readonly name: string;
  /** The tenure's token, a safe integer, greater than that of every earlier tenure of the name. */
  readonly token: number;
  /** Milliseconds that the call that acquired it waited: for the store's reply, and in line. */
  readonly waited: number;
  #released = false;

  /** @internal */
  constructor(host: Host, tenure: Tenure, waited: number) {
    this.#host = host;
    this.#tenure = tenure;
    this.name = tenure.lock.name;
    this.token = tenure.token;
    this.waited = waited;
  }

  /** When the tenure began, or a little before. */
  get began(): Date {
    return new Date(Date.now() - (now() - this.#tenure.began));
  }

  /**
   * How many leases share the tenure, this one among them: 1, unless the lock is re-entrant. Those that
   * were released do not count.
   */
  get holdCount(): number {
    return this.#tenure.leases;
  }

  /** Milliseconds until the deadline; 0 once the lease is lost or released. No I/O. */
  get remaining(): number {
    return this.#released ? 0 : this.#tenure.remaining;
  }

  /**
   * Whether the lease is held, as far as this process knows. It does no I/O, and is false from the
   * deadline on, whatever the network or the event loop does. If it is true that may be out of date;
   * only a guard at the storage protects against that.
   */
  get valid(): boolean {
    return !this.#released && this.#tenure.lost === undefined;
  }

  /** Aborted when the lease is lost, with a `LeaseLostError` as its reason. */
  get signal(): AbortSignal {
    return this.#tenure.signal;
  }

  /**
   * Does work under the lease, and rejects with a `LeaseLostError` at the moment the lease is lost. The
   * work gets the `signal` and should end when that is aborted, because nothing else can stop it. When
   * the work is done the lease is still held, unless the work released it.
   *
   * @throws what the work throws; `LeaseLostError` when the lease is lost, if it was lost before, or if
   * the work blocked the event loop until after the deadline; LeaseholdError `notHeld` if it was
   * released before
   */
  async run<T>(work: (signal: AbortSignal) => T | PromiseLike<T>): Promise<T> {
    checkAttached(this, Lease, "lease.run");
    checkFunction("run: the work", work);
    const { signal } = this;
    let stopListening!: () => void;
    const lost = new Promise<never>((_, reject) => {
      stopListening = onAbort(signal, () => reject(this.#lossError()));
    });
    try {
      this.#checkReleased();
      this.#checkLost();
      const result = await Promise.race([lost, work(signal)]);
      this.#checkLost();
      return result;
    } finally {
      stopListening();
    }
  }

  /**
   * Extends the lease by its time to live from now on. Only fixed leases need it, because others are
   * renewed in the background. `{ ttl }` sets another time to live, for this renewal and those that
   * follow, of this lease and of those that share its tenure. The time that is left is never cut short:
   * a `ttl` below `remaining` takes effect with later renewals.
   *
   * @throws LeaseholdError `config` for another argument or a bad time; `notHeld` if it was lost, with a
   * `LeaseLostError` as its cause; with another code it may or may not have been extended, and may be
   * renewed again
   */
  async renew(options?: RenewOptions): Promise<void> {
    checkAttached(this, Lease, "lease.renew");
    const { ttl } = readOptions("the options of renew", options, RENEW_OPTIONS);
    this.#checkReleased();
    await this.#host.renew(this.#tenure, ttl).catch((error: unknown) => this.#rethrow(error));
  }

  /**
   * Gives the lease up and waits until the store has freed the lock; at once if other leases of a
   * re-entrant `Lock` still share it. Calling it again does nothing.
   *
   * @throws LeaseholdError `notHeld` if it had been lost, with a `LeaseLostError` as its cause: then
   * somebody else may have held the lock while you worked. With another code the store has not confirmed
   * the release: it is tried again in the background, and at the latest the lock expires.
   */
  // Not `async`, which makes several objects more of each call.
  release(): Promise<void> {
    try {
      checkAttached(this, Lease, "lease.release");
      if (this.#released) {
        return Promise.resolve();
      }
      this.#released = true;
      return this.#host.release(this.#tenure, ({ error }) => {
        if (error !== undefined) {
          this.#rethrow(error);
        }
      });
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /** What logs need, and what `JSON.stringify` writes; `remaining` is in whole milliseconds. */
  toJSON(): { name: string; token: number; valid: boolean; remaining: number } {
    return { name: this.name, token: this.token, valid: this.valid, remaining: Math.floor(this.remaining) };
  }

  /** Prints the object on consoles. @internal */
  [INSPECT](...asked: Asked): string {
    return printed("Lease", this, ...asked);
  }

  /** Resolves when the tenure is over: lost, or all its leases released. @internal */
  whenOver(): Promise<void> {
    return this.#tenure.whenOver();
  }

  /** Releases it; for `await using`. It is no error here if the lease was lost: see `signal`. */
  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.release();
    } catch (error) {
      if (!(error instanceof LeaseholdError) || error.code !== "notHeld") {
        throw error;
      }
    }
  }

  #checkReleased(): void {
    if (this.#released) {
      throw this.#notHeld("was released before");
    }
  }

  #checkLost(): void {
    // Work that blocks the event loop past the deadline ends before the signal can be aborted.
    if (!this.#released && this.#tenure.lost !== undefined) {
      throw this.#lossError();
    }
  }

  /** Throws the error of a call; a `notHeld` says why the lease was lost, if it was. */
  #rethrow(error: unknown): never {
    const { lost } = this.#tenure;
    if (lost === undefined || !(error instanceof LeaseholdError) || error.code !== "notHeld") {
      throw error;
    }
    throw this.#notHeld(`is not held: ${WHY[lost]}`, this.#lossError());
  }

  #lossError(): LeaseholdError {
    return this.#tenure.lossError(this.#tenure.lost ?? "expired");
  }

  #notHeld(why: string, cause?: LeaseholdError): LeaseholdError {
    const message = `lock ${JSON.stringify(this.name)}: the lease ${why}`;
    return new LeaseholdError("notHeld", message, cause && { cause });
  }
}
