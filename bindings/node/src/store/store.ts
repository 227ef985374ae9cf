import type { LeaseholdError } from "../common/errors.js";
import type { Finding } from "../common/types.js";
import type { Engine, Glue } from "../module/wasm.js";

/** The address of the server that serves a slot of a cluster, as far as that is known just now. */
export type ServerOf = (slot: number) => string | undefined;

/** What a store wants to have of a batch: its keys and arguments, or the command as a client sends it. */
export type Wire = "texts" | "command";

/** What an engine wants to have executed in one script call. */
export interface Batch {
  /** The engine's number of it. */
  readonly request: number;
  /** The slot of a cluster that its keys are in; else the number of the server. */
  readonly place: number;
  readonly keys: string[];
  readonly args: string[];
  /** The command that is to wait for copies, right behind the script and on the same connection. */
  readonly wait: string[] | undefined;
  readonly command: Uint8Array | undefined;
}

/** Where a host's batches go. */
export interface Store {
  readonly clustered: boolean;
  /** How many independent servers there are, of which a majority decides; nothing if it is no quorum. */
  readonly members: number | undefined;
  /** Of a cluster whose client can tell. */
  readonly serverOf: ServerOf | undefined;
  readonly wire: Wire;
  /** Whether it cannot push, so that waiters have to ask again and again. */
  readonly polled: boolean;
  /** The findings since it was opened that endanger leases. */
  readonly findings: readonly Finding[];
  /** An instance of the engine's module for a host. */
  instance(): Glue;
  /** From now on the host hears of the link; at once, if it is up. */
  open(host: StoreHost): void;
  /** Executes a batch of the host's engine. */
  execute(host: StoreHost, engine: Engine, batch: Batch): void;
  /** From now on the host hears the pushes on its channel; those of one server of a quorum. */
  subscribe(host: StoreHost, channel: string, tracks: boolean, server: number): void;
  /** Reads these keys, so that the host hears when others change them. */
  watch(host: StoreHost, keys: readonly string[], server: number): void;
  /** Whether the process is to stay alive for what is under way. */
  keepAlive(alive: boolean): void;
  /** The connection may be of no use: replies stay away, or its server was `demoted` and takes no writes any more. */
  suspect(demoted: boolean, server: number): void;
  /** The host's engine is gone, and so is its channel; `open` may follow. */
  unsubscribe(host: StoreHost): void;
  /** A host's engine failed: whoever shares its instance is to start anew. */
  abandon(host: StoreHost, cause: unknown): void;
  /** Lets go of everything. Never rejects. */
  close(host: StoreHost): Promise<void>;
}

/**
 * A script's reply: the server's time alone, or 0 in its place, as a number; or its strings, each as its
 * length, a colon and itself, all in one text, which is empty for what no server would reply. Of a batch that
 * waits it is always a text, and two strings come first: whether it is on the disk and how many replicas have
 * it, as numbers; or the code of an error and its message.
 */
export type Reply = number | string;

/** Texts as the engine takes them: each one's length, a colon and itself. */
export function joined(texts: readonly string[]): string {
  return texts.reduce((all, text) => `${all}${text.length}:${text}`, "");
}

/** Characters; those of the protocol are much shorter. */
const LONGEST_PUSH = 1_024;

/** A host as its store sees it, or one server of a quorum's store. */
export abstract class StoreHost {
  /** The number of the server that its pushes come from. */
  abstract readonly server: number;
  /** A batch was executed, with this reply; nothing happens if it is too late. */
  abstract replied(engine: Engine, batch: Batch, reply: Reply): void;
  /** A batch was refused, or nobody knows whether it was executed. */
  abstract replyFailed(engine: Engine, batch: Batch, error: LeaseholdError): void;
  /** Feeds the engine one input, and does what it asks for. */
  abstract step(input: (engine: Engine, at: number) => void): void;
  /** Feeds it one input for each server of the store. */
  abstract stepEach(input: (engine: Engine, at: number, server: number) => void): void;
  /** The engine is gone with its instance: everything begins anew. */
  abstract restart(cause: unknown): void;

  /** The link to the store is up, for the first time or again. */
  connected(): void {
    this.stepEach((engine, at, server) => engine.connected(at, server));
  }

  /** The link broke, or could not be made. */
  disconnected({ code, message }: LeaseholdError): void {
    this.stepEach((engine, at, server) => engine.disconnected(at, server, code, message));
  }

  /** From now on no push is missed, if `hears` is true; otherwise pushes may be missed. */
  hears(hears: boolean): void {
    this.stepEach((engine, at, server) => engine.hears(at, server, hears));
  }

  /** The store says from now on when others change what it is given to watch. */
  watching(): void {
    this.stepEach((engine, at, server) => engine.watching(at, server));
  }

  /** Others may have changed this key; an empty one stands for all. */
  changed(key: string): void {
    this.step((engine, at) => engine.changed(at, key));
  }

  /** The store pushed this text. */
  pushed(text: string): void {
    if (text.length <= LONGEST_PUSH) {
      this.step((engine, at) => engine.push(at, this.server, text));
    }
  }
}
