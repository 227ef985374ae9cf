import { can, config } from "../common/check.js";
import type { Adapter, Hearing, Link } from "./adapter.js";
import { type Emitter, firstError, hearEvents, watchConnection } from "./emitter.js";
import { type Subscriber, Subscriptions, type Wanted } from "./subscriptions.js";
import {
  address,
  closed,
  errorOf,
  later,
  nothing,
  refusePrefix,
  secretsOf,
  startSoon,
  stopTimer,
  texts,
  type Timer,
} from "./shared.js";
import { CHANGES, idBy, onOneConnection } from "./tracking.js";

/**
 * A client of the package `redis` (node-redis), version 4 or newer, made by `createClient`,
 * `createClientPool`, `createCluster` or `createSentinel`.
 */
export interface NodeRedisClient extends Emitter {
  readonly isOpen: boolean;
  connect(): Promise<unknown>;
  evalSha(sha: string, options: { keys: string[]; arguments: string[] }): Promise<unknown>;
  eval(script: string, options: { keys: string[]; arguments: string[] }): Promise<unknown>;
}

/** A connection to one server. */
export interface NodeRedisConnection extends NodeRedisClient {
  readonly isReady: boolean;
  readonly options?: NodeRedisOptions;
  duplicate(options?: object): NodeRedisConnection;
  info(section: string): Promise<unknown>;
  sendCommand(args: string[], options?: object): Promise<unknown>;
  subscribe(channel: string, listener: (message: string) => void): Promise<unknown>;
  ref(): void;
  unref(): void;
  /** Closes the connection, in version 4. */
  disconnect(): Promise<void>;
  /** Closes the connection, from version 5 on. */
  destroy?(): void;
}

interface NodeRedisOptions {
  readonly keyPrefix?: unknown;
  readonly password?: unknown;
  readonly legacyMode?: unknown;
  readonly socket?: object;
}

/** A client with many connections: a cluster, a sentinel client or a pool. */
interface Many extends NodeRedisClient {
  readonly isReady?: boolean;
  readonly masters?: object[];
  /** The servers of each slot of a cluster. */
  readonly slots?: readonly ({ readonly master?: { readonly address?: unknown } } | undefined)[];
  nodeClient?(node: object): NodeRedisConnection | Promise<NodeRedisConnection>;
  getMasterNode?(): unknown;
  readonly idleClients?: number;
  readonly totalClients?: number;
  execute?<T>(use: (client: NodeRedisConnection) => T): Promise<T>;
  _execute?<T>(readonly: boolean, use: (client: NodeRedisConnection) => Promise<T>): Promise<T>;
}

/** Milliseconds between two checks of a cluster or pool that is not up. */
const LOOK_AGAIN = 50;

type ClientKind = "client" | "pool" | "cluster" | "sentinel";

/** True if it is a node-redis client, of any copy or subclass. */
export function isNodeRedis(client: object): client is NodeRedisClient {
  const { isOpen } = client as Partial<NodeRedisClient>;
  return typeof isOpen === "boolean" && can(client, "evalSha", "connect", "on");
}

/**
 * Makes an adapter for a client that the program gave. It never changes the client's settings or closes it.
 */
