import { LeaseholdError, WHY, type ErrorCode, type LossReason } from "../common/errors.js";
import { soon } from "../common/platform.js";
import { messageOf } from "../common/printable.js";
import type { Settings, WasmModule } from "../module/wasm.js";

/**
 * The requests of the program's thread to the worker thread. The values that follow are in brackets. A call
 * is the number of a call, which the worker thread answers once.
 */
export const enum Ask {
  /** [SharedArrayBuffer] The next page of slots: see `Slots`. */
  Page,
  /** [lock, LockSpec] */
  Define,
  /** [lock] */
  Forget,
  /**
   * [call, lock, wait, slot, true if it may be canceled, Share or undefined] The slot is for the tenure, if
   * there is a new one.
   */
  Acquire,
  /** [call, lock, ticket, slot, true if it may be canceled, undefined] */
  Accept,
  /** [call] */
  Cancel,
  /** [call, slot, true if it completes the tick of a turn] */
  Release,
  /** [call, slot] The answer is the text of the ticket. */
  Pass,
  /** [call, slot, ttl or undefined] */
  Renew,
  /** [call, slot] */
  Downgrade,
  /** [call, lock, capacity] */
  Resize,
  /** [call, name] */
  Inspect,
  /** [call, pattern, cursor] */
  List,
  /** [call, name, token or 0] */
  ForceRelease,
  /** [call, name, owner, within] */
  RequestYield,
  /** [reader, lock or 0] */
  AddReader,
  /** [reader] Asks for one event. */
  NextEvent,
  /** [reader] */
  RemoveReader,
  /** [call] */
  Shutdown,
}

/** The reports of the worker thread to the program's thread. */
export const enum Told {
  /** [polled, findings] The store is open. */
  Opened,
  /** [code, message] The store cannot be opened. */
  NotOpened,
  /**
   * [call, the call's slot, the tenure's slot, token, began, waited, code of a loss, Admission or undefined]
   * The tenure's slot is the call's, or that of the tenure which the new lease shares.
   */
  Acquired,
  /** [call, the call's slot, or -1] The call ended without an answer. */
  Done,
  /** [call, answer] */
  Answer,
  /** [call, the call's slot, or -1, code, message] */
  Failed,
  /** [slot, code of a loss, or 0] The tenure is over. The worker no longer uses the slot. */
  Over,
  /** [reader, event as JSON, or an empty string at the end] */
  Event,
  /** [findings] Those since the store was opened. */
  Findings,
}

/** No slot. */
export const NONE = -1;

/** The data that the worker thread starts with. It must be copyable from thread to thread. */
export interface Start {
  readonly module: WasmModule;
  /** Files from whose folders a client package may be found. */
  readonly bases: readonly string[];
}

/** The data that a locker starts with in the worker thread. It must be copyable, too. */
export interface Begin {
  /** The thread's end of the channel between the locker's two halves. */
  readonly port: import("node:worker_threads").MessagePort;
  /** The module of the quorum engine, for several servers. */
  readonly quorum: WasmModule | undefined;
  readonly urls: readonly string[];
  readonly lazily: boolean;
  readonly settings: Settings & { readonly connectTimeout: number };
  /** The number of counted numbers, how many of them are gauges, and the memory for them. */
  readonly counted: readonly [length: number, gauges: number, buffer: SharedArrayBuffer];
  /** The time of the program's thread when it sent this. */
  readonly at: number;
}

/** Many messages in one flat list. Copying it to another thread costs much less than copying objects. */
export type Batch = readonly unknown[];

/** The most times that messages wait because more of them came in the same turn. */
const MOST_DELAYS = 16;

/**
 * Gathers the messages of one turn into one batch, because posting costs far more than a message.
 *
 * It is bounded by the calls: each message belongs to a pending call, a held lease or a reader's question.
 */
export class Outbox {
  #batch: unknown[] = [];
  #waiting = false;

  /** @param post sends a batch, which may be empty after `flushSoon` */
  constructor(private readonly post: (batch: unknown[]) => void) {}

  add(...message: unknown[]): void {
    this.#batch.push(...message);
    this.flushSoon();
  }

  flushSoon(): void {
    if (!this.#waiting) {
      this.#waiting = true;
      this.#flushSoon(MOST_DELAYS);
    }
  }

  #flushSoon(delays: number): void {
    const { length } = this.#batch;
    soon(() => {
      if (this.#batch.length > length && delays > 0) {
        this.#flushSoon(delays - 1);
        return;
      }
      const batch = this.#batch;
      this.#batch = [];
      this.#waiting = false;
      this.post(batch);
    });
  }
}

/** Reads a batch, value after value. */
export class Reading {
  #at: number;

  constructor(private readonly batch: Batch, from: number) {
    this.#at = from;
  }

  get more(): boolean {
    return this.#at < this.batch.length;
  }

  // The two threads run the same version of this package, so each knows the types of the other's values.
  next<T = number>(): T {
    const value = this.batch[this.#at] as T;
    this.#at += 1;
    return value;
  }

  error(): LeaseholdError {
    return new LeaseholdError(this.next<ErrorCode>(), this.next<string>());
  }
}

/** Returns an error as the two values that a batch takes. An error that is not of this package is internal. */
export function written(error: unknown): [ErrorCode, string] {
  return error instanceof LeaseholdError ? [error.code, error.message] : ["internal", messageOf(error)];
}

const REASONS = Object.keys(WHY) as readonly LossReason[];

/** Returns the number of a reason; 0 for none. */
export function codeOf(reason: LossReason | undefined): number {
  return reason === undefined ? 0 : REASONS.indexOf(reason) + 1;
}

export function reasonAt(code: number): LossReason | undefined {
  return REASONS[code - 1];
}
