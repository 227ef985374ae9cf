import type { Locks } from "./locks.js";
import type { Outputs } from "./outputs.js";
import { type LockState, Tenure } from "./tenure.js";

/** The tenures that are held, by what the engine says of them. */
export class HeldTenures {
  #held = 0;

  constructor(private readonly locks: Locks) {}

  get size(): number {
    return this.#held;
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
    let tenure = named(lock, w0, w1);
    if (tenure === undefined) {
      tenure = new Tenure(lock, [w0, w1, w2, w3], token, began, deadline);
      this.#held += 1;
      lock.tenures.push(tenure);
    }
    tenure.leases += 1;
    return tenure;
  }

  /** One has another deadline. Outputs come in the engine's order, so what it says last counts. */
  move(outputs: Outputs): void {
    const tenure = this.#named(outputs);
    // Read in any case: more outputs follow.
    const deadline = outputs.number();
    if (tenure !== undefined) {
      tenure.deadline = deadline;
    }
  }

  /** The one that an output names, if it is not over. */
  #named(outputs: Outputs): Tenure | undefined {
    const lock = this.locks.get(outputs.number());
    const w0 = outputs.number();
    const w1 = outputs.number();
    return lock && named(lock, w0, w1);
  }

  /** Takes out the one that an output names. */
  take(outputs: Outputs): Tenure | undefined {
    const tenure = this.#named(outputs);
    if (tenure !== undefined) {
      const { tenures } = tenure.lock;
      tenures.splice(tenures.indexOf(tenure), 1);
      this.#held -= 1;
    }
    return tenure;
  }

  /** All, which nobody has any more. */
  takeAll(): readonly Tenure[] {
    this.#held = 0;
    return this.locks.tenures();
  }
}

/** The first two words of a lease id are enough. */
function named({ tenures }: LockState, w0: number, w1: number): Tenure | undefined {
  return tenures.find(({ lease }) => lease[0] === w0 && lease[1] === w1);
}
