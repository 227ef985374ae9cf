import { checkAttached, checkFunction, config, MADE, readOptions, shown, SIGNAL_OPTION } from "../common/check.js";
import { LeaseholdError } from "../common/errors.js";
import { now, startTimer, stopTimer } from "../common/platform.js";
import { following, isAborted, reasonOf } from "../common/signals.js";
import { use } from "./acquiring.js";
import { Bundle } from "./bundle.js";
import { giveBack, type Lease } from "./lease.js";
import type { Lock } from "./lock.js";
import { ACQUIRE_OPTIONS, type AcquireOptions, MOST_NAMES } from "./options.js";
import { sleep } from "./persist.js";
import { type Asked, INSPECT, printed } from "./show.js";

/** The longest first pause in milliseconds of callers that want all at once, and the longest pause of all. */
const FIRST_PAUSE = 5;
const LONGEST_PAUSE = 250;

/**
 * A handle on several names, made by `locker.all()` or `locker.allAtOnce()`. Making one does no I/O.
 *
 * Each name is an ordinary lock: other callers may acquire it alone. It works at every store, also at a quorum
 * and on clusters.
 */
export class LockSet {
  /** @internal */
  static [MADE](self: object): boolean {
    return #locks in self;
  }

  readonly #locks: readonly Lock[];
  readonly #atOnce: boolean;
  /** The names, in the order in which they are acquired. */
  readonly names: readonly string[];

  /**
   * @param locks the locks in the order of their names
   * @internal
   */
  constructor(locks: readonly Lock[], atOnce: boolean) {
    this.#locks = locks;
    this.#atOnce = atOnce;
    this.names = Object.freeze(locks.map(({ name }) => name));
  }

  /**
   * Waits until all names are held.
   *
   * If a name is lost while another one is awaited, it is acquired once more. So the bundle has only names that
   * were held at the same time, without a gap. Aborting the `signal` leaves neither a lock nor a place in line
   * behind.
   *
   * @throws LeaseholdError as `Lock.acquire`, with the name in the message; no name is held after one
   * @throws the reason of the `signal`, if that is aborted
   * @example
   * ```ts
   * await using bundle = await locker.all(["accounts/7", "accounts/3"]).acquire({ timeout: 3_000 });
   * for (const [name, token] of bundle.tokens) console.log(name, token);
   * ```
   */
  async acquire(options?: AcquireOptions): Promise<Bundle> {
    checkAttached(this, LockSet, "lockSet.acquire");
    const { timeout: wait = Infinity, signal } = readOptions("the options of acquire", options, ACQUIRE_OPTIONS);
    const taken = await this.#take(wait, signal);
    if (typeof taken !== "string") {
      return taken;
    }
    const message = `another holder kept it, and the bundle was not complete within the timeout of ${wait} ms`;
    throw new LeaseholdError("timeout", `lock ${JSON.stringify(taken)}: ${message}`);
  }

  /**
   * Takes all names if they are free and have no waiters; otherwise resolves to `undefined` and holds none. It
   * does not retry.
   *
   * @throws LeaseholdError as `Lock.tryAcquire`
   */
  async tryAcquire(options?: { readonly signal?: AbortSignal | undefined }): Promise<Bundle | undefined> {
    checkAttached(this, LockSet, "lockSet.tryAcquire");
    const { signal } = readOptions("the options of tryAcquire", options, SIGNAL_OPTION);
    const taken = await this.#take(0, signal);
    return typeof taken === "string" ? undefined : taken;
  }

  /**
   * Acquires all names, runs the work, and releases them, even if the work throws.
   *
   * The work gets the bundle and its `signal`. It should stop when the signal is aborted, because `using` waits
   * for it.
   *
   * @throws what `acquire` throws; the work has not run then
   * @throws what the work throws
   * @throws LeaseLostError if a lease was lost before the work ended
   * @throws what `release` throws
   * @example
   * ```ts
   * await locker.all(["accounts/7", "accounts/3"]).using(async ({ tokens }, signal) => {
   *   await transfer(tokens, { signal });
   * });
   * ```
   */
  async using<T>(
    work: (bundle: Bundle, signal: AbortSignal) => T | PromiseLike<T>,
    options?: AcquireOptions,
  ): Promise<T> {
    checkAttached(this, LockSet, "lockSet.using");
    checkFunction("using: the work", work);
    return use(this.acquire(options), work);
  }

