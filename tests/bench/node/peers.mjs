/**
 * The compared sides. Each makes `pair`s of an acquisition and a release, and contends for one name with `acquire`,
 * which resolves to the release. A side that `renews` keeps its locks by itself. A side that can `watch` calls back
 * when it learns that it lost a name. `shared` has pairs of a semaphore, of readers, and of three names at once.
 */
import { Redis } from "ioredis";
import { createClient } from "redis";
import { Mutex, Semaphore } from "redis-semaphore";
import redlock from "redlock";
import { Locker } from "../../../bindings/node/dist/index.js";

/** The time to live of all sides, in milliseconds. */
const TTL = 30_000;
const COMPARE_AND_DELETE =
  'if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0';

// A CommonJS module in some of its builds.
const Redlock = redlock.default ?? redlock;

/** The slots of the semaphore that all callers share. */
const SLOTS = 10;
/** The names that a caller acquires at once. */
const namesOf = (caller) => ["a", "b", "c"].map((name) => `several/${caller}/${name}`);

/** The sides by name; each function takes the port of the server. */
export const SIDES = {
  leasehold: (port) => leasehold(new Redis(port)),
  /** On connections of its own. */
  "leasehold by URL": async (port) => leasehold(together([]), await Locker.connect(`redis://127.0.0.1:${port}`)),
  "leasehold, node-redis": async (port) => {
    const client = createClient({ socket: { port } });
    await client.connect();
    return leasehold(client);
  },
  "redlock 5 beta": (port) => redlockOf([port]),
  "redis-semaphore": async (port) => {
    const client = new Redis(port);
    const options = { lockTimeout: TTL, acquireTimeout: 60_000 };
    const lock = async (name, onLockLost) => {
      const mutex = new Mutex(client, name, { ...options, onLockLost });
      await mutex.acquire();
      return () => mutex.release();
    };
    const shared = {
      semaphore: async () => {
        const semaphore = new Semaphore(client, "slots", SLOTS, options);
        await semaphore.acquire();
        await semaphore.release();
      },
    };
    return { ...side(client, (name) => lock(name)), renews: true, watch: lock, shared };
  },
  /** The usual handwritten lock. It cannot wait. */
  "bare SET NX": async (port) => {
    const client = new Redis(port);
    const sha = await client.script("LOAD", COMPARE_AND_DELETE);
    let last = 0;
    return side(client, async (name) => {
      const value = `${process.pid}/${(last += 1)}`;
      if ((await client.set(name, value, "PX", TTL, "NX")) !== "OK") {
        throw new Error(`${name} is taken`);
      }
      return () => client.evalsha(sha, 1, name, value);
    });
  },
};

/** The sides that support several independent servers; each function takes the ports of all. */
export const QUORUMS = {
  leasehold: async (ports) => {
    const clients = ports.map((port) => new Redis(port));
    return leasehold(together(clients), await Locker.quorum(clients));
  },
  "redlock 5 beta": redlockOf,
};

function redlockOf(ports) {
  const clients = ports.map((port) => new Redis(port));
  // By default it gives up after ten tries, which is not what is compared.
  const settings = new Redlock(clients, { retryCount: -1 });
  return side(together(clients), async (name) => {
    const lock = await settings.acquire([name], TTL);
    return () => lock.release();
  });
}

/** Returns a client that does everything on all clients. */
function together(clients) {
  return {
    disconnect: () => clients.forEach((client) => client.disconnect()),
  };
}

async function leasehold(client, locker = Locker.from(client)) {
  const lock = (name) => locker.lock(name, { ttl: TTL }).acquire();
  const acquire = async (name) => {
    const lease = await lock(name);
    return () => lease.release();
  };
  const watch = async (name, onLost) => {
    const { signal } = await lock(name);
    signal.addEventListener("abort", onLost);
  };
  const pair = async (kind) => (await kind.acquire()).release();
  const shared = {
    semaphore: () => pair(locker.semaphore("slots", SLOTS, { ttl: TTL })),
    readers: () => pair(locker.rwLock("read", { ttl: TTL }).read()),
    several: (caller) => pair(locker.all(namesOf(caller), { ttl: TTL })),
  };
  return { ...side(client, acquire, () => locker.shutdown()), renews: true, watch, shared };
}

function side(client, acquire, shutdown = async () => {}) {
  return {
    acquire,
    async pair(name) {
      const release = await acquire(name);
      await release();
    },
    async end() {
      await shutdown();
      await (client.destroy ?? client.disconnect).call(client);
    },
  };
}
