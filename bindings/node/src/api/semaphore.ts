import { checkAttached, checkFunction, checkWhole, MADE, readOptions } from "../common/check.js";
import type { Share } from "../module/wasm.js";
import { use } from "./acquiring.js";
import { LeaseEvents } from "./events.js";
import { PERMIT_OPTIONS, type PermitOptions, type SemaphoreOptions, TRY_PERMIT_OPTIONS } from "./options.js";
import type { Permit, Permits } from "./permit.js";
import { type Asked, INSPECT, printed } from "./show.js";
import type { Tenures } from "./tenures.js";

/**
 * A handle on a name that several holders share, made by `locker.semaphore()` with slots, or by
 * `locker.quota()` for large amounts without slots. Making one does no I/O.
 *
 * There is one line for all callers. A caller that asks for much is not overtaken by those that ask for
 * little. A crash frees a permit after its time to live. Nothing counts permits: the living holders are the
 * count.
 */
export class Semaphore {
  /** @internal */
  static [MADE](self: object): boolean {
    return #permits in self;
  }

  readonly #permits: Permits;
  /** One slot or unit. */
  readonly #one: Share;
  /** The name. */
  readonly name: string;

  /** @internal */
  constructor(permits: Permits, one: Share) {
    this.#permits = permits;
    this.#one = one;
    this.name = permits.state.name;
  }

  /**
   * Waits in line until it has a permit, for one slot or unit, or for as many as the `weight` says.
   *
   * Aborting the `signal` leaves neither a permit nor a place in line behind.
   *
   * @throws LeaseholdError `config` if the weight can never fit, or with `strict` if the capacity of the name
   * is another one
   * @throws LeaseholdError `wrongType` if the name is used in another way, such as for a lock
   * @throws LeaseholdError `overloaded` if `maxLine` waiters are ahead
   * @throws LeaseholdError `unsupported` on a quorum
   * @throws LeaseholdError otherwise as `Lock.acquire`
   * @throws the reason of the `signal`, if that is aborted
   * @example
   * ```ts
   * await using permit = await locker.semaphore("gpus", 8).acquire({ weight: 2, timeout: 3_000 });
   * console.log(`uses the GPUs ${permit.slots}`);
   * ```
   */
  async acquire(options?: PermitOptions): Promise<Permit> {
    checkAttached(this, Semaphore, "semaphore.acquire");
    const read = readOptions("the options of acquire", options, PERMIT_OPTIONS);
    return this.#permits.acquire(this.#share(read.weight), read);
  }

  /**
   * Takes a permit if it fits and nobody waits; otherwise resolves to `undefined`. It makes one round trip
   * and does not retry.
   *
   * @throws LeaseholdError `timeout` or `unavailable` if the store did not reply; otherwise as `acquire`
   * @example
   * ```ts
   * const permit = await semaphore.tryAcquire({ weight: 2 });
   * if (permit === undefined) return; // all are taken, or somebody waits
   * ```
   */
  async tryAcquire(options?: Pick<PermitOptions, "weight" | "signal">): Promise<Permit | undefined> {
    checkAttached(this, Semaphore, "semaphore.tryAcquire");
    const { weight, signal } = readOptions("the options of tryAcquire", options, TRY_PERMIT_OPTIONS);
    return this.#permits.tryAcquire(this.#share(weight), signal);
  }

  /**
   * Acquires a permit, runs the work, and releases the permit, even if the work throws.
   *
   * The work gets the permit and its `signal`. It should stop when the signal is aborted, because `using`
   * waits for it.
   *
   * @throws what `acquire` throws; the work has not run then
   * @throws what the work throws
   * @throws LeaseLostError if the permit was lost before the work ended
   * @throws what `release` throws
   * @example
   * ```ts
   * await semaphore.using(async (permit, signal) => {
   *   await render(permit.slot, { token: permit.token, signal });
   * });
   * ```
   */
  async using<T>(
    work: (permit: Permit, signal: AbortSignal) => T | PromiseLike<T>,
    options?: PermitOptions,
  ): Promise<T> {
    checkAttached(this, Semaphore, "semaphore.using");
    checkFunction("using: the work", work);
    return use(this.acquire(options), work);
  }

  /**
   * Keeps one slot or unit, or as many as the `weight` says, for as long as the program runs, and acquires
   * others after each loss: see {@link Tenures}.
   *
   * @example
   * ```ts
   * for await (const permit of locker.semaphore("partitions", 8).hold()) {
   *   await permit.run((signal) => consume(permit.slot, { token: permit.token, signal })).catch(() => {});
   * }
   * ```
   */
  hold(options?: Pick<PermitOptions, "weight" | "signal">): Tenures<Permit> {
    checkAttached(this, Semaphore, "semaphore.hold");
    const { weight, signal } = readOptions("the options of hold", options, TRY_PERMIT_OPTIONS);
    return this.#permits.hold(this.#share(weight), signal);
  }

  /**
   * Changes the capacity of the name for all clients, and resolves to the number of times that it was set.
   *
   * No permit is revoked. While more is held than the new capacity, nobody is admitted, and slots from the
   * new capacity on are not given out again. A waiter whose weight can no longer fit fails with the code
   * `config`. This handle's own capacity stays as it was made.
   *
   * @throws LeaseholdError `config` if the capacity is out of bounds
   * @throws LeaseholdError `wrongType` if the name is used in another way
   * @throws LeaseholdError `unsupported` on a quorum
   * @throws LeaseholdError otherwise as `Locker.inspect`; the capacity may or may not have changed
   * @example
   * ```ts
   * await locker.semaphore("licenses", 5).resize(5);
   * ```
   */
  async resize(capacity: number): Promise<number> {
    checkAttached(this, Semaphore, "semaphore.resize");
    checkWhole("the capacity", capacity);
    return this.#permits.host.resize(this.#permits.state, capacity);
  }

  /**
   * Returns the events of all permits of this handle, beginning with the current state. Their tokens tell
   * them apart.
   */
  events(): LeaseEvents {
    checkAttached(this, Semaphore, "semaphore.events");
    return new LeaseEvents(this.#permits.host.addReader(this.#permits.state));
  }

  /** Returns the name, the capacity and the options, for logs and `JSON.stringify`. */
  toJSON(): { name: string; sharing: string; capacity: number } & SemaphoreOptions {
    const { kind, capacity, strict } = this.#one;
    return { name: this.name, sharing: kind, capacity, ...this.#permits.options(), strict };
  }

  /** Prints the object on consoles. @internal */
  [INSPECT](...asked: Asked): string {
    return printed("Semaphore", this, ...asked);
  }

  #share(weight = 1): Share {
    return weight === 1 ? this.#one : { ...this.#one, weight };
  }
}
