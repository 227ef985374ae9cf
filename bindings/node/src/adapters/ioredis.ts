import { can } from "../common/check.js";
import type { Adapter, Hearing, Link } from "./adapter.js";
import { type Emitter, firstError, hearEvents, watchConnection } from "./emitter.js";
import { type Subscriber, Subscriptions, type Wanted } from "./subscriptions.js";
import { address, closed, errorOf, later, nothing, refusePrefix, secretsOf, texts } from "./shared.js";
import { CHANGES, idBy, onOneConnection } from "./tracking.js";

/** A client of ioredis: a `Redis` with or without sentinels, or a `Cluster`. */
export interface IoredisClient extends Emitter {
  readonly status: string;
  connect(): Promise<unknown>;
  evalsha(sha: string, keyCount: number, ...keysAndArgs: string[]): Promise<unknown>;
  eval(script: string, keyCount: number, ...keysAndArgs: string[]): Promise<unknown>;
}

/** A connection to one server. */
export interface IoredisConnection extends IoredisClient {
  readonly options?: IoredisOptions;
  readonly stream?: { ref?(): unknown; unref?(): unknown; destroy?(): unknown };
  duplicate(options?: object): IoredisConnection;
  subscribe(channel: string): Promise<unknown>;
  ping(): Promise<unknown>;
  call(...command: string[]): Promise<unknown>;
  pipeline(commands: string[][]): { exec(): Promise<[error: unknown, reply: unknown][] | null> };
  info(section: string): Promise<unknown>;
  disconnect(reconnect?: boolean): void;
}

interface IoredisCluster extends IoredisClient {
  nodes(role: "master"): IoredisConnection[];
  /** The servers of each slot: its primary as `host:port`, then its replicas. */
  readonly slots?: readonly (readonly unknown[] | undefined)[];
}

interface IoredisOptions {
  readonly keyPrefix?: unknown;
  readonly password?: unknown;
  readonly sentinelPassword?: unknown;
  readonly sentinels?: unknown;
  readonly redisOptions?: IoredisOptions;
}

/** True if it is an ioredis client, of any copy or subclass. */
export function isIoredis(client: object): client is IoredisClient {
  const { status } = client as Partial<IoredisConnection>;
  return typeof status === "string" && can(client, "evalsha", "duplicate", "on");
}

/**
 * Makes an adapter for a client that the program gave. It never changes the client's settings or closes it.
 */
export function ioredis(client: IoredisClient, own = false): Adapter {
  const options = ((client as { options?: IoredisOptions }).options ?? {}) as IoredisOptions;
  const clustered = isCluster(client);
  const prefixes = [options.keyPrefix, options.redisOptions?.keyPrefix];
  refusePrefix("ioredis", prefixes, ', such as client.duplicate({ keyPrefix: "" })');
  const subscriptions = new Subscriptions((wanted) => openSubscriber(() => anyServer(client), wanted));
  return {
    client: clustered ? "ioredis (Cluster)" : "ioredis",
    clustered,
    ...(clustered && { serverOf: (slot) => address(() => (client as IoredisCluster).slots?.[slot]?.[0]) }),
    secrets: [options, options.redisOptions].flatMap((set) =>
      secretsOf(set?.password, set?.sentinelPassword),
    ),
    evalsha: async (sha, keys, args) => texts(await client.evalsha(sha, keys.length, ...keys, ...args)),
    ...sender(client, clustered),
    eval: async (script, keys, args) => texts(await client.eval(script, keys.length, ...keys, ...args)),
    info: async (section) => String(await anyServer(client).info(section)),
    watch: (link) => watch(client, link),
    listen: (channel: string, hearing: Hearing) => subscriptions.listen(channel, hearing),
    ...(!clustered && oneConnection(client as IoredisConnection, own)),
    keepAlive: (alive) => subscriptions.keepAlive(alive),
    close: async () => subscriptions.close(),
  };
}

/** An ioredis command, which a method such as `evalsha` creates and writes to the socket. */
interface Command {
  readonly constructor: new (name: string, args: string[], options: { replyEncoding: "utf8" }) => Command;
  toWritable(socket?: object): string | Uint8Array;
}

interface Commander extends IoredisClient {
  readonly options?: object;
  readonly commandQueue?: unknown;
  sendCommand?(command: Command): Promise<unknown>;
}

/**
 * Sends commands whose bytes are ready, if the client's version can; a cluster client cannot, because it must
 * know their keys.
 *
 * One command for a whole batch costs less than a string for each of its arguments.
 */
function sender(client: Commander, clustered: boolean): Pick<Adapter, "send"> {
  const Made = clustered ? undefined : commandOf(client);
  if (Made === undefined) {
    return {};
  }
  return {
    send: (bytes) => {
      // It has no arguments, because only monitoring code reads them.
      const command = new Made("evalsha", [], { replyEncoding: "utf8" });
      command.toWritable = () => bytes;
      return client.sendCommand?.(command) ?? Promise.reject(closed());
    },
  };
}

