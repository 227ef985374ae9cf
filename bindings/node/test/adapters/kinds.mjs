import { waitFor } from "../support/wait.mjs";
import { bundle } from "./bundle.mjs";

/** The clients under test, in the versions of the package's own dependencies. */
export const adapters = await bundle();

/**
 * Every kind of client of a single server. `make(url)` makes a client that is not connected yet, as a program
 * would, and `end(client)` ends it.
 */
export const given = [
  ioredis("ioredis 5", "ioredis"),
  ioredis("ioredis 6", "ioredis-v6"),
  nodeRedis("node-redis 4", "redis-v4"),
  nodeRedis("node-redis 5", "redis"),
  nodeRedis("node-redis 6", "redis-v6"),
  pool("node-redis 5 (pool)", "redis"),
  pool("node-redis 6 (pool)", "redis-v6"),
];

/** The clients that this package makes from a URL. */
export const opened = await Promise.all(
  [
    ["ioredis", "ioredis", "ioredis 5"],
    ["ioredis", "ioredis-v6", "ioredis 6"],
    ["redis", "redis-v4", "node-redis 4"],
    ["redis", "redis", "node-redis 5"],
    ["redis", "redis-v6", "node-redis 6"],
  ].map(async ([name, version, title]) => {
    const versions = name === version ? {} : { [name]: version };
    const { openClient } = await bundle(versions);
    return {
      name: `openClient with ${title}`,
      versions,
      package: name,
      open: (url, options) => openClient(url, { packages: [name], ...options }),
    };
  }),
);

/** All kinds: `open(url)` resolves to an adapter and a function that ends its client. */
export const all = [
  ...given.map(({ name, make, end }) => ({
    name,
    owned: false,
    async open(url) {
      const client = await make(url);
      const adapter = adapters.adapt(client);
      return { adapter, client, end: () => end(client) };
    },
  })),
  ...opened.map(({ name, open }) => ({
    name,
    owned: true,
    async open(url) {
      const adapter = await answered(() => open(url));
      return { adapter, client: undefined, end: () => adapter.close() };
    },
  })),
];

/**
 * Opens a client until the server has answered: a busy machine may need longer than the client's time limit.
 */
export async function answered(open) {
  for (let tries = 5; ; tries -= 1) {
    try {
      return await open();
    } catch (error) {
      if (!["timeout", "unavailable"].includes(error.code) || tries === 0) throw error;
    }
  }
}

function ioredis(name, version) {
  return {
    name,
    async make(url) {
      const { Redis } = await import(version);
      const client = new Redis(url, { lazyConnect: true, retryStrategy: () => 50 });
      client.on("error", () => {});
      return client;
    },
    end: async (client) => client.disconnect(),
  };
}

function nodeRedis(name, version) {
  return {
    name,
    async make(url) {
      const { createClient } = await import(version);
      const client = createClient({ url, socket: { reconnectStrategy: 50 } });
      client.on("error", () => {});
      return client;
    },
    async end(client) {
      if (client.isOpen) {
        await (client.destroy ? client.destroy() : client.disconnect());
      }
    },
  };
}

function pool(name, version) {
  return {
    name,
    async make(url) {
      const { createClientPool } = await import(version);
      const client = createClientPool({ url, socket: { reconnectStrategy: 50 } });
      client.on("error", () => {});
      return client;
    },
    end: async (client) => client.destroy(),
  };
}

/** Resolves to an adapter whose link is up. It is closed with the test. */
export async function useKind(t, kind, url) {
  const { adapter, client, end } = await kind.open(url);
  return { client, ...(await useAdapter(t, adapter, end)) };
}

/** Uses an existing adapter, which is closed with the test; `end` runs after that. */
export async function useAdapter(t, adapter, end) {
  adapter.keepAlive(true);
  const link = linkLog();
  const unwatch = adapter.watch(link);
  t.after(async () => {
    unwatch();
    await adapter.close();
    await end?.();
  });
  await waitFor(() => link.state === "up", 10_000, "the link is up");
  return { adapter, link };
}

/** Records what a link is told. */
export function linkLog() {
  const log = [];
  return {
    log,
    get state() {
      return log.at(-1)?.[0];
    },
    /** Returns how often this was recorded. */
    count: (what) => log.filter(([told]) => told === what).length,
    up: () => log.push(["up"]),
    down: (error) => log.push(["down", error]),
  };
}

/** Records what a channel's listener is told. */
export function hearingLog() {
  const log = [];
  return {
    log,
    messages: [],
    get state() {
      return log.at(-1)?.[0];
    },
    count: (what) => log.filter(([told]) => told === what).length,
    subscribed() {
      log.push(["subscribed"]);
    },
    unsubscribed(error) {
      log.push(["unsubscribed", error]);
    },
    message(text) {
      this.messages.push(text);
    },
  };
}
