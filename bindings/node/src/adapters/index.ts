import { config } from "../common/check.js";
import type { Adapter } from "./adapter.js";
import { type Evaluator, evaluate, isEvaluator } from "./evaluate.js";
import { type IoredisClient, ioredis, isIoredis } from "./ioredis.js";
import { isNodeRedis, type NodeRedisClient, nodeRedis } from "./node-redis.js";
import { isUpstash, type UpstashClient, upstash } from "./upstash.js";

export type { Adapter, TrackingMember } from "./adapter.js";
export type { Evaluator, Unsubscribe } from "./evaluate.js";
export { failure } from "./failure.js";

/**
 * A client that a locker can be made from: of ioredis (5 and 6), of node-redis (the package `redis`, 4 to 6)
 * or of `@upstash/redis`, or any object with {@link Evaluator | eval}.
 *
 * The types are structural, so none of those packages must be installed.
 */
export type RedisClient = IoredisClient | NodeRedisClient | UpstashClient | Evaluator;

/**
 * Makes an adapter for a client. It recognizes the client by its methods, not by its class, of which there
 * may be several copies. Throws a `LeaseholdError` with the code `config` if it is not a Redis client.
 */
export function adapt(client: unknown): Adapter {
  if (typeof client === "object" && client !== null) {
    if (isUpstash(client)) {
      return upstash(client);
    }
    if (isIoredis(client)) {
      return ioredis(client);
    }
    if (isNodeRedis(client)) {
      return nodeRedis(client);
    }
    if (isEvaluator(client)) {
      return evaluate(client);
    }
  }
  throw config(
    `${described(client)} is not a Redis client: give a client of ioredis, node-redis (redis) or ` +
      "@upstash/redis, or an object with eval(script, keys, args)",
  );
}

function described(client: unknown): string {
  if (typeof client === "string") {
    return "a string (for a URL, call Locker.connect)";
  }
  if (typeof client === "object" && client !== null) {
    const { then, constructor } = client as { then?: unknown; constructor?: { name?: unknown } };
    if (typeof then === "function") {
      return "a promise (await it first)";
    }
    const name = constructor?.name;
    return typeof name === "string" && name && name !== "Object" ? `an object of ${name}` : "the object";
  }
  return typeof client === "function" ? "a function or class" : String(client);
}
