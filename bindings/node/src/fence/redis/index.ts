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
   * How long a call may take, in milliseconds: 5000 by default, a day at the most. Then it rejects
   * with code `timeout`, and it is unknown whether the server acts, now or once the client has
   * reconnected.
   */
  readonly timeout?: number;
}

/**
 * A Redis server, 7.0 or newer, or a cluster, whose keys are written only by those who hold the
 * newest token. The client is one of ioredis, node-redis or `@upstash/redis`, or any object with
 * `eval(script, keys, args)`; it is used as it is, and never closed.
 *
 * Each call is one script: it compares the token with the *fence* of the resource, the greatest
 * token that was seen, keeps the token if it is greater, and writes. The fence is a key beside the
 * data, the same that Rust's `FencedRedis` uses: `{orders/42}:fence` for `orders/42`.
 *
 * ```ts
 * const redis = new FencedRedis(client);
 * await redis.resource("orders/42", lease).set("orders/42", "paid");
 * ```
 *
 * A write that is refused, with {@link StaleTokenError}, changes nothing. Rely on it as long as everybody
 * who writes these keys uses the guard and names the same resource, and as long as the server
 * keeps the fence: no `FLUSHALL`, no restart without persistence, no failover to a replica that
 * lags behind, no `maxmemory-policy` but `noeviction` (`allkeys-*` may evict the fence, and `volatile-*`
 * held locks, if those are on the same server).
 *
 * An error of the write itself, such as a wrong type, comes after the check: the token was kept although
 * the write failed, which refuses nobody but older holders.
 *
 * After `timeout` or `unavailable` it is unknown whether the write was done; it may even be done
 * later, though never after one of a greater token. The guard does not send a write twice; but
 * ioredis does so by itself when it reconnects, and Upstash's client when a request fails. Give them
 * `autoResendUnfulfilledCommands: false` and `retry: false` if {@link Fenced.incrBy} and
 * {@link Fenced.push} must not count twice.
 *
 * On a cluster the keys that are written must be on the slot of the fence: the resource itself, and
 * whatever has its tag, `{orders/42}:items`.
 */
export class FencedRedis {
  readonly #runner: Runner;
  readonly #timeout: number;

  /** No I/O. Throws a {@link LeaseholdError} of code `config` if an argument is not valid. */
  constructor(client: RedisClient, options: FencedRedisOptions = {}) {
    this.#runner = attempt("the client cannot be read", () => runnerOf(client));
    const read = readOptions("the options of FencedRedis", options, { timeout: "any" });
    const { timeout = guardTimeout } = read;
    if (typeof timeout !== "number" || !(timeout >= 1 && timeout <= longestGuardTimeout)) {
      throw config(`timeout is from 1 to ${longestGuardTimeout} ms, not ${shown(timeout)}`);
    }
    this.#timeout = timeout;
  }

  /**
   * The writes to a resource under a token. No I/O.
   *
   * The resource is what the lock protects, often the very key that is written; all its writers must
   * give it the same name, of 1 to 512 bytes. Throws a {@link LeaseholdError} of code `config` if an
   * argument is not valid.
   */
  resource(resource: string, token: Token): Fenced {
    checkResource(resource);
    return new Fenced(this.#runner, this.#timeout, resource, tokenOf(token));
  }
}
