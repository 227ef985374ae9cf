import { failure } from "../../adapters/index.js";
import { within } from "../../adapters/shared.js";
import { readOptions, shown } from "../../common/check.js";
import { LeaseholdError } from "../../common/errors.js";
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
 * Every call rejects with {@link StaleTokenError} if a greater token was seen. Other errors are of
 * code `wrongType` if a key holds something else than the command needs, or that of the fence no
 * token; `config` if an argument is not valid, or a key is on another cluster slot; `timeout` and
 * `unavailable` if there was no answer: then whether the write was done is *unknown*.
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

  /** `DEL`: deletes a key, and tells whether there was one. */
  async del(key: string): Promise<boolean> {
    return Number(await this.#command("DEL", key)) > 0;
  }

  /** `HSET`: gives a field of a hash a value, and tells whether the field is new. */
  async hset(key: string, field: Value, value: Value): Promise<boolean> {
    return Number(await this.#command("HSET", key, argument(field), argument(value))) > 0;
  }

  /** `HDEL`: deletes a field of a hash, and tells whether there was one. */
  async hdel(key: string, field: Value): Promise<boolean> {
    return Number(await this.#command("HDEL", key, argument(field))) > 0;
  }

  /**
   * `INCRBY`: adds a whole number to a number, 0 if there is none, and resolves to the sum, which is
   * exact up to 2^53. A repetition after a time-out may add twice.
   */
  async incrBy(key: string, by: number | bigint): Promise<number> {
    if (typeof by !== "bigint" && !Number.isSafeInteger(by)) {
      throw new LeaseholdError("config", `incrBy adds a whole number, not ${shown(by)}`);
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
   * Runs a {@link Script}, or the text of one, behind the check, in one call: `EVALSHA`, with `EVAL`
   * if the server does not have it yet. Resolves to what the client makes of the script's reply.
   *
   * A mistake in the script is of code `config` if it does not compile, which changes nothing, and
   * else of that of what went wrong, most often `store`; what it wrote before stays.
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
      throw new LeaseholdError("config", "the keys and the arguments of a script are arrays");
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
      const told = failure(error);
      // The server's own words: what a script says itself is not taken for them.
      const missing = "reply" in told && told.reply.startsWith("NOSCRIPT No matching script");
      if (!missing || now() > giveUp) {
        throw error;
      }
      return this.#runner.eval(text, keys, args);
    }
  }

  #checkKeys(keys: readonly string[]): void {
    const { fence, resource } = this.#attempt;
    const config = (message: string) => new LeaseholdError("config", message);
    for (const key of keys) {
      if (typeof key !== "string") {
        throw config(`a key is a string, not ${key === null ? "null" : typeof key}`);
      }
      if (key === fence) {
        throw config(`${quoted(key)} is the key of the fence of ${quoted(resource)}`);
      }
      // On one server there are no slots to miss.
      if (this.#runner.clustered && slotOf(key) !== slotOf(fence)) {
        throw config(
          `the key ${quoted(key)} is not on the cluster slot of ${quoted(fence)}, the fence of ` +
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
  throw new LeaseholdError("config", `a value for Redis is a string, bytes or a number, not ${what}`);
}

function milliseconds(ttl: number): bigint {
  if (typeof ttl === "number" && ttl > 0 && ttl <= LONGEST_TTL) {
    return BigInt(Math.ceil(ttl));
  }
  throw new LeaseholdError("config", `a time to live is from 1 to 2^53 ms, not ${shown(ttl)}`);
}
