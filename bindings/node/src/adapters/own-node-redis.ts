import type { Adapter } from "./adapter.js";
import { answered, PING_REFUSED } from "./failure.js";
import { closeConnection, keepSocket, type NodeRedisConnection, nodeRedis } from "./node-redis.js";
import {
  grown,
  keepTimer,
  later,
  nothing,
  OPEN_LIMITS,
  PING_LIMIT,
  stopTimer,
  suspecting,
  type Timer,
  within,
} from "./shared.js";
import type { TlsOptions } from "./tls.js";
import type { Opening, Target } from "./url.js";

interface NodeRedisModule {
  createClient(options: object): NodeRedisConnection;
}

/**
 * Opens a node-redis client. If that fails, it closes the client and rejects with the client's own error. If
 * `lazily` is set, the client connects once it is watched, and retries forever.
 */
export async function openNodeRedis(module: object, target: Target, tls: TlsOptions, how: Opening): Promise<Adapter> {
  const { lazily, timeout } = how;
  const limit = timeout * OPEN_LIMITS;
  const { nodes, path, username, password, database } = target;
  const address = path === undefined ? { ...nodes[0], ...(target.tls && { ...tls, tls: true }) } : { path };
  const client = (module as NodeRedisModule).createClient({
    ...(username !== undefined && { username }),
    ...(password !== undefined && { password }),
    database,
    // If the client reconnected by itself, its timers would keep the process alive.
    socket: { ...address, connectTimeout: timeout, reconnectStrategy: false },
    disableOfflineQueue: true,
  });
  // Never removed, because an error without a listener would end the process.
  client.on("error", nothing);
  const adapter = nodeRedis(client, true);
  if (lazily) {
    return { ...adapter, ...owned(client, adapter, limit) };
  }
  const open = async () => {
    await client.connect();
    await answered(client.sendCommand(["PING"]), PING_REFUSED);
  };
  try {
    await within(limit, open(), "the server did not answer", true);
  } catch (error) {
    closeConnection(client);
    throw error;
  }
  return { ...adapter, ...owned(client, adapter, limit) };
}

/**
 * Makes the methods that an adapter has only for a client that this package made, and reconnects that client
 * until it is closed.
 */
function owned(
  client: NodeRedisConnection,
  adapter: Adapter,
  limit: number,
): Pick<Adapter, "suspect" | "keepAlive" | "close"> {
  let alive = true;
  let shut = false;
  let tries = 0;
  let timer: Timer | undefined;
  let connecting: Promise<unknown> = Promise.resolve();
  const connect = () => {
    timer = undefined;
    if (!client.isOpen && !shut) {
      // The client has no time limit for a connection that is half-open from the start.
      const open = within(limit, client.connect(), "the server did not answer");
      connecting = open.catch(() => closeConnection(client)).finally(reconnect);
    }
  };
  const reconnect = () => {
    if (!client.isOpen && !shut && timer === undefined) {
      timer = later(grown(50, tries, 2_000), connect, alive);
      tries += 1;
    }
  };
  client.on("error", reconnect);
  client.on("end", reconnect);
  client.on("ready", () => {
    tries = 0;
    // `alive` may have changed during the connection attempt.
    keepSocket(client, alive);
  });
  const replace = () => {
    // A client that is connecting is being replaced already.
    if (client.isReady) {
      closeConnection(client);
      reconnect();
    }
  };
  const check = async () => {
    const answer = answered(client.sendCommand(["PING"]));
    await within(PING_LIMIT, answer, "the connection did not answer").catch(replace);
  };
  return {
    suspect: suspecting(check, replace),
    keepAlive: (now) => {
      alive = now;
      keepSocket(client, alive);
      keepTimer(timer, alive);
      adapter.keepAlive?.(now);
    },
    close: async () => {
      shut = true;
      stopTimer(timer);
      await adapter.close();
      // A client that is connecting opens anyway, and can be closed only then.
      void connecting.finally(() => closeConnection(client));
    },
  };
}
