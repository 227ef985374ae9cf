import { checkAttached, checkFunction, MADE, readOptions, SIGNAL_OPTION } from "../common/check.js";
import type { Share } from "../module/wasm.js";
import { use } from "./acquiring.js";
import { LeaseEvents } from "./events.js";
import { ACQUIRE_OPTIONS, type AcquireOptions, type SharedOptions } from "./options.js";
import type { Permit, Permits } from "./permit.js";
import { type Asked, INSPECT, printed } from "./show.js";
import type { Tenures } from "./tenures.js";

/**
 * A handle on a name that many readers or one writer hold, made by `locker.rwLock()`. Making one does no I/O.
 *
 * Readers and writers stand in one line. Readers next to each other in it get the name together, and later
 * readers do not overtake a waiting writer.
 *
 * There is no upgrade from reading to writing: two readers that both wanted it would wait for each other for
 * ever. Release the read permit, and write after reading again. A writer can become a reader: see {@link
 * Permit.downgrade}.
 */
export class RwLock {
  /** @internal */
  static [MADE](self: object): boolean {
    return #permits in self;
  }

  readonly #permits: Permits;
  readonly #read: RwPart;
  readonly #write: RwPart;
  /** The name. */
  readonly name: string;

  /** @internal */
  constructor(permits: Permits, read: Share) {
    this.#permits = permits;
    this.#read = new RwPart(permits, read);
    this.#write = new RwPart(permits, { ...read, kind: "write" });
    this.name = permits.state.name;
  }

  /**
   * Returns the readers' side: any number of readers hold the name together.
   *
   * @example
   * ```ts
   * await rwLock.read().using(({ generation }) => load({ notBefore: generation }));
   * ```
   */
  read(): RwPart {
    checkAttached(this, RwLock, "rwLock.read");
    return this.#read;
  }

  /**
   * Returns the writers' side: a writer holds the name alone.
   *
   * @example
   * ```ts
   * await rwLock.write().using(({ token }) => save({ token }));
   * ```
   */
  write(): RwPart {
    checkAttached(this, RwLock, "rwLock.write");
    return this.#write;
  }

  /**
   * Returns the events of all permits of this handle, beginning with the current state. Their tokens tell
   * them apart.
   */
  events(): LeaseEvents {
    checkAttached(this, RwLock, "rwLock.events");
    return new LeaseEvents(this.#permits.host.addReader(this.#permits.state));
  }

  /** Returns the name and the options, for logs and `JSON.stringify`. */
  toJSON(): { name: string } & SharedOptions {
    return { name: this.name, ...this.#permits.options() };
  }

  /** Prints the object on consoles. @internal */
  [INSPECT](...asked: Asked): string {
    return printed("RwLock", this, ...asked);
  }
}

/** The readers' or the writers' side of a {@link RwLock}. */
export class RwPart {
  /** @internal */
  static [MADE](self: object): boolean {
    return #permits in self;
  }

  readonly #permits: Permits;
  readonly #share: Share;

  /** @internal */
  constructor(permits: Permits, share: Share) {
    this.#permits = permits;
    this.#share = share;
  }

  /**
   * Waits in line until it holds the name.
   *
   * Aborting the `signal` leaves neither a permit nor a place in line behind.
   *
   * @throws LeaseholdError as `Semaphore.acquire`
   * @throws the reason of the `signal`, if that is aborted
   * @example
   * ```ts
   * await using permit = await locker.rwLock("prices").read().acquire({ timeout: 3_000 });
   * console.log(`the last writer had the token ${permit.generation}`);
   * ```
   */
  async acquire(options?: AcquireOptions): Promise<Permit> {
    checkAttached(this, RwPart, "rwPart.acquire");
    const read = readOptions("the options of acquire", options, ACQUIRE_OPTIONS);
    return this.#permits.acquire(this.#share, read);
  }

  /**
   * Takes the name if it is free for this side and nobody waits; otherwise resolves to `undefined`. It makes
   * one round trip and does not retry.
   *
   * @throws LeaseholdError as `Semaphore.tryAcquire`
   * @example
   * ```ts
   * const permit = await locker.rwLock("prices").write().tryAcquire();
   * if (permit === undefined) return; // somebody reads or writes, or waits
   * ```
   */
  async tryAcquire(options?: { readonly signal?: AbortSignal | undefined }): Promise<Permit | undefined> {
    checkAttached(this, RwPart, "rwPart.tryAcquire");
    const { signal } = readOptions("the options of tryAcquire", options, SIGNAL_OPTION);
    return this.#permits.tryAcquire(this.#share, signal);
  }

  /**
   * Acquires the name, runs the work, and releases the name, even if the work throws.
   *
   * The work gets the permit and its `signal`. It should stop when the signal is aborted, because `using`
   * waits for it.
   *
   * @throws as `Semaphore.using`
   * @example
   * ```ts
   * await locker.rwLock("prices").write().using(async ({ token }, signal) => {
   *   await save(prices, { token, signal });
   * });
   * ```
   */
  async using<T>(
    work: (permit: Permit, signal: AbortSignal) => T | PromiseLike<T>,
    options?: AcquireOptions,
  ): Promise<T> {
    checkAttached(this, RwPart, "rwPart.using");
    checkFunction("using: the work", work);
    return use(this.acquire(options), work);
  }

  /**
   * Keeps the name for as long as the program runs, and acquires it again after each loss: see {@link Tenures}.
   *
   * @example
   * ```ts
   * for await (const permit of locker.rwLock("prices").write().hold()) {
   *   await permit.run((signal) => follow(prices, { token: permit.token, signal })).catch(() => {});
   * }
   * ```
   */
  hold(options?: { readonly signal?: AbortSignal | undefined }): Tenures<Permit> {
    checkAttached(this, RwPart, "rwPart.hold");
    const { signal } = readOptions("the options of hold", options, SIGNAL_OPTION);
    return this.#permits.hold(this.#share, signal);
  }

  /** Returns the name and true for the writers' side, for logs and `JSON.stringify`. */
  toJSON(): { name: string; writes: boolean } {
    return { name: this.#permits.state.name, writes: this.#share.kind === "write" };
  }

  /** Prints the object on consoles. @internal */
  [INSPECT](...asked: Asked): string {
    return printed("RwPart", this, ...asked);
  }
}
