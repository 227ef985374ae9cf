import { adapt, type RedisClient } from "../adapters/index.js";
import { attempt, checkAttached, checkText, config, MADE, readOptions, shown } from "../common/check.js";
import { defaultLabel } from "../common/platform.js";
import type { Finding, HolderInfo, Inspection } from "../common/types.js";
import { Host } from "../host/host.js";
import { wasmModuleAsync } from "../module/module.js";
import { loadQuorum } from "../module/quorum.js";
import { checkSettings, type LockSpec, type Settings } from "../module/wasm.js";
import { openClient, preload } from "../store/connect.js";
import { checkMembers, openMembers } from "../store/members.js";
import { memoryName } from "../store/memory-url.js";
import { Memory } from "../store/memory.js";
import { QuorumStore } from "../store/quorum.js";
import { RedisStore } from "../store/redis.js";
import type { Store } from "../store/store.js";
import { LeaseEvents } from "./events.js";
import { Lock } from "./lock.js";
import {
  DEFAULT_TTL,
  LOCK_OPTIONS,
  LOCKER_DEFAULTS,
  LOCKER_OPTIONS,
  type LockerOptions,
  type LockOptions,
} from "./options.js";
import { type Asked, INSPECT, printed } from "./show.js";
import { COUNTS, type Stats, statsOf } from "./stats.js";

/**
 * A client of the lock service: its identity, its connection, and the background work that renews
 * every lease it holds. One per process is enough.
 *
 * @example
 * ```ts
 * const locker = await Locker.connect("redis://127.0.0.1:6379");
 * await locker.lock("orders/42").using(async (lease, signal) => {
 *   console.log(`writing with token ${lease.token}`);
 * });
 * await locker.shutdown();
 * ```
 */
export class Locker {
  /** @internal */
  static [MADE](self: object): boolean {
    return #host in self;
  }

  readonly #host: Host;
  readonly #options: Checked;
  readonly #findings: readonly Finding[];

  private constructor(host: Host, options: Checked, findings: readonly Finding[] = []) {
    const made = "a Locker is made by Locker.connect, Locker.quorum, Locker.from or Locker.inMemory";
    if (!attempt(made, () => host instanceof Host)) {
      throw config(made);
    }
    this.#host = host;
    this.#options = options;
    this.#findings = findings;
  }

