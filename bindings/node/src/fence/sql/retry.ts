import { firstRacePause, longestRacePause, raceLimit } from "../../../../../core/engine/src/limits.jsonc";
import { now, startTimer } from "../../common/platform.js";

/** Retries after a race, for a limited time, as `core/src/fence/sql/retry.rs` does. */
export class Retry {
  readonly #began = now();
  #pause = firstRacePause;

  /**
   * Waits for a random part of a pause that doubles with each try. Resolves to false if it is too late for
   * another try.
   */
  async wait(): Promise<boolean> {
    const part = this.#pause * Math.random();
    if (now() - this.#began + part > raceLimit) {
      return false;
    }
    await new Promise<void>((resolve) => startTimer(resolve, part));
    this.#pause = Math.min(this.#pause * 2, longestRacePause);
    return true;
  }
}
