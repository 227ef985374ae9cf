import { checkAttached, checkFunction, MADE } from "../common/check.js";
import { LeaseholdError } from "../common/errors.js";
import { following, orAborted } from "../common/signals.js";
import type { Lease } from "./lease.js";
import { type Asked, INSPECT, printed } from "./show.js";

/**
 * The leases of several names, acquired together: see `Locker.all`.
 *
 * A bundle is valid for as long as all its leases are. Each name has a token of its own, which its storage
 * checks. Leases are renewed until the bundle is released, or until one is lost; the others stay held after that,
 * until the bundle is released. Release every bundle.
 */
export class Bundle {
  /** @internal */
  static [MADE](self: object): boolean {
    return #leases in self;
  }

  readonly #leases: readonly Lease[];
  /** The fencing token of each name, in the order of the names. */
  readonly tokens: ReadonlyMap<string, number>;
  #lost: readonly [controller: AbortController, stopListening: () => void] | undefined;
  #released: Promise<readonly [names: readonly string[], failure: LeaseholdError | undefined]> | undefined;

  /** @internal */
  constructor(leases: readonly Lease[]) {
    this.#leases = leases;
    this.tokens = new Map(leases.map(({ name, token }) => [name, token]));
  }

  /** Milliseconds until the earliest deadline of the leases; 0 once one is lost or released. No I/O. */
  get remaining(): number {
    return Math.min(...this.#leases.map(({ remaining }) => remaining));
  }

  /** True if all leases are held, as far as this process knows: see `Lease.valid`. No I/O. */
  get valid(): boolean {
    return this.#leases.every(({ valid }) => valid);
  }

  /** A signal that is aborted when the first lease is lost. Its reason, a {@link LeaseLostError}, names the lock. */
  get signal(): AbortSignal {
    this.#lost ??= following(...this.#leases.map(({ signal }) => signal));
    return this.#lost[0].signal;
  }

  /**
   * Runs work under the leases, and rejects with {@link LeaseLostError} as soon as one is lost.
   *
   * The work gets the `signal`, and should stop when it is aborted: nothing else can stop it.
   *
   * @throws what the work throws
   * @throws LeaseLostError if a lease is lost, was lost before the call, or if the work blocked the event loop
   * past the deadline
   * @throws LeaseholdError `notHeld` if the bundle was released before the call
   */
  async run<T>(work: (signal: AbortSignal) => T | PromiseLike<T>): Promise<T> {
    checkAttached(this, Bundle, "bundle.run");
    checkFunction("run: the work", work);
    const { signal } = this;
    this.#leases.forEach((lease) => lease.checkHeld());
    const result = await orAborted(Promise.resolve(work(signal)), signal);
    this.#leases.forEach((lease) => lease.checkLost());
    return result;
  }

  /**
   * Extends all leases by their time to live, from now on, together.
   *
   * They are renewed in the background, too. Renewing by hand gives the work its full time from here on, as after a long
   * wait for the last name.
   *
   * @throws LeaseholdError with the codes of `Lease.renew`, for the first lease that cannot be renewed; the message names
   * that lease
   */
  async renew(): Promise<void> {
    checkAttached(this, Bundle, "bundle.renew");
    await Promise.all(this.#leases.map((lease) => lease.renew()));
  }

  /**
   * Releases all names together, and resolves to those that the store has freed, in their order.
   *
   * Calling it again resolves to the same names, also after an error.
   *
   * @throws LeaseholdError `notHeld` if a lease had been lost (its cause is a `LeaseLostError`): another client
   * may have held that name while you worked
   * @throws LeaseholdError with any other code if the store has not confirmed a release: the locker tries again
   * in the background. The message names the culprit and lists the names that were released
   */
  async release(): Promise<readonly string[]> {
    checkAttached(this, Bundle, "bundle.release");
    const isFirst = this.#released === undefined;
    this.#released ??= this.#releaseAll();
    const [names, failure] = await this.#released;
    if (isFirst && failure !== undefined) {
      const { code, message, cause } = failure;
      const what = `the bundle released only ${JSON.stringify(names)}: ${message}`;
      throw new LeaseholdError(code, what, { cause });
    }
    return names;
  }

  async #releaseAll(): Promise<readonly [names: readonly string[], failure: LeaseholdError | undefined]> {
    this.#lost?.[1]();
    const failures: LeaseholdError[] = [];
    const names = await Promise.all(this.#leases.map(async (lease) => {
      try {
        await lease.release();
        return [lease.name];
      } catch (error) {
        failures.push(error as LeaseholdError);
        return [];
      }
    }));
    // A loss says more than a release that the store has not confirmed.
    return [names.flat(), failures.find(({ code }) => code === "notHeld") ?? failures[0]];
  }

  /** Returns what logs need, and what `JSON.stringify` writes. `remaining` is in whole milliseconds. */
  toJSON(): { tokens: { [name: string]: number }; valid: boolean; remaining: number } {
    const tokens = Object.fromEntries(this.tokens);
    return { tokens, valid: this.valid, remaining: Math.floor(this.remaining) };
  }

  /** Prints the object on consoles. @internal */
  [INSPECT](...asked: Asked): string {
    return printed("Bundle", this, ...asked);
  }

  /** Releases the bundle, for `await using`. A lost lease is no error here; see `signal`. */
  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.release();
    } catch (error) {
      if (!(error instanceof LeaseholdError) || error.code !== "notHeld") {
        throw error;
      }
    }
  }
}
