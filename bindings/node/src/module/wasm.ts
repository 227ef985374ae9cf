import { LeaseholdError, type ErrorCode } from "../common/errors.js";
import { random, type Words } from "../common/platform.js";
import { instantiate, type Glue } from "../generated/glue.js";
import type { Glue as QuorumGlue } from "../generated/quorum-glue.js";
import { wasmModule, type WasmModule } from "./module.js";

export type { Glue, WasmModule };
export type Engine = InstanceType<Glue["Engine"]>;

/** Makes a new instance of the engine's module, which shares nothing with others. */
export function newInstance(): Glue {
  return instantiate(wasmModule());
}

let shared: Glue | undefined;

/** Returns the instance for calls that leave no state in it. */
export function stateless(): Glue {
  shared ??= newInstance();
  return shared;
}

/** The settings of an engine. Times are in milliseconds. */
export interface Settings {
  readonly namespace: string;
  readonly commandTimeout: number;
  readonly patience: number;
  readonly driftMargin: number;
  readonly tokenRetention: number;
  /** The longest time to live in a quorum. Other engines ignore it. */
  readonly longestTtl: number;
  /** True to track changes by other clients. The engine ignores it; the host uses it. */
  readonly tracking: boolean;
}

/** The kind of store that an engine is for. */
export interface EngineShape {
  readonly clustered: boolean;
  /** The number of servers of a quorum; `undefined` for a single store. */
  readonly members: number | undefined;
  /** True if the host takes each batch as a complete command; false if as keys and arguments. */
  readonly command: boolean;
}

export function newEngine(glue: Glue | QuorumGlue, settings: Settings, shape: EngineShape): Engine {
  const { namespace, commandTimeout, patience, driftMargin, tokenRetention, longestTtl } = settings;
  const { clustered, members, command } = shape;
  const [high, low] = random();
  const read = [high, low, namespace, commandTimeout, patience, driftMargin, tokenRetention] as const;
  try {
    return members === undefined
      ? new glue.Engine(...read, clustered, command)
      : (glue as QuorumGlue).Engine.quorum(...read, longestTtl, members, command);
  } catch (error) {
    throw thrown(error);
  }
}

/** Throws the error in the settings, or in a lock. */
export function checkSettings(settings: Settings, lock: LockSpec | undefined): void {
  const engine = newEngine(stateless(), settings, { clustered: false, members: undefined, command: false });
  try {
    if (lock !== undefined) {
      defineLock(engine, 1, lock);
    }
  } catch (error) {
    throw thrown(error);
  } finally {
    engine.free();
  }
}

/** The copies that a lock needs before it counts, besides the one at the server that grants it. */
export interface Copies {
  readonly replicas: number;
  readonly fsynced: boolean;
  /** Milliseconds to wait for the copies. */
  readonly timeout: number;
}

/** The bounds of a lease's age, in milliseconds. */
export interface Ages {
  /** The longest time that a lease may be held; `Infinity` without a limit. */
  readonly most: number;
  /** How long the name stays taken at least; 0 if a release frees it at once. */
  readonly least: number;
}

/** The options of a lock, as the engine takes them. */
export interface LockSpec {
  readonly name: string;
  /** The time to live in milliseconds. */
  readonly ttl: number;
  readonly fixed: boolean;
  readonly reentrant: boolean;
  readonly owner: string;
  readonly reclaimable: boolean;
  readonly dense: boolean;
  readonly copies: Copies | undefined;
  /** The tick of a job that the lock is for; 0 for none. */
  readonly tick: number;
  /** The least time in milliseconds that the store remembers a completed tick; 0 for none. */
  readonly retention: number;
  readonly ages: Ages | undefined;
  readonly backlog?: Backlog | undefined;
  /** The part of a shared name; `undefined` for a lock. */
  readonly share?: Share | undefined;
}

/** A part of a shared name: of a semaphore or a quota, or its readers' or writers' side. */
export interface Share {
  readonly kind: "slots" | "units" | "read" | "write";
  /** The number of slots or units. Readers and writers have no numbers. */
  readonly weight: number;
  readonly capacity: number;
  /** The most waiters ahead of a new one; `Infinity` without a limit. */
  readonly maxLine: number;
  /** True if another capacity at the store is an error. */
  readonly strict: boolean;
}

/** The state of a shared name when a permit was given. */
export interface Admission {
  readonly slots: readonly number[];
  readonly capacity: number;
  readonly epoch: number;
  /** The token of the last writer; `null` if there was none. */
  readonly generation: number | null;
}

/** The ticks of a schedule before the one that a runner claims, as far as it saw them when it asked. */
export interface Backlog {
  /** The first missed tick, which nobody completed. */
  readonly first: number;
  /** The number of missed ticks. */
  readonly missed: number;
  /** True if an earlier turn had begun the claimed tick and not completed it. */
  readonly again: boolean;
}

// The engine's calls with many numbers are wrapped only here. An object for each call would cost more.

