import type { LossReason } from "../common/errors.js";
import { codeOf, reasonAt } from "./wire.js";

// Memory that both threads see. The worker thread writes, and the program's thread reads.

const PAGE_BITS = 10;
const PAGE = 2 ** PAGE_BITS;

/**
 * A number for each tenure: its deadline in microseconds of the program thread's clock, or minus the code of
 * its loss. So one atomic read tells whether a lease is valid.
 *
 * The program's thread gives out the slots. It uses one again only when the worker thread has reported that
 * the tenure is over, so a slot never belongs to two tenures.
 */
export class Slots {
  readonly #pages: BigInt64Array[] = [];
  readonly #free: number[] = [];

  /** @param added is called with each new page */
  constructor(private readonly added: (page: SharedArrayBuffer) => void) {}

  take(): number {
    if (this.#free.length === 0) {
      const first = this.#pages.length * PAGE;
      const page = new SharedArrayBuffer(PAGE * BigInt64Array.BYTES_PER_ELEMENT);
      this.#pages.push(new BigInt64Array(page));
      this.added(page);
      for (let slot = first + PAGE - 1; slot >= first; slot -= 1) {
        this.#free.push(slot);
      }
    }
    return this.#free.pop() as number;
  }

  give(slot: number): void {
    this.#free.push(slot);
  }

  at(slot: number): Slot {
    return new Slot(this.#pages[slot >> PAGE_BITS] as BigInt64Array, slot % PAGE);
  }
}

/** The slot of one tenure, as the program's thread reads it. */
export class Slot {
  constructor(private readonly page: BigInt64Array, private readonly at: number) {}

  /** Returns the reason of a loss, or otherwise the deadline in milliseconds. */
  read(): LossReason | number {
    const value = Number(Atomics.load(this.page, this.at));
    return value > 0 ? value / 1_000 : (reasonAt(-value) ?? 0);
  }
}

/** The slots as the worker thread writes them. */
export class WrittenSlots {
  readonly #pages: BigInt64Array[] = [];

  add(page: SharedArrayBuffer): void {
    this.#pages.push(new BigInt64Array(page));
  }

  /** Writes a deadline in milliseconds of the program thread's clock. It rounds towards the past. */
  move(slot: number, deadline: number): void {
    const micros = Math.min(Math.max(1, Math.floor(deadline * 1_000)), Number.MAX_SAFE_INTEGER);
    this.#write(slot, micros);
  }

  lose(slot: number, reason: LossReason | undefined): void {
    this.#write(slot, -codeOf(reason));
  }

  /** Ends every tenure, because this thread ends. */
  loseAll(reason: LossReason): void {
    for (const page of this.#pages) {
      page.fill(BigInt(-codeOf(reason)));
    }
  }

  #write(slot: number, value: number): void {
    Atomics.store(this.#pages[slot >> PAGE_BITS] as BigInt64Array, slot % PAGE, BigInt(value));
  }
}

/** The most times that a reader begins again because the numbers changed meanwhile. */
const MOST_TRIES = 1_000;

/**
 * The counted numbers in two banks, of which one is written while the other is read. The first word counts
 * how often the banks changed places.
 */
export class Counted {
  readonly #turns: Int32Array;
  readonly #banks: readonly [Float64Array, Float64Array];

  constructor(readonly buffer: SharedArrayBuffer, length: number) {
    const { BYTES_PER_ELEMENT: bytes } = Float64Array;
    this.#turns = new Int32Array(buffer, 0, 1);
    this.#banks = [new Float64Array(buffer, bytes, length), new Float64Array(buffer, (1 + length) * bytes, length)];
  }

  /** Makes the memory for this many numbers. */
  static of(length: number): Counted {
    return new Counted(new SharedArrayBuffer((1 + 2 * length) * Float64Array.BYTES_PER_ELEMENT), length);
  }

  /** Has the numbers written into the bank that is not read now. */
  write(fill: (bank: Float64Array) => void): void {
    const next = Atomics.load(this.#turns, 0) + 1;
    fill(this.#bank(next));
    Atomics.store(this.#turns, 0, next);
  }

  read(): number[] {
    let numbers: number[];
    let tries = 0;
    let turn: number;
    do {
      turn = Atomics.load(this.#turns, 0);
      numbers = Array.from(this.#bank(turn));
      tries += 1;
      // The other thread writes this bank only after it has changed them again.
    } while (Atomics.load(this.#turns, 0) !== turn && tries < MOST_TRIES);
    return numbers;
  }

  #bank(turn: number): Float64Array {
    return this.#banks[turn & 1 ? 1 : 0];
  }
}
