import { LeaseholdError, LeaseLostError, type LossReason } from "../common/errors.js";
import { now, type Words } from "../common/platform.js";
import type { LockSpec } from "../module/wasm.js";

/** What a host knows of one lock; all acquisitions by one handle share it. */
export interface LockState extends LockSpec {
  /** The engine's number of it; 0 while the engine does not know it. */
  id: number;
  /** How many calls and readers there are for it. */
  uses: number;
  /** Its tenures: one at most, unless the store forgot who held the lock. */
  readonly tenures: Tenure[];
}

/** From one acquisition to its release or loss; shared by its leases. */
export class Tenure {
  /** How many of its leases were not released. */
  leases = 0;
  #lost: LossReason | undefined;
  #controller: AbortController | undefined;
  #over: (() => void)[] | undefined;
  #stopPulse: (() => void) | undefined;

  constructor(
    readonly lock: LockState,
    /** Its lease id: the engine knows it by that. */
    readonly lease: Words,
    readonly token: number,
    readonly began: number,
    /** The deadline that the engine reported last: later after a renewal, or sooner. */
    public deadline: number,
  ) {}

  /** Why it is over, if it was lost: as the engine said, or because the clock says so. */
  get lost(): LossReason | undefined {
    return this.#lost ?? (now() >= this.deadline ? "expired" : undefined);
  }

  get remaining(): number {
    return this.lost === undefined ? Math.max(0, this.deadline - now()) : 0;
  }

  /** Aborted at the loss. Made when it is first asked for, because most leases never need it. */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#lost !== undefined) {
        this.#controller.abort(this.lossError(this.#lost));
      }
    }
    return this.#controller.signal;
  }

  lossError(reason: LossReason): LeaseholdError {
    return new LeaseLostError(this.lock.name, this.token, reason);
  }

  /** The engine said that it was lost. Runs the program's listeners. */
  lose(reason: LossReason): void {
    if (this.#lost === undefined) {
      this.#lost = reason;
      this.#controller?.abort(this.lossError(reason));
      this.#end();
    }
  }

  /** Starts a pulse of its own (see `startPulse`), unless it has one or is over. */
  keepTime(startPulse: () => (() => void) | undefined): void {
    if (this.#stopPulse === undefined && this.#lost === undefined && this.leases > 0) {
      this.#stopPulse = startPulse();
    }
  }

  /** One of its leases was given up. */
  giveUp(): void {
    this.leases -= 1;
    if (this.leases === 0) {
      this.#end();
    }
  }

  /** Resolves when it was lost, or all its leases were given up. */
  whenOver(): Promise<void> {
    if (this.leases === 0 || this.#lost !== undefined) {
      return Promise.resolve();
    }
    return new Promise((resolve) => (this.#over ??= []).push(resolve));
  }

  #end(): void {
    this.#stopPulse?.();
    const over = this.#over;
    this.#over = undefined;
    over?.forEach((resolve) => resolve());
  }
}
