import type { LeaseholdError } from "../common/errors.js";
import type { Engine, Glue } from "../module/wasm.js";

/** The address of the server that serves a slot of a cluster, as far as that is known just now. */
export type ServerOf = (slot: number) => string | undefined;

/** Why a connection may be of no use: replies stay away, or the server takes no writes any more. */
export type Suspicion = "silent" | "demoted";

/** Where a host's batches go. */
export interface Store {
  readonly clustered: boolean;
  /** Of a cluster whose client can tell. */
  readonly serverOf?: ServerOf | undefined;
  /** Whether it cannot push, so that waiters have to ask again and again. */
  readonly polled: boolean;
  /** An instance of the engine's module for a host. */
  instance(): Glue;
  /** From now on the host hears of the link; at once, if it is up. */
  open(host: StoreHost): void;
  /** Executes the batch that the host's engine keeps under this number. */
  execute(host: StoreHost, engine: Engine, request: number): void;
  /** From now on the host hears the pushes on its channel. */
  subscribe(host: StoreHost, channel: string): void;
  /** Whether the process is to stay alive for what is under way. */
  keepAlive(alive: boolean): void;
  /** The connection may be of no use. */
  suspect(why: Suspicion): void;
  /** The host's engine is gone, and so is its channel; `open` may follow. */
  unsubscribe(host: StoreHost): void;
  /** A host's engine failed: whoever shares its instance is to start anew. */
  abandon(host: StoreHost, cause: unknown): void;
  /** Lets go of everything. Never rejects. */
  close(host: StoreHost): Promise<void>;
}

/** A host as its store sees it. */
export interface StoreHost {
  /** The link to the store is up, for the first time or again. */
  connected(): void;
  /** The link broke, or could not be made. */
  disconnected(error: LeaseholdError): void;
  /** From now on no push is missed. */
  subscribed(): void;
  /** Pushes may be missed. */
  unsubscribed(): void;
  /** The store pushed this text. */
  pushed(text: string): void;
  /**
   * A batch was executed, whose keys are in this slot of a cluster, and these are the fields of its
   * reply; nothing happens if it is too late.
   */
  replied(engine: Engine, request: number, slot: number, fields: string): void;
  /** A batch was refused, or nobody knows whether it was executed. */
  replyFailed(engine: Engine, request: number, slot: number, error: LeaseholdError): void;
  /** Feeds the engine one input, and does what it asks for. */
  step(input: (engine: Engine, at: number) => void): void;
  /** The engine is gone with its instance: everything begins anew. */
  restart(cause: unknown): void;
}
