import { failure } from "../../adapters/index.js";
import { within } from "../../adapters/shared.js";
import { config, readOptions, shown } from "../../common/check.js";
import { now } from "../../common/platform.js";
import { quoted } from "../stale.js";
import type { Argument, Runner } from "./client.js";
import { type Attempt, failed } from "./failure.js";
import { fenceKey, slotOf } from "./key.js";
import { COMMAND, partsOf, Script } from "./script.js";

/** What can be written: text, a number, or bytes. Clients over HTTP take no bytes. */
export type Value = string | number | bigint | Uint8Array;

/** The longest time to live, 2^53 ms: Redis adds it to its clock. */
const LONGEST_TTL = 2 ** 53;

/**
 * Writes to one resource under one token, from {@link FencedRedis.resource}.
 *
 * Every call rejects with {@link StaleTokenError} if a greater token was seen. The codes of other errors
 * are `wrongType` if a key holds something else than the command needs, or the fence's key no token;
 * `config` if an argument is not valid, or a key is on another cluster slot; `timeout` and `unavailable`
 * if there was no reply: then it is *unknown* whether the write was done.
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

  /** `SET`: gives a key a value and no expiry, or one after `ttl` milliseconds, rounded up. */
  async set(key: string, value: Value, options: { readonly ttl?: number } = {}): Promise<void> {
    const { ttl } = readOptions("the options of set", options, { ttl: "any" });
    const expiry = ttl === undefined ? [] : ["PX", String(milliseconds(ttl))];
    await this.#command("SET", key, argument(value), ...expiry);
  }

  /** `DEL`: deletes a key, and resolves to whether there was one. */
  async del(key: string): Promise<boolean> {
    return Number(await this.#command("DEL", key)) > 0;
  }

  /** `HSET`: gives a field of a hash a value, and resolves to whether the field is new. */
  async hset(key: string, field: Value, value: Value): Promise<boolean> {
    return Number(await this.#command("HSET", key, argument(field), argument(value))) > 0;
  }

  /** `HDEL`: deletes a field of a hash, and resolves to whether there was one. */
  async hdel(key: string, field: Value): Promise<boolean> {
    return Number(await this.#command("HDEL", key, argument(field))) > 0;
  }

  /**
   * `INCRBY`: adds a whole number to a number, 0 if there is none, and resolves to the sum, which is
   * exact up to 2^53. A repetition after a time-out may add twice.
   */
  async incrBy(key: string, by: number | bigint): Promise<number> {
    if (typeof by !== "bigint" && !Number.isSafeInteger(by)) {
      throw config(`incrBy adds a whole number, not ${shown(by)}`);
    }
    return Number(await this.#command("INCRBY", key, String(by)));
  }

  /**
   * `RPUSH`: puts a value at the end of a list, and resolves to the list's new length. A repetition
   * after a time-out may put it there twice.
   */
  async push(key: string, value: Value): Promise<number> {
    return Number(await this.#command("RPUSH", key, argument(value)));
  }

  /**
   * Runs a {@link Script}, or the text of one, after the check, in one call: `EVALSHA`, and `EVAL` if
   * the server does not have the script yet. Resolves to the script's reply as the client gives it.
   *
   * If the script does not compile, the code is `config` and nothing was written. If it fails, the code is
   * that of its error, most often `store`, and what it wrote before stays.
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
      throw config("the keys and the arguments of a script are arrays");
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
      // The server's own words, so that an error of the script itself is not taken for this one.
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
        throw config(`a key is a string, not ${key === null ? "null" : typeof key}`);
      }
      if (key === fence) {
        throw config(`${quoted(key)} is the fence key of the resource ${quoted(resource)}: write to another key`);
      }
      // On one server there are no slots to miss.
      if (this.#runner.clustered && slotOf(key) !== slotOf(fence)) {
        throw config(
          `the key ${quoted(key)} is not on the cluster slot of ${quoted(fence)}, the fence key of ` +
            `${quoted(resource)}: give both the same hash tag`,
        );
      }
    }
  }
}

/** One argument of a command. Anything else would be refused late, or written as "[object Object]". */
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
  throw config(`a time to live is from 1 to 2^53 ms, not ${shown(ttl)}`);
}
