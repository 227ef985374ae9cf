import { LeaseholdError, type ErrorCode } from "../common/errors.js";
import { random } from "../common/platform.js";
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
export interface Shape {
  readonly clustered: boolean;
  /** How many servers decide by majority, in an instance with quorums; nothing of a store that is alone. */
  readonly members: number | undefined;
  /** What the host wants to have of a batch: a number of the engine's. */
  readonly wire: number;
}

export function newEngine(glue: Glue | QuorumGlue, settings: Settings, shape: Shape): Engine {
  const { namespace, commandTimeout, patience, driftMargin, tokenRetention, longestTtl } = settings;
  const { clustered, members, wire } = shape;
  const [high, low] = random();
  const read = [high, low, namespace, commandTimeout, patience, driftMargin, tokenRetention] as const;
  try {
    return members === undefined
      ? new glue.Engine(...read, clustered, wire)
      : (glue as QuorumGlue).Engine.quorum(...read, longestTtl, members, wire);
  } catch (error) {
    throw thrown(error);
  }
}

/** Throws what is wrong with the settings, or with the owner of a locker's locks. */
export function checkSettings(settings: Settings, owner: string | undefined): void {
  const engine = newEngine(stateless(), settings, { clustered: false, members: undefined, wire: 0 });
  try {
    if (owner !== undefined) {
      // The lock's other options do not matter: only its owner is checked.
      engine.define(1, "n", 1_000, false, false, owner, true, false, 0, 0, false);
    }
  } catch (error) {
    throw thrown(error);
  } finally {
    engine.free();
  }
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
