import { keepAlive, nodeProcess, now, startTimer, warn } from "../common/platform.js";
import type { Tenure } from "./tenure.js";

/** The least time in milliseconds that a lease was held before it counts as forgotten. */
const FIRST = 5_000;
/** Milliseconds until a check, and the longest time between two checks. */
const SOON = 100;
const MOST = 60_000;

/** Warns once of a lease that keeps the process alive although nothing else is left to do. */
export class Forgotten {
  #pause = FIRST;
  #next = 0;
  #warned = false;

  /**
   * @param held returns the held tenures
   * @param keep lets the process end, or keeps it alive again
   */
  constructor(
    private readonly held: () => readonly Tenure[],
    private readonly keep: (alive: boolean) => void,
  ) {}

  /** Starts the watch when the process begins to stay alive for leases or calls. */
  begin(): void {
    this.#pause = FIRST;
    this.#next = this.#warned ? Infinity : now() + FIRST;
  }

  /** Checks soon, if it is time to. */
  look(): void {
    if (now() < this.#next) {
      return;
    }
    this.#next = Infinity;
    // The check runs later, because a client may be about to write now.
    keepAlive(startTimer(() => this.#look(), SOON), false);
  }

  /**
   * Warns if only a lease keeps the process alive. Most programs have more to do, and are checked less and
   * less often.
   */
  #look(): void {
    const at = now();
    const tenure = this.held().find(({ began, leases }) => leases > 0 && began <= at - FIRST);
    if (tenure === undefined) {
      this.#next = at + SOON;
      return;
    }
    if (!this.#isAlone()) {
      this.#next = at + this.#pause;
      this.#pause = Math.min(this.#pause * 2, MOST);
      return;
    }
    this.#warned = true;
    const { lock, token } = tenure;
    warn(
      `only the lease on ${JSON.stringify(lock.name)} with token ${token} seems to keep this process alive; if the ` +
        "program is done, release the lease, as lock.using does, or shut the locker down",
    );
  }

  /** True if the process would end without the held leases, as far as the runtime can tell. */
  #isAlone(): boolean {
    const process = nodeProcess();
    // There is at least a timer now. A runtime that lists nothing cannot tell.
    if (!process?.getActiveResourcesInfo?.().length) {
      return false;
    }
    // Streams that were written to count as active, but keep no process alive.
    const written = [process.stdout, process.stderr].filter((stream) => stream?._handle?.hasRef?.() === true);
    this.keep(false);
    const others = process.getActiveResourcesInfo().length - written.length;
    this.keep(true);
    return others === 0;
  }
}
