import { keepAlive, now, startTimer, stopTimer, type Timer } from "../common/platform.js";

/** A single timer, set to the earliest moment that was asked for. */
export class Alarm {
  #timer: Timer | undefined;
  #at = Infinity;
  #alive = false;

  constructor(private readonly ring: () => void) {}

  set(at: number): void {
    if (at < this.#at) {
      stopTimer(this.#timer);
      this.#at = at;
      this.#timer = startTimer(this.ring, at - now());
      keepAlive(this.#timer, this.#alive);
    }
  }

  clear(): void {
    stopTimer(this.#timer);
    this.#timer = undefined;
    this.#at = Infinity;
  }

  /** Sets whether the timer keeps the process alive. */
  keepAlive(alive: boolean): void {
    this.#alive = alive;
    keepAlive(this.#timer, alive);
  }
}
