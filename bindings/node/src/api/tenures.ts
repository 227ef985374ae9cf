import { isAborted, onAbort } from "../common/signals.js";
import type { Lease } from "./lease.js";
import { persist } from "./persist.js";
import { type Asked, INSPECT, printed } from "./show.js";

/**
 * One lease after another, to hold a lock, or a part of a shared name, for as long as the program runs. Read it
 * with `for await`.
 *
 * It waits in line and yields the lease. When the lease is lost or released, the next step waits
 * in line again. It keeps trying while the store cannot be reached. An error that retrying cannot fix, such
 * as a password that is refused at the first connection, is thrown. A password that is refused later is an outage,
 * since it may be changed at the server first.
 *
 * The loop ends when the locker shuts down or the signal is aborted. Nothing happens unless it is read.
 * Leaving the loop leaves the line; the program must release a lease that was yielded.
 *
 * @example
 * ```ts
 * for await (const lease of locker.lock("leader").hold()) {
 *   await lease.run((signal) => lead(signal)).catch(() => {});
 * }
 * ```
 */
export class Tenures<L extends Lease = Lease> implements AsyncIterableIterator<L, undefined> {
  readonly #name: string;
  readonly #acquire: (signal: AbortSignal) => Promise<L>;
  readonly #stop = new AbortController();
  readonly #stopped: Promise<void>;
  #last: Promise<unknown> = Promise.resolve();
  /** The token of the last lease that was yielded. */
  #token: number | undefined;

  /** @internal */
  constructor(name: string, acquire: (signal: AbortSignal) => Promise<L>, signal?: AbortSignal) {
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

  /** Returns the next lease, once the previous one is over. */
  next(): Promise<IteratorResult<L, undefined>> {
    const next = this.#last.then(() => this.#next());
    this.#last = next.then(
      ({ done, value }) => (done === true ? undefined : Promise.race([value.whenOver(), this.#stopped])),
      () => this.#end(),
    );
    return next;
  }

  /** Ends the iteration, and leaves the line. */
  async return(): Promise<IteratorReturnResult<undefined>> {
    this.#end();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /**
   * Returns, for logs, the name, the token of the last yielded lease, and whether the loop has ended.
   */
  toJSON(): { name: string; token?: number; ended: boolean } {
    const token = this.#token;
    return { name: this.#name, ...(token !== undefined && { token }), ended: this.#stop.signal.aborted };
  }

  /** Prints the object on consoles. @internal */
  [INSPECT](...asked: Asked): string {
    return printed("Tenures", this, ...asked);
  }

  /** Ends it, and leaves the line; for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#end();
  }

  async #next(): Promise<IteratorResult<L, undefined>> {
    const { signal } = this.#stop;
    const value = await persist(() => this.#acquire(signal), signal);
    if (value === undefined) {
      this.#end();
      return { done: true, value };
    }
    this.#token = value.token;
    return { done: false, value };
  }

  #end(): void {
    this.#stop.abort();
  }
}
