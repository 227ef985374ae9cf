import type { Engine } from "../module/wasm.js";
import type { ServerOf } from "../store/store.js";

const SLOTS = 16_384;

/** The number of the only server of a store, and of a cluster whose client cannot tell its servers apart. */
const ONLY = 0;

/** The servers of a store, by the numbers that the engine knows them by. */
export class Servers {
  readonly #numbers = new Map<string, number>();
  /** For each slot, the server that the engine believes serves it. */
  readonly #told: (number | undefined)[] = [];

  constructor(private readonly serverOf?: ServerOf) {}

  /** The numbers of all known servers. */
  get numbers(): Iterable<number> {
    return this.#numbers.size > 0 ? this.#numbers.values() : [ONLY];
  }

  /** Reports that every server can be reached, for the first time or again, perhaps with other slots. */
  connected(engine: Engine, at: number): void {
    if (this.serverOf !== undefined) {
      this.#look(this.serverOf);
      this.#tell(engine, at);
    }
    for (const server of this.numbers) {
      engine.connected(at, server);
    }
  }

  /**
   * Returns the server that serves a slot now. After a redirection it may be another one; then it tells the
   * engine first.
   */
  serving(engine: Engine, at: number, slot: number): number {
    const address = this.serverOf?.(slot);
    if (address === undefined) {
      return this.#told[slot] ?? ONLY;
    }
    const known = this.#numbers.get(address);
    const server = known ?? this.#add(address);
    if (this.#told[slot] !== server) {
      this.#told[slot] = server;
      engine.slots(at, slot, slot, server);
    }
    if (known === undefined) {
      engine.connected(at, server);
    }
    return server;
  }

  /** Gives numbers to the servers that exist. The number of a server that has left is free for another. */
  #look(serverOf: ServerOf): void {
    const addresses = Array.from({ length: SLOTS }, (_, slot) => serverOf(slot));
    const there = new Set(addresses);
    for (const address of this.#numbers.keys()) {
      if (!there.has(address)) {
        this.#numbers.delete(address);
      }
    }
    addresses.forEach((address, slot) => {
      if (address !== undefined) {
        this.#told[slot] = this.#numbers.get(address) ?? this.#add(address);
      }
    });
  }

  #add(address: string): number {
    const taken = new Set(this.#numbers.values());
    let number = ONLY + 1;
    while (taken.has(number)) {
      number += 1;
    }
    this.#numbers.set(address, number);
    return number;
  }

  #tell(engine: Engine, at: number): void {
    for (let first = 0, next = 1; first < SLOTS; first = next, next += 1) {
      const server = this.#told[first];
      while (next < SLOTS && this.#told[next] === server) {
        next += 1;
      }
      if (server !== undefined) {
        engine.slots(at, first, next - 1, server);
      }
    }
  }
}
