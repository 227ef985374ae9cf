import type { Adapter } from "./adapters/adapter.js";
import { openIoredis } from "./adapters/own-ioredis.js";
import { openNodeRedis } from "./adapters/own-node-redis.js";
import { secretsOf } from "./adapters/shared.js";
import { parseUrl } from "./adapters/url.js";
import { LeaseholdError } from "./errors.js";
import { explained, named } from "./explain.js";

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
  const { shown } = target;
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
      try {
        return { ...(await open(module, target)), shown };
      } catch (error) {
        const secrets = secretsOf(target.password, target.sentinelPassword);
        throw named(explained(error, { secrets, shown }), { shown });
      }
    }
  }
  const advice = usable.length > 1 ? "npm install ioredis (or: npm install redis)" : "npm install ioredis";
  throw new LeaseholdError("config", `no client for ${shown} is installed; ${advice}`, {
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
