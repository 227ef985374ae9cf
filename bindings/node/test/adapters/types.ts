// Compiled and not run: the real clients must have the types that a locker takes, under strict settings.
import { Redis as Upstash } from "@upstash/redis";
import { Cluster, Redis } from "ioredis";
import { Cluster as Cluster6, Redis as Redis6 } from "ioredis-v6";
import { createClient, createClientPool, createCluster, createSentinel } from "redis";
import * as v4 from "redis-v4";
import * as v6 from "redis-v6";
import { adapt, type RedisClient } from "../../src/adapters/index.js";

const rootNodes = [{ url: "redis://localhost" }];
const sentinel = { name: "a", sentinelRootNodes: [{ host: "localhost", port: 1 }] };
const url = "http://localhost";
const token = "t";

export const clients: RedisClient[] = [
  new Redis(),
  new Cluster([]),
  new Redis6(),
  new Cluster6([]),
  new (class Mine extends Redis {})(),
  createClient(),
  createClient({ RESP: 3, database: 1 }),
  createClientPool(),
  createCluster({ rootNodes }),
  createSentinel(sentinel),
  v4.createClient(),
  v4.createCluster({ rootNodes }),
  v6.createClient(),
  v6.createClientPool(),
  v6.createCluster({ rootNodes }),
  v6.createSentinel(sentinel),
  new Upstash({ url, token }),
  { eval: async (_script: string, _keys: string[], _args: string[]) => ["1"] },
  {
    eval: async () => [],
    evalsha: async (_sha: string) => [],
    subscribe: (_channel: string, onMessage: (message: string) => void) => () => onMessage(""),
  },
];

for (const client of clients) {
  adapt(client);
}

// @ts-expect-error it runs no scripts
export const none: RedisClient = { get: async () => null };
// @ts-expect-error it returns nothing that unsubscribes
export const deaf: RedisClient = { eval: async () => [], subscribe: async () => {} };