export function nodeRedis(client: NodeRedisClient, own = false): Adapter {
  const kind = kindOf(client);
  const options = (client as NodeRedisConnection).options;
  refusePrefix("node-redis", [(client as { _keyPrefix?: unknown })._keyPrefix ?? options?.keyPrefix]);
  if (options?.legacyMode) {
    throw config(
      "the node-redis client has legacyMode set, so its commands take callbacks; " +
        "give one without it, such as client.duplicate({ legacyMode: false })",
    );
  }
  const subscriptions = new Subscriptions((wanted) => openSubscriber(() => duplicateOf(client, kind), wanted));
  return {
    client: kind === "client" ? "node-redis" : `node-redis (${kind})`,
    clustered: kind === "cluster",
    ...(kind === "cluster" && {
      serverOf: (slot) => address(() => (client as Many).slots?.[slot]?.master?.address),
    }),
    secrets: secretsOf(options?.password),
    evalsha: (sha, keys, args) => run(kind, () => client.evalSha(sha, { keys, arguments: args })),
    eval: (script, keys, args) => run(kind, () => client.eval(script, { keys, arguments: args })),
    info: (section) => withServer(client, kind, async (server) => String(await server.info(section))),
    watch: (link) =>
      kind === "client"
        ? watchConnection(client, link, { ready: () => (client as NodeRedisConnection).isReady, idle: () => !client.isOpen })
        : watchMany(client, kind, link),
    listen: (channel: string, hearing: Hearing) => subscriptions.listen(channel, hearing),
    ...(kind === "client" && oneConnection(client as NodeRedisConnection, own)),
    keepAlive: (alive) => subscriptions.keepAlive(alive),
    close: async () => subscriptions.close(),
  };
}

function oneConnection(client: NodeRedisConnection, own: boolean): Partial<Adapter> {
  const send = (command: string[]) => client.sendCommand(command);
  return onOneConnection(client, (...command) => send(command), (...commands) => [send(commands[0]), send(commands[1])], own);
}

async function run(kind: ClientKind, script: () => Promise<unknown>): Promise<unknown> {
  try {
    return texts(await script());
  } catch (error) {
    // Version 4 rejects with the last of too many redirections; other versions reject with an error like this
    // one.
    const moved = kind === "cluster" && error instanceof Error && /^(MOVED|ASK) \d/.test(error.message);
    throw moved ? new Error(`too many cluster redirections: ${error.message}`) : error;
  }
}

function kindOf(client: NodeRedisClient): ClientKind {
  const { masters, nodeClient, getMasterNode, execute, idleClients } = client as Many;
  if (Array.isArray(masters) && typeof nodeClient === "function") {
    return "cluster";
  }
  if (typeof getMasterNode === "function") {
    return "sentinel";
  }
  return typeof idleClients === "number" && typeof execute === "function" ? "pool" : "client";
}

/** Calls a function with a connection to any server that accepts writes. */
async function withServer<T>(
  client: NodeRedisClient,
  kind: ClientKind,
  use: (server: NodeRedisConnection) => Promise<T>,
): Promise<T> {
  const many = client as Many;
  if (kind === "cluster") {
    const masters = many.masters ?? [];
    const master = masters[Math.floor(Math.random() * masters.length)];
    if (!master || !many.nodeClient) {
      throw new Error("no node of the cluster is known yet");
    }
    return use(await many.nodeClient(master));
  }
  if (kind === "pool" && many.execute) {
    return many.execute(use);
  }
  // `_execute` is private, but every command of a sentinel client goes through it, and no public method gives
  // its connection.
  return kind === "sentinel" && many._execute
    ? many._execute(false, use)
    : use(client as NodeRedisConnection);
}

function duplicateOf(client: NodeRedisClient, kind: ClientKind): Promise<NodeRedisConnection> {
  return withServer(client, kind, async (server) =>
    server.duplicate({
      socket: { ...server.options?.socket, reconnectStrategy: false },
      clientSideCache: undefined,
      commandOptions: undefined,
      pingInterval: undefined,
      readonly: false,
      // With RESP2, changes arrive as messages.
      RESP: 2,
      emitInvalidate: undefined,
      maintNotifications: undefined,
    }),
  );
}

/**
 * Watches a cluster, sentinel client or pool. These emit few events, so they are checked at first and after
 * each error until they are up.
 */
