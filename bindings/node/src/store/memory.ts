import { LeaseholdError } from "../common/errors.js";
import { now, weak, type Weak } from "../common/platform.js";
import { messageOf } from "../common/printable.js";
import { loadMemory, type MemoryServer, type NewMemory } from "../module/memory.js";
import { newInstance, type Engine, type Glue } from "../module/wasm.js";
import { type Batch, joined, type Store, type StoreHost } from "./store.js";

/** A store in this process, for any number of lockers. */
export class Memory implements Store {
  readonly clustered = false;
  readonly members = undefined;
  readonly serverOf = undefined;
  readonly polled = false;
  readonly wire = "texts";
  readonly findings: readonly [] = [];
  readonly #hosts = new Set<StoreHost>();
  /** The subscribed hosts, by client id. */
  readonly #subscribers = new Map<string, StoreHost>();
  #glue: Glue | undefined;
  #server: MemoryServer | undefined;
  #delivering = false;
  /** True while its hosts see it as a server that cannot be reached. */
  #cut = false;

  /**
   * Returns the store of this name. There is one for the whole process, whichever copy of this package asks
   * for it.
   *
   * The first copy makes the store. Hosts of other copies run their engines in its instance.
   */
  static named(name: string): Memory {
    const named = registry();
    const known = named.get(name)?.deref();
    if (known !== undefined) {
      return known;
    }
    const store = new Memory();
    named.set(name, weak(store));
    for (const [other, reference] of named) {
      if (reference.deref() === undefined) {
        named.delete(other);
      }
    }
    return store;
  }

  /** Returns the one instance that all its hosts share, including those of other copies of this package. */
  instance(): Glue {
    this.#glue ??= newInstance();
    return this.#glue;
  }

  open(host: StoreHost): void {
    this.#hosts.add(host);
    if (this.#cut) {
      host.disconnected(cutOff());
      return;
    }
    if (this.#server !== undefined) {
      host.connected();
      return;
    }
    loadMemory().then(
      (newMemory) => this.#loaded(host, newMemory),
      (cause: unknown) => {
        const message = `the in-memory store could not be loaded: ${messageOf(cause)}`;
        host.disconnected(new LeaseholdError("unavailable", message, { cause }));
      },
    );
  }

  execute(host: StoreHost, engine: Engine, batch: Batch): void {
    if (this.#cut) {
      host.replyFailed(engine, batch, cutOff());
      return;
    }
    const { keys, args, wait } = batch;
    if (wait !== undefined) {
      const message = "an in-memory store has neither replicas nor a disk";
      host.replyFailed(engine, batch, new LeaseholdError("unsupported", message));
      return;
    }
    let reply: string | undefined;
    try {
      reply = this.#server?.execute(now(), joined(keys), joined(args));
    } catch (error) {
      this.abandon(host, error);
      return;
    }
    // Only the server's time alone has no colon.
    const isTime = reply !== undefined && !reply.includes(":");
    host.replied(engine, batch, isTime ? Number(reply) : (reply ?? ""));
    this.#deliver();
  }

  subscribe(host: StoreHost, channel: string): void {
    const client = channel.slice(-CLIENT);
    this.#subscribers.set(client, host);
    this.#server?.subscribe(client);
    if (!this.#cut) {
      host.hears(true);
    }
  }

  /** Does nothing, because only the store's own hosts can change it. */
  watch(): void {}

  unsubscribe(host: StoreHost): void {
    for (const [client, subscriber] of this.#subscribers) {
      if (subscriber === host) {
        this.#subscribers.delete(client);
        this.#server?.unsubscribe(client);
      }
    }
  }

  keepAlive(): void {
    // An in-memory store has no connection that could keep the process alive.
  }

  suspect(): void {
    // An in-memory store always replies.
  }

  /** Restarts all its hosts, because none can use the instance any more. The stored data is lost. */
  abandon(_host: StoreHost, cause: unknown): void {
    this.#glue = undefined;
    this.#server = undefined;
    this.#subscribers.clear();
    for (const host of [...this.#hosts]) {
      host.restart(cause);
    }
  }

  async close(host: StoreHost): Promise<void> {
    this.unsubscribe(host);
    this.#hosts.delete(host);
  }

  /** The error that its users get while it is cut off. */
  get away(): LeaseholdError | undefined {
    return this.#cut ? cutOff() : undefined;
  }

  /** Makes the store unreachable. Its notifications are lost. */
  cutOff(): void {
    if (this.#cut) {
      return;
    }
    this.#cut = true;
    const hearing = new Set(this.#subscribers.values());
    for (const host of [...this.#hosts]) {
      if (hearing.has(host)) {
        host.hears(false);
      }
      host.disconnected(cutOff());
    }
  }

  /** Makes the store reachable again. */
  reconnect(): void {
    if (!this.#cut) {
      return;
    }
    this.#cut = false;
    for (const host of [...this.#hosts]) {
      this.open(host);
      if ([...this.#subscribers.values()].includes(host)) {
        host.hears(true);
      }
    }
  }

  /** Deletes all data. */
  clear(): void {
    this.#server?.clear();
  }

  #loaded(host: StoreHost, newMemory: NewMemory): void {
    if (this.#server === undefined) {
      this.#server = newMemory(now(), Date.now());
      // Hosts that subscribed before the server was loaded.
      for (const client of this.#subscribers.keys()) {
        this.#server.subscribe(client);
      }
    }
    if (this.#hosts.has(host) && !this.#cut) {
      host.connected();
    }
  }

  /** Delivers the notifications that an operation has caused. Delivering them may cause more. */
  #deliver(): void {
    if (this.#delivering) {
      return;
    }
    this.#delivering = true;
    try {
      for (let push = this.#server?.takePush(); push !== undefined; push = this.#server?.takePush()) {
        // The receiver may be gone.
        const host = this.#cut ? undefined : this.#subscribers.get(push.slice(0, CLIENT));
        host?.pushed(push.slice(CLIENT));
      }
    } finally {
      this.#delivering = false;
    }
  }
}

function cutOff(): LeaseholdError {
  return new LeaseholdError("unavailable", "the in-memory store is cut off");
}

/** The number of digits in a client id. They are the last ones of its channel. */
const CLIENT = 16;

/** The stores of `memory://` URLs that are in use. */
type Registry = Map<string, Weak<Memory>>;

/** Each version has its own stores, because versions may use a store differently. */
const REGISTRY = Symbol.for(`leasehold.memory ${PACKAGE_VERSION}`);

function registry(): Registry {
  const all = globalThis as { [REGISTRY]?: Registry };
  if (all[REGISTRY] === undefined) {
    Object.defineProperty(all, REGISTRY, { value: new Map() });
  }
  return all[REGISTRY] as Registry;
}
