import { checkAttached, checkFunction, MADE, readOptions, SIGNAL_OPTION } from "../common/check.js";
import { LeaseholdError } from "../common/errors.js";
import type { LockHost } from "../host/lock-host.js";
import type { LockState } from "../host/tenure.js";
import { leaseOf, type Lessor, timedOut, use } from "./acquiring.js";
import { LeaseEvents } from "./events.js";
import { Lease } from "./lease.js";
import { ACQUIRE_OPTIONS, type AcquireOptions, type LockOptions } from "./options.js";
import { type Asked, INSPECT, printed } from "./show.js";
import { Tenures } from "./tenures.js";
import { type Ticket, ticketOf } from "./ticket.js";

/**
 * A handle on one lock name and its options, made by `locker.lock()`. Making one does no I/O.
 *
 * Every acquisition excludes every other one, even through the same handle. So keep a handle in a module and
 * share it, as you would a mutex. Code that acquires a lock it already holds waits for itself, unless the
 * handle was made with `{ reentrant: true }`.
 */
export class Lock {
  /** @internal */
  static [MADE](self: object): boolean {
    return #state in self;
  }

  readonly #host: LockHost;
  readonly #state: LockState;
  /** The name of the lock. */
  readonly name: string;

  /** @internal */
  constructor(host: LockHost, state: LockState) {
    this.#host = host;
    this.#state = state;
    this.name = state.name;
  }

  /**
   * True if an acquisition through this handle holds the lock, as far as this process knows.
   *
   * Reading it does no I/O, so it may be out of date. `locker.inspect(name)` asks the store who holds the
   * lock.
   */
  get held(): boolean {
    return this.#state.tenures.some(({ lost, leases }) => lost === undefined && leases > 0);
  }

