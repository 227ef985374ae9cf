import { firstRacePause, longestRacePause, raceLimit } from "../../../../../core/engine/src/limits.jsonc";
import { now, startTimer } from "../../common/platform.js";

/** Tries again after a race, for a while: as `core/src/fence/sql/retry.rs` does. */
export class Retry {
  readonly #began = now();
  #pause = firstRacePause;

  /** Waits a random part of a pause that doubles with each try; false if it is too late for another. */
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
