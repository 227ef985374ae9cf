import type { LeaseEvent } from "../common/types.js";
import type { LockState, Tenure } from "./tenure.js";

/** One reader's side at the host; the engine keeps the events. */
export class Reader {
  readonly id: number;
  readonly lock: LockState | undefined;
  readonly #host: ReaderHost;
  readonly #waiting: { owner: object; resolve: (result: Result) => void }[] = [];
  /** Of an engine that failed. */
  readonly #told: LeaseEvent[] = [];
  #ended = false;

  constructor(host: ReaderHost, id: number, lock: LockState | undefined) {
    this.#host = host;
    this.id = id;
    this.lock = lock;
  }

  next(owner: object): Promise<Result> {
    const result = this.#waiting.length === 0 ? this.#poll() : undefined;
    if (result !== undefined) {
      return Promise.resolve(result);
    }
    return new Promise((resolve) => this.#waiting.push({ owner, resolve }));
  }

  /** There is something. */
  wake(): void {
    while (this.#waiting.length > 0) {
      const result = this.#poll();
      if (result === undefined) {
        break;
      }
      this.#waiting.shift()?.resolve(result);
    }
  }

  /** What an engine that failed cannot tell any more. */
  crashed(tenures: readonly Tenure[]): void {
    for (const { lock, token } of tenures) {
      if (this.lock === undefined || this.lock === lock) {
        this.#told.push({ type: "lost", name: lock.name, token, reason: "crashed" });
      }
    }
  }

  end(): void {
    this.#ended = true;
    this.#host.removeReader(this);
    for (const { resolve } of this.#waiting.splice(0)) {
      resolve(DONE);
    }
  }

  #poll(): Result | undefined {
    const json = this.#told.length > 0 || this.#ended ? "" : this.#host.nextEvent(this);
    // An engine that fails as it is asked has something told here.
    const told = this.#told.shift();
    if (told !== undefined) {
      return { done: false, value: told };
    }
    if (json === undefined) {
      return undefined;
    }
    return json === "" ? DONE : { done: false, value: JSON.parse(json) as LeaseEvent };
  }
}

type Result = IteratorResult<LeaseEvent, undefined>;

const DONE: IteratorReturnResult<undefined> = Object.freeze({ done: true, value: undefined });

/** What a reader needs of its host. */
interface ReaderHost {
  nextEvent(reader: Reader): string | undefined;
  removeReader(reader: Reader): void;
}
