import type { Adapter } from "./adapter.js";
import { firstError } from "./emitter.js";
import { answered, failure, PING_REFUSED } from "./failure.js";
import { breakConnection, closeForGood, type IoredisConnection, ioredis, keepStream } from "./ioredis.js";
import { grown, keepTimer, later, OPEN_LIMITS, PING_LIMIT, suspecting, type Timer, within } from "./shared.js";
import type { TlsOptions } from "./tls.js";
import type { Opening, Target } from "./url.js";

/** The client does not say why it asks again and again whether the cluster is up. */
const LATE_CLUSTER =
  "the cluster was not up, or did not let this user ask it (+cluster|slots +cluster|info),";

/** What is used of the package. */
interface IoredisModule {
  readonly Redis: new (options: object) => Own;
  readonly Cluster: new (nodes: readonly object[], options: object) => Own;
}

interface Own extends IoredisConnection {
  readonly reconnectTimeout?: Timer;
  /** Of a cluster. */
  nodes?(role: "all"): IoredisConnection[];
}

/**
 * Opens a client of ioredis. Rejects with its own error and closes it if that does not work out. With
 * `lazily` it is connected once it is watched, again and again.
 */
export async function openIoredis(module: object, target: Target, tls: TlsOptions, how: Opening): Promise<Adapter> {
  const { lazily, timeout } = how;
  const client = make(module as IoredisModule, target, tls, timeout);
  const limit = timeout * OPEN_LIMITS;
  // After WRONGPASS comes NOAUTH.
  const first = firstError(client);
  const adapter = ioredis(client, true);
  const own = { ...adapter, ...owned(client, adapter, limit) };
  if (lazily) {
    return own;
  }
  const open = async () => {
    await client.connect();
    // Some versions are ready although AUTH or SELECT failed.
    await answered(client.ping(), PING_REFUSED);
    if (first() !== undefined) {
      throw first();
    }
  };
  try {
    await within(limit, open(), target.kind === "cluster" ? LATE_CLUSTER : "the server did not answer", true);
  } catch (error) {
    await own.close();
    throw exact(first() ?? error, target);
  }
  return own;
}

/** If no node of a cluster can be reached, ioredis only says that a connection is closed. */
function exact(error: unknown, { kind, nodes }: Target): unknown {
  const failed = failure(error);
  if (kind !== "cluster" || !("message" in failed) || failed.message !== "Connection is closed.") {
    return error;
  }
  const tried = nodes.map(({ host, port }) => `${host}:${port}`).join(", ");
  return new Error(`no node of the cluster could be connected to (${tried})`);
}

function make({ Redis, Cluster }: IoredisModule, target: Target, tls: TlsOptions, connectTimeout: number): Own {
  const { nodes, path, service, username, password, database, kind } = target;
  const common = {
    username,
    password,
    ...(target.tls && { tls }),
    connectTimeout,
    disconnectTimeout: 0,
    // If the connection ended ahead of the reply to it, the client would count as ready for ever.
    disableClientInfo: true,
    // The engine decides what is sent again, and when.
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
    // It runs INFO; only the role of a server behind a sentinel matters.
    enableReadyCheck: kind === "sentinel",
    ...(kind === "sentinel" ? sentinels : path === undefined ? nodes[0] : { path }),
  });
}

/** What an adapter may do to a client only if we made it. */
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
  // The client sets no limit for a connection that is half-open from the first moment.
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
