import { failure } from "../../adapters/index.js";
import { within } from "../../adapters/shared.js";
import { config, readOptions, shown } from "../../common/check.js";
import { now } from "../../common/platform.js";
import { quoted } from "../stale.js";
import type { Argument, Runner } from "./client.js";
import { type Attempt, failed } from "./failure.js";
import { fenceKey, slotOf } from "./key.js";
import { COMMAND, partsOf, Script } from "./script.js";

/** A value that can be written: text, a number, or bytes. Clients over HTTP cannot send bytes. */
export type Value = string | number | bigint | Uint8Array;

/** The longest time to live, in milliseconds. Redis adds it to its clock. */
const LONGEST_TTL = 2 ** 53;

/**
 * Writes to one resource under one token, from {@link FencedRedis.resource}.
 *
 * Every call rejects with {@link StaleTokenError} if a greater token was seen. Other errors have these codes:
 *
 * - `wrongType` if a key has another type than the command needs, or the fence's key has no token
 * - `config` if an argument is not valid, or a key is on another cluster slot
 * - `timeout` and `unavailable` if there was no reply: it is then *unknown* whether the write was done
 *
 * ```ts
 * const order = redis.resource("{orders/42}", lease);
 * await order.set("{orders/42}:state", "paid");
 * await order.set("{orders/42}:receipt", "…", { ttl: 3_600_000 });
 * await order.hset("{orders/42}:item", "price", 1299);
 * await order.push("{orders/42}:log", "paid by Ada");
 * const paid = await order.incrBy("{orders/42}:paid", 1299);
 * ```
 */
export class Fenced {
  readonly #runner: Runner;
  readonly #timeout: number;
  readonly #attempt: Attempt;

  /** @internal */
  constructor(runner: Runner, timeout: number, resource: string, token: number) {
    this.#runner = runner;
    this.#timeout = timeout;
    this.#attempt = { resource, fence: fenceKey(resource), token, secrets: runner.secrets };
  }

  /**
   * Sets a key to a value (`SET`). The key does not expire, unless `ttl` gives a time in milliseconds, which
   * is rounded up.
   */
  async set(key: string, value: Value, options: { readonly ttl?: number } = {}): Promise<void> {
    const { ttl } = readOptions("the options of set", options, { ttl: "any" });
    const expiry = ttl === undefined ? [] : ["PX", String(milliseconds(ttl))];
    await this.#command("SET", key, argument(value), ...expiry);
  }

