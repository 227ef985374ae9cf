import { gateCapacity, gateWaiting } from "../../../../core/engine/src/limits.jsonc";
import { attempt, config, readOptions, shown, SIGNAL_OPTION } from "../common/check.js";
import { hasMark, LeaseholdError, markOf } from "../common/errors.js";
import { isAborted, onAbort, reasonOf } from "../common/signals.js";
import { checkResource } from "./resource.js";
import { quoted, StaleTokenError } from "./stale.js";
import { type Token, tokenOf } from "./token.js";

/** Options of {@link Gate}. */
export interface GateOptions {
  /**
   * The number of resources that the gate remembers: at least 1; {@link Gate.DEFAULT_CAPACITY} by default.
   */
  readonly capacity?: number;
}

/** Options of {@link Gate.enter}. */
export interface EnterOptions {
  /** A signal that removes the write from the line when it is aborted. Its token stays seen. */
  readonly signal?: AbortSignal | undefined;
}

/** The right to write to a resource, from {@link Gate.enter}. */
export interface Entered {
  /** Ends the right, so that the next write may pass. A second call does nothing. */
  release(): void;
  /**
   * Ends the right of a request that has written nothing.
   *
   * The gate then forgets the resource again, unless it remembered it before or another write follows. A gate
   * of an older copy of this package does not have this method.
   *
   * @internal
   */
  withdraw?(): void;
}

/** The stored state of a {@link Gate}. The least recently used resource comes first. */
export interface SavedGate {
  /** The number of resources that the gate remembers. */
  readonly capacity: number;
  /** The greatest forgotten token; `null` if none was forgotten. */
  readonly floor: number | null;
  /** The remembered resources, each with its greatest token. */
  readonly seen: readonly (readonly [resource: string, token: number])[];
}

interface Entry {
  highest: number;
  /** True once a token was finally accepted, so that the resource is remembered while idle. */
  kept: boolean;
  /** The waiting writes, in order of arrival. All of them have the highest token. */
  readonly line: Set<Waiter>;
}

interface Waiter {
  enter(): void;
  refuse(highest: number): void;
}

const MARK = markOf("Gate");

/**
 * An in-memory guard, for a service that owns its state. It remembers the greatest token of each resource and
 * refuses smaller ones. Every writer of a resource must use the same gate.
 *
 * ```ts
 * const gate = new Gate();
 * await gate.guard("account/7", lease, async () => {
 *   balance -= 10;
 * });
 * ```
 *
 * {@link guard} and {@link enter} hold the resource until the write is over, so no other write through them
 * passes meanwhile. A greater token counts from its arrival, even while it waits: smaller tokens that wait
 * are refused at once.
 *
 * The gate remembers at most `capacity` resources. When it is full, it forgets the least recently used
 * resource and raises a *floor* to that resource's token. For a resource that it does not remember, it
 * refuses tokens below the floor. So a gate that forgets passes no token that it would have refused before,
 * but it may refuse one that it would have passed. With dense tokens or long leases, choose a capacity so
 * large that the gate never forgets.
 *
 * A new gate after a restart passes everything. If the guarded state outlives the process, the gate must,
 * too: store the result of {@link toJSON} together with the state. Rust's `Gate` stores the same.
 */
export class Gate {
  /** The default number of resources that a gate remembers. */
  static readonly DEFAULT_CAPACITY = gateCapacity;
  /**
   * The largest number of writes that may wait for one resource. Another one is refused with the code
   * `overloaded`.
   */
  static readonly MAX_WAITING = gateWaiting;

  readonly #capacity: number;
  /** At least as great as any forgotten token; 0 if none was forgotten. */
  #floor = 0;
  /** Resources without writes, which the gate may forget. The least recently used one comes first. */
  readonly #idle = new Map<string, Entry>();
  /** Resources with a write in progress, which the gate never forgets. */
  readonly #busy = new Map<string, Entry>();

