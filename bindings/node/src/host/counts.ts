/** What was counted by a host's engine, and by those before it that failed. */
export class Counts {
  #before: readonly number[] = [];
  #all: readonly number[] = [];
  /** How many tenures were lost because an engine failed. */
  crashed = 0;

  /** The numbers of all engines; of the gauges, which come first, those of this one. */
  add(own: readonly number[], gauges: number): readonly number[] {
    this.#all = own.map((number, at) => number + (at < gauges ? 0 : (this.#before[at] ?? 0)));
    return this.#all;
  }

  /** The engine failed with so many tenures; of what it had counted, what was looked at stays. */
  restarted(tenures: number): void {
    this.#before = this.#all;
    this.crashed += tenures;
  }
}
