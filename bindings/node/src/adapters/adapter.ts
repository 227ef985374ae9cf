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

/** By `CLIENT TRACKING`, of what is read by this alone. */
export interface Tracking {
  /**
   * From now on the connection with this id, of one that listens, hears of changes. For each new connection
   * of either kind it is to be turned on anew. Rejects if that is refused, or if the program uses it.
   */
  turnOn(id: number): Promise<void>;
  /** Reads these keys; resolves to how many of them there are. */
  read(keys: readonly string[]): Promise<number>;
}

/** What hears of the connection for commands. */
export interface Link {
  /** It is there, for the first time or again, perhaps to another server: what was sent before is lost. */
  up(): void;
  /** It broke, or could not be made; the client tries again by itself. May come several times. */
  down(error: unknown): void;
}

/** What hears a channel. */
export interface Hearing {
  /**
   * From now on nothing is missed: the server has confirmed the subscription, for the first time or again.
   * With `changed`, `id` is that of the connection, if it could be asked.
   */
  subscribed(id?: number): void;
  /** Somebody else may have changed this key; an empty one stands for all. Absent to be told nothing of it. */
  changed?(key: string): void;
  /** The channel cannot be heard for now. */
  unsubscribed(error: unknown): void;
  /** A message on the channel. */
  message(text: string): void;
}
