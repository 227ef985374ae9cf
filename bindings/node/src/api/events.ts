import type { Host } from "../host/host.js";
import type { LockState, Tenure } from "../host/tenure.js";
import type { LeaseEvent } from "../common/types.js";

/**
 * What happens to one lock, or to all locks of a locker: to be read with `for await`.
 *
 * It begins with the current state, an `acquired` for each lock that is held (for all locks, first a
 * `clockDrift` if the drift margin had to be widened). Renewals that were not
 * read yet merge into the newest. A reader that leaves 1,024 events unread gets `lagged`, then the
 * losses that it has not read, then the current state, so memory stays bounded. Readers do not take
 * events from each other. It ends with the locker's shutdown, or with `return()`, which leaving a
 * `for await` calls.
 *
 * @example
 * ```ts
 * for await (const event of lock.events()) {
 *   if (event.type === "lost") console.error(`lost: ${event.reason}`);
 * }
 * ```
 */
export class LeaseEvents implements AsyncIterableIterator<LeaseEvent, undefined> {
  readonly #reader: Reader;

  /** @internal */
  constructor(reader: Reader) {
    this.#reader = reader;
    ABANDONED?.register(this, reader, this);
  }

  /** The next event. Calls that are made meanwhile get the ones after it. */
  next(): Promise<IteratorResult<LeaseEvent, undefined>> {
    // The façade lives as long as somebody waits.
    return this.#reader.next(this);
  }

  /** Ends it: calls of `next` that wait are told that it is over. */
  async return(): Promise<IteratorReturnResult<undefined>> {
    ABANDONED?.unregister(this);
    this.#reader.end();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.return();
  }

  /** The same events as a stream; cancelling it ends them. */
  toStream(): ReadableStream<LeaseEvent> {
    return new ReadableStream<LeaseEvent>(
      {
        pull: async (controller) => {
          const { done, value } = await this.next();
          if (done === true) {
            controller.close();
          } else {
            controller.enqueue(value);
          }
        },
        cancel: async () => {
          await this.return();
        },
      },
      // Nothing is read before somebody wants it.
      { highWaterMark: 0 },
    );
  }
}

/** One reader's side at the host; the engine keeps the events. */
export class Reader {
  readonly id: number;
  readonly lock: LockState | undefined;
  readonly #host: Host;
  readonly #waiting: { owner: LeaseEvents; resolve: (result: Result) => void }[] = [];
  /** Of an engine that failed. */
  readonly #told: LeaseEvent[] = [];
  #ended = false;

  constructor(host: Host, id: number, lock: LockState | undefined) {
    this.#host = host;
    this.id = id;
    this.lock = lock;
  }

  next(owner: LeaseEvents): Promise<Result> {
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

/** Readers whose program forgot them without `return()`. */
const ABANDONED =
  typeof FinalizationRegistry === "undefined"
    ? undefined
    : new FinalizationRegistry<Reader>((reader) => reader.end());