export function defineLock(engine: Engine, lock: number, spec: LockSpec): void {
  const { name, ttl, fixed, reentrant, owner, reclaimable, dense, copies, ages, tick, retention, backlog, share } = spec;
  const { replicas, timeout, fsynced } = copies ?? { replicas: 0, timeout: 0, fsynced: false };
  const { most, least } = ages ?? { most: Infinity, least: 0 };
  const { first, missed, again } = backlog ?? { first: 0, missed: 0, again: false };
  engine.define(
    lock, name, ttl, fixed, reentrant, owner, reclaimable, dense,
    replicas, timeout, fsynced, most, least, tick, retention, first, missed, again,
  );
  if (share !== undefined) {
    shareLock(engine, lock, name, share);
  }
}

/** Makes acquisitions of a defined lock ask for this part of a shared name. Throws the error in the part. */
export function shareLock(engine: Engine, lock: number, name: string, share: Share): void {
  const { kind, weight, capacity, maxLine, strict } = share;
  try {
    engine.share(lock, kind, weight, capacity, maxLine, strict);
  } catch (error) {
    const failure = thrown(error);
    throw failure instanceof LeaseholdError ? aboutLock(name, failure) : failure;
  }
}

/**
 * Acquires a lock within `wait` milliseconds, with a new lease id. Returns false if the lock is not defined.
 */
export function acquire(engine: Engine, at: number, call: number, lock: number, wait: number, lease: Words): boolean {
  return engine.acquire(at, call, lock, wait, lease[0], lease[1], lease[2], lease[3]);
}

/** Accepts a lease that was passed on, with a new lease id. Returns false if the lock is not defined. */
export function accept(engine: Engine, at: number, call: number, lock: number, ticket: string, lease: Words): boolean {
  return engine.accept(at, call, lock, ticket, lease[0], lease[1], lease[2], lease[3]);
}

/** Passes a tenure on. The answer is the text of the ticket. */
export function pass(engine: Engine, at: number, call: number, lease: Words): void {
  engine.pass(at, call, lease[0], lease[1], lease[2], lease[3]);
}

/** Returns the name, the token and the time to live of a ticket. Throws the error in its text. */
export function readTicket(text: string): [name: string, token: number, ttl: number] {
  try {
    return JSON.parse(stateless().readTicket(text));
  } catch (error) {
    throw thrown(error);
  }
}

export function cancel(engine: Engine, at: number, call: number, lock: number, lease: Words): void {
  engine.cancel(at, call, lock, lease[0], lease[1], lease[2], lease[3]);
}

/** Renews a tenure. A `ttl` replaces its time to live. */
export function renew(engine: Engine, at: number, call: number, lease: Words, ttl: number | undefined): void {
  engine.renew(at, call, lease[0], lease[1], lease[2], lease[3], ttl);
}

/** Makes the tenure of a writer a reader's, and renews it. */
export function downgrade(engine: Engine, at: number, call: number, lease: Words): void {
  engine.downgrade(at, call, lease[0], lease[1], lease[2], lease[3]);
}

export function release(engine: Engine, at: number, call: number, lease: Words): void {
  engine.release(at, call, lease[0], lease[1], lease[2], lease[3]);
}

/** Gives up the lease of a turn, and completes its tick. */
export function complete(engine: Engine, at: number, call: number, lease: Words): void {
  engine.complete(at, call, lease[0], lease[1], lease[2], lease[3]);
}

/** Returns what the engine's module threw: an error of ours, which comes as JSON, or otherwise a defect. */
export function thrown(error: unknown): unknown {
  return typeof error === "string" ? parsed(error) : error;
}

/** Returns the error with the name of its lock. */
export function aboutLock(name: string, { code, message }: LeaseholdError): LeaseholdError {
  return new LeaseholdError(code, `lock ${JSON.stringify(name)}: ${message}`);
}

/** Parses an error that an engine threw or reported as JSON. */
export function parsed(json: string): LeaseholdError {
  return errorOf(toldBy(json));
}

/** Parses the parts of an engine's error. They have no prototype, so a missing part is `undefined`. */
export function toldBy(json: string): Told {
  return Object.setPrototypeOf(JSON.parse(json), null) as Told;
}

/** An error as the engine reports it. */
export interface Told {
  readonly code: ErrorCode;
  /**
   * The whole message: `subject what`, `what; advice`, or `what` alone. Only in the last case the parts are
   * absent.
   */
  readonly message: string;
  readonly what?: string;
  /** The invalid setting, by its Rust name such as `command_timeout`, or in words. */
  readonly subject?: string;
  /** The code of the advice. */
  readonly advice?: string;
}

/** Makes an error with the words of this package. `advice` replaces the engine's advice, by its code. */
export function errorOf(told: Told, advice: Readonly<Record<string, string>> = {}): LeaseholdError {
  const { code, message, what, subject } = told;
  if (subject !== undefined) {
    return new LeaseholdError(code, `${inCamelCase(subject)} ${what}`);
  }
  const instead = advice[told.advice ?? ""];
  return new LeaseholdError(code, instead === undefined ? message : `${what}; ${instead}`);
}

function inCamelCase(name: string): string {
  const [first, ...others] = name.split("_");
  return [first, ...others.map((word) => word.charAt(0).toUpperCase() + word.slice(1))].join("");
}
