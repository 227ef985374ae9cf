import { type Adapter, adapt, type RedisClient } from "../adapters/index.js";
import { Late, OPEN_LIMITS, within } from "../adapters/shared.js";
import { attempt, checkText, config, shown } from "../common/check.js";
import { LeaseholdError } from "../common/errors.js";
import type { Finding } from "../common/types.js";
import { openClient } from "./connect.js";
import { explained } from "./explain.js";
import { memoryName } from "./memory-url.js";
import { Memory } from "./memory.js";
import { RedisStore } from "./redis.js";

/** The servers of a quorum, as the program gave them. */
export type Given = readonly (string | RedisClient)[];

/** Checks the servers before anything is opened. */
export function checkMembers(servers: Given): Given {
  const given = attempt("quorum: the servers cannot be read", () => copied(servers));
  const inMemory = given.filter((server, at) => named(at, () => isInMemory(server)));
  if (inMemory.length > 0 && inMemory.length < given.length) {
    throw config("quorum must have servers that are all Redis, or all in memory");
  }
  refuseTwins(given);
  return given;
}

/** Returns a copy, because the program may change its own array meanwhile. */
function copied(servers: Given): Given {
  if (!Array.isArray(servers)) {
    throw config(`quorum: the servers must be an array of URLs and clients; got ${shown(servers)}`);
  }
  const { length } = servers;
  // The engine has the same check and words, but it is loaded only if the number is valid.
  if (![3, 5, 7].includes(length)) {
    throw config(`quorum must have 3, 5 or 7 servers, not ${shown(length)}`);
  }
  return Array.from({ length }, (_, at) => (servers as Given)[at] as Given[number]);
}

/** True if the checked servers are in memory. */
export function inMemory(servers: Given): boolean {
  return servers.some(isInMemory);
}

/**
 * Options for opening the servers: the time limit of an attempt in milliseconds, and the namespace of the
 * locks.
 */
export interface MemberOptions {
  readonly timeout: number;
  readonly namespace: string;
}

/**
 * Opens all servers at once, and returns their stores and findings. A server that is down may come up later,
 * but a majority must be up. If it throws, nothing is left open.
 */
export async function openMembers(servers: Given, options: MemberOptions) {
  const opening = servers.map((server, at) => named(at, () => openMember(server, options)));
  const settled = await Promise.allSettled(opening);
  const members = settled.flatMap((member) => (member.status === "fulfilled" ? member.value : []));
  /** Closes everything that was opened here. Never rejects. */
  const close = async () => {
    await Promise.all(members.map(({ adapter }) => adapter?.close()));
  };
  try {
    // All promises are settled, so this throws the error of the first failed server in the list.
    await Promise.all(opening);
    checkMajority(members);
    refuseTwins(members.map(({ store }) => (store instanceof RedisStore ? store.runId : store)));
  } catch (error) {
    await close();
    throw error;
  }
  return {
    stores: members.map(({ store }) => store),
    findings: members.flatMap(({ findings }) => findings),
    close,
  };
}

interface Member {
  readonly store: RedisStore | Memory;
  readonly adapter?: Adapter;
  readonly findings: readonly Finding[];
  /** The reason why the server is not up yet. */
  readonly away?: LeaseholdError | undefined;
}

async function openMember(server: string | RedisClient, options: MemberOptions): Promise<Member> {
  const name = typeof server === "string" ? memoryName(server) : undefined;
  if (name !== undefined) {
    const store = Memory.named(name);
    return { store, findings: [], away: store.away };
  }
  try {
    const opening = typeof server === "string" ? openClient(server, options) : connected(server, options);
    return await opened(await opening, options);
  } catch (error) {
    if (!isAway(error)) {
      throw error;
    }
    // The server may come up later.
    const adapter = typeof server === "string" ? await openClient(server, { lazily: true, ...options }) : adapt(server);
    return { adapter, store: storeOn(adapter, options), findings: [], away: error };
  }
}

/** Makes a member on an open connection, if its server can keep locks. */
async function opened(adapter: Adapter, options: MemberOptions): Promise<Member> {
  try {
    const store = storeOn(adapter, options);
    return { adapter, store, findings: await store.check() };
  } catch (error) {
    await adapter.close();
    throw error;
  }
}

/** Returns the adapter of a program's client once that client is connected. */
async function connected(client: RedisClient, { timeout, namespace }: MemberOptions): Promise<Adapter> {
  const adapter = attempt("the client cannot be read", () => adapt(client));
  let unwatch: (() => void) | undefined;
  const up = new Promise<void>((resolve, reject) => {
    unwatch = attempt("the client cannot be watched", () => adapter.watch({ up: resolve, down: reject }));
  });
  try {
    await within(timeout * OPEN_LIMITS, up, "the client was not connected", true);
    return adapter;
  } catch (error) {
    throw explained(error instanceof Late ? new LeaseholdError("timeout", error.message) : error, adapter, namespace);
  } finally {
    unwatch?.();
  }
}

function storeOn(adapter: Adapter, { namespace }: MemberOptions): RedisStore {
  if (adapter.clustered) {
    throw config("it is a cluster, but a quorum needs single servers, with or without sentinels");
  }
  return new RedisStore(adapter, namespace);
}

function checkMajority(members: readonly Member[]): void {
  const missing = members.flatMap(({ away }, at) => (away === undefined ? [] : `server ${at + 1}: ${away.message}`));
  const needed = Math.floor(members.length / 2) + 1;
  if (members.length - missing.length < needed) {
    const short = `${missing.length} of ${members.length} servers are missing, and ${needed} are needed`;
    throw new LeaseholdError("unavailable", `${short}: ${missing.join("; ")}`);
  }
}

/** Refuses a server that is listed twice. An unknown identity differs from all others. */
function refuseTwins(identities: readonly unknown[]): void {
  for (const [at, identity] of identities.entries()) {
    const first = identity === undefined ? at : identities.indexOf(identity);
    if (first < at) {
      throw config(`quorum must list each server once: ${place(at)} is ${place(first)}`);
    }
  }
}

function isInMemory(server: string | RedisClient): boolean {
  if (typeof server !== "string") {
    return false;
  }
  checkText("a URL", server);
  return memoryName(server) !== undefined;
}

/** True if the server may come up later. Any other error must be fixed first. */
function isAway(error: unknown): error is LeaseholdError {
  return error instanceof LeaseholdError && (error.code === "unavailable" || error.code === "timeout");
}

function place(at: number): string {
  return `server ${at + 1} of the quorum`;
}

/** Runs a function, and adds the server's place in the list to the errors that it throws or rejects with. */
function named<T>(at: number, act: () => T): T {
  const name = (error: unknown): never => {
    if (!(error instanceof LeaseholdError)) {
      throw error;
    }
    const { code, message, cause } = error;
    throw new LeaseholdError(code, `${place(at)}: ${message}`, cause === undefined ? undefined : { cause });
  };
  try {
    const made = act();
    return made instanceof Promise ? (made.catch(name) as T) : made;
  } catch (error) {
    return name(error);
  }
}
