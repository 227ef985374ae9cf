import { keepAlive, nodeProcess, now, startTimer, warn } from "../common/platform.js";
import type { Tenure } from "./tenure.js";

/** Milliseconds for which a forgotten lease has been held at least. */
const FIRST = 5_000;
/** Milliseconds until a look, and between two at the most. */
const SOON = 100;
const MOST = 60_000;

/** Warns once of a lease that a process stays alive for, though nothing else is left for it to do. */
export class Forgotten {
  #pause = FIRST;
  #next = 0;
  #warned = false;

  /**
   * @param held what is held
   * @param keep lets the process end, or keeps it alive again
   */
  constructor(
    private readonly held: () => readonly Tenure[],
    private readonly keep: (alive: boolean) => void,
  ) {}

  /** The process begins to stay alive. */
  begin(): void {
    this.#pause = FIRST;
    this.#next = this.#warned ? Infinity : now() + FIRST;
  }

  /** It still does. */
  look(): void {
    if (now() < this.#next) {
      return;
    }
    this.#next = Infinity;
    // Not now, when a client may be about to write.
    keepAlive(startTimer(() => this.#look(), SOON), false);
  }

  /** Most programs have more to do than that, and are looked at less and less often. */
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
      `nothing but the lease on ${JSON.stringify(lock.name)} with token ${token} seems to keep this process alive; if ` +
        "the program is done, release it, as lock.using does, or shut the locker down",
    );
  }

  /** True if the process would end without what is held, as far as the runtime tells. */
  #isAlone(): boolean {
    const process = nodeProcess();
    // A runtime that names nothing now, when there is a timer at least, cannot tell.
    if (!process?.getActiveResourcesInfo?.().length) {
      return false;
    }
    // What is written to counts as active, but keeps no process alive.
    const written = [process.stdout, process.stderr].filter((stream) => stream?._handle?.hasRef?.() === true);
    this.keep(false);
    const others = process.getActiveResourcesInfo().length - written.length;
    this.keep(true);
    return others === 0;
  }
}