  /**
   * Waits in line until it holds the lock. Live waiters get the lock in the order in which they asked.
   *
   * Aborting the `signal` leaves neither a lock nor a place in line behind.
   *
   * @throws LeaseholdError `timeout` if another holder kept the lock for the whole `timeout`, or if the store
   * did not reply; the message says which
   * @throws LeaseholdError `unavailable`, `config`, `overloaded` or `shutdown`; or `auth`, `readOnly`,
   * `wrongType` or `store` if the store refused
   * @throws the reason of the `signal`, if that is aborted
   * @example
   * ```ts
   * const lease = await lock.acquire({ timeout: 3_000 });
   * try {
   *   console.log(`writing with token ${lease.token}`);
   * } finally {
   *   await lease.release();
   * }
   * ```
   */
  // Not `async`, because that would allocate several more objects for each call.
  acquire(options?: AcquireOptions): Promise<Lease> {
    try {
      checkAttached(this, Lock, "lock.acquire");
      const { timeout: wait = Infinity, signal } = readOptions("the options of acquire", options, ACQUIRE_OPTIONS);
      return this.#host.acquire(this.#state, wait, signal, (call) =>
        leaseOf(this.#host, call, signal, leased) ?? timedOut(this.name, "another holder", wait),
      );
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /**
   * Takes the lock if it is free and has no waiters; otherwise resolves to `undefined`. It makes one round
   * trip and does not retry.
   *
   * @throws LeaseholdError `timeout` or `unavailable` if the store did not reply; otherwise as `acquire`
   * @example
   * ```ts
   * const lease = await lock.tryAcquire();
   * if (lease === undefined) return; // another process does the work
   * ```
   */
  async tryAcquire(options?: {
    readonly signal?: AbortSignal | undefined;
  }): Promise<Lease | undefined> {
    checkAttached(this, Lock, "lock.tryAcquire");
    const { signal } = readOptions("the options of tryAcquire", options, SIGNAL_OPTION);
    return this.ask(0, signal);
  }

  /**
   * Waits in line for at most `wait` milliseconds. Resolves to `undefined` if it did not get the lock.
   *
   * @internal
   */
  ask(wait: number, signal: AbortSignal | undefined): Promise<Lease | undefined> {
    return this.#host.acquire(this.#state, wait, signal, (call) => leaseOf(this.#host, call, signal, leased));
  }

  /**
   * Accepts a lease of this lock that another locker passed on (`Lease.pass`), with the options of this handle.
   *
   * The lock moves in one step, ahead of all waiters: the new lease has the next token, and storage that checks tokens
   * refuses the sender's writes from then on. A ticket is used once. If a reply is lost, the call asks again and gets
   * the same lease. Calls that acquire through a re-entrant handle meanwhile share the outcome. Without `atMost` of this
   * handle, the lease ends at the age that the sender's lock allowed, or a little earlier.
   *
   * Aborting the `signal` frees the lock if the store may have given it already. Otherwise the ticket stays good.
   *
   * @throws LeaseholdError `notHeld` if the ticket no longer has the lock: it was accepted, it expired, the lock was
   * freed, or it is at another server
   * @throws LeaseholdError `config` if the ticket is damaged, or for another name or namespace; or if this is a
   * re-entrant handle in use
   * @throws LeaseholdError `overheld` if the lease has reached its age; the lock is freed
   * @throws LeaseholdError `unsupported` for a quorum
   * @throws LeaseholdError otherwise as `acquire`: the ticket may have been used, and the lock is freed
   * @throws the reason of the `signal`, if that is aborted
   */
  async accept(
    ticket: Ticket | string,
    options?: { readonly signal?: AbortSignal | undefined },
  ): Promise<Lease> {
    checkAttached(this, Lock, "lock.accept");
    const text = ticketOf(ticket).toString();
    const { signal } = readOptions("the options of accept", options, SIGNAL_OPTION);
    const accepted = await this.#host.accept(this.#state, text, signal, (call) => leaseOf(this.#host, call, signal, leased));
    if (accepted === undefined) {
      throw new LeaseholdError("internal", "a ticket was accepted without a lease");
    }
    return accepted;
  }

  /**
   * Acquires the lock, runs the work, and releases the lock, even if the work throws.
   *
   * The work gets the lease and its `signal`. It should stop when the signal is aborted, because `using`
   * waits for it.
   *
   * @throws what `acquire` throws; the work has not run then
   * @throws what the work throws
   * @throws LeaseLostError if the lease was lost before the work ended
   * @throws what `release` throws
   * @example
   * ```ts
   * await lock.using(async (lease, signal) => {
   *   await save(order, { token: lease.token, signal });
   * });
   * ```
   */
  async using<T>(
    work: (lease: Lease, signal: AbortSignal) => T | PromiseLike<T>,
    options?: AcquireOptions,
  ): Promise<T> {
    checkAttached(this, Lock, "lock.using");
    checkFunction("using: the work", work);
    return use(this.acquire(options), work);
  }

  /**
   * Keeps the lock for as long as the program runs, and acquires it again after each loss: see {@link
   * Tenures}.
   */
  hold(options?: { readonly signal?: AbortSignal | undefined }): Tenures {
    checkAttached(this, Lock, "lock.hold");
    const { signal } = readOptions("the options of hold", options, SIGNAL_OPTION);
    return new Tenures(this.name, (stop) => this.acquire({ signal: stop }), signal);
  }

  /**
   * Returns the events of all acquisitions through this handle, beginning with the current state. Their
   * tokens tell them apart.
   */
  events(): LeaseEvents {
    checkAttached(this, Lock, "lock.events");
    return new LeaseEvents(this.#host.addReader(this.#state));
  }

  /** Returns the lock's name and options, for logs and `JSON.stringify`. */
  toJSON(): { name: string } & LockOptions {
    const { name, ttl, fixed, reentrant, owner, reclaimable, dense, copies, ages } = this.#state;
    return {
      name,
      ttl,
      fixed,
      reentrant,
      ...(reclaimable && { owner }),
      denseTokens: dense,
      ...(copies && {
        ...(copies.replicas > 0 && { replicas: copies.replicas }),
        replicasTimeout: copies.timeout,
        fsynced: copies.fsynced,
      }),
      ...(ages && {
        ...(ages.most < Infinity && { atMost: ages.most }),
        ...(ages.least > 0 && { atLeast: ages.least }),
      }),
    };
  }

  /** Prints the object on consoles. @internal */
  [INSPECT](...asked: Asked): string {
    return printed("Lock", this, ...asked);
  }
}

const leased: Lessor<Lease> = (host, tenure, waited) => new Lease(host, tenure, waited);
