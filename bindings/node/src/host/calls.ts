import { LeaseholdError } from "../common/errors.js";
import { startPulse } from "../common/platform.js";
import { aboutLock } from "../module/wasm.js";
import type { LockState } from "./tenure.js";

/**
 * Makes the result of a call; if it throws, the call is rejected. Declared as a method, because methods are
 * bivariant: any call may have one.
 */
type Finish<Answer> = { finish(call: Call<Answer>): unknown }["finish"];

/** A call that waits for the engine's answer. */
export class Call<Answer = unknown> {
  /** Resolves to the result of `finish`, or otherwise to the answer. */
  readonly promise: Promise<unknown>;
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: unknown) => void;
  /** The engine's number for the call. */
  id = 0;
  answer: Answer | undefined = undefined;
  error: unknown = undefined;
  /** Milliseconds that an acquisition waited. */
  waited = 0;
  /** Makes the result from the call. It gets the call's error, too, and throws that. */
  finish: Finish<Answer> | undefined = undefined;
  /**
   * Stops listening for an abort. This may run the program's code, so never call it while outputs are read.
   */
  stopListening: (() => void) | undefined = undefined;
  stopPulse: (() => void) | undefined = undefined;

  /** @param lock the lock that the call is about, if any */
  constructor(readonly lock: LockState | undefined) {
    this.promise = new Promise(takeBoth);
    this.resolve = resolveMade;
    this.reject = rejectMade;
  }

  /** Ends the call with an error. */
  fail(error: unknown): void {
    this.stopListening?.();
    this.reject(error);
  }

  /** Ends the call with its answer or error. */
  settle(): void {
    this.stopListening?.();
    const { finish, error } = this;
    try {
      if (finish !== undefined) {
        this.resolve(finish(this));
      } else if (error !== undefined) {
        this.reject(error);
      } else {
        this.resolve(this.answer);
      }
    } catch (thrown) {
      this.reject(thrown);
    }
  }
}

// The functions of the last promise that was made. One executor for all calls costs less than one for each.
let resolveMade: (result: unknown) => void;
let rejectMade: (error: unknown) => void;

function takeBoth(resolve: (result: unknown) => void, reject: (error: unknown) => void): void {
  resolveMade = resolve;
  rejectMade = reject;
}

/**
 * The low bits of a call's number are its place. The bits above count how often that place was used before.
 */
const PLACE_BITS = 22;
const MOST = 2 ** PLACE_BITS;
/** Numbers have 31 bits, because JavaScript engines store those without a box. */
const USES = 2 ** (31 - PLACE_BITS);

/** A number that no call has. */
export const NOBODY = 2 ** 32 - 1;

/** The calls that wait for an answer, each at its own place. */
export class Calls {
  readonly #places: (Call | undefined)[] = [];
  /** The next number of each free place. */
  readonly #free: number[] = [];

  /** @param tick reports to the engine that time has passed */
  constructor(private readonly tick: () => void) {}

  get size(): number {
    return this.#places.length - this.#free.length;
  }

  /** Adds a call. Throws `overloaded` if there is no place for it. */
  add<Answer>(lock: LockState | undefined): Call<Answer> {
    const call = new Call<Answer>(lock);
    call.id = this.#free.pop() ?? this.#newPlace();
    this.#places[placeOf(call.id)] = call as Call;
    call.stopPulse = startPulse(this.tick);
    if (lock !== undefined) {
      lock.uses += 1;
    }
    return call;
  }

  /** True while the call waits for an answer. */
  has(id: number): boolean {
    return this.#places[placeOf(id)]?.id === id;
  }

  /** Removes a call, to be answered. */
  take(id: number): Call | undefined {
    const call = this.#places[placeOf(id)];
    if (call === undefined || call.id !== id) {
      return undefined;
    }
    this.#remove(call);
    return call;
  }

  /** Removes a call that failed. Its error names its lock. */
  takeFailed(id: number, error: LeaseholdError): Call | undefined {
    const call = this.take(id);
    if (call !== undefined) {
      call.error = call.lock === undefined ? error : aboutLock(call.lock.name, error);
    }
    return call;
  }

  takeAll(): Call[] {
    const calls = this.#places.filter((call) => call !== undefined);
    calls.forEach((call) => this.#remove(call));
    return calls;
  }

  #newPlace(): number {
    if (this.#places.length === MOST) {
      throw new LeaseholdError("overloaded", "too many pending calls; the limit is " + MOST);
    }
    this.#places.push(undefined);
    return this.#places.length - 1;
  }

  #remove(call: Call): void {
    const { id, lock } = call;
    const place = placeOf(id);
    this.#places[place] = undefined;
    this.#free.push((((id >>> PLACE_BITS) + 1) % USES) * MOST + place);
    call.stopPulse?.();
    if (lock !== undefined) {
      lock.uses -= 1;
    }
  }
}

function placeOf(id: number): number {
  return id & (MOST - 1);
}
