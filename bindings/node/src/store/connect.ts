import { connectTimeout } from "../../../../core/engine/src/limits.jsonc";
import type { Adapter } from "../adapters/adapter.js";
import { openIoredis } from "../adapters/own-ioredis.js";
import { openNodeRedis } from "../adapters/own-node-redis.js";
import { look, lookIfSlow, parseUrl, readTls } from "../adapters/reach.js";
import { secretsOf, within } from "../adapters/shared.js";
import type { TlsOptions } from "../adapters/tls.js";
import type { Opening, Target } from "../adapters/url.js";
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
 * loaded, `unavailable` if the server cannot be reached, `timeout` if it does not answer within twice
 * the time-out, `auth` if it does not let this user in. Nothing is left behind then, and no message shows
 * a password.
 */
export async function openClient(
  url: string,
  options: OpenOptions = {},
): Promise<Adapter> {
  const { packages = ["ioredis", "redis"], lazily = false, timeout = connectTimeout, namespace = "NAMESPACE" } = options;
  const target = parseUrl(url);
  const { shown } = target;
  const tls = target.tls
    ? await readTls(target).catch((error: LeaseholdError) => Promise.reject(named(error, target)))
    : {};
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
      const opening = open(module, target, tls, { lazily, timeout });
      return { ...(await (lazily ? opening : opened(opening, target, tls, { timeout, namespace }))), shown };
    }
  }
  const advice = usable.length > 1 ? "npm install ioredis (or: npm install redis)" : "npm install ioredis";
  const why =
    failed === undefined || failed.missing
      ? `no client for ${shown} is installed; ${advice}`
      : `no client for ${shown} could be loaded: ${failed.name}: ${messageOf(failed.cause)}; ${bundled(failed) ?? `if none is installed; ${advice}`}`;
  throw new LeaseholdError("config", why, { cause: failed?.cause });
}

/** The advice for a client that esbuild put into an ES module, where it cannot `require` the modules of Node. */
function bundled({ name, cause }: NotLoaded): string | undefined {
  return messageOf(cause).startsWith("Dynamic require of ")
    ? `leave it out of the bundle (esbuild: --external:${name}), or bundle the program as CommonJS (--format=cjs)`
    : undefined;
}

interface OpenOptions extends Partial<Opening> {
  readonly packages?: readonly Package[];
  /** The namespace of the locks, for advice. */
  readonly namespace?: string;
}

/** What is opened, with the reason if it is not. */
async function opened(
  opening: Promise<Adapter>,
  target: Target,
  tls: TlsOptions,
  { timeout, namespace }: { readonly timeout: number; readonly namespace: string },
): Promise<Adapter> {
  const over = new AbortController();
  try {
    return await Promise.race([opening, lookIfSlow(target, tls, over.signal)]);
  } catch (error) {
    opening.then((adapter) => adapter.close()).catch(() => {});
    const secrets = secretsOf(target.password, target.sentinelPassword);
    const { shown } = target;
    const failed = explained(error, { secrets, shown }, namespace);
    const looking = VAGUE.has(failed.code) ? look(target, tls, error) : Promise.resolve(undefined);
    const more = await within(timeout, looking, "the look did not end", true).catch(() => undefined);
    throw named(more ?? failed, { shown });
  } finally {
    over.abort();
  }
}

/** There may be more to these than a client says. */
const VAGUE: ReadonlySet<string> = new Set(["unavailable", "timeout", "store", "tls"]);

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