  /**
   * What is wrong with the store although it works, as far as it is known by now. `Locker.connect` and
   * `Locker.quorum` look for what endangers leases, such as a server that evicts keys, if the user may run `INFO`;
   * each such finding is also emitted as a warning of the process, named `LeaseholdWarning`, where the runtime has
   * such warnings. After the first acquisition `untracked` may follow, for lockers made by `Locker.from` as well.
   */
  get findings(): readonly Finding[] {
    return Object.freeze([...this.#findings, ...this.#host.store.findings]);
  }

  /**
   * Connects to the store that a URL names: `redis://`, `rediss://` or `unix://` through `ioredis` or
   * `redis`, whichever is installed; `redis-cluster://` or `redis-sentinel://` through `ioredis`; or
   * `memory://name` for a store in this process, shared by all lockers that give the same name, even
   * if they are of another copy of this package (of the same version, such as its other module format).
   * It tries once: it gives up after 6 seconds without a connection, then after 3 seconds without a
   * reply to the two questions that it asks first.
   *
   * With `rediss://` the CAs that the runtime trusts are trusted; the URL's parameters `ca`, `cert`, `key`
   * and `serverName` name a CA of its own instead, a client certificate and its key, all files in PEM, and
   * whom the server's certificate has to be of, if that is not the host.
   *
   * @throws LeaseholdError `config` for a bad setting, URL, file of TLS or database, if one side speaks TLS
   * and the other does not, or if neither package is installed; `tls` if the server's certificate is not
   * trusted, or the server does not trust the client's; `unavailable` or `timeout` if the server cannot be reached; `auth` if it refuses the
   * user; `unsupported` for a server older than 7.0, or where there is no WebAssembly; `readOnly` for a replica
   */
  static async connect(url: string, options?: LockerOptions): Promise<Locker> {
    checkText("connect: the URL", url);
    return Locker.#open(url, options, false);
  }

  /**
   * As {@link Locker.connect}, for a server that need not be there yet: it connects in the background,
   * again and again with pauses of up to 2 seconds, so that a service can start while its Redis is away.
   * Calls that are made meanwhile wait for it, for as long as their own time and `patience` allow, and
   * fail with what is in the way. Resolves once the client is loaded. The server is not looked at as
   * by `connect`: a setting or a version that endangers leases is not found.
   *
   * @throws LeaseholdError `config` for a bad setting, URL or file of TLS, or if neither package is
   * installed; `unsupported` where there is no WebAssembly
   */
  static async connectLazily(url: string, options?: LockerOptions): Promise<Locker> {
    checkText("connectLazily: the URL", url);
    return Locker.#open(url, options, true);
  }

  static async #open(url: string, options: LockerOptions | undefined, lazily: boolean): Promise<Locker> {
    const settings = readSettings(options);
    const name = memoryName(url);
    const compiled = wasmModuleAsync();
    if (name === undefined) {
      preload();
    }
    await compiled;
    check(settings);
    if (name !== undefined) {
      const store = Memory.named(name);
      if (!lazily && store.away !== undefined) {
        throw store.away;
      }
      return Locker.#on(store, settings);
    }
    const { connectTimeout: timeout, namespace } = settings;
    const adapter = await openClient(url, { lazily, timeout, namespace });
    const store = new RedisStore(adapter, namespace);
    try {
      return Locker.#on(store, settings, lazily ? [] : await store.check());
    } catch (error) {
      await adapter.close();
      throw error;
    }
  }

  /**
   * Uses a client that the program already has: of `ioredis`, `redis` or `@upstash/redis`, or any object
   * with `eval(script, keys, args)` and optionally `subscribe(channel, onMessage)`. The client still
   * belongs to the program: a shutdown does not close it. Without subscriptions, as with Upstash, the
   * locker {@link Locker.polls | polls}. A client that is not connected yet is connected, unless the
   * program connects it in the same turn of the event loop.
   *
   * @throws LeaseholdError `config` for a bad setting, or an object that is no such client
   */
  static from(client: RedisClient, options?: LockerOptions): Locker {
    const settings = checked(options);
    const adapter = attempt("the client cannot be read", () => adapt(client));
    return Locker.#on(new RedisStore(adapter, settings.namespace), settings);
  }

  /**
   * Connects to 3, 5 or 7 independent servers, of which a majority has each lock: it outlives the loss of the
   * others. Each is a URL as {@link Locker.connect} takes it, or a client as {@link Locker.from} does, of a
   * server, with or without sentinels, that replicates to none of the others; or all are `memory://name`.
   *
   * A lease is held while a majority has it, and ends with the deadline of that majority. Its token is greater
   * than those of all leases before. A majority has to be there now; a server that is away is taken in when it
   * comes.
   *
   * Waiters are served in order, whatever the order of each locker's list: all lockers rank the servers of a name
   * alike, by what the servers are, and the waiters of a name stand in line at the first majority. So different names
   * have their lines at different servers. Where a server is away, slow or refuses, the others of these decide. Two
   * kinds of lockers are not ordered with each other: those of which each misses another one of these servers, and a
   * locker that reaches none of them. A waiter that a server cannot notify may be overtaken, too. A restart of a server changes
   * its rank.
   *
   * A server that loses its data, or goes back to older ones, does not vote until no lease is left that it may
   * have forgotten: for `longestTtl`, which a majority of the servers measures. **Two holders there can be if a majority lose their data within that
   * time**; also if some do, and others are replaced by new ones. A server that is back counts for a lease that
   * is held once it is asked again, which is as soon as it votes, and otherwise with the renewals: until then the
   * lease may be at risk. And the servers' clocks must be apart by less than `longestTtl` and the
   * `tokenRetention`. One that is set forward ends the leases there early, except while the server may not vote.
   *
   * Its engine is a WebAssembly module of its own, which is loaded at the first call.
   *
   * @throws LeaseholdError as `connect`, with the number of the server in the list; `config` for other numbers
   * of servers, one that is there twice, servers of Redis and in memory together, and clusters; `unavailable` if
   * no majority is there. Dense tokens are refused when a lock is acquired.
   *
   * @example
   * ```ts
   * const locker = await Locker.quorum(["memory://one", "memory://two", "memory://three"]);
   * await locker.lock("orders/42").using((lease) => console.log(`held with token ${lease.token}`));
   * await locker.shutdown();
   * ```
   */
  static async quorum(servers: readonly (string | RedisClient)[], options?: LockerOptions): Promise<Locker> {
    const members = checkMembers(servers);
    const settings = readSettings(options);
    const [newInstance] = await Promise.all([loadQuorum(), wasmModuleAsync()]);
    check(settings);
    const { connectTimeout: timeout, namespace } = settings;
    const { stores, findings, close } = await openMembers(members, { timeout, namespace });
    try {
      return Locker.#on(new QuorumStore(stores, newInstance), settings, findings);
    } catch (error) {
      await close();
      throw error;
    }
  }

  /** A locker on a store of its own in this process: for tests, and for programs that run alone. */
  static inMemory(options?: LockerOptions): Locker {
    return Locker.#on(new Memory(), checked(options));
  }

  static #on(store: Store, options: Checked, findings?: readonly Finding[]): Locker {
    return new Locker(new Host(store, options), options, findings);
  }

