import type { LeaseEvent } from "../common/types.js";
import type { LockState, Tenure } from "./tenure.js";

/** A reader of events. The events wait in the engine until they are read. */
export class Reader {
  readonly #waiting: { owner: object; resolve: (result: Result) => void }[] = [];
  /** Losses by an engine that failed, which the next engine does not know of. */
  readonly #crashes: LeaseEvent[] = [];
  #ended = false;
  /** True while the engine is being asked for an event, and true if it woke the reader meanwhile. */
  #asking = false;
  #woken = false;

  constructor(private readonly host: ReaderHost, readonly id: number, readonly lock: LockState | undefined) {}

  next(owner: object): Promise<Result> {
    const result = this.#waiting.length === 0 ? this.#ask() : undefined;
    if (result !== undefined) {
      return Promise.resolve(result);
    }
    return new Promise((resolve) => this.#waiting.push({ owner, resolve }));
  }

  /** Reports that there is an event to read. */
  wake(): void {
    this.#woken = true;
    // Asking makes the engine run, and an in-memory store replies at once. So this may run in the middle of a
    // question.
    if (this.#asking) {
      return;
    }
    while (this.#waiting.length > 0) {
      const result = this.#ask();
      if (result === undefined) {
        break;
      }
      this.#waiting.shift()?.resolve(result);
    }
  }

  /** Adds the losses of an engine that failed with these tenures. */
  crashed(tenures: readonly Tenure[]): void {
    for (const { lock, token } of tenures) {
      if (this.lock === undefined || this.lock === lock) {
        this.#crashes.push({ type: "lost", name: lock.name, token, reason: "crashed" });
      }
    }
  }

  end(): void {
    this.#ended = true;
    this.host.removeReader(this);
    for (const { resolve } of this.#waiting.splice(0)) {
      resolve(DONE);
    }
  }

  #ask(): Result | undefined {
    this.#asking = true;
    try {
      let result: Result | undefined;
      do {
        this.#woken = false;
        result = this.#poll();
      } while (result === undefined && this.#woken);
      return result;
    } finally {
      this.#asking = false;
    }
  }

  #poll(): Result | undefined {
    const json = this.#crashes.length > 0 || this.#ended ? "" : this.host.nextEvent(this);
    // Read only now, because an engine that fails at `nextEvent` adds to the crashes.
    const crash = this.#crashes.shift();
    if (crash !== undefined) {
      return { done: false, value: crash };
    }
    if (json === undefined) {
      return undefined;
    }
    return json === "" ? DONE : { done: false, value: JSON.parse(json) as LeaseEvent };
  }
}

type Result = IteratorResult<LeaseEvent, undefined>;

const DONE: IteratorReturnResult<undefined> = Object.freeze({ done: true, value: undefined });

/** A host as its readers see it. */
interface ReaderHost {
  /**
   * Returns the reader's next event as JSON; an empty string at the end; `undefined` if there is no event
   * yet.
   */
  nextEvent(reader: Reader): string | undefined;
  removeReader(reader: Reader): void;
}
