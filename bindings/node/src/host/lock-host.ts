import type { Finding, HolderInfo, Inspection } from "../common/types.js";
import type { LockSpec, Share } from "../module/wasm.js";
import type { Call } from "./calls.js";
import type { Reader } from "./reader.js";
import type { LockState, Tenure } from "./tenure.js";

/** A step of a list: the cursor of the next step, `null` after the last one, and the names found. */
export type Listed = readonly [next: string | null, names: readonly string[]];

/** The host of a locker as the classes of the API see it. Its engine is in this thread or in another one. */
export interface LockHost {
  /** True if waiters must poll, because the store cannot notify. */
  readonly polled: boolean;
  /** The findings since the store was opened. */
  readonly findings: readonly Finding[];
  /** Returns a new lock. Throws the error in its specification. */
  newLock(spec: LockSpec): LockState;
  inspect(name: string): Promise<Inspection>;
  /** Takes one step of a list. Rejects on a cluster: a scan covers the keys of only one server. */
  list(pattern: string, from: string): Promise<Listed>;
  /** Frees a lock if its tenure has this token; 0 stands for any token. Resolves to the former holder. */
  forceRelease(name: string, token: number): Promise<HolderInfo | null>;
  /** Asks the holder of a lock to yield. Resolves to the holder; `null` if the lock is free. */
  requestYield(name: string, by: string, within: number): Promise<HolderInfo | null>;
  /**
   * Acquires a lock, and resolves to what `finish` makes of the call. The call has no answer if another
   * client holds the lock for all of `wait` milliseconds. Throws the reason of a `signal` that is already
   * aborted. A `share` is the part of the lock's shared name to acquire.
   */
  acquire<Result>(
    lock: LockState,
    wait: number,
    signal: AbortSignal | undefined,
    finish: (call: Call<Tenure>) => Result,
    share?: Share,
  ): Promise<Result>;
  /** Accepts a lease of the lock that was passed on, with a ticket's text. Otherwise it works as `acquire`. */
  accept<Result>(
    lock: LockState,
    ticket: string,
    signal: AbortSignal | undefined,
    finish: (call: Call<Tenure>) => Result,
  ): Promise<Result>;
  /** Passes a tenure on, which ends at once. Resolves to the text of the ticket. */
  pass(tenure: Tenure): Promise<string>;
  /** Notes that a caller got a lease of the tenure. */
  begun(tenure: Tenure): void;
  /**
   * Gives up one lease of a tenure, and completes its tick if it is a turn that `completes`. `finish` throws
   * the call's error, if any.
   */
  release(tenure: Tenure, finish?: (call: Call) => void, completes?: boolean): Promise<void>;
  /** Extends a tenure. A `ttl` replaces its time to live. */
  renew(tenure: Tenure, ttl: number | undefined): Promise<void>;
  /** Makes the tenure of a writer a reader's, and extends it. */
  downgrade(tenure: Tenure): Promise<void>;
  /** Changes the capacity of a shared name. Resolves to how often it was set. */
  resize(lock: LockState, capacity: number): Promise<number>;
  /** Adds a reader of the events of one lock, or of all locks. */
  addReader(lock?: LockState): Reader;
  /**
   * Returns this many counted numbers, the first of which are gauges, and the number of losses by a crash.
   */
  counts(length: number, gauges: number): [counted: readonly number[], crashed: number];
  /** Ends every tenure, and releases the store. */
  shutdown(): Promise<void>;
}