  /**
   * Makes a gate that has seen no tokens. Its memory grows with the resources that it sees, up to the
   * capacity.
   */
  constructor(options: GateOptions = {}) {
    const { capacity = Gate.DEFAULT_CAPACITY } = readOptions("the options of a gate", options, { capacity: "any" });
    if (!Number.isSafeInteger(capacity) || capacity < 1) {
      throw config(`a gate's capacity must be a whole number from 1 up; got ${shown(capacity)}`);
    }
    this.#capacity = capacity;
    Object.defineProperty(this, MARK, { value: true });
  }

  /**
   * True also for a gate of another copy of this package.
   *
   * @internal
   */
  static [Symbol.hasInstance](value: unknown): boolean {
    return this === Gate ? hasMark(value, MARK) : Function.prototype[Symbol.hasInstance].call(this, value);
  }

  /**
   * Restores a gate from the result of {@link toJSON}. Throws a {@link LeaseholdError} with the code `config`
   * for anything else.
   */
  static fromJSON(saved: SavedGate): Gate {
    return attempt("this is not a stored gate", () => Gate.#restored(saved));
  }

  static #restored(saved: SavedGate): Gate {
    const bad = (why: string) => config(`this is not a stored gate: ${why}`);
    if (typeof saved !== "object" || saved === null || !Array.isArray(saved.seen)) {
      throw bad("it must be an object with an array `seen`, as `toJSON` returns it");
    }
    const gate = new Gate({ capacity: saved.capacity ?? 0 });
    if (saved.seen.length > gate.#capacity) {
      throw bad(`its capacity is ${gate.#capacity}, but it has ${saved.seen.length} resources`);
    }
    for (const pair of saved.seen) {
      if (!Array.isArray(pair) || pair.length !== 2 || typeof pair[1] !== "number") {
        throw bad("`seen` must be pairs of a resource and a token");
      }
      const [resource, token] = pair as unknown as [string, number];
      checkResource(resource);
      if (gate.#idle.has(resource)) {
        throw bad(`it has the resource ${quoted(resource)} twice`);
      }
      gate.#remember(resource, tokenOf(token)).kept = true;
    }
    if (saved.floor !== null && typeof saved.floor !== "number") {
      throw bad("its floor is neither a token nor null");
    }
    gate.#floor = saved.floor === null ? 0 : tokenOf(saved.floor);
    return gate;
  }

