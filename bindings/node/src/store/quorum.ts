import { LeaseholdError } from "../common/errors.js";
import type { Finding } from "../common/types.js";
import type { Engine, Glue } from "../module/wasm.js";
import { Home, type NewInstance } from "./instance.js";
import type { Batch, Reply, Store, StoreHost, Suspicion, Wire } from "./store.js";

/** Independent servers, of which a majority decides. Each is a store of its own. */
export class QuorumStore implements Store {
  readonly clustered = false;
  readonly members: number;
  readonly serverOf = undefined;
  readonly polled: boolean;
  readonly wire: Wire;
  readonly #home: Home;
  #handles: readonly ServerHandle[] = [];

  /** @param make makes an instance of the module with quorums */
  constructor(private readonly stores: readonly Store[], make: NewInstance) {
    this.members = stores.length;
    this.polled = stores.some(({ polled }) => polled);
    // An engine writes in one way. Texts every store can take.
    this.wire = stores.every(({ wire }) => wire === "command") ? "command" : "texts";
    this.#home = new Home(make);
  }

  get findings(): readonly Finding[] {
    return this.stores.flatMap(({ findings }) => findings);
  }

  instance(): Glue {
    return this.#home.instance();
  }

  open(host: StoreHost): void {
    this.#home.add(host);
    if (this.#handles.length === 0) {
      this.#handles = this.stores.map((store, server) => new ServerHandle(host, store, server));
    }
    this.#handles.forEach((handle) => handle.open());
  }

  execute(_host: StoreHost, engine: Engine, batch: Batch): void {
    this.#handles[batch.place]?.execute(engine, batch);
  }

  subscribe(_host: StoreHost, channel: string, tracks: boolean, server: number): void {
    this.#handles[server]?.subscribe(channel, tracks);
  }

  watch(_host: StoreHost, keys: readonly string[], server: number): void {
    this.#handles[server]?.watch(keys);
  }

  keepAlive(alive: boolean): void {
    this.stores.forEach((store) => store.keepAlive(alive));
  }

  suspect(why: Suspicion, server: number): void {
    this.stores[server]?.suspect(why, 0);
  }

  unsubscribe(): void {
    this.#handles.forEach((handle) => handle.unsubscribe());
  }

  abandon(host: StoreHost, cause: unknown): void {
    this.#home.abandon(host, cause);
  }

  async close(host: StoreHost): Promise<void> {
    this.#home.remove(host);
    await Promise.all(this.#handles.map((handle) => handle.close()));
  }
}

/** One server of a quorum as the locker sees it. To the server's store it is a host, which adds the server's number. */
class ServerHandle implements StoreHost {
  /** The channel that is to be heard. */
  #hears: { readonly channel: string; readonly tracks: boolean } | undefined;

  constructor(
    private readonly host: StoreHost,
    private readonly store: Store,
    private readonly server: number,
  ) {}

  open(): void {
    this.store.open(this);
  }

  execute(engine: Engine, batch: Batch): void {
    this.store.execute(this, engine, batch);
  }

  subscribe(channel: string, tracks: boolean): void {
    this.#hears = { channel, tracks };
    this.store.subscribe(this, channel, tracks, 0);
  }

  watch(keys: readonly string[]): void {
    this.store.watch(this, keys, 0);
  }

  unsubscribe(): void {
    this.#hears = undefined;
    this.store.unsubscribe(this);
  }

  close(): Promise<void> {
    return this.store.close(this);
  }

  connected(): void {
    this.step((engine, at) => engine.connected(at, this.server));
  }

  disconnected({ code, message }: LeaseholdError): void {
    this.step((engine, at) => engine.disconnected(at, this.server, code, message));
  }

  subscribed(): void {
    this.step((engine, at) => engine.hears(at, this.server, true));
  }

  unsubscribed(): void {
    this.step((engine, at) => engine.hears(at, this.server, false));
  }

  watching(): void {
    this.step((engine, at) => engine.watching(at, this.server));
  }

  changed(key: string): void {
    this.step((engine, at) => engine.changed(at, key));
  }

  pushed(text: string): void {
    this.step((engine, at) => engine.push(at, this.server, text));
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

  /** The store in memory failed, and lost what it had. It is one of several: the others go on. */
  restart(cause: unknown): void {
    this.disconnected(new LeaseholdError("unavailable", "the store in memory failed", { cause }));
    this.open();
    if (this.#hears !== undefined) {
      this.subscribe(this.#hears.channel, this.#hears.tracks);
    }
  }
}