  /**
   * A handle on one name of 1 to 512 bytes of UTF-8. Making it does no I/O. Acquisitions exclude each
   * other, whether they go through one handle or through several, in this locker or elsewhere.
   *
   * @throws LeaseholdError `config` for a bad name or option
   */
  lock(name: string, options?: LockOptions): Lock {
    checkAttached(this, Locker, "locker.lock");
    checkText("a lock's name", name);
    const read = readOptions("the options of a lock", options, LOCK_OPTIONS);
    return new Lock(this.#host, this.#host.newLock(specOf(name, read, this.#options)));
  }

  /**
   * Whether its client, or one of a quorum's, cannot subscribe, as that of Upstash. Waiters then ask the store every second,
   * and a holder learns of a forced release only at its next renewal.
   */
  get polls(): boolean {
    return this.#host.store.polled;
  }

  /**
   * What this locker has done since it was made, as numbers: how many leases it holds, what it acquired and
   * lost and why, how long calls waited. No I/O; the locker always counts, which costs next to nothing. The
   * example `metrics` hands them to Prometheus.
   */
  stats(): Stats {
    checkAttached(this, Locker, "locker.stats");
    return statsOf(this.#host.counts(...COUNTS));
  }

  /** The events of all locks of this locker. */
  events(): LeaseEvents {
    checkAttached(this, Locker, "locker.events");
    return new LeaseEvents(this.#host.addReader());
  }

  /**
   * Asks the store who holds a name and who waits for it.
   *
   * @throws LeaseholdError `config` for a bad name; `timeout` or `unavailable` if the store did not
   * reply within the `patience`; `auth`, `wrongType`, `store`, `overloaded`, `shutdown`
   */
  async inspect(name: string): Promise<Inspection> {
    checkAttached(this, Locker, "locker.inspect");
    checkText("a lock's name", name);
    return this.#host.ask((engine, at, id) => engine.inspect(at, id, name));
  }

  /**
   * The names that match a pattern and are held: `*` in it stands for any characters, `\*` for a star,
   * `\\` for a backslash, and anything else for itself. (In a string literal each backslash is written
   * twice.) The walk goes in steps, between which the server does other work. A name may come twice; one
   * that is held during the whole walk is sure to come.
   *
   * @throws LeaseholdError `config` for a pattern that is empty, over-long, or has a backslash before
   * anything else; `unsupported` on a cluster; else as `inspect`, at the first step or a later one
   */
  async *list(pattern: string): AsyncGenerator<string, void, undefined> {
    checkAttached(this, Locker, "locker.list");
    checkText("a pattern", pattern);
    this.#host.checkWalk();
    let cursor: string | null = "0";
    while (cursor !== null) {
      const from: string = cursor;
      const [next, names]: [string | null, string[]] = await this.#host.ask((engine, at, id) =>
        engine.list(at, id, pattern, from),
      );
      yield* names;
      cursor = next;
    }
  }

  /**
   * Frees a name, whoever holds it, and returns who that was; `undefined` if it was free. The first in
   * line gets the lock. It ends the tenure that it finds when it first looks and no other, however
   * often it has to try.
   *
   * @throws LeaseholdError as `inspect`, and `readOnly` if a replica is asked and the name is held
   */
  async forceRelease(name: string): Promise<HolderInfo | undefined> {
    checkAttached(this, Locker, "locker.forceRelease");
    checkText("a lock's name", name);
    return this.#forceRelease(name, 0);
  }

  /**
   * As {@link Locker.forceRelease}, of the tenure with this token alone: whoever has the lock by then keeps it.
   * So it is the one to call after a look at who has it, which is over by then, and calling it again is safe.
   * `undefined` if nothing was released, because that tenure is over.
   *
   * Of a quorum it is the token that `inspect` shows. With other servers away than at the look it may be
   * another number, and nothing is released then.
   *
   * @throws LeaseholdError as `forceRelease`, and `config` for what is no token
   *
   * @example
   * ```ts
   * const { holder } = await locker.inspect("orders/42");
   * if (holder && (await ask(`release it of ${holder.owner.label}?`))) {
   *   await locker.forceReleaseToken("orders/42", holder.token);
   * }
   * ```
   */
  async forceReleaseToken(name: string, token: number): Promise<HolderInfo | undefined> {
    checkAttached(this, Locker, "locker.forceReleaseToken");
    checkText("a lock's name", name);
    if (!Number.isSafeInteger(token) || token < 1) {
      throw config(`a fencing token is a whole number from 1 up, not ${shown(token)}`);
    }
    return this.#forceRelease(name, token);
  }

  /** Frees a name if its tenure has this token; 0 stands for any. */
  async #forceRelease(name: string, token: number): Promise<HolderInfo | undefined> {
    const holder = await this.#host.ask<HolderInfo | null>((engine, at, id) =>
      engine.forceRelease(at, id, name, token),
    );
    return holder ?? undefined;
  }

