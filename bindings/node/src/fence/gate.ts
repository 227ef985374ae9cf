import { gateCapacity, gateWaiting } from "../../../../core/engine/src/limits.jsonc";
import { attempt, config, readOptions, shown, SIGNAL_OPTION } from "../common/check.js";
import { hasMark, LeaseholdError, markOf } from "../common/errors.js";
import { isAborted, onAbort, reasonOf } from "../common/signals.js";
import { checkResource } from "./resource.js";
import { quoted, StaleTokenError } from "./stale.js";
import { type Token, tokenOf } from "./token.js";

/** Options of {@link Gate}. */
export interface GateOptions {
  /** How many resources it remembers: at least one, {@link Gate.DEFAULT_CAPACITY} by default. */
  readonly capacity?: number;
}

/** Options of {@link Gate.enter}. */
export interface EnterOptions {
  /** When it is aborted, the write leaves the line; its token stays seen. */
  readonly signal?: AbortSignal | undefined;
}

/** The right to write to a resource, from {@link Gate.enter}. */
export interface Entered {
  /** Ends it: another write may pass. A second call does nothing. */
  release(): void;
  /**
   * Ends a write that has written nothing: the gate forgets the resource again, unless it remembered it
   * before or another write follows. A gate of an older copy of this package has no such method.
   *
   * @internal
   */
  withdraw?(): void;
}

/** What a {@link Gate} remembers, as it is stored; the resource that was used longest ago comes first. */
export interface SavedGate {
  readonly capacity: number;
  readonly floor: number | null;
  readonly seen: readonly (readonly [resource: string, token: number])[];
}

interface Entry {
  highest: number;
  /** True once a token was accepted for good, so that the resource is remembered when it is idle. */
  kept: boolean;
  /** Those who wait, first come first. All of them have the highest token. */
  readonly line: Set<Waiter>;
}

interface Waiter {
  enter(): void;
  refuse(highest: number): void;
}

const MARK = markOf("Gate");

/**
 * A guard in memory, for a service that owns its state. It remembers the greatest token of each
 * resource and refuses a smaller one. Every writer of a resource must come through the same gate.
 *
 * ```ts
 * const gate = new Gate();
 * await gate.guard("account/7", lease, async () => {
 *   balance -= 10;
 * });
 * ```
 *
 * {@link guard} and {@link enter} hold the resource until the write is over: no other write that
 * goes through them can pass meanwhile. A greater token counts from the moment it arrives, even if it
 * has to wait: smaller ones that wait with it are refused at once.
 *
 * At most `capacity` resources are remembered. When one more comes, the one that was used longest ago
 * is forgotten, and a *floor* is raised to its token: for a resource that is not remembered, a token
 * below the floor is refused. So a gate that forgets lets no token pass that it would have refused
 * before. But it may refuse one that would have passed: with dense tokens, or leases that last long,
 * choose the capacity so that nothing is ever forgotten.
 *
 * After a restart a new gate lets everything pass. If the state that it guards outlives the process, so
 * must the gate: store what {@link toJSON} returns together with the state. Rust's `Gate` stores the
 * same.
 */
export class Gate {
  /** How many resources a gate remembers by default. */
  static readonly DEFAULT_CAPACITY = gateCapacity;
  /** How many writes may wait for one resource; one more is refused with code `overloaded`. */
  static readonly MAX_WAITING = gateWaiting;

  readonly #capacity: number;
  /** No less than any token that was forgotten; 0 if none was. */
  #floor = 0;
  /** What may be forgotten; what was used longest ago comes first. */
  readonly #idle = new Map<string, Entry>();
  /** What is being written to, and is never forgotten. */
  readonly #busy = new Map<string, Entry>();

  /** A gate that has seen nothing. Its memory grows with the resources that it sees. */
  constructor(options: GateOptions = {}) {
    const { capacity = Gate.DEFAULT_CAPACITY } = readOptions("the options of a gate", options, { capacity: "any" });
    if (!Number.isSafeInteger(capacity) || capacity < 1) {
      throw config(`a gate's capacity is a whole number from 1, not ${shown(capacity)}`);
    }
    this.#capacity = capacity;
    Object.defineProperty(this, MARK, { value: true });
  }