  /** Deletes a key (`DEL`). Resolves to true if it existed. */
  async del(key: string): Promise<boolean> {
    return Number(await this.#command("DEL", key)) > 0;
  }

  /** Sets a field of a hash (`HSET`). Resolves to true if the field is new. */
  async hset(key: string, field: Value, value: Value): Promise<boolean> {
    return Number(await this.#command("HSET", key, argument(field), argument(value))) > 0;
  }

  /** Deletes a field of a hash (`HDEL`). Resolves to true if it existed. */
  async hdel(key: string, field: Value): Promise<boolean> {
    return Number(await this.#command("HDEL", key, argument(field))) > 0;
  }

  /**
   * Adds a whole number to a key's number (`INCRBY`), or to 0 if the key does not exist. Resolves to the sum,
   * which is exact up to 2^53. If you repeat the call after a timeout, it may add twice.
   */
  async incrBy(key: string, by: number | bigint): Promise<number> {
    if (typeof by !== "bigint" && !Number.isSafeInteger(by)) {
      throw config(`incrBy: the amount must be a whole number; got ${shown(by)}`);
    }
    return Number(await this.#command("INCRBY", key, String(by)));
  }

  /**
   * Appends a value to a list (`RPUSH`). Resolves to the list's new length. If you repeat the call after a
   * timeout, it may append the value twice.
   */
  async push(key: string, value: Value): Promise<number> {
    return Number(await this.#command("RPUSH", key, argument(value)));
  }

  /**
   * Runs a {@link Script}, or a script's text, right after the check of the token, in one call. Resolves to
   * the script's reply as the client gives it.
   *
   * It sends `EVALSHA`, and `EVAL` if the server does not have the script yet. If the script does not
   * compile, the code is `config` and nothing was written. If the script fails, the code is that of its
   * error, usually `store`, and its earlier writes stay.
   *
   * ```ts
   * const left = await redis.resource("stock/7", lease).script(
   *   `local left = tonumber(redis.call("GET", KEYS[1]) or 0)
   *    if left < tonumber(ARGV[1]) then return false end
   *    return redis.call("DECRBY", KEYS[1], ARGV[1])`,
   *   ["stock/7"],
   *   [3],
   * );
   * ```
   */
  async script<R = unknown>(
    script: Script | string,
    keys: readonly string[] = [],
    args: readonly Value[] = [],
  ): Promise<R> {
    if (!Array.isArray(keys) || !Array.isArray(args)) {
      throw config("the keys and the arguments of a script must be arrays");
    }
    const whole = script instanceof Script ? script : new Script(script);
    return (await this.#call(whole, keys, args.map(argument))) as R;
  }

  async #command(name: string, key: string, ...rest: Argument[]): Promise<unknown> {
    return this.#call(COMMAND, [key], [name, ...rest]);
  }

  async #call(script: Script, keys: readonly string[], args: Argument[]): Promise<unknown> {
    this.#checkKeys(keys);
    const { fence, token } = this.#attempt;
    try {
      const { text, sha } = partsOf(script);
      const answer = this.#run(text, await sha, [fence, ...keys], [String(token), ...args]);
      return await within(this.#timeout, answer, "no answer came", true);
    } catch (error) {
      throw failed(this.#attempt, error);
    }
  }

  async #run(text: string, sha: string, keys: string[], args: Argument[]): Promise<unknown> {
    const giveUp = now() + this.#timeout;
    if (!this.#runner.evalsha) {
      return this.#runner.eval(text, keys, args);
    }
    try {
      return await this.#runner.evalsha(sha, keys, args);
    } catch (error) {
      const judged = failure(error);
      // The server's own words, so that an error of the script itself does not match.
      const missing = "reply" in judged && judged.reply.startsWith("NOSCRIPT No matching script");
      if (!missing || now() > giveUp) {
        throw error;
      }
      return this.#runner.eval(text, keys, args);
    }
  }

  #checkKeys(keys: readonly string[]): void {
    const { fence, resource } = this.#attempt;
    for (const key of keys) {
      if (typeof key !== "string") {
        throw config(`a key must be a string; got ${shown(key)}`);
      }
      if (key === fence) {
        throw config(`${quoted(key)} is the fence key of the resource ${quoted(resource)}: write to another key`);
      }
      // A single server has no slots.
      if (this.#runner.clustered && slotOf(key) !== slotOf(fence)) {
        throw config(
          `the key ${quoted(key)} is not on the cluster slot of ${quoted(fence)}, the fence key of ` +
            `${quoted(resource)}: give both the same hash tag`,
        );
      }
    }
  }
}

/**
 * Converts one argument of a command. Any other value would be refused late, or written as "[object Object]".
 */
function argument(value: Value): Argument {
  if (typeof value === "string" || value instanceof Uint8Array) {
    return value;
  }
  if (typeof value === "bigint" || (typeof value === "number" && Number.isFinite(value))) {
    return String(value);
  }
  const what = typeof value === "number" ? String(value) : value === null ? "null" : typeof value;
  throw config(`a value for Redis must be a string, bytes or a number; got ${what}`);
}

function milliseconds(ttl: number): bigint {
  if (typeof ttl === "number" && ttl > 0 && ttl <= LONGEST_TTL) {
    return BigInt(Math.ceil(ttl));
  }
  throw config(`a time to live must be from 1 ms to 2^53 ms; got ${shown(ttl)}`);
}
