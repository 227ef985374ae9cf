import type { LockState } from "./tenure.js";

/** How many locks the engine may know that nobody uses just now. */
const MOST_UNUSED = 1_024;
/** How many of those are looked at for each lock that is added. */
const LOOKS = 4;

/** The locks that the engine knows. Those that nobody uses are found by looking at a few in turn. */
export class Locks {
  readonly #known = new Map<number, LockState>();
  #round = this.#known.values();
  #newest = 0;

  add(id: number, lock: LockState): void {
    lock.id = id;
    this.#newest = id;
    this.#known.set(id, lock);
  }

  get(id: number): LockState | undefined {
    return this.#known.get(id);
  }

  /** Takes some that nobody uses, if there are too many; not the newest, which is about to be used. */
  takeUnused(): number[] {
    const unused: number[] = [];
    for (let looks = this.#known.size > MOST_UNUSED ? LOOKS : 0; looks > 0; looks -= 1) {
      const { value: lock } = this.#round.next();
      if (lock === undefined || lock.id === this.#newest) {
        this.#round = this.#known.values();
      } else if (lock.uses === 0 && lock.tenures.length === 0) {
        this.#known.delete(lock.id);
        unused.push(lock.id);
        lock.id = 0;
      }
    }
    return unused;
  }

  /** The engine knows none any more, and none is held. */
  clear(): void {
    for (const lock of this.#known.values()) {
      lock.id = 0;
      lock.tenures.length = 0;
    }
    this.#known.clear();
    this.#round = this.#known.values();
  }
}
