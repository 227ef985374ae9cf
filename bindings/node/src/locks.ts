import type { LockState } from "./tenure.js";

/** How many locks the engine may know that nobody uses just now. */
const MOST_UNUSED = 1_024;
/** How many are looked at for each that is added. */
const LOOKS = 4;

/** The locks that the engine knows, the longest unused first. */
export class Locks {
  readonly #known = new Map<number, LockState>();

  get(id: number): LockState | undefined {
    return this.#known.get(id);
  }

  all(): LockState[] {
    return [...this.#known.values()];
  }

  add(id: number, lock: LockState): void {
    lock.id = id;
    this.#known.set(id, lock);
  }

  /** Takes some that nobody uses, if there are too many. */
  takeUnused(): number[] {
    const unused: number[] = [];
    let looks = this.#known.size > MOST_UNUSED ? LOOKS : 0;
    for (const [id, lock] of this.#known) {
      if (looks === 0) {
        break;
      }
      looks -= 1;
      this.#known.delete(id);
      if (lock.uses > 0 || lock.tenure !== undefined) {
        this.#known.set(id, lock);
      } else {
        lock.id = 0;
        unused.push(id);
      }
    }
    return unused;
  }

  /** The engine knows none any more, and none is held. */
  clear(): void {
    for (const lock of this.#known.values()) {
      lock.id = 0;
      lock.tenure = undefined;
    }
    this.#known.clear();
  }
}
