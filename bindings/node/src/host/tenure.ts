import { LeaseholdError, LeaseLostError, type LossReason } from "../common/errors.js";
import { now, type Words } from "../common/platform.js";
import type { Admission, LockSpec, Share } from "../module/wasm.js";

/** A lock as its host knows it. All acquisitions by one handle share it. */
export interface LockState extends LockSpec {
  /** The engine's number for the lock; 0 while the engine does not know it. */
  id: number;
  /** The number of its calls and readers. */
  uses: number;
  /** The part that acquisitions ask for, as the engine knows it. */
  share: Share | undefined;
  /** The tenures of the lock. A lock has at most one, unless the store forgot who held it. */
  readonly tenures: Tenure[];
}

/** Follows a tenure, for a program in another thread. It runs while outputs are read. */
export interface Mirror {
  /** The engine moved the deadline. */
  moved(deadline: number): void;
  /** The tenure was lost for this reason, or its release was confirmed. */
  over(reason: LossReason | undefined): void;
}

/** The time from one acquisition to its release or loss. Its leases share it. */
export class Tenure {
  /** The number of its leases that were not released. */
  leases = 0;
  mirror: Mirror | undefined = undefined;
  /** The slots and the state of a shared name. */
  admission: Admission | undefined = undefined;
  #lost: LossReason | undefined;
  #controller: AbortController | undefined;
  #over: (() => void)[] | undefined;
  #stopPulse: (() => void) | undefined;

  constructor(
    readonly lock: LockState,
    /** The lease id, by which the engine knows the tenure. */
    readonly lease: Words,
    readonly token: number,
    readonly began: number,
    /** The deadline that the engine reported last. A renewal moves it later; it may also move earlier. */
    public deadline: number,
  ) {}

  /**
   * The reason why the tenure was lost, as the engine reported it or as the clock shows; `undefined` if it
   * was not lost.
   */
  get lost(): LossReason | undefined {
    return this.#lost ?? this.look();
  }

  /** Returns the reason that shows before the engine reports a loss. */
  protected look(): LossReason | undefined {
    return now() >= this.deadline ? "expired" : undefined;
  }

  move(deadline: number): void {
    this.deadline = deadline;
    this.mirror?.moved(deadline);
  }

  get remaining(): number {
    return this.lost === undefined ? Math.max(0, this.deadline - now()) : 0;
  }

  /** A signal that is aborted at the loss. It is made on first use, because most leases never need it. */
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

  /** Ends the tenure by a loss that the engine reported. Runs the program's listeners. */
  lose(reason: LossReason): void {
    if (this.#lost === undefined) {
      this.#lost = reason;
      this.mirror?.over(reason);
      this.#controller?.abort(this.lossError(reason));
      this.#end();
    }
  }

  /** Starts a pulse for the tenure (see `startPulse`), unless it has one or is over. */
  keepTime(startPulse: () => (() => void) | undefined): void {
    if (this.#stopPulse === undefined && this.#lost === undefined && this.leases > 0) {
      this.#stopPulse = startPulse();
    }
  }

  /** Gives up one of its leases. */
  giveUp(): void {
    this.leases -= 1;
    if (this.leases === 0) {
      this.#end();
    }
  }

  /** Resolves when the tenure was lost, or all its leases were released. */
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
