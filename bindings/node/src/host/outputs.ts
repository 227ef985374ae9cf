import { copyOf } from "../common/platform.js";
import type { Engine, Glue } from "../module/wasm.js";
import type { Batch, Wire } from "../store/store.js";

/**
 * Reads an engine's outputs from its memory: a sequence of numbers in the format described at `drain` of the
 * crate leasehold-wasm. They are invalid once the engine is used again.
 */
export class Outputs {
  #numbers = new Float64Array(0);
  #bytes = new Uint8Array(0);
  /** The position of the next number, and the end of all numbers. */
  #at = 0;
  #end = 0;
  /** The address of the texts. */
  #texts = 0;
  /** The time when the engine must run again. */
  deadline = Infinity;

  constructor(private readonly memory: Glue["memory"]) {}

  /** Takes all outputs from the engine. */
  take(engine: Engine): void {
    const begin = engine.drain() / Float64Array.BYTES_PER_ELEMENT;
    // Memory that has grown is a new buffer, and views of the old buffer have length 0.
    if (this.#numbers.length === 0) {
      const { buffer } = this.memory;
      this.#numbers = new Float64Array(buffer);
      this.#bytes = new Uint8Array(buffer);
    }
    this.#at = begin;
    this.#end = begin + this.number();
    this.deadline = this.number();
    this.#texts = this.number();
  }

  /** Returns this many numbers that the engine has counted. Call it only when all outputs were read. */
  counts(engine: Engine, length: number): number[] {
    const begin = engine.counts();
    return Array.from(new Float64Array(this.memory.buffer, begin, length));
  }

  /** Copies as many numbers as fit. It takes far less time than `counts`. */
  copyCounts(engine: Engine, into: Float64Array): void {
    const begin = engine.counts();
    into.set(new Float64Array(this.memory.buffer, begin, into.length));
  }

  /** True if there are more outputs. */
  get more(): boolean {
    return this.#at < this.#end;
  }

  number(): number {
    const number = this.#numbers[this.#at] as number;
    this.#at += 1;
    return number;
  }

  text(): string {
    return decoder().decode(this.#view());
  }

  texts(): string[] {
    return Array.from({ length: this.number() }, () => this.text());
  }

  batch(wire: Wire): Batch {
    const [request, place, count, parts] = [this.number(), this.number(), this.number(), this.number()];
    const bytes = this.#view();
    const [replicas, timeout, fsynced] = [this.number(), this.number(), this.number()];
    const wait = timeout > 0 ? waiting(replicas, timeout, fsynced > 0) : undefined;
    const [keys, args]: [string[], string[]] = [[], []];
    if (wire === "texts") {
      const text = decoder().decode(bytes);
      for (let begin = 0, part = 0; part < parts; part += 1) {
        const end = this.number();
        (part < count ? keys : args).push(text.slice(begin, end));
        begin = end;
      }
    }
    // A copy, because the command is sent some time later.
    return { request, place, keys, args, wait, command: wire === "command" ? copyOf(bytes) : undefined };
  }

  #view(): Uint8Array {
    const [begin, end] = [this.#texts + this.number(), this.#texts + this.number()];
    return this.#bytes.subarray(begin, end);
  }
}

/** Returns the command that waits for copies: the same as the engine's `Durability::command`. */
function waiting(replicas: number, timeout: number, fsynced: boolean): string[] {
  const rest = [String(replicas), String(timeout)];
  return fsynced ? ["WAITAOF", "1", ...rest] : ["WAIT", ...rest];
}

let made: InstanceType<typeof TextDecoder> | undefined;

/** Makes the decoder at its first use, so that the package loads where there is no `TextDecoder`. */
function decoder(): InstanceType<typeof TextDecoder> {
  return (made ??= new TextDecoder("utf-8", { ignoreBOM: true }));
}
