// The stores and clients on which the scenarios run.
import { once } from "node:events";
import { Redis } from "ioredis";
import { createClient } from "redis";
import { Locker, MemoryStore } from "../../dist/index.js";
import { startRedis } from "../support/redis.mjs";

/** The stores. `open()` resolves to a new store, whose `locker(options)` makes a locker with a connection. */
export const STORES = [
  { name: "ioredis", kind: "redis", open: () => onRedis(byIoredis) },
  { name: "node-redis", kind: "redis", open: () => onRedis(byNodeRedis) },
  { name: "ioredis in a worker thread", kind: "redis", open: () => onRedis(inThread) },
  { name: "memory", kind: "memory", open: inMemory },
  { name: "a quorum", kind: "quorum", open: onQuorum },
];

let count = 0;

async function inMemory() {
  const url = `memory://scenario-${(count += 1)}`;
  return { locker: (options) => Locker.connect(url, options), close: async () => {} };
}

async function onQuorum() {
  const names = [1, 2, 3].map((server) => `scenario-${(count += 1)}-${server}`);
  const urls = names.map((name) => `memory://${name}`);
  return {
    locker: ({ server, ...options }) =>
      server === undefined ? Locker.quorum(urls, options) : Locker.connect(urls[server - 1], options),
    cutOff: (server) => MemoryStore.named(names[server - 1]).cutOff(),
    close: async () => {},
  };
}

async function onRedis(connect) {
  const server = await startRedis();
  const ends = [];
  return {
    async locker(options) {
      const { make, end } = await connect(server.url);
      // First, because bad options throw.
      ends.push(end);
      return make(options);
    },
    command: (words) => server.command(...words),
    async close() {
      ends.forEach((end) => end());
      await server.stop();
    },
  };
}

async function inThread(url) {
  return { make: (options) => Locker.connect(url, { ...options, thread: true }), end: () => {} };
}

async function byIoredis(url) {
  const client = new Redis(url);
  client.on("error", () => {});
  // Until then a `tryAcquire` fails, because it does not wait for a connection.
  await once(client, "ready");
  return { make: (options) => Locker.from(client, options), end: () => client.disconnect() };
}

async function byNodeRedis(url) {
  const client = createClient({ url });
  client.on("error", () => {});
  await client.connect();
  return { make: (options) => Locker.from(client, options), end: () => client.destroy() };
}
