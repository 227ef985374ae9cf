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
  /** By the ids of clients. */
  readonly #subscribers = new Map<string, StoreHost>();
  #glue: Glue | undefined;
  #server: MemoryServer | undefined;
  #delivering = false;
  /** Whether its hosts are to find it as a server that cannot be reached. */
  #cut = false;

  /**
   * The store of this name: one for the whole process, whichever copy of this package asks for it. The
   * first copy makes it, and hosts of the other copies run their engines in its instance.
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

  /** All its hosts share one instance, also those of other copies of this package. */
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
        const message = `the store in memory could not be loaded: ${messageOf(cause)}`;
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
    // The server's time alone has no colon.
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

  /** Nobody else can get at it. */
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
    // It has no connection to keep the process alive.
  }

  suspect(): void {
    // It always replies.
  }

  /** None of its hosts can use the instance any more, and what was stored is lost. */
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

  /** Nobody reaches it any more, and what it has to say is lost. */
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

  /** It can be reached again. */
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

  /** Forgets all that is stored. */
  clear(): void {
    this.#server?.clear();
  }

  #loaded(host: StoreHost, newMemory: NewMemory): void {
    if (this.#server === undefined) {
      this.#server = newMemory(now(), Date.now());
      // Of those who came while it was cut off.
      for (const client of this.#subscribers.keys()) {
        this.#server.subscribe(client);
      }
    }
    if (this.#hosts.has(host) && !this.#cut) {
      host.connected();
    }
  }

  /** Delivers the pushes that an operation has caused; that may cause more of them. */
  #deliver(): void {
    if (this.#delivering) {
      return;
    }
    this.#delivering = true;
    try {
      for (let push = this.#server?.takePush(); push !== undefined; push = this.#server?.takePush()) {
        // Nobody may be there any more whom it is for.
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

/** How many digits the id of a client has; they are the last of its channel. */
const CLIENT = 16;

/** The stores of `memory://` URLs that somebody uses. */
type Registry = Map<string, Weak<Memory>>;

/** Each version has stores of its own, because how a copy uses a store may differ from version to version. */
const REGISTRY = Symbol.for(`leasehold.memory ${PACKAGE_VERSION}`);

function registry(): Registry {
  const all = globalThis as { [REGISTRY]?: Registry };
  if (all[REGISTRY] === undefined) {
    Object.defineProperty(all, REGISTRY, { value: new Map() });
  }
  return all[REGISTRY] as Registry;
}
