import { LeaseholdError, type ErrorCode } from "../common/errors.js";
import { random } from "../common/platform.js";
import { instantiate, type Glue } from "../generated/glue.js";
import { wasmModule } from "./module.js";

export type { Glue };
export type Engine = InstanceType<Glue["Engine"]>;
export type MemoryServer = InstanceType<Glue["MemoryStore"]>;

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
}

export function newEngine(glue: Glue, settings: Settings, clustered: boolean): Engine {
  const { namespace, commandTimeout, patience, driftMargin, tokenRetention } = settings;
  const [high, low] = random();
  try {
    return new glue.Engine(
      high,
      low,
      namespace,
      commandTimeout,
      patience,
      driftMargin,
      tokenRetention,
      clustered,
    );
  } catch (error) {
    throw thrown(error);
  }
}

/** Throws what is wrong with the settings, or with the owner of a locker's locks. */
export function checkSettings(settings: Settings, owner: string | undefined): void {
  const engine = newEngine(stateless(), settings, false);
  try {
    if (owner !== undefined) {
      // The lock's other options do not matter: only its owner is checked.
      engine.define(1, "n", 1_000, false, false, owner, true, false);
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
  const { code, message } = JSON.parse(json) as { code: ErrorCode; message: string };
  return new LeaseholdError(code, code === "config" ? withOurNames(message) : message);
}

/** A message that begins with an option calls it as Rust does: `command_timeout`. */
function withOurNames(message: string): string {
  return message.replace(/^[a-z]+(?:_[a-z]+)+(?= )/, (option) =>
    option.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase()),
  );
}
