import { checkAttached, checkFunction, MADE, readOptions, SIGNAL_OPTION } from "../common/check.js";
import { LeaseholdError } from "../common/errors.js";
import { isAborted, reasonOf } from "../common/signals.js";
import type { Call, Host } from "../host/host.js";
import type { LockState, Tenure } from "../host/tenure.js";
import { LeaseEvents } from "./events.js";
import { Lease } from "./lease.js";
import { ACQUIRE_OPTIONS, type AcquireOptions, type LockOptions } from "./options.js";
import { type Asked, INSPECT, printed } from "./show.js";
import { Tenures } from "./tenures.js";

/**
 * A handle on one name with its options, from `locker.lock()`. Making one does no I/O.
 *
 * Every acquisition excludes every other one, even by the same handle: keep a handle in a module and
 * share it, as you would a mutex. Code that acquires a lock again while it holds it waits for itself. To
 * share a lease instead, ask for `{ reentrant: true }`.
 */
export class Lock {
  /** @internal */
  static [MADE](self: object): boolean {
    return #state in self;
  }

  readonly #host: Host;
  readonly #state: LockState;
  /** What is locked. */
  readonly name: string;

  /** @internal */
  constructor(host: Host, state: LockState) {
    this.#host = host;
    this.#state = state;
    this.name = state.name;
  }

  /**
   * Whether an acquisition by this handle holds the lock, as far as this process knows. It does no I/O,
   * so it may be out of date. `locker.inspect(name)` asks the store who holds the lock.
   */
  get held(): boolean {
    return this.#state.tenures.some(({ lost, leases }) => lost === undefined && leases > 0);
  }

  /**
   * Waits in line until it holds the lock. Waiters get it in the order in which they asked, except for
   * those that died.
   *
   * @throws LeaseholdError `timeout` if somebody else held it for all of the `timeout`, or if the store
   * did not reply: the message says which; `unavailable`, `config`, `overloaded`, `shutdown`; or what the
   * store refused with: `auth`, `readOnly`, `wrongType`, `store`. If the `signal` is aborted it throws
   * the reason of that: the call has then left the line and leaves no lock behind.
   */
  // Not `async`, which makes several objects more of each call.
  acquire(options?: AcquireOptions): Promise<Lease> {
    try {
      checkAttached(this, Lock, "lock.acquire");
      const { timeout: wait = Infinity, signal } = readOptions("the options of acquire", options, ACQUIRE_OPTIONS);
      return this.#host.acquire(this.#state, wait, signal, (call) => this.#end(call, signal) ?? this.#timedOut(wait));
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /**
   * Takes the lock if it is free and nobody waits for it; else `undefined`. One round trip, which is
   * not tried again.
   *
   * @throws LeaseholdError `timeout` or `unavailable` if the store did not reply; else as `acquire`
   */
  async tryAcquire(options?: {
    readonly signal?: AbortSignal | undefined;
  }): Promise<Lease | undefined> {
    checkAttached(this, Lock, "lock.tryAcquire");
    const { signal } = readOptions("the options of tryAcquire", options, SIGNAL_OPTION);
    return this.#host.acquire(this.#state, 0, signal, (call) => this.#end(call, signal));
  }

  /**
   * Acquires the lock, does the work, and releases it, whatever the work does. The work gets the
   * lease and its `signal`, and should end when that is aborted: `using` waits for it.
   *
   * @throws what `acquire` throws, and then no work is done; what the work throws; else `LeaseLostError`
   * if the lease was lost before the work ended, or what `release` throws
   */
  async using<T>(
    work: (lease: Lease, signal: AbortSignal) => T | PromiseLike<T>,
    options?: AcquireOptions,
  ): Promise<T> {
    checkAttached(this, Lock, "lock.using");
    checkFunction("using: the work", work);
    const lease = await this.acquire(options);
    let result: T;
    try {
      result = await work(lease, lease.signal);
    } catch (error) {
      // The work's own error says more than what its release may throw.
      await lease.release().catch(() => {});
      throw error;
    }
    await release(lease);
    return result;
  }

  /** Keeps the lock for as long as the program runs, through losses: see {@link Tenures}. */
  hold(options?: { readonly signal?: AbortSignal | undefined }): Tenures {
    checkAttached(this, Lock, "lock.hold");
    const { signal } = readOptions("the options of hold", options, SIGNAL_OPTION);
    return new Tenures(this.name, (stop) => this.acquire({ signal: stop }), signal);
  }

  /**
   * What happens to the acquisitions by this handle, beginning with the current state. Their tokens
   * tell them apart.
   */
  events(): LeaseEvents {
    checkAttached(this, Lock, "lock.events");
    return new LeaseEvents(this.#host.addReader(this.#state));
  }

  /** Its name and options, for logs and `JSON.stringify`. */
  toJSON(): { name: string } & LockOptions {
    const { name, ttl, fixed, reentrant, owner, reclaimable, dense, copies } = this.#state;
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
    };
  }

  /** Prints the object on consoles. @internal */
  [INSPECT](...asked: Asked): string {
    return printed("Lock", this, ...asked);
  }

  #end({ answer: tenure, error, waited }: Call<Tenure>, signal: AbortSignal | undefined): Lease | undefined {
    if (error !== undefined) {
      throw error;
    }
    if (tenure === undefined) {
      return undefined;
    }
    if (isAborted(signal)) {
      // The answer came just before the abort. Nobody will get the lease, so it is released.
      this.#host.release(tenure).catch(() => {});
      throw reasonOf(signal);
    }
    this.#host.begun(tenure);
    return new Lease(this.#host, tenure, waited);
  }

  #timedOut(wait: number): never {
    const who = `lock ${JSON.stringify(this.name)}: somebody else held it`;
    throw new LeaseholdError("timeout", `${who} for all of the ${wait} ms`);
  }
}

/** Releases after the work; throws the reason of a loss if the lease was lost meanwhile. */
async function release(lease: Lease): Promise<void> {
  const { signal } = lease;
  try {
    await lease.release();
  } catch (error) {
    throw signal.aborted ? signal.reason : error;
  }
}