function watchMany(client: NodeRedisClient, kind: ClientKind, link: Link): () => void {
  let looking: Timer | undefined;
  let up = false;
  const look = () => {
    stopTimer(looking);
    up = connected(client, kind);
    if (up) {
      link.up();
    } else {
      looking = later(LOOK_AGAIN, look, client.isOpen);
    }
  };
  const stopHearing = hearEvents(client, {
    error: (error) => {
      if (!connected(client, kind)) {
        link.down(error);
        look();
      }
    },
    // Only clusters emit this event.
    disconnect: () => {
      link.down(closed());
      look();
    },
    // Only sentinel clients emit this event: there is another primary.
    "topology-change": (change) => change?.type === "MASTER_CHANGE" && up && link.up(),
    // The node may replace one that failed.
    "node-ready": () => up && link.up(),
  });
  look();
  const stopStarting = startSoon(() => !client.isOpen, () => client.connect(), link);
  return () => {
    stopTimer(looking);
    stopStarting();
    stopHearing();
  };
}

function connected(client: NodeRedisClient, kind: ClientKind): boolean {
  const { isOpen, isReady, masters = [], idleClients = 0, totalClients } = client as Many;
  switch (kind) {
    case "cluster":
      return isOpen && masters.length > 0;
    case "pool":
      // A client in use may still be connecting, and a pool may connect only when it is used.
      return isOpen && (idleClients > 0 || totalClients === 0);
    default:
      return isOpen && isReady !== false;
  }
}

function openSubscriber(duplicate: () => Promise<NodeRedisConnection>, wanted: Wanted): Subscriber {
  const { channel, onMessage, onEnd, onChange } = wanted;
  let own: NodeRedisConnection | undefined;
  let alive = false;
  let shut = false;
  let connecting: Promise<unknown> | undefined;
  let stopHearing = nothing;
  const close = async () => {
    shut = true;
    stopHearing();
    // A client that is connecting would open anyway.
    await connecting?.catch(nothing);
    if (own) {
      closeConnection(own);
    }
  };
  const open = async () => {
    own = await duplicate();
    if (shut) {
      return undefined;
    }
    const first = firstError(own);
    const ended = () => own?.isOpen === false && onEnd(first() ?? closed());
    stopHearing = hearEvents(own, { error: ended, end: ended });
    keepSocket(own, alive);
    connecting = own.connect();
    await connecting.catch((error) => Promise.reject(first() ?? errorOf(error)));
    // `alive` may have changed during the connection attempt.
    keepSocket(own, alive);
    const id = onChange && (await idBy((...command) => (own as NodeRedisConnection).sendCommand(command)));
    await own.subscribe(channel, (message) => onMessage(String(message)));
    // The client delivers only messages of channels that it subscribed to itself, which the server may refuse.
    if (typeof id !== "number" || onChange === undefined) {
      return id;
    }
    const changes = own.subscribe(CHANGES, (keys: unknown) => changed(keys, onChange));
    return changes.then(() => id, (error: unknown) => ({ error }));
  };
  return {
    ready: open(),
    // Without this mode, version 4 would refuse the command on a subscribed connection.
    check: async () => own?.sendCommand(["PING"], { ignorePubSubMode: true }),
    keepAlive: (now) => {
      alive = now;
      if (own) {
        keepSocket(own, alive);
      }
    },
    close: () => void close(),
  };
}

/** Reports changed keys. The client gives a list of them, or nothing if all may have changed. */
function changed(keys: unknown, onChange: (key: string) => void): void {
  for (const key of Array.isArray(keys) ? keys : [""]) {
    onChange(String(key));
  }
}

/** Sets whether a connection keeps the process alive. Its later sockets follow. */
export function keepSocket(connection: NodeRedisConnection, alive: boolean): void {
  connection[alive ? "ref" : "unref"]();
}

/** Closes a connection that this package made, at once and in any state. */
export function closeConnection(connection: NodeRedisConnection): void {
  try {
    if (connection.destroy) {
      connection.destroy();
    } else {
      connection.disconnect().catch(nothing);
    }
  } catch {
    // The connection was closed already.
  }
}
