import type { LeaseholdError } from "../common/errors.js";
import type { Finding } from "../common/types.js";
import type { Engine, Glue } from "../module/wasm.js";

/** Returns the address of the server that serves a slot of a cluster, if the client knows it now. */
export type ServerOf = (slot: number) => string | undefined;

/** The form in which a store takes batches: as keys and arguments, or as a complete command. */
export type Wire = "texts" | "command";

/** Operations that an engine sends in one script call. */
export interface Batch {
  /** The engine's number for the batch. */
  readonly request: number;
  /** The slot of its keys on a cluster; otherwise the number of the server. */
  readonly place: number;
  readonly keys: string[];
  readonly args: string[];
  /** The command that waits for copies. It must follow the script on the same connection. */
  readonly wait: string[] | undefined;
  readonly command: Uint8Array | undefined;
}

/** The destination of a host's batches. */
export interface Store {
  readonly clustered: boolean;
  /** The number of independent servers of a quorum; `undefined` for any other store. */
  readonly members: number | undefined;
  /** Returns the server of a slot. Only clusters whose client can tell have it. */
  readonly serverOf: ServerOf | undefined;
  readonly wire: Wire;
  /** True if the store cannot notify, so that waiters must poll. */
  readonly polled: boolean;
  /** The findings since the store was opened. */
  readonly findings: readonly Finding[];
  /** Returns an instance of the engine's module for a host. */
  instance(): Glue;
  /** Reports the state of the link to the host from now on. If the link is up, it does so at once. */
  open(host: StoreHost): void;
  /** Executes a batch of the host's engine. */
  execute(host: StoreHost, engine: Engine, batch: Batch): void;
  /** Delivers notifications on the host's channel from now on; for a quorum, those of one server. */
  subscribe(host: StoreHost, channel: string, tracks: boolean, server: number): void;
  /** Reads these keys, so that the host learns when other clients change them. */
  watch(host: StoreHost, keys: readonly string[], server: number): void;
  /** Sets whether pending work keeps the process alive. */
  keepAlive(alive: boolean): void;
  /**
   * Reports that the connection may be useless: there are no replies, or its server was `demoted` and accepts
   * no writes.
   */
  suspect(demoted: boolean, server: number): void;
  /** Ends the subscription of a host whose engine is gone. `open` may follow. */
  unsubscribe(host: StoreHost): void;
  /** Restarts all hosts that share the instance of a failed engine. */
  abandon(host: StoreHost, cause: unknown): void;
  /** Releases everything. Never rejects. */
  close(host: StoreHost): Promise<void>;
}

/**
 * A script's reply.
 *
 * It is a number if the script returned only the server's time, or 0. Otherwise it is one string with all
 * returned strings, each as its length, a colon and itself. It is empty if no server could have sent it.
 *
 * The reply to a batch that waits is always a string and begins with two more: whether the writes are on disk
 * and how many replicas have them, as numbers; or an error's code and message.
 */
export type Reply = number | string;

/** Joins strings in the form that the engine takes: each as its length, a colon and itself. */
export function joined(texts: readonly string[]): string {
  return texts.reduce((all, text) => `${all}${text.length}:${text}`, "");
}

/** The longest notification, in characters. Those of the protocol are much shorter. */
const LONGEST_PUSH = 1_024;

/** A host as its store sees it, or as the store of one server of a quorum sees it. */
export abstract class StoreHost {
  /** The number of the server that its notifications come from. */
  abstract readonly server: number;
  /** A batch was executed, with this reply. A reply that comes too late is ignored. */
  abstract replied(engine: Engine, batch: Batch, reply: Reply): void;
  /** A batch was refused, or its outcome is unknown. */
  abstract replyFailed(engine: Engine, batch: Batch, error: LeaseholdError): void;
  /** Feeds the engine one input, and does what its outputs ask for. */
  abstract step(input: (engine: Engine, at: number) => void): void;
  /** Feeds the engine one input for each server of the store. */
  abstract stepEach(input: (engine: Engine, at: number, server: number) => void): void;
  /** Starts again with a new engine, because the instance of the old one is gone. */
  abstract restart(cause: unknown): void;

  /** The link to the store is up, for the first time or again. */
  connected(): void {
    this.stepEach((engine, at, server) => engine.connected(at, server));
  }

  /** The link broke, or could not be made. */
  disconnected({ code, message }: LeaseholdError): void {
    this.stepEach((engine, at, server) => engine.disconnected(at, server, code, message));
  }

  /** From now on no notification is missed if `hears` is true; otherwise some may be missed. */
  hears(hears: boolean): void {
    this.stepEach((engine, at, server) => engine.hears(at, server, hears));
  }

  /** From now on the store reports when other clients change the keys that it reads. */
  watching(): void {
    this.stepEach((engine, at, server) => engine.watching(at, server));
  }

  /** Other clients may have changed this key. An empty key stands for all keys. */
  changed(key: string): void {
    this.step((engine, at) => engine.changed(at, key));
  }

  /** The store sent this notification. */
  pushed(text: string): void {
    if (text.length <= LONGEST_PUSH) {
      this.step((engine, at) => engine.push(at, this.server, text));
    }
  }
}
