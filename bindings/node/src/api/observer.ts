import { longestPeriod, observePeriod, shortestPeriod } from "../../../../core/engine/src/limits.jsonc";
import { config } from "../common/check.js";
import { LeaseholdError } from "../common/errors.js";
import { following } from "../common/signals.js";
import type { HolderInfo } from "../common/types.js";
import type { LockHost } from "../host/lock-host.js";
import { aboutLock } from "../module/wasm.js";
import type { ObserveOptions } from "./options.js";
import { persist, sleep } from "./persist.js";
import { type Asked, INSPECT, printed } from "./show.js";

/**
 * The holders of one lock, for programs that follow a leader and do not stand in line. Read it with `for await`.
 *
 * - It begins with the current holder, or `undefined` if the lock is free.
 * - It yields each change that it finds: the holder of another tenure, or `undefined`. A renewal is no change.
 * - It asks the store every second (`every`), and only while it is read. So it learns of a change after at most that
 *   time and a reply, and never learns of a tenure that began and ended in between. Holders and waiters pay nothing
 *   for being observed: a push would cost each acquisition a command.
 * - While the store cannot be reached it retries, and yields nothing. The holder may change meanwhile.
 *
 * The loop ends when the locker shuts down or the signal is aborted. An error that retrying cannot fix is thrown, such
 * as `unsupported` for a shared name, which has no single holder.
 *
 * An observer learns of a change late. Let the storage check tokens if the old and the new holder must not both write.
 *
 * At a quorum the token depends on the servers that answer. A tenure may be yielded again with another one.
 *
 * @example
 * ```ts
 * for await (const leader of locker.observe("leader")) {
 *   console.log(leader ? `${leader.owner.label} leads with token ${leader.token}` : "nobody leads");
 * }
 * ```
 */
export class Observer implements AsyncIterableIterator<HolderInfo | undefined, undefined> {
  readonly #name: string;
  readonly #look: () => Promise<HolderInfo | undefined>;
  readonly #every: number;
  readonly #stop: AbortController;
  readonly #stopListening: () => void;
  #queue: Promise<unknown> = Promise.resolve();
  /** The last item, once there is one. */
  #last: { holder: HolderInfo | undefined } | undefined;

  /** @internal */
  constructor(host: LockHost, name: string, options: ObserveOptions, closed: AbortSignal) {
    const { every = observePeriod, signal } = options;
    if (every < shortestPeriod || every > longestPeriod) {
      throw config(`the options of observe: every must be from 10 ms to 366 days; got ${every} ms`);
    }
    this.#name = name;
    this.#look = async () => {
      const { holder, shared } = await host.inspect(name);
      if (shared !== undefined) {
        const what = "a shared name has no single holder to observe; inspect it";
        throw aboutLock(name, new LeaseholdError("unsupported", what));
      }
      return holder ?? undefined;
    };
    this.#every = every;
    [this.#stop, this.#stopListening] = following(closed, signal);
  }

  /** Returns the next change. Concurrent calls get consecutive changes. */
  next(): Promise<IteratorResult<HolderInfo | undefined, undefined>> {
    const next = this.#queue.then(() => this.#next());
    this.#queue = next.catch(() => this.#end());
    return next;
  }

  /** Ends the iteration. */
  async return(): Promise<IteratorReturnResult<undefined>> {
    this.#end();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** Returns, for logs, the lock's name, the token of the last holder, and whether the loop has ended. */
  toJSON(): { name: string; token?: number; ended: boolean } {
    const token = this.#last?.holder?.token;
    return { name: this.#name, ...(token !== undefined && { token }), ended: this.#stop.signal.aborted };
  }

  /** Prints the object on consoles. @internal */
  [INSPECT](...asked: Asked): string {
    return printed("Observer", this, ...asked);
  }

  /** Ends the iteration, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#end();
  }

  async #next(): Promise<IteratorResult<HolderInfo | undefined, undefined>> {
    const { signal } = this.#stop;
    for (;;) {
      if (this.#last !== undefined) {
        await sleep(this.#every, signal);
      }
      const found = await persist(async () => ({ holder: await this.#look() }), signal);
      if (found === undefined || signal.aborted) {
        this.#end();
        return { done: true, value: undefined };
      }
      if (this.#last === undefined || !isSame(found.holder, this.#last.holder)) {
        this.#last = found;
        return { done: false, value: found.holder };
      }
    }
  }

  #end(): void {
    this.#stopListening();
    this.#stop.abort();
  }
}

/** True if both have the same tenure, or none. */
function isSame(one: HolderInfo | undefined, other: HolderInfo | undefined): boolean {
  return one?.token === other?.token && one?.owner.label === other?.owner.label;
}
