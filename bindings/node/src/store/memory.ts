import { now, weak, type Weak } from "../common/platform.js";
import { newInstance, type Engine, type Glue, type MemoryServer } from "../module/wasm.js";
import type { Batch, Store, StoreHost } from "./store.js";

/** A store in this process, for any number of lockers. */
export class MemoryStore implements Store {
  readonly clustered = false;
  readonly polled = false;
  readonly wire = "none";
  readonly #hosts = new Set<StoreHost>();
  readonly #subscribers = new Map<string, StoreHost>();
  #glue: Glue | undefined;
  #server: MemoryServer | undefined;
  #delivering = false;

  /**
   * The store of this name: one for the whole process, whichever copy of this package asks for it. The
   * first copy makes it, and hosts of the other copies run their engines in its instance.
   */
  static named(name: string): MemoryStore {
    const named = registry();
    const known = named.get(name)?.deref();
    if (known !== undefined) {
      return known;
    }
    const store = new MemoryStore();
    named.set(name, weak(store));
    for (const [other, reference] of named) {
      if (reference.deref() === undefined) {
        named.delete(other);
      }
    }
    return store;
  }

  /** All its hosts share one instance, because a batch cannot leave its instance. */
  instance(): Glue {
    this.#glue ??= newInstance();
    this.#server ??= new this.#glue.MemoryStore(now(), Date.now());
    return this.#glue;
  }

  open(host: StoreHost): void {
    this.#hosts.add(host);
    host.connected();
  }

  execute(host: StoreHost, engine: Engine, { request }: Batch): void {
    host.step((own, at) => {
      if (own === engine) {
        this.#server?.execute(engine, at, request);
      }
    });
    this.#deliver();
  }

  subscribe(host: StoreHost, channel: string): void {
    this.#subscribers.set(channel, host);
    host.step((engine) => this.#server?.subscribe(engine));
    host.subscribed();
  }

  unsubscribe(host: StoreHost): void {
    for (const [channel, subscriber] of this.#subscribers) {
      if (subscriber === host) {
        this.#subscribers.delete(channel);
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
    host.step((engine) => this.#server?.unsubscribe(engine));
    this.unsubscribe(host);
    this.#hosts.delete(host);
  }

  /** Delivers the pushes that an operation has caused; that may cause more of them. */
  #deliver(): void {
    if (this.#delivering) {
      return;
    }
    this.#delivering = true;
    try {
      for (let channel = this.#server?.nextPush(); channel !== undefined; ) {
        const host = this.#subscribers.get(channel);
        if (host === undefined) {
          this.#server?.dropPush();
        } else {
          host.step((engine, at) => this.#server?.deliver(engine, at));
        }
        channel = this.#server?.nextPush();
      }
    } finally {
      this.#delivering = false;
    }
  }
}

/** The stores of `memory://` URLs that somebody uses. */
type Registry = Map<string, Weak<MemoryStore>>;

/** Each version has stores of its own, because how a copy uses a store may differ from version to version. */
const REGISTRY = Symbol.for(`leasehold.memory ${PACKAGE_VERSION}`);

function registry(): Registry {
  const all = globalThis as { [REGISTRY]?: Registry };
  if (all[REGISTRY] === undefined) {
    Object.defineProperty(all, REGISTRY, { value: new Map() });
  }
  return all[REGISTRY] as Registry;
}
