import { attempt, checkText, config } from "../common/check.js";
import { Memory } from "../store/memory.js";

/**
 * The store in memory that lockers of `memory://name` share, to be taken away from them.
 *
 * It is for tests and demonstrations: to see what a program does when a server of its locks fails. What is done
 * here all lockers on the store feel, in the way in which they would feel it of a server. The store lives for
 * as long as a locker or an object like this one is there.
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
    // Not by its class: it may be of another copy of this package.
    if (!attempt(made, () => typeof store.cutOff === "function")) {
      throw config(made);
    }
    this.#store = store;
  }

  /**
   * The store of `memory://name`, whether it is there already or not. The name is not percent-encoded here.
   *
   * @throws LeaseholdError `config` for what is no text
   */
  static named(name: string): MemoryStore {
    checkText("the name of a store in memory", name);
    return new MemoryStore(Memory.named(name));
  }

  /**
   * From now on nobody reaches it: connections are broken, what is asked fails with the code `unavailable`, and
   * pushes are lost. It keeps what it has, and its clock goes on.
   */
  cutOff(): void {
    this.#store.cutOff();
  }

  /**
   * It can be reached again, and lockers connect to it at once. To go on as a server that restarted without its
   * data, {@link MemoryStore.clear | clear} it before.
   */
  reconnect(): void {
    this.#store.reconnect();
  }

  /** Forgets all locks, places in line and last tokens, as `FLUSHALL` does; also while it is cut off. */
  clear(): void {
    this.#store.clear();
  }
}
