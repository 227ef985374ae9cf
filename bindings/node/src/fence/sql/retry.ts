import { now, startTimer } from "../../common/platform.js";

/** No try begins later than this after the first. */
const LIMIT = 10_000;
const FIRST_PAUSE = 1;
const LONGEST_PAUSE = 64;

/** Another try after a race, for a while: as `core/src/fence/sql/retry.rs` has it. */
export class Retry {
  readonly #began = now();
  #pause = FIRST_PAUSE;

  /** Waits before the next try, a random part of a pause that doubles; false if it is too late for one. */
  async wait(): Promise<boolean> {
    const part = this.#pause * Math.random();
    if (now() - this.#began + part > LIMIT) {
      return false;
    }
    await new Promise<void>((resolve) => startTimer(resolve, part));
    this.#pause = Math.min(this.#pause * 2, LONGEST_PAUSE);
    return true;
  }
}
