/**
 * What the host needs of a Redis client. An adapter makes one of these of each kind of client; it
 * knows nothing of locks.
 */
export interface Adapter {
  /** What the client is called in messages, such as `ioredis`. */
  readonly client: string;
  /** Whether it is of a cluster: keys on several nodes, each with a clock of its own. */
  readonly clustered: boolean;
  /**
   * Of a cluster: the address of the server that serves a slot, as the client has it just now; nothing
   * if it does not know. Absent if a client cannot tell.
   */
  serverOf?(slot: number): string | undefined;
  /** The server as messages may show it; absent unless the client was made of a URL here. */
  readonly shown?: string;
  /** What must not be shown: passwords that a server may echo. */
  readonly secrets: readonly string[];
  /**
   * Runs a script by its hash. Rejects with the client's own error; one whose message begins with
   * `NOSCRIPT` if the server has not got the script. Absent if the client cannot.
   */
  evalsha?(sha: string, keys: string[], args: string[]): Promise<unknown>;
  /**
   * Sends a command of which the bytes are ready, and resolves to its reply; rejects as `evalsha` does.
   * Absent if a client cannot, or has to know its keys.
   */
  send?(command: Uint8Array): Promise<unknown>;
  /** Runs a script by its text. */
  eval(script: string, keys: string[], args: string[]): Promise<unknown>;
  /**
   * Runs a script by its hash or its text, and sends a command right behind it on the same connection.
   * Rejects as `evalsha` does, and resolves to the replies of both, or to why the second was refused.
   * Absent if a client may use another connection for each.
   */
  runThen?(
    how: "EVALSHA" | "EVAL",
    script: string,
    keys: string[],
    args: string[],
    command: string[],
  ): Promise<RanThen>;
  /** The server's `INFO` of a section; absent if it cannot be asked. */
  info?(section: "default"): Promise<string>;
  /**
   * From now on the link hears of the connection, until the returned function is called. If that is up
   * already, the link hears it before this returns; a client that has no connection (HTTP, or an object
   * with `eval` alone) is always up. It also starts a client that connects lazily.
   */
  watch(link: Link): () => void;
  /**
   * Hears one channel, on a connection that may subscribe, until the returned function is called. It tries
   * again by itself for as long as it takes, with growing pauses. Absent if the client cannot subscribe.
   */
  listen?(channel: string, hearing: Hearing): () => void;
  /** Has the server say what others change. Absent if the client has no one connection for that. */
  readonly tracking?: Tracking;
  /**
   * Several commands in a row had no reply: the connection may be half-open. An adapter that made the
   * connection itself checks it and replaces it; another one does nothing. A server that was `demoted` to
   * a replica does reply and is replaced all the same, because its name may lead to another server now.
   */
  suspect?(demoted?: boolean): void;
  /** Whether the connections that this adapter made are to keep the process alive. */
  keepAlive?(alive: boolean): void;
  /** Closes the connections that this adapter made, and no others. Never rejects. */
  close(): Promise<void>;
}

/** What came of a script and of the command behind it. */
export type RanThen =
  | { readonly reply: unknown; readonly waited: unknown }
  | { readonly reply: unknown; readonly refused: unknown };

/** By `CLIENT TRACKING`, of what is read by this alone. All lockers of one client share it. */
export interface Tracking {
  /** One more locker hears of changes; `up` says whether the connection for commands is there. */
  join(tracked: Tracked, up: boolean): TrackingMember;
  /** Reads these keys; resolves to how many of them there are. */
  read(keys: readonly string[]): Promise<number>;
}

/** Tells a locker of changes by others. */
export interface Tracked {
  /** From now on the server says what others change of the keys that are read. */
  watching(): void;
  /** Somebody else may have changed this key; an empty one stands for all. */
  changed(key: string): void;
  /** It could not be turned on. It is tried again with each new connection. */
  refused(error: unknown): void;
}

/** A locker's part in the tracking of its client. */
export interface TrackingMember {
  /** The connection for commands came, perhaps a new one, or went. */
  linked(up: boolean): void;
  /** The locker listens on the connection of this id; nothing while it does not. */
  hears(id: number | undefined): void;
  /** The server said on that connection that this key was changed. */
  said(key: string): void;
  /** It hears no more. Resolves once another locker listens in its place, or tracking is off. Never rejects. */
  leave(): Promise<void>;
}

/** What hears of the connection for commands. */
export interface Link {
  /** It is there, for the first time or again, perhaps to another server: what was sent before is lost. */
  up(): void;
  /** It broke, or could not be made; the client tries again by itself. May come several times. */
  down(error: unknown): void;
}

/** Why no changes are heard on a connection. */
export interface Unheard {
  readonly error: unknown;
}

/** What hears a channel. */
export interface Hearing {
  /**
   * From now on nothing is missed: the server has confirmed the subscription, for the first time or again.
   * With `changed`, `id` is that of the connection, or why no changes are heard on it.
   */
  subscribed(id?: number | Unheard): void;
  /** Somebody else may have changed this key; an empty one stands for all. Absent to be told nothing of it. */
  changed?(key: string): void;
  /** The channel cannot be heard for now. */
  unsubscribed(error: unknown): void;
  /** A message on the channel. */
  message(text: string): void;
}
