import type { LeaseEvent } from "../common/types.js";
import type { Reader } from "../host/reader.js";
import { type Asked, INSPECT, printed } from "./show.js";

/**
 * The events of one lock, or of all locks of a locker. Read it with `for await`.
 *
 * The stream begins with the current state: an `acquired` for each lock that is held. A stream of all locks
 * begins with a `clockDrift` if the drift margin has been widened.
 *
 * Every reader gets all events. Unread `renewed` events merge into the newest one. A reader that leaves 1,024
 * events unread gets `lagged`, then its unread losses, then the current state, so memory stays bounded.
 *
 * The stream ends when the locker shuts down, or on `return()`, which JavaScript calls when a `for await`
 * loop is left.
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

  /** Returns the next event. Concurrent calls get consecutive events. */
  next(): Promise<IteratorResult<LeaseEvent, undefined>> {
    // The pending call holds a reference to this object, so the reader is not collected as abandoned.
    return this.#reader.next(this);
  }

  /** Ends the stream. Pending calls of `next` resolve with `done`. */
  async return(): Promise<IteratorReturnResult<undefined>> {
    ABANDONED?.unregister(this);
    this.#reader.end();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** Returns the lock's name, for logs; an empty object for a reader of all locks. */
  toJSON(): { name?: string } {
    const name = this.#reader.lock?.name;
    return name === undefined ? {} : { name };
  }

  /**
   * Prints the object on consoles.
   *
   * @internal
   */
  [INSPECT](...asked: Asked): string {
    return printed("LeaseEvents", this, ...asked);
  }

  /** Ends the stream, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.return();
  }

  /** Returns the same events as a `ReadableStream`. Canceling the stream ends them. */
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
      // Read an event only when the consumer asks for one.
      { highWaterMark: 0 },
    );
  }
}

/** Ends the readers of streams that the program dropped without calling `return()`. */
const ABANDONED =
  typeof FinalizationRegistry === "undefined"
    ? undefined
    : new FinalizationRegistry<Reader>((reader) => reader.end());
