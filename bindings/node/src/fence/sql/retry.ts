import { now, startTimer } from "../../common/platform.js";

/** No try begins more than this many milliseconds after the first. */
const LIMIT = 10_000;
const FIRST_PAUSE = 1;
const LONGEST_PAUSE = 64;

/** Tries again after a race, for a while: as `core/src/fence/sql/retry.rs` does. */
export class Retry {
  readonly #began = now();
  #pause = FIRST_PAUSE;

  /** Waits a random part of a pause that doubles with each try; false if it is too late for another. */
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
