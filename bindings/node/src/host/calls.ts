import { LeaseholdError } from "../common/errors.js";
import type { LockState, Tenure } from "./tenure.js";

/** A call that waits for the engine's answer. */
export interface Call {
  /** The lock that it is about, if any. */
  readonly lock: LockState | undefined;
  readonly resolve: (answer: unknown) => void;
  readonly reject: (error: unknown) => void;
  /** Undoes what the call set up. */
  readonly clean: () => void;
}

/** The answer to a call that acquires. */
export interface Acquired {
  readonly tenure: Tenure;
  /** Milliseconds that the call waited. */
  readonly waited: number;
}

/** The calls that wait for an answer, by the numbers that the engine knows them by. */
export class Calls {
  readonly #waiting = new Map<number, Call>();

  get size(): number {
    return this.#waiting.size;
  }

  add(id: number, call: Call): void {
    this.#waiting.set(id, call);
  }

  /** Takes out a call, to be answered. */
  take(id: number): Call | undefined {
    const call = this.#waiting.get(id);
    this.#waiting.delete(id);
    call?.clean();
    return call;
  }

  /** Rejects a call; the error names its lock. */
  fail(id: number, error: LeaseholdError): void {
    const call = this.take(id);
    const { code, message } = error;
    const name = call?.lock?.name;
    const about = `lock ${JSON.stringify(name)}: `;
    call?.reject(name === undefined ? error : new LeaseholdError(code, about + message));
  }

  takeAll(): Call[] {
    const calls = [...this.#waiting.values()];
    this.#waiting.clear();
    calls.forEach((call) => call.clean());
    return calls;
  }
}
