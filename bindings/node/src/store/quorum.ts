import { LeaseholdError } from "../common/errors.js";
import type { Finding } from "../common/types.js";
import type { Engine } from "../module/wasm.js";
import { ServerStore, type NewInstance } from "./instance.js";
import { type Batch, type Reply, type Store, StoreHost, type Wire } from "./store.js";

/** Independent servers, a majority of which decides. Each is a store of its own. */
export class QuorumStore extends ServerStore implements Store {
  readonly clustered = false;
  readonly members: number;
  readonly serverOf = undefined;
  readonly polled: boolean;
  readonly wire: Wire;
  #handles: readonly ServerHandle[] = [];

  /** @param make makes an instance of the module with quorums */
  constructor(private readonly stores: readonly Store[], make: NewInstance) {
    super(make);
    this.members = stores.length;
    this.polled = stores.some(({ polled }) => polled);
    // An engine writes all batches in one form. Every store can take texts.
    this.wire = stores.every(({ wire }) => wire === "command") ? "command" : "texts";
  }

  get findings(): readonly Finding[] {
    return this.stores.flatMap(({ findings }) => findings);
  }

  override open(host: StoreHost): void {
    super.open(host);
    if (this.#handles.length === 0) {
      this.#handles = this.stores.map((store, server) => new ServerHandle(host, store, server));
    }
    this.#handles.forEach((handle) => handle.store.open(handle));
  }

  execute(_host: StoreHost, engine: Engine, batch: Batch): void {
    const handle = this.#handles[batch.place];
    handle?.store.execute(handle, engine, batch);
  }

  subscribe(_host: StoreHost, channel: string, tracks: boolean, server: number): void {
    this.#handles[server]?.subscribe(channel, tracks);
  }

  watch(_host: StoreHost, keys: readonly string[], server: number): void {
    const handle = this.#handles[server];
    handle?.store.watch(handle, keys, 0);
  }

  keepAlive(alive: boolean): void {
    this.stores.forEach((store) => store.keepAlive(alive));
  }

  suspect(demoted: boolean, server: number): void {
    this.stores[server]?.suspect(demoted, 0);
  }

  unsubscribe(): void {
    this.#handles.forEach((handle) => handle.unsubscribe());
  }

  async close(host: StoreHost): Promise<void> {
    this.forget(host);
    await Promise.all(this.#handles.map((handle) => handle.store.close(handle)));
  }
}

/**
 * One server of a quorum as the locker sees it. To the server's store it is a host, which adds the server's
 * number.
 */
class ServerHandle extends StoreHost {
  /** The channel to listen to. */
  #hears: { readonly channel: string; readonly tracks: boolean } | undefined;

  constructor(
    private readonly host: StoreHost,
    readonly store: Store,
    readonly server: number,
  ) {
    super();
  }

  subscribe(channel: string, tracks: boolean): void {
    this.#hears = { channel, tracks };
    this.store.subscribe(this, channel, tracks, 0);
  }

  unsubscribe(): void {
    this.#hears = undefined;
    this.store.unsubscribe(this);
  }

  replied(engine: Engine, batch: Batch, reply: Reply): void {
    this.host.replied(engine, batch, reply);
  }

  replyFailed(engine: Engine, batch: Batch, error: LeaseholdError): void {
    this.host.replyFailed(engine, batch, error);
  }

  step(input: (engine: Engine, at: number) => void): void {
    this.host.step(input);
  }

  stepEach(input: (engine: Engine, at: number, server: number) => void): void {
    this.step((engine, at) => input(engine, at, this.server));
  }

  /**
   * Reconnects after the in-memory store failed and lost its data. It is one of several servers, and the
   * others go on.
   */
  restart(cause: unknown): void {
    this.disconnected(new LeaseholdError("unavailable", "the in-memory store failed", { cause }));
    this.store.open(this);
    if (this.#hears !== undefined) {
      this.subscribe(this.#hears.channel, this.#hears.tracks);
    }
  }
}
