import { guardTimeout, longestGuardTimeout } from "../../../../../core/engine/src/limits.jsonc";
import type { RedisClient } from "../../adapters/index.js";
import { attempt, config, readOptions, shown } from "../../common/check.js";
import type { LeaseholdError } from "../../common/errors.js";
import { checkResource } from "../resource.js";
import { type Token, tokenOf } from "../token.js";
import { type Runner, runnerOf } from "./client.js";
import { Fenced } from "./fenced.js";

export type { Evaluator, RedisClient, Unsubscribe } from "../../adapters/index.js";
export { Fenced, type Value } from "./fenced.js";
export { Script } from "./script.js";

/** Options of {@link FencedRedis}. */
export interface FencedRedisOptions {
  /**
   * The time limit of a call in milliseconds: 5,000 by default; at most a day.
   *
   * After that the call rejects with the code `timeout`. It is then unknown whether the server writes, now or
   * once the client has reconnected.
   */
  readonly timeout?: number;
}

/**
 * A Redis server, 7.0 or newer, or a cluster, whose keys only holders of the newest token can write.
 *
 * The client is from ioredis, node-redis or `@upstash/redis`, or any object with `eval(script, keys, args)`.
 * It is used as it is and never closed.
 *
 * Each call is one script. It compares the token with the resource's *fence*, which is the greatest token
 * seen. It stores the token if it is greater, and writes. The fence is a key beside the data, the same that
 * Rust's `FencedRedis` uses: `{orders/42}:fence` for `orders/42`.
 *
 * ```ts
 * const redis = new FencedRedis(client);
 * await redis.resource("orders/42", lease).set("orders/42", "paid");
 * ```
 *
 * A refused write changes nothing and rejects with {@link StaleTokenError}. This holds under two conditions:
 *
 * 1. Everyone who writes these keys uses the guard and names the same resource.
 * 2. The server keeps the fence: no `FLUSHALL`, no restart without persistence, no failover to a lagging
 *    replica, and the `maxmemory-policy` is `noeviction`. (`allkeys-*` may evict the fence, and `volatile-*`
 *    may evict held locks on the same server.)
 *
 * An error of the write itself, such as a wrong type, comes after the check. The token was stored although
 * the write failed, which refuses only older holders.
 *
 * After `timeout` or `unavailable` it is unknown whether the write was done. It may even be done later,
 * though never after a write with a greater token. The guard does not send a write twice, but ioredis does
 * when it reconnects, and Upstash's client when a request fails. If {@link Fenced.incrBy} and {@link
 * Fenced.push} must not count twice, give the clients `autoResendUnfulfilledCommands: false` and `retry:
 * false`.
 *
 * On a cluster the written keys must be on the fence's slot: the resource itself, and keys with its tag, such
 * as `{orders/42}:items`.
 */
export class FencedRedis {
  readonly #runner: Runner;
  readonly #timeout: number;

  /**
   * Makes the guard, without I/O. Throws a {@link LeaseholdError} with the code `config` if an argument is
   * not valid.
   */
  constructor(client: RedisClient, options: FencedRedisOptions = {}) {
    this.#runner = attempt("the client cannot be read", () => runnerOf(client));
    const read = readOptions("the options of FencedRedis", options, { timeout: "any" });
    const { timeout = guardTimeout } = read;
    if (typeof timeout !== "number" || !(timeout >= 1 && timeout <= longestGuardTimeout)) {
      throw config(`timeout must be from 1 to ${longestGuardTimeout} ms; got ${shown(timeout)}`);
    }
    this.#timeout = timeout;
  }

  /**
   * Returns an object that writes to a resource under a token. This does no I/O.
   *
   * The resource is what the lock protects, often the very key that is written. All its writers must give it
   * the same name of 1 to 512 bytes. Throws a {@link LeaseholdError} with the code `config` if an argument is
   * not valid.
   */
  resource(resource: string, token: Token): Fenced {
    checkResource(resource);
    return new Fenced(this.#runner, this.#timeout, resource, tokenOf(token));
  }
}