/** Returns the class of a client's commands, taken from a command that the client would have sent. */
function commandOf(client: Commander): Command["constructor"] | undefined {
  let made: Command | undefined;
  try {
    // If the program replaced this method, it wants its own to be used.
    const own = Object.hasOwn(client, "evalsha");
    if (own || client.commandQueue === undefined || typeof client.sendCommand !== "function") {
      return undefined;
    }
    const probe: Commander = Object.create(client, {
      options: { value: { ...client.options, enableAutoPipelining: false } },
      sendCommand: { value: (command: Command) => (made = command) },
    });
    void probe.evalsha("", 0);
    return made?.toWritable() === "*3\r\n$7\r\nevalsha\r\n$0\r\n\r\n$1\r\n0\r\n" ? made.constructor : undefined;
  } catch {
    // This version makes commands in another way.
    return undefined;
  }
}

function oneConnection(client: IoredisConnection, own: boolean): Partial<Adapter> {
  const call = (...command: string[]) => client.call(...command);
  const pair = (...commands: [string[], string[]]) => {
    const replies = client.pipeline(commands.map((command) => ["call", ...command])).exec();
    const reply = async (at: number): Promise<unknown> => {
      const [error, reply] = (await replies)?.[at] ?? [closed()];
      return error ? Promise.reject(error) : reply;
    };
    return [reply(0), reply(1)] as const;
  };
  return onOneConnection(client, call, pair, own);
}

function isCluster(client: IoredisClient): client is IoredisCluster {
  return (client as { isCluster?: unknown }).isCluster === true;
}

/** Returns a connection to any node: every node of a cluster delivers what is published in it. */
function anyServer(client: IoredisClient): IoredisConnection {
  if (!isCluster(client)) {
    return client as IoredisConnection;
  }
  const nodes = client.nodes("master");
  const node = nodes[Math.floor(Math.random() * nodes.length)];
  if (!node) {
    throw new Error("no node of the cluster is known yet");
  }
  return node;
}

function watch(client: IoredisClient, link: Link): () => void {
  const ready = () => client.status === "ready";
  const idle = () => client.status === "wait";
  const stop = watchConnection(client, link, { ready, idle }, {
    // Only clusters emit this event. The new node may replace one that failed.
    "+node": () => ready() && link.up(),
  });
  if (client.status === "end") {
    link.down(closed());
  }
  return stop;
}

/** Settings of a connection that only listens, and that is replaced when it breaks. */
const FOR_A_SUBSCRIBER = {
  lazyConnect: true,
  retryStrategy: null,
  sentinelRetryStrategy: null,
  reconnectOnError: null,
  autoResubscribe: false,
  autoResendUnfulfilledCommands: false,
  enableOfflineQueue: false,
  enableAutoPipelining: false,
  maxRetriesPerRequest: 0,
  monitor: false,
  keyPrefix: "",
  // With RESP2, changes arrive as messages.
  protocol: 2,
  replyMapping: undefined,
  // The timer of this timeout would keep the process alive after the connection has ended.
  disconnectTimeout: 0,
  failoverDetector: false,
  socketTimeout: undefined,
  himportFieldsets: undefined,
};

function duplicateOf(server: IoredisConnection): IoredisConnection {
  // The check runs INFO, and prints a warning if that is refused. Only a server behind a sentinel needs it.
  const checked = server.options?.sentinels ? {} : { enableReadyCheck: false };
  return server.duplicate({ ...FOR_A_SUBSCRIBER, ...checked });
}

function openSubscriber(server: () => IoredisConnection, wanted: Wanted): Subscriber {
  const { channel, onMessage, onEnd, onChange } = wanted;
  let own: IoredisConnection;
  try {
    own = duplicateOf(server());
  } catch (error) {
    return { ready: Promise.reject(error), check: async () => {}, keepAlive: nothing, close: nothing };
  }
  let alive = false;
  const keep = () => keepStream(own, alive);
  const first = firstError(own);
  const stopHearing = hearEvents(own, {
    connect: keep,
    message: (from, text) => (from === CHANGES ? onChange?.(String(text)) : onMessage(String(text))),
    end: () => onEnd(first() ?? closed()),
  });
  const ready = own.connect().then(
    async () => {
      const id = onChange && (await idBy((...command) => own.call(...command)));
      await own.subscribe(channel);
      return id;
    },
    (error) => Promise.reject(first() ?? errorOf(error)),
  );
  return {
    ready,
    check: async () => own.ping(),
    keepAlive: (now) => {
      alive = now;
      keep();
      // The stream exists only some time after `connect` is called.
      later(0, keep, alive);
    },
    close: () => {
      stopHearing();
      closeForGood(own);
    },
  };
}

/** Sets whether a connection's socket keeps the process alive. Each new socket needs it again. */
export function keepStream({ stream }: IoredisConnection, alive: boolean): void {
  stream?.[alive ? "ref" : "unref"]?.();
}

/** Breaks a connection at once. `disconnect` would wait for the other side, which may never reply. */
export function breakConnection({ stream }: IoredisConnection): void {
  stream?.destroy?.();
}

/** Closes a client that this package made, with these connections, for good. */
export function closeForGood(client: IoredisConnection, connections = [client]): void {
  client.disconnect();
  connections.forEach(breakConnection);
}
