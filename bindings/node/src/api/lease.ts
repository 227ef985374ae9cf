import { checkAttached, checkFunction, MADE, readOptions, SIGNAL_OPTION } from "../common/check.js";
import { LeaseholdError, WHY } from "../common/errors.js";
import { now } from "../common/platform.js";
import { onAbort } from "../common/signals.js";
import type { Call } from "../host/calls.js";
import type { LockHost } from "../host/lock-host.js";
import type { Tenure } from "../host/tenure.js";
import { RENEW_OPTIONS, type RenewOptions } from "./options.js";
import { type Asked, INSPECT, printed } from "./show.js";
import { Ticket } from "./ticket.js";
import { untilWanted } from "./yields.js";

/**
 * The right to hold a lock for a limited time, with a fencing token.
 *
 * The locker renews a lease in the background until it is released or lost; a lease of a `fixed` lock ends by
 * itself. A lease can be lost at any time, and a paused program cannot know that. So let the storage that you
 * write to check the `token`.
 *
 * Release every lease. A forgotten lease is renewed until the process ends, and it keeps the process alive.
 * If nothing else keeps the process alive, a `LeaseholdWarning` names the lease once, after 5 seconds or
 * more. Only runtimes that list active resources, such as Node, can warn.
 */
export class Lease {
  /** @internal */
  static [MADE](self: object): boolean {
    return #tenure in self;
  }

  readonly #host: LockHost;
  readonly #tenure: Tenure;
  // Fields and not getters, so that `postMessage` and `structuredClone` copy them.
  /** The name of the lock. */
  readonly name: string;
  /** The fencing token: a safe integer, greater than the token of every earlier tenure of the name. */
  readonly token: number;
  /** Milliseconds that the acquiring call waited, for the store's reply and in line. */
  readonly waited: number;
  #released = false;

  /** @internal */
  constructor(host: LockHost, tenure: Tenure, waited: number) {
    this.#host = host;
    this.#tenure = tenure;
    this.name = tenure.lock.name;
    this.token = tenure.token;
    this.waited = waited;
  }

