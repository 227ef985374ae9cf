/**
 * A Redis client as the host needs it. An adapter makes one from each kind of client; it knows nothing of
 * locks.
 */
export interface Adapter {
  /** The client's name in messages, such as `ioredis`. */
  readonly client: string;
  /** True for a cluster: its keys are on several nodes, each with its own clock. */
  readonly clustered: boolean;
  /**
   * Returns the address of the server that the client believes serves a slot of the cluster; nothing if it
   * does not know. Absent if the client cannot tell.
   */
  serverOf?(slot: number): string | undefined;
  /** The server as messages may show it. Absent unless this package made the client from a URL. */
  readonly shown?: string;
  /** Passwords that a server may echo, which messages must not show. */
  readonly secrets: readonly string[];
  /**
   * Runs a script by its hash. Rejects with the client's own error, whose message begins with `NOSCRIPT` if
   * the server does not have the script. Absent if the client cannot.
   */
  evalsha?(sha: string, keys: string[], args: string[]): Promise<unknown>;
  /**
   * Sends a command whose bytes are ready, and resolves to its reply. Rejects as `evalsha` does. Absent if
   * the client cannot, or must know the command's keys.
   */
  send?(command: Uint8Array): Promise<unknown>;
  /** Runs a script by its text. */
  eval(script: string, keys: string[], args: string[]): Promise<unknown>;
  /**
   * Runs a script by its hash or text, and sends a command right after it on the same connection.
   *
   * Resolves to both replies, or to the script's reply and the reason why the command was refused. Rejects as
   * `evalsha` does. Absent if the client may use another connection for each.
   */
  runThen?(
    how: "EVALSHA" | "EVAL",
    script: string,
    keys: string[],
    args: string[],
    command: string[],
  ): Promise<RanThen>;
  /** Returns a section of the server's `INFO`. Absent if the client cannot ask for it. */
  info?(section: "default"): Promise<string>;
  /**
   * Reports the state of the connection to a link, until the returned function is called.
   *
   * If the connection is up, the link hears so before this returns. A client without a connection (HTTP, or
   * an object with `eval` alone) is always up. This also starts a client that connects lazily.
   */
  watch(link: Link): () => void;
  /**
   * Subscribes to one channel on a connection that may subscribe, until the returned function is called. It
   * retries forever, with growing pauses. Absent if the client cannot subscribe.
   */
  listen?(channel: string, hearing: Hearing): () => void;
  /**
   * Lets the server report changes by other clients. Absent if the client does not use a single connection.
   */
  readonly tracking?: Tracking;
  /**
   * Reports that several commands in a row had no reply, so the connection may be half-open.
   *
   * An adapter that made the connection checks it and replaces it; any other does nothing. A server that was
   * `demoted` to a replica does reply, but its connection is replaced anyway, because its name may lead to
   * another server now.
   */
  suspect?(demoted?: boolean): void;
  /** Sets whether the connections that this adapter made keep the process alive. */
  keepAlive?(alive: boolean): void;
  /** Closes the connections that this adapter made, and no others. Never rejects. */
  close(): Promise<void>;
}

/** The results of a script and of the command right after it. */
export type RanThen =
  | { readonly reply: unknown; readonly waited: unknown }
  | { readonly reply: unknown; readonly refused: unknown };

/**
 * Client-side caching by `CLIENT TRACKING`, which reports changes of the keys that `read` reads, and no
 * others. All lockers of a client share it.
 */
export interface Tracking {
  /** Adds a locker that learns of changes. `up` is true if the connection for commands is up. */
  join(tracked: Tracked, up: boolean): TrackingMember;
  /** Reads these keys, and resolves to how many of them exist. */
  read(keys: readonly string[]): Promise<number>;
}

/** A locker's callbacks for changes by other clients. */
export interface Tracked {
  /** The server now reports changes of the keys that are read. */
  watching(): void;
  /** Another client may have changed this key. An empty key stands for all keys. */
  changed(key: string): void;
  /** Tracking could not be turned on. It is tried again on each new connection. */
  refused(error: unknown): void;
}

/** A locker's membership in the tracking of its client. */
export interface TrackingMember {
  /** Reports that the connection for commands came up, perhaps a new one, or went down. */
  linked(up: boolean): void;
  /** Reports the id of the connection on which the locker listens; nothing while it does not listen. */
  hears(id: number | undefined): void;
  /** Reports a changed key that the server named on the connection of {@link hears}. */
  said(key: string): void;
  /** Ends the membership. Resolves once another locker listens instead, or tracking is off. Never rejects. */
  leave(): Promise<void>;
}

/** The callbacks for the state of the connection for commands. */
export interface Link {
  /**
   * The connection is up, for the first time or again, perhaps to another server. Replies to earlier commands
   * are lost.
   */
  up(): void;
  /** The connection broke or could not be made. The client retries by itself. May be called several times. */
  down(error: unknown): void;
}

/** The reason why changes are not reported on a connection. */
export interface Unheard {
  readonly error: unknown;
}

/** The callbacks for one channel. */
export interface Hearing {
  /**
   * The server has confirmed the subscription, for the first time or again. From now on no message is missed.
   *
   * If `changed` is given, `id` is the connection's id, or the reason why changes are not reported on it.
   */
  subscribed(id?: number | Unheard): void;
  /**
   * Another client may have changed this key. An empty key stands for all keys. Absent if changes do not
   * matter.
   */
  changed?(key: string): void;
  /** Messages on the channel may be missed from now on. */
  unsubscribed(error: unknown): void;
  /** A message arrived on the channel. */
  message(text: string): void;
}
