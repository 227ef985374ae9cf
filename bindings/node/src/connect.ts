import type { Adapter } from "./adapters/adapter.js";
import { failure } from "./adapters/failure.js";
import { openIoredis } from "./adapters/own-ioredis.js";
import { openNodeRedis } from "./adapters/own-node-redis.js";
import { holdsSecret } from "./adapters/shared.js";
import { parseUrl, type Target } from "./adapters/url.js";
import { type ErrorCode, LeaseholdError } from "./errors.js";

/** The packages that can carry a connection, the one that is preferred first. */
export type Package = "ioredis" | "redis";

/**
 * Connects to the Redis server, sentinels or cluster that a URL names, through ioredis or, if that is
 * not installed, node-redis; clusters and sentinels take ioredis. What is opened here is closed by
 * the adapter's `close`.
 *
 * Rejects with a `LeaseholdError`: `config` for a URL that cannot be read or if no client is
 * installed, `unavailable` if the server cannot be reached, `timeout` if it does not answer within 6
 * seconds, `auth` if it does not let this user in. Nothing is left behind then, and no message shows
 * a password.
 */
export async function openClient(
  url: string,
  packages: readonly Package[] = ["ioredis", "redis"],
): Promise<Adapter> {
  const target = parseUrl(url);
  const usable =
    target.kind === "server" || target.kind === "socket"
      ? packages
      : packages.filter((name) => name === "ioredis");
  const causes: unknown[] = [];
  for (const name of usable) {
    const module = await load(name).catch((cause: unknown) => {
      causes.push(cause);
    });
    if (module) {
      const open = name === "ioredis" ? openIoredis : openNodeRedis;
      return open(module, target).catch((error) => Promise.reject(explained(error, target)));
    }
  }
  const advice = usable.length > 1 ? "npm install ioredis (or: npm install redis)" : "npm install ioredis";
  throw new LeaseholdError("config", `no client for ${target.shown} is installed; ${advice}`, {
    cause: causes[0],
  });
}

/** A URL as it may be shown: without user, password and parameters. */
export function shownUrl(url: string): string {
  return parseUrl(url).shown;
}

/** Imports by a literal name within `try`: bundlers then take a package that is missing as optional. */
async function load(name: Package): Promise<object> {
  try {
    return name === "ioredis" ? await import("ioredis") : await import("redis");
  } catch (cause) {
    throw new Error(`the package ${name} could not be loaded`, { cause });
  }
}

function explained(error: unknown, target: Target): LeaseholdError {
  if (error instanceof LeaseholdError) {
    return error;
  }
  const found = failure(error);
  const said = "reply" in found ? found.reply : found.message;
  const secrets = [target.password, target.sentinelPassword];
  const shown = holdsSecret(said, secrets)
    ? "(its message has the password in it and is not shown)"
    : said;
  const [code, what] =
    "reply" in found
      ? ([refusal(found.reply), `the server answered: ${shown}`] as const)
      : found.code === "unavailable"
        ? ([found.code, `the store cannot be reached: ${shown}`] as const)
        : ([found.code, shown] as const);
  return new LeaseholdError(code, `${target.shown}: ${what}`);
}

/** Of the refusals that a server greets with; those of scripts are the engine's to tell apart. */
function refusal(reply: string): ErrorCode {
  if (/^(NOAUTH|WRONGPASS|NOPERM)|invalid password|AUTH <password>/.test(reply)) {
    return "auth";
  }
  if (/DB index is out of range/.test(reply)) {
    return "config";
  }
  return /^(LOADING|BUSY|MASTERDOWN|CLUSTERDOWN)|max number of clients/.test(reply) ? "unavailable" : "store";
}
