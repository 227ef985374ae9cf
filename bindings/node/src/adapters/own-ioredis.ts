import { config } from "../common/check.js";
import { LeaseholdError } from "../common/errors.js";
import type { Adapter } from "./adapter.js";
import { firstError } from "./emitter.js";
import { answered, failure, PING_REFUSED } from "./failure.js";
import { breakConnection, closeForGood, type IoredisConnection, ioredis, keepStream } from "./ioredis.js";
import { grown, keepTimer, later, nothing, OPEN_LIMITS, PING_LIMIT, suspecting, type Timer, within } from "./shared.js";
import type { TlsOptions } from "./tls.js";
import type { Opening, Target } from "./url.js";

/**
 * The start of a timeout message for clusters: ioredis does not say why it keeps asking for the cluster's
 * state.
 */
const LATE_CLUSTER =
  "the cluster was not up, or this user lacks the rights +cluster|slots +cluster|info,";

const NO_SENTINEL = "the server is not a sentinel; name the sentinels in the URL (usually at port 26379)";

/** The parts of the package that are used. */
interface IoredisModule {
  readonly Redis: new (options: object) => Own;
  readonly Cluster: new (nodes: readonly object[], options: object) => Own;
}

interface Own extends IoredisConnection {
  readonly reconnectTimeout?: Timer;
  /** Returns the nodes of a cluster. Other clients do not have it. */
  nodes?(role: "all"): IoredisConnection[];
}

/**
 * Opens an ioredis client. If that fails, it closes the client and rejects with the client's own error. If
 * `lazily` is set, the client connects once it is watched, and retries forever.
 */
export async function openIoredis(module: object, target: Target, tls: TlsOptions, how: Opening): Promise<Adapter> {
  const { lazily, timeout } = how;
  const client = make(module as IoredisModule, target, tls, timeout);
  const limit = timeout * OPEN_LIMITS;
  // The first error, because NOAUTH follows WRONGPASS.
  const first = firstError(client);
  const adapter = ioredis(client, true);
  const own = { ...adapter, ...owned(client, adapter, limit) };
  if (lazily) {
    return own;
  }
  // The client asks the sentinels again and again.
  const refused = new Promise<never>((_, reject) => {
    client.on("error", (error: unknown) => {
      const exactly = exact(error, target);
      if (exactly instanceof LeaseholdError) {
        reject(exactly);
      }
    });
  });
  refused.catch(nothing);
  const open = async () => {
    await client.connect();
    // Some versions become ready although AUTH or SELECT failed.
    await answered(client.ping(), PING_REFUSED);
    if (first() !== undefined) {
      throw first();
    }
  };
  try {
    await within(limit, Promise.race([refused, open()]), target.kind === "cluster" ? LATE_CLUSTER : "the server did not answer", true);
  } catch (error) {
    await own.close();
    throw exact(first() ?? error, target);
  }
  return own;
}

/**
 * Returns a more exact error. If no node of a cluster can be reached, ioredis only says that a connection is
 * closed. Whatever a sentinel replies, ioredis says that all sentinels are unreachable.
 */
function exact(error: unknown, { kind, nodes }: Target): unknown {
  const failed = failure(error);
  if (kind === "sentinel" && "message" in failed) {
    return ofSentinels(/Last error: ([^]*)/.exec(failed.message)?.[1] ?? "") ?? error;
  }
  if (kind !== "cluster" || !("message" in failed) || failed.message !== "Connection is closed.") {
    return error;
  }
  const tried = nodes.map(({ host, port }) => `${host}:${port}`).join(", ");
  return new Error(`no node of the cluster could be connected to (${tried})`);
}

/** Returns the error for a sentinel's reply to the question for the primary, unless it may be another next time. */
function ofSentinels(said: string): LeaseholdError | undefined {
  const refusal = /^(?:WRONGPASS|NOAUTH|NOPERM|ERR AUTH)\b/.exec(said)?.[0];
  if (refusal !== undefined) {
    return new LeaseholdError("auth", `the sentinels refused the user or password (${refusal}); check sentinelUsername and sentinelPassword in the URL`);
  }
  if (/No such master/i.test(said)) {
    return config("the sentinels know no service of this name; check the service in the URL");
  }
  return /unknown command/i.test(said) ? config(NO_SENTINEL) : undefined;
}

function make({ Redis, Cluster }: IoredisModule, target: Target, tls: TlsOptions, connectTimeout: number): Own {
  const { nodes, path, service, username, password, database, kind } = target;
  const common = {
    username,
    password,
    ...(target.tls && { tls }),
    connectTimeout,
    disconnectTimeout: 0,
    // If the connection ended before the reply to it, the client would count as ready forever.
    disableClientInfo: true,
    // The engine decides which commands are sent again, and when.
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    retryStrategy: (tries: number) => grown(50, tries - 1, 2_000),
  };
  const lazy = { lazyConnect: true, enableOfflineQueue: false };
  if (kind === "cluster") {
    const clusterRetryStrategy = common.retryStrategy;
    return new Cluster(nodes, { ...lazy, clusterRetryStrategy, redisOptions: common });
  }
  const sentinels = {
    sentinels: nodes,
    name: service,
    sentinelUsername: target.sentinelUsername,
    sentinelPassword: target.sentinelPassword,
    ...(target.tls && { sentinelTLS: tls, enableTLSForSentinelMode: true }),
  };
  return new Redis({
    ...common,
    ...lazy,
    db: database,
    // The check runs INFO. Only the role of a server behind a sentinel matters.
    enableReadyCheck: kind === "sentinel",
    ...(kind === "sentinel" ? sentinels : path === undefined ? nodes[0] : { path }),
  });
}

/** Makes the methods that an adapter has only for a client that this package made. */
function owned(client: Own, adapter: Adapter, limit: number): Pick<Adapter, "suspect" | "keepAlive" | "close"> {
  let alive = true;
  const connections = () => client.nodes?.("all") ?? [client];
  const keep = () => {
    for (const connection of connections()) {
      keepStream(connection, alive);
    }
    keepTimer(client.reconnectTimeout, alive);
  };
  for (const event of ["connect", "ready", "reconnecting", "close"]) {
    client.on(event, keep);
  }
  // The client has no time limit for a connection that is half-open from the start.
  client.on("connect", () => {
    const { stream } = client;
    later(limit, () => stream === client.stream && client.status !== "ready" && breakConnection(client));
  });
  client.on("+node", (node: IoredisConnection) => {
    for (const event of ["connect", "ready"]) {
      node.on(event, keep);
    }
  });
  const check = async (connection: IoredisConnection) => {
    const answer = within(PING_LIMIT, answered(connection.ping()), "the connection did not answer");
    await answer.catch(() => breakConnection(connection));
  };
  return {
    suspect: suspecting(
      () => Promise.all(connections().map(check)),
      () => connections().forEach(breakConnection),
    ),
    keepAlive: (now) => {
      alive = now;
      keep();
      adapter.keepAlive?.(now);
    },
    close: async () => {
      await adapter.close();
      closeForGood(client, connections());
    },
  };
}
