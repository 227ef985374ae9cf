import { attempt, checkText, config } from "../common/check.js";
import { Memory } from "../store/memory.js";

/**
 * A `memory://name` store that a test can cut off, reconnect and clear.
 *
 * It is for tests and demonstrations of what a program does when a lock server fails. All lockers on the
 * store see the failure as they would see a server's. The store lives as long as a locker or a `MemoryStore`
 * refers to it.
 *
 * @example
 * ```ts
 * const locker = await Locker.quorum(["memory://a", "memory://b", "memory://c"]);
 * const lease = await locker.lock("orders/42").acquire();
 * MemoryStore.named("a").cutOff();
 * await lease.release(); // two of three are enough
 * await locker.shutdown();
 * ```
 */
export class MemoryStore {
  readonly #store: Memory;

  private constructor(store: Memory) {
    const made = "a MemoryStore is made by MemoryStore.named";
    // Not `instanceof`: the store may be from another copy of this package.
    if (!attempt(made, () => typeof store.cutOff === "function")) {
      throw config(made);
    }
    this.#store = store;
  }

  /**
   * Returns the store of `memory://name`, and creates it if needed. Unlike in a URL, the name is not
   * percent-decoded.
   *
   * @throws LeaseholdError `config` if the name is not a string
   */
  static named(name: string): MemoryStore {
    checkText("the name of an in-memory store", name);
    return new MemoryStore(Memory.named(name));
  }

  /**
   * Makes the store unreachable: connections break, requests fail with the code `unavailable`, and
   * notifications are lost. The store keeps its data, and its clock goes on.
   */
  cutOff(): void {
    this.#store.cutOff();
  }

  /**
   * Makes the store reachable again; its lockers reconnect at once. To simulate a server that restarted
   * without its data, {@link MemoryStore.clear | clear} the store first.
   */
  reconnect(): void {
    this.#store.reconnect();
  }

  /**
   * Deletes all locks, waiters and last tokens, as `FLUSHALL` does. It works while the store is cut off, too. Holders learn of
   * it at their next renewal.
   */
  clear(): void {
    this.#store.clear();
  }
}