  /**
   * Returns all that the gate remembers, including the tokens of pending writes. It does not wait for them.
   */
  toJSON(): SavedGate {
    const entries = [...this.#idle, ...this.#busy];
    return {
      capacity: this.#capacity,
      floor: this.#floor || null,
      seen: entries.map(([resource, { highest }]) => [resource, highest] as const),
    };
  }

  /**
   * Records the token, or refuses it if a greater one was seen.
   *
   * It holds nothing and waits for nothing. So use it only if the write follows in the same turn of the event
   * loop.
   *
   * Throws {@link StaleTokenError}; or a {@link LeaseholdError} with the code `config` if an argument is not
   * valid, or `overloaded` if all remembered resources have a write in progress.
   */
  check(resource: string, token: Token): void {
    checkResource(resource);
    this.#admit(resource, tokenOf(token)).kept = true;
  }

  /**
   * Checks the token and runs the write, while no other write to the resource passes. Resolves to the result
   * of the write.
   *
   * If the write fails, its token still counts as seen. The write must not enter the gate for the same
   * resource again, because it would wait for itself.
   *
   * Rejects as {@link check} throws, and with the code `overloaded` also if too many writes wait. The write
   * has not run then.
   */
  async guard<T>(
    resource: string,
    token: Token,
    write: () => Promise<T> | T,
    options: EnterOptions = {},
  ): Promise<T> {
    if (typeof write !== "function") {
      throw config(`guard: the write must be a function; got ${shown(write)}`);
    }
    const entered = await this.enter(resource, token, options);
    try {
      return await write();
    } finally {
      entered.release();
    }
  }

  /**
   * Checks the token, and holds the resource until {@link Entered.release} is called.
   *
   * It waits while another write to the resource is in progress, in order of arrival. A waiting write is
   * refused as soon as a greater token arrives. Rejects as {@link guard}, and with the signal's reason when
   * that is aborted.
   */
  async enter(resource: string, token: Token, options: EnterOptions = {}): Promise<Entered> {
    checkResource(resource);
    const number = tokenOf(token);
    const { signal } = readOptions("the options of enter", options, SIGNAL_OPTION);
    if (signal !== undefined && isAborted(signal)) {
      throw reasonOf(signal);
    }
    const entry = this.#admit(resource, number);
    if (!this.#busy.has(resource)) {
      this.#idle.delete(resource);
      this.#busy.set(resource, entry);
      return this.#entered(resource, entry);
    }
    if (entry.line.size >= Gate.MAX_WAITING) {
      const which = `the resource ${quoted(resource)} (at most ${Gate.MAX_WAITING})`;
      throw new LeaseholdError("overloaded", `too many writes wait for ${which}`);
    }
    await this.#turn(entry, signal, (highest) => new StaleTokenError(resource, number, highest));
    return this.#entered(resource, entry);
  }

  /**
   * Returns the smallest token that passes: the greatest token seen for the resource, or the floor if the
   * gate does not remember the resource; `undefined` if every token passes.
   */
  highest(resource: string): number | undefined {
    const entry = this.#busy.get(resource) ?? this.#idle.get(resource);
    return entry ? entry.highest : this.#floor || undefined;
  }

  /**
   * Applies the rule. It records a token that passes at once, and marks its resource as the most recently
   * used. The caller decides whether a new resource is remembered once it is idle.
   */
  #admit(resource: string, token: number): Entry {
    const entry = this.#busy.get(resource) ?? this.#idle.get(resource);
    if (!entry) {
      if (token < this.#floor) {
        throw new StaleTokenError(resource, token, this.#floor);
      }
      return this.#remember(resource, token);
    }
    if (token < entry.highest) {
      throw new StaleTokenError(resource, token, entry.highest);
    }
    if (token > entry.highest) {
      entry.highest = token;
      const overtaken = [...entry.line];
      entry.line.clear();
      for (const waiter of overtaken) {
        waiter.refuse(token);
      }
    }
    if (this.#idle.delete(resource)) {
      this.#idle.set(resource, entry);
    }
    return entry;
  }

  #remember(resource: string, token: number): Entry {
    if (this.#idle.size + this.#busy.size >= this.#capacity) {
      const [oldest] = this.#idle;
      if (!oldest) {
        const message = `the gate is full: all ${this.#capacity} resources are being written to; raise its capacity`;
        throw new LeaseholdError("overloaded", message);
      }
      const [forgotten, { highest }] = oldest;
      this.#idle.delete(forgotten);
      this.#floor = Math.max(this.#floor, highest);
    }
    const entry: Entry = { highest: token, kept: false, line: new Set() };
    this.#idle.set(resource, entry);
    return entry;
  }

  async #turn(entry: Entry, signal: AbortSignal | undefined, stale: (highest: number) => Error): Promise<void> {
    let stopListening = () => {};
    try {
      await new Promise<void>((resolve, reject) => {
        const waiter: Waiter = { enter: resolve, refuse: (highest) => reject(stale(highest)) };
        if (signal !== undefined) {
          stopListening = onAbort(signal, () => {
            entry.line.delete(waiter);
            reject(reasonOf(signal));
          });
        }
        entry.line.add(waiter);
      });
    } finally {
      stopListening();
    }
  }

  #entered(resource: string, entry: Entry): Entered {
    let over = false;
    const end = (wrote: boolean) => {
      if (over) {
        return;
      }
      over = true;
      entry.kept ||= wrote;
      // The resource stays busy until the next write is in, so that no other write overtakes it.
      const [next] = entry.line;
      if (next) {
        entry.line.delete(next);
        next.enter();
        return;
      }
      this.#busy.delete(resource);
      if (entry.kept) {
        this.#idle.set(resource, entry);
      }
    };
    return { release: () => end(true), withdraw: () => end(false) };
  }
}
