import guard from "../../../../../core/src/fence/redis/guard.lua";
import { config, shown } from "../../common/check.js";

/** The check that precedes every script, as one line: see `guard.lua`. */
const GUARD = guard
  .split("\n")
  .map((line) => line.trim())
  .filter((line) => line !== "" && !line.startsWith("--"))
  .join(" ");

/** Returns a script with the check in front, and its hash. */
export let partsOf: (script: Script) => { readonly text: string; readonly sha: Promise<string> };

/**
 * A Lua script that runs after the check of a token, with {@link Fenced.script}.
 *
 * Write it as for `EVAL`: `KEYS` and `ARGV` are its own, and its result is the reply. It must touch no keys
 * except `KEYS`, and have no `#!` line. Making one does no I/O. Reuse it, because its hash is computed only
 * once.
 *
 * ```ts
 * const takeOne = new Script(`
 *   if tonumber(redis.call("GET", KEYS[1]) or 0) < 1 then return false end
 *   return redis.call("DECR", KEYS[1])`);
 * const left = await redis.resource("stock/7", lease).script(takeOne, ["stock/7"]);
 * ```
 */
export class Script {
  readonly #text: string;
  #sha: Promise<string> | undefined;

  static {
    partsOf = (script) => {
      script.#sha ??= sha1(script.#text);
      return { text: script.#text, sha: script.#sha };
    };
  }

  /** Makes a script. It does not check the Lua: the server does, before it runs any of it. */
  constructor(lua: string) {
    if (typeof lua !== "string") {
      throw config(`a Lua script must be a string; got ${shown(lua)}`);
    }
    // The check comes before the text, not around it, so that nothing in the text can end a block and skip
    // the check.
    this.#text = `${GUARD} ${lua}`;
  }
}

/** Runs any one command with one key. */
export const COMMAND = new Script("return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))");

async function sha1(text: string): Promise<string> {
  const hash = await crypto.subtle.digest("SHA-1", new TextEncoder().encode(text));
  return Array.from(new Uint8Array(hash), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
