import { LeaseholdError } from "../common/errors.js";
import { startTimer, stopTimer, type Timer } from "../common/platform.js";
import { isAborted, onAbort } from "../common/signals.js";
import type { Lease } from "./lease.js";
import { type Asked, INSPECT, printed } from "./show.js";

/** Milliseconds between two tries while the store does not reply. */
const PAUSE = 1_000;

/**
 * Keeps a lock for as long as the program runs: one lease after the other, to be read with
 * `for await`.
 *
 * It waits in line for the lock and yields the lease; when that is lost, or given up by the program,
 * the next step waits in line again. While the store cannot be reached it keeps trying. It ends when
 * the locker is shut down or its signal aborted; an error that trying again does not mend, such as a
 * refused password, is thrown. Nothing happens unless it is read. Leaving the loop leaves the line; a
 * lease that was yielded is for the program to release.
 *
 * @example
 * ```ts
 * for await (const lease of locker.lock("leader").hold()) {
 *   await lease.run((signal) => lead(signal)).catch(() => {});
 * }
 * ```
 */
export class Tenures implements AsyncIterableIterator<Lease, undefined> {
  readonly #name: string;
  readonly #acquire: (signal: AbortSignal) => Promise<Lease>;
  readonly #stop = new AbortController();
  readonly #stopped: Promise<void>;
  #last: Promise<unknown> = Promise.resolve();
  /** The token of the lease that it yielded last. */
  #token: number | undefined;

  /** @internal */
  constructor(name: string, acquire: (signal: AbortSignal) => Promise<Lease>, signal?: AbortSignal) {
    this.#name = name;
    this.#acquire = acquire;
    this.#stopped = new Promise((resolve) =>
      this.#stop.signal.addEventListener("abort", () => resolve(), { once: true }),
    );
    if (isAborted(signal)) {
      this.#end();
    } else if (signal !== undefined) {
      const stopListening = onAbort(signal, () => this.#end());
      this.#stop.signal.addEventListener("abort", stopListening, { once: true });
    }
  }

  /** The next lease, once the one before is over. */
  next(): Promise<IteratorResult<Lease, undefined>> {
    const next = this.#last.then(() => this.#next());
    this.#last = next.then(
      ({ done, value }) => (done === true ? undefined : Promise.race([value.whenOver(), this.#stopped])),
      () => this.#end(),
    );
    return next;
  }

  /** Ends it, and leaves the line. */
  async return(): Promise<IteratorReturnResult<undefined>> {
    this.#end();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** The lock's name, the token of the lease that it yielded last, and whether it has ended: for logs. */
  toJSON(): { name: string; token?: number; ended: boolean } {
    const token = this.#token;
    return { name: this.#name, ...(token !== undefined && { token }), ended: this.#stop.signal.aborted };
  }

  /** Prints the object on consoles. @internal */
  [INSPECT](...asked: Asked): string {
    return printed("Tenures", this, ...asked);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#end();
  }

  async #next(): Promise<IteratorResult<Lease, undefined>> {
    while (!this.#stop.signal.aborted) {
      try {
        const value = await this.#acquire(this.#stop.signal);
        this.#token = value.token;
        return { done: false, value };
      } catch (error) {
        if (this.#stop.signal.aborted || (error instanceof LeaseholdError && error.code === "shutdown")) {
          break;
        }
        if (!(error instanceof LeaseholdError) || !(error.transient || error.code === "internal")) {
          throw error;
        }
        await this.#pause();
      }
    }
    this.#end();
    return { done: true, value: undefined };
  }

  async #pause(): Promise<void> {
    let timer: Timer | undefined;
    const passed = new Promise<void>((resolve) => (timer = startTimer(resolve, PAUSE)));
    await Promise.race([passed, this.#stopped]);
    stopTimer(timer);
  }

  #end(): void {
    this.#stop.abort();
  }
}
