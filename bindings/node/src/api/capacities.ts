import type { Finding } from "../common/types.js";

/** The most names that are remembered; the findings of further ones are only events. */
const MOST = 64;

/** The names whose capacity at the store differed when they were last acquired. */
export class Capacities {
  readonly #found = new Map<string, Finding>();

  /** The findings, one for each name. */
  get findings(): Iterable<Finding> {
    return this.#found.values();
  }

  /** Notes the capacity of a permit, beside the one that its program asked for. */
  note(name: string, capacity: number, wanted: number): void {
    if (capacity === wanted || (this.#found.size >= MOST && !this.#found.has(name))) {
      return;
    }
    const differs = `the capacity of ${JSON.stringify(name)} is ${capacity}, but this program asks for ${wanted}`;
    const message = `${differs}; resize the name, or change the program`;
    this.#found.set(name, Object.freeze({ type: "capacity", name, capacity, wanted, message }));
  }
}
