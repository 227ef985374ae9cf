import { after, before, describe } from "node:test";
import { Locker } from "../../dist/index.js";
import { startRedis } from "./redis.mjs";
import { waitFor, within } from "./wait.mjs";

/** The stores and clients on which all lockers must behave alike. `thread` is a locker with a worker thread. */
export const kinds = ["memory", "ioredis", "node-redis", "thread"];

/** Those whose engine is in the program's thread. */
export const inThread = kinds.filter((kind) => kind !== "thread");

/** The two that are clients of a server. */
export const clients = ["ioredis", "node-redis"];

/**
 * Runs a suite for each of the stores. `suite` gets a store that is ready once its tests run. Take names from
 * its `name()`, because all tests of a suite share the store.
 */
export function forEachStore(suite, { only = kinds, concurrency = 1, config } = {}) {
  for (const kind of only) {
    describe(kind, { concurrency }, () => {
      const store = new Store(kind);
      before(() => store.start(config));
      after(() => store.stop());
      suite(store);
    });
  }
}

let count = 0;

class Store {
  #memory = `test-${(count += 1)}`;
  #ends = [];
  #names = 0;

  constructor(kind) {
    this.kind = kind;
    this.isMemory = kind === "memory";
  }

  async start(config) {
    if (!this.isMemory) {
      this.server = await startRedis({ config });
    }
    // An in-memory store lives as long as somebody uses it.
    this.admin = await this.locker();
  }

  async stop() {
    for (const end of this.#ends.splice(0).reverse()) {
      await end();
    }
    await this.server?.stop();
  }

  /** Returns a name that no other test uses. */
  name() {
    return `name ${(this.#names += 1)}`;
  }

  /** Makes another locker, with a new client. */
  async locker(options) {
    const made = this.isMemory
      ? { locker: await Locker.connect(`memory://${this.#memory}`, options), end: async () => {} }
      : await lockerOf(this.kind, this.server.url, options);
    this.#ends.push(async () => {
      await made.locker.shutdown();
      await made.end();
    });
    return made.locker;
  }

  /** Waits until this many wait for the name. */
  async inLine(name, waiting) {
    const is = async () => (await this.admin.inspect(name)).waiting === waiting;
    await waitFor(is, 10_000, `${waiting} in line`);
  }

  /** Waits until the name has neither holders nor waiters: at once, not by expiry. */
  async nothingLeft(name, limit = 5_000) {
    const is = async () => {
      const { holder, shared, waiting } = await this.admin.inspect(name);
      return holder === null && (shared?.held ?? 0) === 0 && waiting === 0;
    };
    await waitFor(is, limit, "no lock and no place in line is left");
  }

  /** Makes a locker that hears the store's pushes, which begin with its first lease. */
  async hearing(options) {
    const locker = await this.locker(options);
    if (!this.isMemory) {
      await heard(this.server, () => locker.lock(this.name()).using(() => {}));
    }
    return locker;
  }
}

/**
 * Waits until one more client is subscribed than before the act. If the act resolves to a lease, it also
 * waits until the holder has checked whether it missed anything.
 */
export async function heard(server, act) {
  const channels = () => server.command("PUBSUB", "CHANNELS", "*");
  const renewals = async () => (await server.commandStats()).hget ?? 0;
  const [before, renewed] = [new Set(await channels()), await renewals()];
  const result = await act();
  const more = async () => (await channels()).some((channel) => !before.has(channel));
  await waitFor(more, 10_000, "the subscription");
  if (result !== undefined) {
    await waitFor(async () => (await renewals()) > renewed, 10_000, "a look");
  }
  return result;
}

/** Makes a locker on a client of the program, and a function that ends the client. */
export async function lockerOf(kind, url, options) {
  if (kind === "thread") {
    return { locker: await Locker.connect(url, { ...options, thread: true }), end: async () => {} };
  }
  const { client, end } = kind === "ioredis" ? await ioredis(url) : await nodeRedis(url);
  return { locker: Locker.from(client, options), client, end };
}

async function ioredis(url) {
  const { Redis } = await import("ioredis");
  const client = new Redis(url, { lazyConnect: true, retryStrategy: () => 50, maxRetriesPerRequest: 0 });
  client.on("error", () => {});
  await client.connect();
  return { client, end: async () => client.disconnect() };
}

async function nodeRedis(url) {
  const { createClient } = await import("redis");
  const client = createClient({ url, socket: { reconnectStrategy: 50 } });
  client.on("error", () => {});
  await client.connect();
  return {
    client,
    end: async () => {
      if (client.isOpen) {
        client.destroy();
      }
    },
  };
}

/** Returns the key of a lock. */
export function key(name, namespace = "leasehold") {
  return `{${namespace}:${name}}`;
}

/** Returns true if the lock of this key is held: the value of its tenure begins with its expiry. */
export async function isHeld(server, key) {
  const hash = await server.command("HGETALL", key);
  const [seconds, micros] = await server.command("TIME");
  const now = seconds * 1_000 + Math.floor(micros / 1_000);
  return hash.some((field, at) => at % 2 === 0 && /^[0-9a-f]{48}y?$/.test(field) && hash[at + 1].slice(0, 13) >= now);
}

/** Returns a growing list of a reader's events. */
export function collect(events) {
  const told = [];
  told.ended = (async () => {
    for await (const event of events) {
      told.push(event);
    }
  })();
  return told;
}

/** Acquires a lease for a locker with little patience, which a stall of the machine may use up. */
export function inTheEnd(lock) {
  let last;
  const acquire = () =>
    lock.acquire().catch((error) => {
      last = error;
    });
  return waitFor(acquire, 20_000, () => `a lease: ${last}`);
}

/** Resolves to the reason when the signal is aborted. */
export function aborted(signal) {
  const reason = new Promise((resolve) => {
    const done = () => resolve(signal.reason);
    if (signal.aborted) {
      done();
    } else {
      signal.addEventListener("abort", done, { once: true });
    }
  });
  const told = within(reason, 60_000, "the loss of the lease");
  // A test that failed before it asked has failed for another reason.
  told.catch(() => {});
  return told;
}
