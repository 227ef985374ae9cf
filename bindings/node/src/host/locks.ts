import type { Outputs } from "./outputs.js";
import { type LockState, Tenure } from "./tenure.js";

/**
 * The largest number of known locks at which unused ones are kept. A program that uses each name once keeps that many
 * young, and each collection of young objects copies them while calls wait.
 */
const MOST_UNUSED = 128;
/** The number of names whose last locks are remembered at least. */
const NAMES = 256;
/** The number of locks that are checked for each lock that is added. */
const LOOKS = 4;
/**
 * The largest number of unused locks removed at once. It is more than one, so that the number shrinks again
 * after a burst.
 */
const MOST_TAKEN = 2;

/**
 * The low digits of a lock's number are its place. The digits above count the earlier locks at that place.
 */
const PLACES = 2 ** 24;

/**
 * The locks that the engine knows, and their tenures as the engine reports them. Unused locks are found by
 * checking a few in turn.
 */
export class Locks {
  /**
   * The locks by place. Not a `Map`: a map with many insertions and removals keeps the garbage collector
   * busy.
   */
  readonly #places: (LockState | undefined)[] = [];
  /** The next lock number of each free place. */
  readonly #free: number[] = [];
  /** The place that is checked next. */
  #next = 0;
  /**
   * For each of the last names, the lock that was added last. Two maps from which nothing is deleted: deletions make
   * a map replace its table, and the old table refers to the new one. So once an old table is in the old generation,
   * each collection of young objects keeps all later tables, and the locks in them.
   */
  #named = new Map<string, LockState | undefined>();
  #namedBefore = this.#named;
  /** The number of tenures. */
  held = 0;

  /** Returns a number for the next lock, which no other lock ever had. */
  newId(): number {
    return this.#free.at(-1) ?? PLACES + this.#places.length;
  }

  add(id: number, lock: LockState): void {
    if (id === this.#free.at(-1)) {
      this.#free.pop();
    }
    lock.id = id;
    this.#places[placeOf(id)] = lock;
    this.#name(lock);
  }

  get(id: number): LockState | undefined {
    const lock = this.#places[placeOf(id)];
    return lock?.id === id ? lock : undefined;
  }

  /** Returns the last known lock with the same name and options. */
  like(lock: LockState): LockState | undefined {
    const { name, ttl, fixed, reentrant, owner, reclaimable, dense, copies, ages, tick, retention, backlog, share } = lock;
    const last = this.#named.get(name) ?? this.#namedBefore.get(name);
    const same =
      last?.ttl === ttl &&
      // A lock that was replaced is no longer known.
      last.id !== 0 &&
      last.fixed === fixed &&
      last.reentrant === reentrant &&
      last.owner === owner &&
      last.reclaimable === reclaimable &&
      last.dense === dense &&
      last.tick === tick &&
      last.retention === retention &&
      // A lock with copies, ages, a backlog or a share is defined from its texts, because such locks are rare.
      (last.copies ?? copies ?? last.ages ?? ages ?? last.backlog ?? backlog ?? last.share ?? share) === undefined;
    return same ? last : undefined;
  }

  /** Replaces an unused lock by one that is like it. Returns false if the old one is in use. */
  replace(old: LockState, lock: LockState): boolean {
    if (!isUnused(old)) {
      return false;
    }
    lock.id = old.id;
    old.id = 0;
    this.#places[placeOf(lock.id)] = lock;
    this.#name(lock);
    return true;
  }

  /**
   * Removes some unused locks if there are too many, and returns their numbers. The newest lock stays,
   * because it is about to be used.
   */
  takeUnused(newest: LockState): readonly number[] {
    if (this.#places.length - this.#free.length <= MOST_UNUSED) {
      return NONE;
    }
    const unused: number[] = [];
    for (let looks = LOOKS; looks > 0 && unused.length < MOST_TAKEN; looks -= 1) {
      const lock = this.#places[this.#next];
      if (lock !== undefined && lock !== newest && isUnused(lock)) {
        unused.push(lock.id);
        this.#remove(lock);
      }
      this.#next = (this.#next + 1) % this.#places.length;
    }
    return unused;
  }

  /** Reads a lease that a call got. It belongs to a new tenure, or to one that is shared. */
  acquired(outputs: Outputs, lock: LockState | undefined): Tenure | undefined {
    const w0 = outputs.number();
    const w1 = outputs.number();
    const w2 = outputs.number();
    const w3 = outputs.number();
    const token = outputs.number();
    const deadline = outputs.number();
    const began = outputs.number();
    if (lock === undefined) {
      return undefined;
    }
    let tenure = tenureOf(lock, w0, w1);
    if (tenure === undefined) {
      tenure = new Tenure(lock, [w0, w1, w2, w3], token, began, deadline);
      this.held += 1;
      lock.tenures.push(tenure);
    }
    tenure.leases += 1;
    return tenure;
  }

  /** Reads a tenure's new deadline. Outputs come in the engine's order, so the last one counts. */
  moveDeadline(outputs: Outputs): void {
    const tenure = this.#tenure(outputs);
    // Read in any case, because more outputs follow.
    const deadline = outputs.number();
    if (tenure !== undefined) {
      tenure.move(deadline);
    }
  }

  /** Returns the tenure that an output names, unless it is over. */
  #tenure(outputs: Outputs): Tenure | undefined {
    const lock = this.get(outputs.number());
    const w0 = outputs.number();
    const w1 = outputs.number();
    return lock && tenureOf(lock, w0, w1);
  }

  /** Removes the tenure that an output names. */
  takeTenure(outputs: Outputs): Tenure | undefined {
    const tenure = this.#tenure(outputs);
    if (tenure !== undefined) {
      const { tenures } = tenure.lock;
      tenures.splice(tenures.indexOf(tenure), 1);
      this.held -= 1;
    }
    return tenure;
  }

  /** Returns the tenures of all locks. */
  tenures(): Tenure[] {
    return this.#places.flatMap((lock) => lock?.tenures ?? []);
  }

  /** Removes all locks and tenures, because a new engine knows none. */
  clear(): void {
    this.held = 0;
    for (const lock of this.#places) {
      if (lock !== undefined) {
        lock.tenures.length = 0;
        this.#remove(lock);
      }
    }
  }

  #remove(lock: LockState): void {
    const { id, name } = lock;
    this.#places[placeOf(id)] = undefined;
    this.#free.push(id + PLACES);
    for (const named of [this.#named, this.#namedBefore]) {
      if (named.get(name) === lock) {
        named.set(name, undefined);
      }
    }
    lock.id = 0;
  }

  #name(lock: LockState): void {
    if (this.#named.size >= NAMES) {
      this.#namedBefore = this.#named;
      this.#named = new Map();
    }
    this.#named.set(lock.name, lock);
  }
}

/** Returns true if nothing can be asked or said about the lock, as it has neither calls, readers nor tenures. */
function isUnused({ uses, tenures }: LockState): boolean {
  return uses === 0 && tenures.length === 0;
}

/** Returns the place in a lock's number. It avoids `%`, which takes much longer for numbers above 31 bits. */
function placeOf(id: number): number {
  return id - Math.floor(id / PLACES) * PLACES;
}

const NONE: readonly number[] = [];

/** Finds a tenure by the first two words of its lease id, which are enough. */
function tenureOf({ tenures }: LockState, w0: number, w1: number): Tenure | undefined {
  return tenures.find(({ lease }) => lease[0] === w0 && lease[1] === w1);
}
