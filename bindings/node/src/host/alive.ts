import { startTimer } from "../common/platform.js";
import { Forgotten } from "./forgotten.js";
import type { Tenure } from "./tenure.js";

/** The longest time in milliseconds that a process without leases and calls stays alive. */
const LINGER = 20;

/** Keeps the process alive while leases are held or calls are pending. */
export class Alive {
  readonly #forgotten: Forgotten;
  #alive = false;
  #lingers = false;

  /**
   * @param busy returns true while there is something to wait for
   * @param keep is called when the process should, or need not, stay alive
   * @param held returns the held tenures if there is nothing else to wait for
   */
  constructor(
    private readonly busy: () => boolean,
    private readonly keep: (alive: boolean) => void,
    held: () => readonly Tenure[],
  ) {
    this.#forgotten = new Forgotten(held, keep);
  }

  /** Checks again whether the process should stay alive. Call it when a lease or call begins or ends. */
  update(): void {
    const busy = this.busy();
    if (busy && !this.#alive) {
      this.#set(true);
      this.#forgotten.begin();
    } else if (busy) {
      this.#forgotten.look();
    } else if (this.#alive && !this.#lingers) {
      // Often the next call comes at once, and switching costs more than that call.
      this.#lingers = true;
      startTimer(() => {
        this.#lingers = false;
        if (!this.busy()) {
          this.#set(false);
        }
      }, LINGER);
    }
  }

  #set(alive: boolean): void {
    this.#alive = alive;
    this.keep(alive);
  }
}
