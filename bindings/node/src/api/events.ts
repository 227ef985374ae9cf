import type { LeaseEvent } from "../common/types.js";
import type { Reader } from "../host/reader.js";
import { type Asked, INSPECT, printed } from "./show.js";

/**
 * What happens to one lock, or to all locks of a locker: to be read with `for await`.
 *
 * It begins with the current state: an `acquired` for each lock that is held; before those, if all
 * locks are read, a `clockDrift` if the drift margin has been widened. Renewals that are not read yet
 * merge into the newest. A reader that leaves 1,024 events unread gets `lagged`, then the losses that it
 * has not read, then the current state, so memory stays bounded. Every reader gets all events. It ends
 * with the locker's shutdown, or with `return()`, which JavaScript calls when a `for await` is left.
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

  /** The next event. Calls that are made before it has come get the ones after it. */
  next(): Promise<IteratorResult<LeaseEvent, undefined>> {
    // The reader refers to this object while somebody waits, so that it is not taken as abandoned.
    return this.#reader.next(this);
  }

  /** Ends it: calls of `next` that wait resolve with `done`. */
  async return(): Promise<IteratorReturnResult<undefined>> {
    ABANDONED?.unregister(this);
    this.#reader.end();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** The lock's name, unless it reads the events of all locks: for logs. */
  toJSON(): { name?: string } {
    const name = this.#reader.lock?.name;
    return name === undefined ? {} : { name };
  }

  /** Prints the object on consoles. @internal */
  [INSPECT](...asked: Asked): string {
    return printed("LeaseEvents", this, ...asked);
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

/** Ends the readers of objects that the program dropped without `return()`. */
const ABANDONED =
  typeof FinalizationRegistry === "undefined"
    ? undefined
    : new FinalizationRegistry<Reader>((reader) => reader.end());
