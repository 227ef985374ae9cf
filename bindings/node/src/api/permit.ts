import { checkAttached, config, MADE } from "../common/check.js";
import type { LockHost } from "../host/lock-host.js";
import type { LockState, Tenure } from "../host/tenure.js";
import type { Share } from "../module/wasm.js";
import { leaseOf, type Lessor, timedOut } from "./acquiring.js";
import type { Capacities } from "./capacities.js";
import { Lease } from "./lease.js";
import type { AcquireOptions } from "./options.js";
import { type Asked, INSPECT, printed } from "./show.js";
import { Tenures } from "./tenures.js";

/**
 * A part of a shared name that is held: slots of a semaphore, units of a quota, or the name for reading or
 * writing.
 *
 * It is a {@link Lease}, and is renewed and lost by itself: no other permit keeps it alive. Release every
 * permit. It cannot be passed on: `pass` rejects with the code `config`.
 *
 * @example
 * ```ts
 * await using permit = await locker.semaphore("licenses", 3).acquire();
 * console.log(`slot ${permit.slot} with token ${permit.token} of ${permit.resource}`);
 * ```
 */
export class Permit extends Lease {
  /** @internal */
  static override [MADE](self: object): boolean {
    return #isPermit in self;
  }

  readonly #isPermit = true;
  /** The lowest slot of the permit, from 0; `undefined` if the name has no slots. */
  readonly slot: number | undefined;
  /**
   * The slots of the permit: the lowest that were free. Nobody else has them. Empty if the name has no slots.
   */
  readonly slots: readonly number[];
  /**
   * The name of the fenced resource: `name#slot`, with the lowest slot, or the name if it has no slots.
   *
   * Each holder of a slot has a greater `token` than those before it. So let the guard of the storage check
   * the token under this name.
   */
  readonly resource: string;
  /**
   * The capacity that the name had when the locker heard of the permit. After a `resize` meanwhile it may be smaller than the
   * one under which the permit was given, and than `slot + 1`.
   */
  readonly capacity: number;
  /** The number of times that the capacity was set, from 1. */
  readonly epoch: number;
  /**
   * The token of the last writer, if the name is for readers and writers and had one; otherwise `undefined`.
   * A reader can reject data that has an older token. For a writer it is its own token.
   */
  readonly generation: number | undefined;

  /** @internal */
  constructor(host: LockHost, tenure: Tenure, waited: number) {
    super(host, tenure, waited);
    const { slots, capacity, epoch, generation } = tenure.admission ?? NO_ADMISSION;
    this.slots = Object.freeze(slots);
    this.slot = slots[0];
    this.resource = this.slot === undefined ? this.name : `${this.name}#${this.slot}`;
    this.capacity = capacity;
    this.epoch = epoch;
    this.generation = generation ?? undefined;
  }

  /**
   * Makes a writer's permit a reader's without letting go of the name, so no other writer comes between.
   *
   * This takes one round trip, which also renews the permit. Readers at the head of the line are admitted.
   * The permit keeps its token, which is the `generation` that readers see. A second call only renews.
   *
   * A reader's permit cannot become a writer's: two readers that both asked for that would wait for each
   * other for ever. Release the permit, acquire the name for writing, and read again.
   *
   * @throws LeaseholdError `config` if the permit is not a writer's
   * @throws LeaseholdError as `renew`; a later renewal may still make the permit a reader's: stop writing
   * before the call
   * @example
   * ```ts
   * const permit = await locker.rwLock("prices").write().acquire();
   * await permit.downgrade(); // readers may enter
   * await permit.release();
   * ```
   */
  async downgrade(): Promise<void> {
    checkAttached(this, Permit, "permit.downgrade");
    if (this.generation !== this.token) {
      const message = "only a writer's permit can become a reader's: release this one instead";
      throw config(`lock ${JSON.stringify(this.name)}: ${message}`);
    }
    await this.becomeReader();
  }

  /** Returns what logs need, and what `JSON.stringify` writes. `remaining` is in whole milliseconds. */
  override toJSON(): { name: string; resource: string; token: number; valid: boolean; remaining: number } {
    return { ...super.toJSON(), resource: this.resource };
  }

  /** Prints the object on consoles. @internal */
  override [INSPECT](...asked: Asked): string {
    return printed("Permit", this, ...asked);
  }
}

/** Stands in for types only: the engine reports an admission with each tenure of a shared name. */
const NO_ADMISSION = { slots: [], capacity: 0, epoch: 0, generation: null };

/** The acquisitions of parts of one shared name. */
export class Permits {
  /** @param capacities notes the capacity of each permit, if the program asks for one */
  constructor(readonly host: LockHost, readonly state: LockState, private readonly capacities?: Capacities) {}

  acquire(share: Share, { timeout: wait = Infinity, signal }: AcquireOptions): Promise<Permit> {
    return this.host.acquire(
      this.state,
      wait,
      signal,
      (call) => leaseOf(this.host, call, signal, this.#permitted) ?? timedOut(this.state.name, "other holders", wait),
      share,
    );
  }

  tryAcquire(share: Share, signal: AbortSignal | undefined): Promise<Permit | undefined> {
    return this.host.acquire(this.state, 0, signal, (call) => leaseOf(this.host, call, signal, this.#permitted), share);
  }

  readonly #permitted: Lessor<Permit> = (host, tenure, waited) => {
    const permit = new Permit(host, tenure, waited);
    this.capacities?.note(permit.name, permit.capacity, this.state.share?.capacity ?? permit.capacity);
    return permit;
  };

  hold(share: Share, signal: AbortSignal | undefined): Tenures<Permit> {
    return new Tenures(this.state.name, (stop) => this.acquire(share, { signal: stop }), signal);
  }

  /** Returns the options, for logs. */
  options(): { ttl: number; fixed: boolean; owner?: string; atMost?: number; maxLine?: number } {
    const { ttl, fixed, owner, reclaimable, ages, share } = this.state;
    return {
      ttl,
      fixed,
      // An owner that was set would be reclaimable if the name were a lock's.
      ...(reclaimable && { owner }),
      ...(ages && { atMost: ages.most }),
      ...(share && share.maxLine < Infinity && { maxLine: share.maxLine }),
    };
  }
}
