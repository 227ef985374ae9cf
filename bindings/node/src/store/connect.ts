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
 * Connects to the Redis server, sentinels or cluster that a URL names. It uses ioredis or, if that is not
 * installed, node-redis; clusters and sentinels need ioredis. The adapter's `close` closes the connections.
 *
 * Rejects with a `LeaseholdError`:
 *
 * - `config` for a bad URL, or if no client package can be loaded
 * - `unavailable` if the server cannot be reached
 * - `timeout` if it does not answer within twice the timeout
 * - `auth` if it refuses this user
 *
 * No connection is left open then, and no message shows a password.
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
      // A package that is installed but does not load says more than a missing one.
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
      : `no client for ${shown} could be loaded: ${failed.name}: ${messageOf(failed.cause)}; ${bundled(failed) ?? `if none is installed, ${advice}`}`;
  throw new LeaseholdError("config", why, { cause: failed?.cause });
}

/**
 * Returns the advice for a client that esbuild put into an ES module, where it cannot `require` Node's
 * modules.
 */
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

/** Returns the opened adapter, or throws the reason why it could not be opened. */
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

/** The codes of errors that a TLS probe may explain. */
const VAGUE: ReadonlySet<string> = new Set(["unavailable", "timeout", "store", "tls"]);

/** Begins to load the preferred package while other work is pending. */
export function preload(): void {
  void load("ioredis").catch(() => {});
}

interface NotLoaded {
  readonly name: Package;
  readonly cause: unknown;
  /** True if the package is certainly not installed. */
  readonly missing: boolean;
}

/** False if the package is installed, but lacks another package that it needs. */
function isMissing(name: Package, cause: unknown): boolean {
  const { code } = (cause ?? {}) as { code?: unknown };
  const [first = ""] = messageOf(cause).split("Require stack:");
  return /^(ERR_)?MODULE_NOT_FOUND$/.test(String(code)) && [`'${name}'`, `"${name}"`].some((text) => first.includes(text));
}
