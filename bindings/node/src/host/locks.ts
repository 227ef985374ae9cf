import type { Outputs } from "./outputs.js";
import { type LockState, Tenure } from "./tenure.js";

/** How many locks the engine may know that nobody uses just now. */
const MOST_UNUSED = 1_024;
/** How many of those are looked at for each lock that is added. */
const LOOKS = 4;
/** And how many of them are taken: more than one, so that there are fewer again after a burst. */
const MOST_TAKEN = 2;

/** A lock's number has its place in the low digits, and above those how many had that place before. */
const PLACES = 2 ** 24;

/** The locks that the engine knows, and their tenures by what it says of them. Those that nobody uses are found by looking at a few in turn. */
export class Locks {
  /** Each at its place, and not in a `Map`: one that many come to and leave keeps the garbage collector busy. */
  readonly #places: (LockState | undefined)[] = [];
  /** The number of the next lock at each place that is free. */
  readonly #free: number[] = [];
  /** The place that is looked at next. */
  #next = 0;
  /** Of each name the one that was added last. */
  readonly #named = new Map<string, LockState>();
  /** The number of tenures. */
  held = 0;

  /** A number for one that is added next, and that no other ever had. */
  newId(): number {
    return this.#free.at(-1) ?? PLACES + this.#places.length;
  }

  add(id: number, lock: LockState): void {
    if (id === this.#free.at(-1)) {
      this.#free.pop();
    }
    lock.id = id;
    this.#places[placeOf(id)] = lock;
    this.#named.set(lock.name, lock);
  }

  get(id: number): LockState | undefined {
    const lock = this.#places[placeOf(id)];
    return lock?.id === id ? lock : undefined;
  }

  /** The number of one that is the same but for its handle; 0 if none is known. */
  like({ name, ttl, fixed, reentrant, owner, reclaimable, dense, copies }: LockState): number {
    const last = this.#named.get(name);
    const same =
      last?.ttl === ttl &&
      last.fixed === fixed &&
      last.reentrant === reentrant &&
      last.owner === owner &&
      last.reclaimable === reclaimable &&
      last.dense === dense &&
      // One with copies is defined by its texts: few are.
      (last.copies ?? copies) === undefined;
    return same ? last.id : 0;
  }

  /** Takes some that nobody uses, if there are too many; not this one, which is about to be used. */
  takeUnused(newest: LockState): readonly number[] {
    if (this.#places.length - this.#free.length <= MOST_UNUSED) {
      return NONE;
    }
    const unused: number[] = [];
    for (let looks = LOOKS; looks > 0 && unused.length < MOST_TAKEN; looks -= 1) {
      const lock = this.#places[this.#next];
      if (lock !== undefined && lock !== newest && lock.uses === 0 && lock.tenures.length === 0) {
        unused.push(lock.id);
        this.#remove(lock);
      }
      this.#next = (this.#next + 1) % this.#places.length;
    }
    return unused;
  }

  /** A call for a lock got a lease: of a new tenure, or of one that it shares. */
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

  /** One has another deadline. Outputs come in the engine's order, so what it says last counts. */
  moveDeadline(outputs: Outputs): void {
    const tenure = this.#tenure(outputs);
    // Read in any case: more outputs follow.
    const deadline = outputs.number();
    if (tenure !== undefined) {
      tenure.deadline = deadline;
    }
  }

  /** The one that an output names, if it is not over. */
  #tenure(outputs: Outputs): Tenure | undefined {
    const lock = this.get(outputs.number());
    const w0 = outputs.number();
    const w1 = outputs.number();
    return lock && tenureOf(lock, w0, w1);
  }

  /** Takes out the one that an output names. */
  takeTenure(outputs: Outputs): Tenure | undefined {
    const tenure = this.#tenure(outputs);
    if (tenure !== undefined) {
      const { tenures } = tenure.lock;
      tenures.splice(tenures.indexOf(tenure), 1);
      this.held -= 1;
    }
    return tenure;
  }

  /** The tenures of all. */
  tenures(): Tenure[] {
    return this.#places.flatMap((lock) => lock?.tenures ?? []);
  }

  /** The engine knows none any more, and none is held. */
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
    if (this.#named.get(name) === lock) {
      this.#named.delete(name);
    }
    lock.id = 0;
  }
}

/** Not by `%`, which takes much longer of numbers above 31 bits. */
function placeOf(id: number): number {
  return id - Math.floor(id / PLACES) * PLACES;
}

const NONE: readonly number[] = [];

/** The first two words of a lease id are enough. */
function tenureOf({ tenures }: LockState, w0: number, w1: number): Tenure | undefined {
  return tenures.find(({ lease }) => lease[0] === w0 && lease[1] === w1);
}