  /** The time when the tenure began, or slightly before. */
  get began(): Date {
    return new Date(Date.now() - (now() - this.#tenure.began));
  }

  /**
   * The number of leases that share the tenure, including this one: 1, unless the lock is re-entrant.
   * Released leases do not count.
   */
  get holdCount(): number {
    return this.#tenure.leases;
  }

  /** Milliseconds until the deadline; 0 once the lease is lost or released. Reading it does no I/O. */
  get remaining(): number {
    return this.#released ? 0 : this.#tenure.remaining;
  }

  /**
   * True if the lease is held, as far as this process knows.
   *
   * It is false from the deadline on, even if the network is down or the event loop is blocked. Reading it
   * does no I/O. A true value may be out of date by the time you write; only a guard at the storage protects
   * against that.
   */
  get valid(): boolean {
    return !this.#released && this.#tenure.lost === undefined;
  }

  /** A signal that is aborted when the lease is lost. Its reason is a {@link LeaseLostError}. */
  get signal(): AbortSignal {
    return this.#tenure.signal;
  }

  /**
   * Runs work under the lease, and rejects with {@link LeaseLostError} as soon as the lease is lost.
   *
   * The work gets the `signal`, and should stop when it is aborted: nothing else can stop it. The lease is
   * still held when the work is done, unless the work released it.
   *
   * @throws what the work throws
   * @throws LeaseLostError if the lease is lost, was lost before the call, or if the work blocked the event
   * loop past the deadline
   * @throws LeaseholdError `notHeld` if the lease was released before the call
   * @example
   * ```ts
   * await lease.run(async (signal) => {
   *   await fetch("https://example.com/report", { method: "POST", signal });
   * });
   * ```
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
      this.checkHeld();
      const result = await Promise.race([lost, work(signal)]);
      this.checkLost();
      return result;
    } finally {
      stopListening();
    }
  }

  /**
   * Extends the lease by its time to live, from now on.
   *
   * Only fixed leases need this call; others are renewed in the background. `{ ttl }` sets another time to
   * live for this and all later renewals of the tenure. A renewal never shortens the time that is left: a
   * `ttl` below `remaining` takes effect with later renewals.
   *
   * @throws LeaseholdError `config` for a bad option
   * @throws LeaseholdError `notHeld` if the lease was lost (its cause is a `LeaseLostError`) or released
   * @throws LeaseholdError `overheld` if the lease already lasts until the age that `atMost` allows
   * @throws LeaseholdError with any other code: the store may or may not have extended the lease; you may
   * call again
   */
  async renew(options?: RenewOptions): Promise<void> {
    checkAttached(this, Lease, "lease.renew");
    const { ttl } = readOptions("the options of renew", options, RENEW_OPTIONS);
    this.#checkReleased();
    await this.#host.renew(this.#tenure, ttl).catch((error: unknown) => this.#rethrow(error));
  }

  /**
   * Resolves once somebody wants the lock: a waiter stands in line, or a request to yield is pending
   * (`Locker.requestYield`). A leader that awaits it works on for as long as nobody waits, and then stops at a good point.
   *
   * The store is asked at once and after each renewal, every third of the time to live. A request resolves it as soon
   * as the event `wanted` comes. Attempts that do not wait, such as `tryAcquire`, do not count. While the store cannot be
   * reached, it keeps waiting.
   *
   * @throws LeaseLostError if the lease is lost, or was lost before the call
   * @throws LeaseholdError `notHeld` if the lease was released
   * @throws the reason of the `signal`, if that is aborted
   * @throws LeaseholdError as `Locker.inspect`, if the store refuses
   * @example
   * ```ts
   * await lease.wanted();
   * await lease.release();
   * ```
   */
  async wanted(options?: { readonly signal?: AbortSignal | undefined }): Promise<void> {
    checkAttached(this, Lease, "lease.wanted");
    const { signal } = readOptions("the options of wanted", options, SIGNAL_OPTION);
    this.checkHeld();
    await untilWanted(this.#host, this.#tenure, signal);
    this.checkHeld();
  }

  /**
   * Releases the lease, and resolves when the store has freed the lock.
   *
   * Calling it again does nothing. If other leases of a re-entrant lock share the tenure, it resolves at once
   * and the lock stays held.
   *
   * @throws LeaseholdError `notHeld` if the lease had been lost (its cause is a `LeaseLostError`): another
   * client may have held the lock while you worked
   * @throws LeaseholdError with any other code if the store has not confirmed the release: the locker tries
   * again in the background, and the lock expires at the latest
   */
  // Not `async`, because that would allocate several more objects for each call.
  release(): Promise<void> {
    try {
      checkAttached(this, Lease, "lease.release");
      if (this.#released) {
        return Promise.resolve();
      }
      return this.#end(false);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /**
   * Passes the lock on to another process, and resolves to a {@link Ticket} for it. This does no I/O.
   *
   * The lease ends at once: it is not renewed any more, the event `passed` comes, and nothing that this process still
   * sends changes the lock. The lock stays held at the store until a locker accepts the ticket (`Locker.accept`), or
   * until the deadline that the lease had there: up to its time to live, less if it was just handed over. Then the next
   * waiter gets it. `atLeast` ends with the lease; the age of `atMost` goes on with the ticket.
   *
   * @throws LeaseholdError `notHeld` if the lease was lost (its cause is a `LeaseLostError`) or released
   * @throws LeaseholdError `config` if other leases of a re-entrant lock share the tenure, or for a turn of a job; the
   * lease goes on
   * @throws LeaseholdError `unsupported` for a quorum; the lease goes on
   * @throws LeaseholdError `unavailable` for a lock with `atMost` while there is no connection: the ticket needs the
   * store's clock. The lease goes on
   * @example
   * ```ts
   * const ticket = await lease.pass();
   * child.send(String(ticket)); // a secret: see `Ticket`
   * ```
   */
  async pass(): Promise<Ticket> {
    checkAttached(this, Lease, "lease.pass");
    this.#checkReleased();
    this.#released = true;
    try {
      return new Ticket(await this.#host.pass(this.#tenure));
    } catch (error) {
      this.#released = false;
      return this.#rethrow(error);
    }
  }

  /**
   * Releases the lease of a turn, and completes its tick. Throws if the lease was already released.
   *
   * @internal
   */
  complete(): Promise<void> {
    this.#checkReleased();
    return this.#end(true);
  }

  /**
   * Makes the lease of a writer a reader's. Throws if the lease was released.
   *
   * @internal
   */
  async becomeReader(): Promise<void> {
    this.#checkReleased();
    await this.#host.downgrade(this.#tenure).catch((error: unknown) => this.#rethrow(error));
  }

  /**
   * True if the lease was lost before it was released.
   *
   * @internal
   */
  get lost(): boolean {
    return !this.#released && this.#tenure.lost !== undefined;
  }

  /** @internal */
  get released(): boolean {
    return this.#released;
  }

  /** Returns what logs need, and what `JSON.stringify` writes. `remaining` is in whole milliseconds. */
  toJSON(): { name: string; token: number; valid: boolean; remaining: number } {
    return { name: this.name, token: this.token, valid: this.valid, remaining: Math.floor(this.remaining) };
  }

  /**
   * Prints the object on consoles.
   *
   * @internal
   */
  [INSPECT](...asked: Asked): string {
    return printed("Lease", this, ...asked);
  }

  /**
   * Resolves when the tenure is over: when it is lost, or when all its leases are released.
   *
   * @internal
   */
  whenOver(): Promise<void> {
    return this.#tenure.whenOver();
  }

  /** Releases the lease, for `await using`. A lost lease is no error here; see `signal`. */
  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.release();
    } catch (error) {
      if (!(error instanceof LeaseholdError) || error.code !== "notHeld") {
        throw error;
      }
    }
  }

  #end(completes: boolean): Promise<void> {
    this.#released = true;
    const finish = ({ error }: Call) => {
      if (error !== undefined) {
        this.#rethrow(error);
      }
    };
    return this.#host.release(this.#tenure, finish, completes);
  }

  #checkReleased(): void {
    if (this.#released) {
      throw this.#notHeld("was already released");
    }
  }

  /**
   * Throws if the lease was released or lost.
   *
   * @internal
   */
  checkHeld(): void {
    this.#checkReleased();
    this.checkLost();
  }

  /**
   * Throws the loss of a lease that was lost before it was released.
   *
   * @internal
   */
  checkLost(): void {
    // Work that blocks the event loop past the deadline returns before the signal can be aborted.
    if (!this.#released && this.#tenure.lost !== undefined) {
      throw this.#lossError();
    }
  }

  /** Throws the error of a call. A `notHeld` says why the lease was lost, if it was. */
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

/**
 * Releases leases that no caller got, together and in the background.
 *
 * @internal
 */
export function giveBack(leases: readonly (Lease | undefined)[]): void {
  for (const lease of leases) {
    lease?.release().catch(() => {});
  }
}
