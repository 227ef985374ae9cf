import type { Reader } from "../host/reader.js";

/** The events of one reader that have come from the worker thread. */
interface Inflow {
  readonly reader: Reader;
  /** Each as JSON; an empty text at the end. */
  readonly events: string[];
  /** True while the worker thread was asked for one more. */
  asked: boolean;
}

/**
 * The readers of a locker. Unread events wait in the worker thread's engine, which bounds them: this thread
 * asks for one at a time.
 */
export class Inflows {
  readonly #inflows = new Map<number, Inflow>();

  /** @param ask asks the worker thread for an event of a reader. Returns false if there is no thread. */
  constructor(private readonly ask: (reader: number) => boolean) {}

  add(reader: Reader): void {
    this.#inflows.set(reader.id, { reader, events: [], asked: false });
  }

  delete(reader: Reader): boolean {
    return this.#inflows.delete(reader.id);
  }

  get readers(): Reader[] {
    return [...this.#inflows.values()].map(({ reader }) => reader);
  }

  /** Returns the reader's next event, or otherwise asks for it. */
  next({ id }: Reader): string | undefined {
    const inflow = this.#inflows.get(id);
    const event = inflow?.events[0];
    if (event !== undefined && event !== "") {
      inflow?.events.shift();
    }
    if (event === undefined && inflow?.asked === false) {
      inflow.asked = this.ask(id);
    }
    return event;
  }

  /** Takes an event that has come. */
  take(id: number, event: string): void {
    const inflow = this.#inflows.get(id);
    if (inflow !== undefined) {
      inflow.asked = false;
      inflow.events.push(event);
      inflow.reader.wake();
    }
  }

  /** Forgets what was asked of a worker thread that is gone. */
  forget(): void {
    for (const inflow of this.#inflows.values()) {
      inflow.asked = false;
    }
  }

  wake(): void {
    this.readers.forEach((reader) => reader.wake());
  }
}
