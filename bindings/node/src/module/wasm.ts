import { LeaseholdError, type ErrorCode } from "../common/errors.js";
import { random, type Words } from "../common/platform.js";
import { instantiate, type Glue } from "../generated/glue.js";
import type { Glue as QuorumGlue } from "../generated/quorum-glue.js";
import { wasmModule } from "./module.js";

export type { Glue };
export type Engine = InstanceType<Glue["Engine"]>;

/** A new instance of the engine's module: nothing is shared with another one. */
export function newInstance(): Glue {
  return instantiate(wasmModule());
}

let shared: Glue | undefined;

/** The instance for calls that leave nothing behind in it. */
export function stateless(): Glue {
  shared ??= newInstance();
  return shared;
}

/** What an engine is made with; the times are milliseconds. */
export interface Settings {
  readonly namespace: string;
  readonly commandTimeout: number;
  readonly patience: number;
  readonly driftMargin: number;
  readonly tokenRetention: number;
  /** Of a quorum alone. */
  readonly longestTtl: number;
  /** Of the host alone. */
  readonly tracking: boolean;
}

/** What an engine is for. */
export interface EngineShape {
  readonly clustered: boolean;
  /** How many servers decide by majority, in an instance with quorums; nothing of a store that is alone. */
  readonly members: number | undefined;
  /** True if the host is given a batch as a whole command; false if as its keys and arguments. */
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

/** Throws what is wrong with the settings, or with a lock. */
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

/** The copies that a lock needs, besides the one at the server that grants it, before it counts. */
export interface Copies {
  readonly replicas: number;
  readonly fsynced: boolean;
  /** Milliseconds to wait for them. */
  readonly timeout: number;
}

/** The options of a lock, as the engine takes them. */
export interface LockSpec {
  readonly name: string;
  /** Milliseconds. */
  readonly ttl: number;
  readonly fixed: boolean;
  readonly reentrant: boolean;
  readonly owner: string;
  readonly reclaimable: boolean;
  readonly dense: boolean;
  readonly copies: Copies | undefined;
}

// The engine's calls with many numbers. What they are stands here alone: an object for each call would cost more.

export function defineLock(engine: Engine, lock: number, spec: LockSpec): void {
  const { name, ttl, fixed, reentrant, owner, reclaimable, dense, copies } = spec;
  const { replicas, timeout, fsynced } = copies ?? { replicas: 0, timeout: 0, fsynced: false };
  engine.define(lock, name, ttl, fixed, reentrant, owner, reclaimable, dense, replicas, timeout, fsynced);
}

/** Returns false if the lock is not defined. It waits so many milliseconds; the lease is new. */
export function acquire(engine: Engine, at: number, call: number, lock: number, wait: number, lease: Words): boolean {
  return engine.acquire(at, call, lock, wait, lease[0], lease[1], lease[2], lease[3]);
}

export function cancel(engine: Engine, at: number, call: number, lock: number, lease: Words): void {
  engine.cancel(at, call, lock, lease[0], lease[1], lease[2], lease[3]);
}

/** A `ttl` replaces the tenure's time to live. */
export function renew(engine: Engine, at: number, call: number, lease: Words, ttl: number | undefined): void {
  engine.renew(at, call, lease[0], lease[1], lease[2], lease[3], ttl);
}

export function release(engine: Engine, at: number, call: number, lease: Words): void {
  engine.release(at, call, lease[0], lease[1], lease[2], lease[3]);
}

/** What the engine's module threw: an error of ours comes as JSON, and anything else is a defect. */
export function thrown(error: unknown): unknown {
  return typeof error === "string" ? parsed(error) : error;
}

/** The error that an engine threw, or told, as JSON. */
export function parsed(json: string): LeaseholdError {
  return errorOf(toldBy(json));
}

/** An error of the engine's module. Without a prototype, so that a part which it does not have is `undefined`. */
export function toldBy(json: string): Told {
  return Object.setPrototypeOf(JSON.parse(json), null) as Told;
}

/** An error as the engine tells it. */
export interface Told {
  readonly code: ErrorCode;
  /** All of it: `subject what`, `what; advice`, or `what` alone; only then the parts are left out. */
  readonly message: string;
  readonly what?: string;
  /** What is not valid: a setting as Rust calls it, such as `command_timeout`, or what it is in words. */
  readonly subject?: string;
  /** A code for what to do. */
  readonly advice?: string;
}

/** In the words of this package: `advice` has those in the place of the engine's advice, by its codes. */
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