  /** True also for a gate of another copy of this package. @internal */
  static [Symbol.hasInstance](value: unknown): boolean {
    return this === Gate ? hasMark(value, MARK) : Function.prototype[Symbol.hasInstance].call(this, value);
  }

  /** A gate that remembers what {@link toJSON} returned. Throws code `config` for what no gate returns. */
  static fromJSON(saved: SavedGate): Gate {
    return attempt("this is not a stored gate", () => Gate.#restored(saved));
  }

  static #restored(saved: SavedGate): Gate {
    const bad = (why: string) => config(`this is not a stored gate: ${why}`);
    if (typeof saved !== "object" || saved === null || !Array.isArray(saved.seen)) {
      throw bad("it is of another shape");
    }
    const gate = new Gate({ capacity: saved.capacity ?? 0 });
    if (saved.seen.length > gate.#capacity) {
      throw bad(`a gate for ${gate.#capacity} resources cannot have seen ${saved.seen.length}`);
    }
    for (const pair of saved.seen) {
      if (!Array.isArray(pair) || pair.length !== 2 || typeof pair[1] !== "number") {
        throw bad("what it has seen is not pairs of a resource and a token");
      }
      const [resource, token] = pair as unknown as [string, number];
      checkResource(resource);
      if (gate.#idle.has(resource)) {
        throw bad(`the resource ${quoted(resource)} is there twice`);
      }
      gate.#remember(resource, tokenOf(token)).kept = true;
    }
    if (saved.floor !== null && typeof saved.floor !== "number") {
      throw bad("its floor is neither a token nor null");
    }
    gate.#floor = saved.floor === null ? 0 : tokenOf(saved.floor);
    return gate;
  }

  /** All that it remembers, with the tokens of writes that are under way; it waits for none of them. */
  toJSON(): SavedGate {
    const entries = [...this.#idle, ...this.#busy];
    return {
      capacity: this.#capacity,
      floor: this.#floor || null,
      seen: entries.map(([resource, { highest }]) => [resource, highest] as const),
    };
  }

  /**
   * Notes the token, and refuses it if a greater one was seen. It holds nothing and waits for
   * nothing, so it is right only if the write follows in the same turn of the event loop.
   *
   * Throws {@link StaleTokenError}; {@link LeaseholdError} of code `config` if an argument is not
   * valid, or `overloaded` if the gate is full of resources that are being written to.
   */
  check(resource: string, token: Token): void {
    checkResource(resource);
    this.#admit(resource, tokenOf(token)).kept = true;
  }

  /**
   * Checks the token and runs the write, while no other write to the resource passes. Resolves to
   * what the write returns. If the write fails, its token was seen all the same.
   *
   * Rejects as {@link check} throws, with code `overloaded` also if too many wait; the write has not
   * run then. The write must not enter the gate for the same resource again: it would wait for itself.
   */
  async guard<T>(
    resource: string,
    token: Token,
    write: () => Promise<T> | T,
    options: EnterOptions = {},
  ): Promise<T> {
    if (typeof write !== "function") {
      throw config(`a write is a function, not ${typeof write}`);
    }
    const entered = await this.enter(resource, token, options);
    try {
      return await write();
    } finally {
      entered.release();
    }
  }

  /**
   * Checks the token and holds the resource until what it resolves to is released. It waits while
   * another write to the resource is under way, in the order of arrival; a write that waits is refused as
   * soon as a greater token comes. Rejects as {@link guard}, and with the signal's reason once that is
   * aborted.
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
   * The smallest token that passes: the greatest that was seen for the resource, or the floor if it
   * is not remembered. Undefined if every token passes.
   */
  highest(resource: string): number | undefined {
    const entry = this.#busy.get(resource) ?? this.#idle.get(resource);
    return entry ? entry.highest : this.#floor || undefined;
  }

  /**
   * The rule. A token that passes is noted at once, and its resource is now the last that was used. The
   * caller decides whether a new resource is remembered once it is idle.
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
      // The resource stays busy until the next one is in, so that nobody overtakes that.
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
