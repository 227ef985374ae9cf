import type { LossReason } from "../common/errors.js";
import type { Words } from "../common/platform.js";
import { type LockState, Tenure } from "../host/tenure.js";
import type { Slot } from "./shared.js";

/** The lease id, which only the worker thread needs. */
const UNKNOWN: Words = [0, 0, 0, 0];

/** A tenure whose engine is in another thread. Its deadline is in shared memory. */
export class SharedTenure extends Tenure {
  #slot: Slot | undefined;

  constructor(lock: LockState, token: number, began: number, readonly slot: number, shared: Slot) {
    super(lock, UNKNOWN, token, began, -Infinity);
    this.#slot = shared;
  }

  /** True once the worker thread has reported the end. Its slot may then belong to another tenure. */
  get over(): boolean {
    return this.#slot === undefined;
  }

  /** Notes that the worker thread has reported the end. */
  close(): void {
    this.look();
    this.#slot = undefined;
  }

  protected override look(): LossReason | undefined {
    const read = this.#slot?.read();
    if (typeof read === "string") {
      return read;
    }
    this.deadline = read ?? this.deadline;
    return super.look();
  }
}
