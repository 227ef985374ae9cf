/** The batches that were sent and not answered yet, each with when nobody waits for it any more. */
export class Unanswered {
  readonly #deadlines = new Map<number, number>();
  #earliest = Infinity;

  /** No deadline is earlier than this. */
  get earliest(): number {
    return this.#earliest;
  }

  add(request: number, deadline: number): void {
    this.#deadlines.set(request, deadline);
    this.#earliest = Math.min(this.#earliest, deadline);
  }

  /** Whether somebody still waits for the answer; nobody does from now on. */
  take(request: number): boolean {
    return this.#deadlines.delete(request);
  }

  clear(): void {
    this.#deadlines.clear();
    this.#earliest = Infinity;
  }

  /** Takes those whose deadline has come. */
  takeLate(now: number): number[] {
    const late: number[] = [];
    if (this.#earliest <= now) {
      this.#earliest = Infinity;
      for (const [request, deadline] of this.#deadlines) {
        if (deadline <= now) {
          late.push(request);
        } else {
          this.#earliest = Math.min(this.#earliest, deadline);
        }
      }
      late.forEach((request) => this.#deadlines.delete(request));
    }
    return late;
  }
}
