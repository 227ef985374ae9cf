import type { Adapter } from "../adapters/adapter.js";
import { openIoredis } from "../adapters/own-ioredis.js";
import { openNodeRedis } from "../adapters/own-node-redis.js";
import { secretsOf } from "../adapters/shared.js";
import { parseUrl } from "../adapters/url.js";
import { LeaseholdError } from "../common/errors.js";
import { messageOf } from "../common/printable.js";
import { explained, named } from "./explain.js";
import { load, type Package } from "./load.js";

/**
 * Connects to the Redis server, sentinels or cluster that a URL names, through ioredis or, if that is
 * not installed, node-redis; clusters and sentinels take ioredis. What is opened here is closed by
 * the adapter's `close`.
 *
 * Rejects with a `LeaseholdError`: `config` for a URL that cannot be read or if no client can be
 * loaded, `unavailable` if the server cannot be reached, `timeout` if it does not answer within 6
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
  let failed: NotLoaded | undefined;
  for (const name of usable) {
    const module = await load(name).catch(({ cause }: Error) => {
      const missing = isMissing(name, cause);
      // That a package is there and does not load says more than that one is missing.
      failed = failed === undefined || (failed.missing && !missing) ? { name, cause, missing } : failed;
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
  const why =
    failed === undefined || failed.missing
      ? `no client for ${shown} is installed`
      : `no client for ${shown} could be loaded: ${failed.name}: ${messageOf(failed.cause)}; if none is installed`;
  throw new LeaseholdError("config", `${why}; ${advice}`, { cause: failed?.cause });
}

/** Begins to load the package that is preferred, while something else is waited for. */
export function preload(): void {
  void load("ioredis").catch(() => {});
}

interface NotLoaded {
  readonly name: Package;
  readonly cause: unknown;
  /** Whether it is certain that it is not installed. */
  readonly missing: boolean;
}

/** Not if the package is there, and lacks another package that it needs. */
function isMissing(name: Package, cause: unknown): boolean {
  const { code } = (cause ?? {}) as { code?: unknown };
  const [first = ""] = messageOf(cause).split("Require stack:");
  return /^(ERR_)?MODULE_NOT_FOUND$/.test(String(code)) && [`'${name}'`, `"${name}"`].some((text) => first.includes(text));
}