  /**
   * Ends everything: leases are lost with the reason `shutdown` and freed at the store, calls under
   * way fail with the code `shutdown`, and so does every later one. Resolves when the store has
   * confirmed it; in an outage after the `patience` at the latest, which is 10 seconds by default.
   * Never rejects. A client given to `Locker.from` stays open.
   */
  async shutdown(): Promise<void> {
    checkAttached(this, Locker, "locker.shutdown");
    await this.#host.shutdown();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.shutdown();
  }

  /** Its options, for logs and `JSON.stringify`; not the connection, whose URL may have a password in it. */
  toJSON(): LockerOptions {
    return { ...this.#options };
  }

  /** Prints the object on consoles. @internal */
  [INSPECT](...asked: Asked): string {
    return printed("Locker", this, ...asked);
  }
}

interface Checked extends Settings {
  readonly connectTimeout: number;
  readonly owner?: string | undefined;
}

/** The settings with their defaults, checked before anything is connected. */
function checked(options: LockerOptions | undefined): Checked {
  const settings = readSettings(options);
  check(settings);
  return settings;
}

/** Checks the owner of all locks by that of any lock. */
function check(settings: Checked): void {
  const any = readOptions("", undefined, LOCK_OPTIONS);
  checkSettings(settings, settings.owner === undefined ? undefined : specOf("n", any, settings));
}

/** A lock with the options that were read for it. */
function specOf(name: string, read: LockOptions, ofLocker: Checked): LockSpec {
  const { ttl = DEFAULT_TTL, fixed = false, reentrant = false, denseTokens: dense = false } = read;
  const { owner = ofLocker.owner, replicas = 0, replicasTimeout = 1_000, fsynced = false } = read;
  const reclaimable = owner !== undefined;
  const copies = replicas > 0 || fsynced ? { replicas, fsynced, timeout: replicasTimeout } : undefined;
  return { name, ttl, fixed, reentrant, owner: owner ?? defaultLabel(), reclaimable, dense, copies };
}

function readSettings(options: LockerOptions | undefined): Checked {
  const read = readOptions("the options of a locker", options, LOCKER_OPTIONS);
  // Without a prototype, so that an owner that is not given is `undefined`.
  const settings: Checked = { __proto__: null, ...LOCKER_DEFAULTS, ...read } as Checked;
  const { connectTimeout } = settings;
  // The engine, which checks the others, makes no connections.
  if (connectTimeout < 1 || connectTimeout > 60_000) {
    throw config(`connectTimeout must be from 1 ms to 60 s; got ${connectTimeout} ms`);
  }
  return settings;
}