  /** Returns the names, and whether they are taken at once, for logs and `JSON.stringify`. */
  toJSON(): { names: readonly string[]; atOnce: boolean } {
    return { names: this.names, atOnce: this.#atOnce };
  }

  /** Prints the object on consoles. @internal */
  [INSPECT](...asked: Asked): string {
    return printed("LockSet", this, ...asked);
  }

  /**
   * Acquires all names, or none; then it resolves to the name that was busy.
   *
   * No two callers wait for each other in a circle, because while a name is awaited only names before it in the
   * global order are held, and none if all are wanted at once. A round of tries does not wait.
   */
  async #take(wait: number, signal: AbortSignal | undefined): Promise<Bundle | string> {
    const by = now() + wait;
    const left = () => Math.max(0, by - now());
    const held: (Lease | undefined)[] = this.#locks.map(() => undefined);
    let bundle: Bundle | undefined;
    try {
      for (let pause = 0; ; pause = Math.min(pause * 2 || FIRST_PAUSE, LONGEST_PAUSE)) {
        await this.#round(held, wait, left(), signal);
        const busy = held.findIndex((lease) => lease?.valid !== true);
        const lock = this.#locks[busy];
        if (lock === undefined) {
          return (bundle = new Bundle(held as Lease[]));
        }
        giveBack(held.splice(this.#atOnce ? 0 : busy));
        if (this.#atOnce && pause > 0 && wait > 0) {
          // Two callers that each got what the other one wants would otherwise go on to swap.
          await sleep(Math.min(Math.random() * pause, left()), signal);
        }
        if (left() === 0) {
          return lock.name;
        }
        const lease = await this.#waitFor(lock, held, left(), signal);
        if (lease === "lost") {
          continue;
        }
        if (lease === undefined) {
          return lock.name;
        }
        held[busy] = lease;
      }
    } finally {
      if (bundle === undefined) {
        giveBack(held);
      }
    }
  }

  /** Waits for one lock, until one of the leases that are held is lost. */
  async #waitFor(
    lock: Lock,
    held: readonly (Lease | undefined)[],
    wait: number,
    signal: AbortSignal | undefined,
  ): Promise<Lease | "lost" | undefined> {
    const [controller, stopListening] = following(signal, ...held.map((lease) => lease?.signal));
    try {
      return await lock.ask(wait, controller.signal);
    } catch (error) {
      if (!isAborted(signal) && held.some((lease) => lease?.valid === false)) {
        return "lost";
      }
      throw error;
    } finally {
      stopListening();
    }
  }

  /**
   * Tries to acquire all names that are not held, together. Throws if the store refuses. If the store cannot be
   * reached, a caller that waits asks again, by a call that has patience.
   */
  async #round(
    held: (Lease | undefined)[],
    wait: number,
    left: number,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    const [controller, stopListening] = following(signal);
    const message = `locks ${JSON.stringify(this.names)}: the store did not answer in time; whether it acted is unknown`;
    const late = () => controller.abort(new LeaseholdError("timeout", message));
    const timer = wait > 0 && wait < Infinity ? startTimer(late, left) : undefined;
    const failures: unknown[] = [];
    // All requests of one turn of the event loop leave in one batch.
    const tries = this.#locks.map(async (lock, place) => {
      if (held[place]?.valid === true) {
        return;
      }
      held[place] = undefined;
      try {
        held[place] = await lock.ask(0, controller.signal);
      } catch (error) {
        if (wait === 0 || isAborted(controller.signal) || !(error instanceof LeaseholdError) || !error.transient) {
          failures.push(error);
        }
      }
    });
    await Promise.all(tries);
    stopTimer(timer);
    stopListening();
    if (isAborted(signal)) {
      throw reasonOf(signal);
    }
    if (failures.length > 0) {
      throw failures[0];
    }
  }
}

/** Checks a list of names, and returns a copy of it. */
export function checkNames(what: string, names: unknown): string[] {
  if (!Array.isArray(names)) {
    throw config(`${what} takes an array of names; got ${shown(names)}`);
  }
  if (names.length === 0) {
    throw config(`${what}: a bundle needs at least one name; the list is empty`);
  }
  if (names.length > MOST_NAMES) {
    throw config(`${what}: a bundle has at most ${MOST_NAMES} names; the next one is ${shown(names[MOST_NAMES])}`);
  }
  // A copy: the program may change its array later.
  const sorted = [...(names as string[])];
  const twice = sorted.find((name, at) => sorted.indexOf(name) < at);
  if (twice !== undefined) {
    throw config(`${what}: a bundle has each name once; ${shown(twice)} is in the list twice`);
  }
  return sorted;
}

/**
 * Compares names by their code points. That is the order of their bytes in UTF-8, so it is the global order in Rust,
 * too.
 */
export function byCodePoints(a: string, b: string): number {
  let at = 0;
  while (at < a.length && a.charCodeAt(at) === b.charCodeAt(at)) {
    at += 1;
  }
  return rank(a, at) - rank(b, at);
}

/** Ranks a code unit: -1 at the end; surrogates, which stand for the greatest code points, come last. */
function rank(text: string, at: number): number {
  const unit = text.charCodeAt(at);
  const isSurrogate = unit >= 0xd800 && unit <= 0xdfff;
  return at === text.length ? -1 : unit + (isSurrogate ? 0x1_0000 : 0);
}
