import { LeaseholdError } from "../common/errors.js";
import type { LockState, Tenure } from "./tenure.js";

/** A call that waits for the engine's answer. */
export interface Call {
  /** Which it is about, if it is about one. */
  readonly lock: LockState | undefined;
  readonly resolve: (answer: unknown) => void;
  readonly reject: (error: unknown) => void;
  /** Undoes what the call set up. */
  readonly clean: () => void;
}

/** What an acquisition got. */
export interface Acquired {
  readonly tenure: Tenure;
  /** Milliseconds that the call waited. */
  readonly waited: number;
}

/** The calls that wait, by the numbers that the engine answers to. */
export class Calls {
  readonly #waiting = new Map<number, Call>();

  get size(): number {
    return this.#waiting.size;
  }

  add(id: number, call: Call): void {
    this.#waiting.set(id, call);
  }

  /** Takes a call that is to be answered. */
  take(id: number): Call | undefined {
    const call = this.#waiting.get(id);
    this.#waiting.delete(id);
    call?.clean();
    return call;
  }

  /** Ends a call in vain; the error names its lock. */
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
