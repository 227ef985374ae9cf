import type { RedisClient } from "../adapters/index.js";
import type { Finding } from "../common/types.js";
import { openClient } from "./connect.js";
import type { NewInstance } from "./instance.js";
import { openMembers, type MemberOptions } from "./members.js";
import { QuorumStore } from "./quorum.js";
import { RedisStore } from "./redis.js";
import type { Store } from "./store.js";

/** A store that was opened for one host. */
export interface Opened {
  readonly store: Store;
  readonly findings: readonly Finding[];
  /** Closes everything, for a host that could not be made. Never rejects. */
  close(): Promise<void>;
}

/** Opens the server, sentinels or cluster that a URL names. If it throws, nothing is left open. */
export async function openServer(
  url: string,
  { lazily, ...options }: MemberOptions & { readonly lazily: boolean },
): Promise<Opened> {
  const adapter = await openClient(url, { lazily, ...options });
  const close = () => adapter.close();
  try {
    const store = new RedisStore(adapter, options.namespace);
    return { store, findings: lazily ? [] : await store.check(), close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Opens the servers of a quorum. If it throws, nothing is left open. */
export async function openQuorum(
  servers: readonly (string | RedisClient)[],
  newInstance: NewInstance,
  options: MemberOptions,
): Promise<Opened> {
  const { stores, findings, close } = await openMembers(servers, options);
  return { store: new QuorumStore(stores, newInstance), findings, close };
}
