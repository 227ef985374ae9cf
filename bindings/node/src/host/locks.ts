import type { LockState } from "./tenure.js";

/** How many locks the engine may know that nobody uses just now. */
const MOST_UNUSED = 1_024;
/** How many of those are looked at for each lock that is added. */
const LOOKS = 4;

/** The locks that the engine knows. Those that nobody uses are found by looking at a few in turn. */
export class Locks {
  readonly #known = new Map<number, LockState>();
  /** The same, in no order, and which of them is looked at next. */
  readonly #round: LockState[] = [];
  #next = 0;

  add(id: number, lock: LockState): void {
    lock.id = id;
    this.#known.set(id, lock);
    this.#round.push(lock);
  }

  get(id: number): LockState | undefined {
    return this.#known.get(id);
  }

  /** Takes some that nobody uses, if there are too many; not this one, which is about to be used. */
  takeUnused(newest: LockState): readonly number[] {
    if (this.#round.length <= MOST_UNUSED) {
      return NONE;
    }
    const unused: number[] = [];
    for (let looks = LOOKS; looks > 0; looks -= 1) {
      const lock = this.#round[this.#next];
      if (lock === undefined) {
        this.#next = 0;
      } else if (lock === newest || lock.uses > 0 || lock.tenures.length > 0) {
        this.#next += 1;
      } else {
        const last = this.#round.pop() as LockState;
        if (last !== lock) {
          this.#round[this.#next] = last;
        }
        this.#known.delete(lock.id);
        unused.push(lock.id);
        lock.id = 0;
      }
    }
    return unused;
  }

  /** The engine knows none any more, and none is held. */
  clear(): void {
    for (const lock of this.#round) {
      lock.id = 0;
      lock.tenures.length = 0;
    }
    this.#known.clear();
    this.#round.length = 0;
    this.#next = 0;
  }
}

const NONE: readonly number[] = [];
