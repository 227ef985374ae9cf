import { LeaseholdError } from "../common/errors.js";
import { now } from "../common/platform.js";
import { messageOf } from "../common/printable.js";
import type { WasmModule } from "../module/wasm.js";
import { Counted, Slots } from "./shared.js";
import { type Member, type Port, Thread } from "./thread.js";
import { Ask, type Batch, type Begin, Outbox } from "./wire.js";

/** The data that a locker starts with in the worker thread, except what its link adds. */
export type Opening = Omit<Begin, "counted" | "at" | "port"> & {
  readonly module: WasmModule;
  /** The number of counted numbers, and how many of them are gauges. */
  readonly counts: readonly [length: number, gauges: number];
};

interface LinkHost extends Member {
  /** The worker thread sent a batch. */
  told(batch: Batch): void;
}

/** The connection of one locker to the worker thread, and what both threads share. */
export class Link implements Member {
  readonly slots: Slots;
  readonly counted: Counted;
  readonly #thread: Thread;
  readonly #port: Port;
  readonly #outbox: Outbox;
  /** True once nothing that comes through the port counts any more. */
  #over = false;

  constructor(opening: Opening, private readonly host: LinkHost) {
    const { counts, module, ...rest } = opening;
    // The number after the counts is that of losses by a crash.
    this.counted = Counted.of(counts[0] + 1);
    this.#outbox = new Outbox((batch) => this.#post(batch));
    this.slots = new Slots((page) => this.send(Ask.Page, page));
    this.#thread = Thread.shared(module);
    this.#port = this.#thread.join(this, { ...rest, counted: [...counts, this.counted.buffer], at: now() });
    this.#port.on("message", (batch: Batch) => {
      if (!this.#over) {
        host.told(batch);
      }
    });
    this.#port.on("messageerror", (cause: unknown) => {
      const message = `a message of the locker's worker thread could not be read: ${messageOf(cause)}`;
      this.ended(new LeaseholdError("internal", message, { cause }));
    });
    // The thread, not the port, keeps the process alive: a thread that fails closes the port first.
    this.#port.unref();
  }

  send(...message: unknown[]): void {
    this.#outbox.add(...message);
  }

  /** Sets whether this locker needs the process to stay alive. */
  keepAlive(alive: boolean): void {
    this.#thread.keepAlive(this, alive);
  }

  /** Ends the thread, for all of its lockers, unless it answers in time. */
  check(): void {
    if (!this.#over) {
      this.#thread.check();
    }
  }

  /** Ends the connection, and with the last one the thread. */
  async end(): Promise<void> {
    this.#over = true;
    this.#port.close();
    await this.#thread.leave(this);
  }

  ended(cause: LeaseholdError): void {
    if (!this.#over) {
      void this.end();
      this.host.ended(cause);
    }
  }

  #post(batch: unknown[]): void {
    if (!this.#over && batch.length > 0) {
      // The time of this thread's clock, from which the other thread learns how its own clock differs.
      this.#port.postMessage([now(), ...batch]);
    }
  }
}
