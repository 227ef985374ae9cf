import { adapt, type RedisClient } from "../adapters/index.js";
import { attempt, checkAttached, checkText, checkWhole, config, MADE, readOptions, shown } from "../common/check.js";
import { defaultLabel } from "../common/platform.js";
import { LeaseholdError } from "../common/errors.js";
import type { Finding, HolderInfo, Inspection } from "../common/types.js";
import { Host } from "../host/host.js";
import type { Listed, LockHost } from "../host/lock-host.js";
import { wasmModuleAsync } from "../module/module.js";
import { loadQuorum } from "../module/quorum.js";
import { checkSettings, type LockSpec, type Settings, type Share } from "../module/wasm.js";
import { preload } from "../store/connect.js";
import { checkMembers, inMemory } from "../store/members.js";
import { memoryName } from "../store/memory-url.js";
import { Memory } from "../store/memory.js";
import { type Opened, openQuorum, openServer } from "../store/open.js";
import { RedisStore } from "../store/redis.js";
import type { Store } from "../store/store.js";
import { LeaseEvents } from "./events.js";
import { Capacities } from "./capacities.js";
import { Claims } from "./claims.js";
import { Job } from "./job.js";
import type { Lease } from "./lease.js";
import { Lock } from "./lock.js";
import { byCodePoints, checkNames, LockSet } from "./lock-set.js";
import { missedOf } from "./missed.js";
import { Observer } from "./observer.js";
import {
  DEFAULT_TTL,
  JOB_OPTIONS,
  type JobOptions,
  LOCK_OPTIONS,
  LOCK_SET_OPTIONS,
  LOCKER_DEFAULTS,
  LOCKER_OPTIONS,
  type LockerOptions,
  type LockOptions,
  type LockSetOptions,
  OBSERVE_OPTIONS,
  type ObserveOptions,
  SEMAPHORE_OPTIONS,
  type SemaphoreOptions,
  SHARED_OPTIONS,
  type SharedOptions,
  YIELD_OPTIONS,
  type YieldOptions,
} from "./options.js";
import { Permits } from "./permit.js";
import { RwLock } from "./rw-lock.js";
import { scheduleOf } from "./schedule.js";
import { Semaphore } from "./semaphore.js";
import { type Asked, INSPECT, printed } from "./show.js";
import { COUNTS, type Stats, statsOf } from "./stats.js";
import { type Ticket, ticketOf } from "./ticket.js";
import { hostInThread, OF_CLIENT, OF_MEMORY, refuseThread } from "./thread.js";
import { requestYield } from "./yields.js";

/**
 * A client of the lock service: an identity, connections, and the background work that renews its leases. One
 * per process is enough.
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

  readonly #host: LockHost;
  readonly #options: Checked;
  readonly #findings: readonly Finding[];
  readonly #capacities = new Capacities();
  /** Aborted when the locker is shut down, for its jobs and observers. */
  #closed: AbortController | undefined;

  private constructor(host: LockHost, options: Checked, findings: readonly Finding[] = []) {
    const made = "a Locker is made by Locker.connect, Locker.quorum, Locker.from or Locker.inMemory";
    if (!attempt(made, () => typeof host.newLock === "function")) {
      throw config(made);
    }
    this.#host = host;
    this.#options = options;
    this.#findings = findings;
  }

  /**
   * The known problems of a store that works, as found so far.
   *
   * `Locker.connect` and `Locker.quorum` look for settings that endanger leases, such as eviction of keys, if
   * the user may run `INFO`. Each such finding is also emitted as a process warning named `LeaseholdWarning`,
   * in runtimes that have process warnings. An `untracked` finding may follow after the first acquisition,
   * and `capacity` findings after those of a semaphore or quota, also for lockers made by `Locker.from`.
   */
  get findings(): readonly Finding[] {
    return Object.freeze([...this.#findings, ...this.#host.findings, ...this.#capacities.findings]);
  }

  /**
   * Connects to the store that a URL names.
   *
   * - `redis://`, `rediss://` and `unix://` need the package `ioredis` or `redis`.
   * - `redis-cluster://`, `redis-sentinel://` and their `rediss-` forms need `ioredis`.
   * - `memory://name` is a store in this process. All lockers that give the same name share it, even across
   *   copies of the same version of this package, such as its ESM and CommonJS builds.
   *
   * It tries once. By default it gives up after 6 seconds without a connection, then after 3 seconds without
   * replies to its first two requests.
   *
   * With `rediss://` it trusts the runtime's CAs. The URL's parameters `ca`, `cert` and `key` name PEM files:
   * a CA to trust instead, a client certificate, and its key. The parameter `serverName` is the name that the
   * server's certificate must have, if it is not the host.
   *
   * @throws LeaseholdError `config` for a bad setting, URL, TLS file or database; if only one side speaks
   * TLS; or if neither client package is installed
   * @throws LeaseholdError `tls` if one side does not trust the other's certificate
   * @throws LeaseholdError `unavailable` or `timeout` if the server cannot be reached
   * @throws LeaseholdError `auth` if the server refuses the user; `readOnly` for a replica; `unsupported` for
   * a server older than 7.0 or a runtime without WebAssembly
   */
  static async connect(url: string, options?: LockerOptions): Promise<Locker> {
    checkText("connect: the URL", url);
    return Locker.#open(url, options, false);
  }

  /**
   * Connects as {@link Locker.connect} does, but to a server that need not be up yet: use it to start a
   * service while its Redis is down.
   *
   * It resolves once the client package is loaded. The client then connects in the background, with pauses of
   * up to 2 seconds between attempts. Calls wait for the connection for as long as their own timeout and
   * `patience` allow, and then fail with the reason. Unlike `connect`, it does not check the server's version
   * and settings.
   *
   * @throws LeaseholdError `config` for a bad setting, URL or TLS file, or if neither client package is
   * installed
   * @throws LeaseholdError `unsupported` if the runtime has no WebAssembly
   * @example
   * ```ts
   * const locker = await Locker.connectLazily("redis://127.0.0.1:6379", { patience: 30_000 });
   * ```
   */
  static async connectLazily(url: string, options?: LockerOptions): Promise<Locker> {
    checkText("connectLazily: the URL", url);
    return Locker.#open(url, options, true);
  }

  static async #open(url: string, options: LockerOptions | undefined, lazily: boolean): Promise<Locker> {
    const settings = readSettings(options);
    const name = memoryName(url);
    const compiled = wasmModuleAsync();
    if (name === undefined && !settings.thread) {
      preload();
    }
    const module = await compiled;
    check(settings);
    if (name !== undefined) {
      refuseThread(settings.thread, OF_MEMORY);
      const store = Memory.named(name);
      if (!lazily && store.away !== undefined) {
        throw store.away;
      }
      return Locker.#on(store, settings);
    }
    if (settings.thread) {
      const opening = { module, quorum: undefined, urls: [url], lazily, settings, counts: COUNTS };
      return new Locker(await hostInThread(opening), settings);
    }
    const { connectTimeout: timeout, namespace } = settings;
    return Locker.#onOpened(await openServer(url, { lazily, timeout, namespace }), settings);
  }

  static async #onOpened({ store, findings, close }: Opened, settings: Checked): Promise<Locker> {
    try {
      return Locker.#on(store, settings, findings);
    } catch (error) {
      await close();
      throw error;
    }
  }

  /**
   * Makes a locker on a client that the program already has.
   *
   * The client is from `ioredis`, `redis` or `@upstash/redis`, or any object with `eval(script, keys, args)`
   * and optionally `subscribe(channel, onMessage)`. It still belongs to the program: a shutdown does not
   * close it. If it is not connected yet, it is connected, unless the program does so in the same turn of the
   * event loop. On a client that cannot subscribe, such as Upstash's, the locker {@link Locker.polls |
   * polls}.
   *
   * @throws LeaseholdError `config` for a bad setting, or an object that is not a Redis client
   * @example
   * ```ts
   * const locker = Locker.from(new Redis("redis://127.0.0.1:6379"));
   * ```
   */
  static from(client: RedisClient, options?: LockerOptions): Locker {
    const settings = checked(options);
    refuseThread(settings.thread, OF_CLIENT);
    const adapter = attempt("the client cannot be read", () => adapt(client));
    return Locker.#on(new RedisStore(adapter, settings.namespace), settings);
  }

  /**
   * Connects to 3, 5 or 7 independent servers, a majority of which must grant each lock. Locks survive the
   * loss of the others.
   *
   * Each server is a URL as for {@link Locker.connect}, or a client as for {@link Locker.from}. It is one
   * server, with or without sentinels, that does not replicate to any of the others. Or all of them are
   * `memory://name`. A majority must be up now; a server that is down joins when it comes up.
   *
   * A lease is held while a majority grants it, and ends at that majority's deadline. Its token is greater
   * than the tokens of all earlier leases.
   *
   * **Order of waiters.** All lockers rank the servers of a name alike, by what the servers are, whatever the
   * order in their lists. A name's line is at the first majority of them, so different names have their
   * lines at different servers. If one of these servers is down, slow or refuses, the others of them decide. Order
   * does not hold between two lockers that each miss a different one of these servers, nor for a locker that
   * reaches none of them. A waiter that a server cannot notify may be overtaken, too. Restarting a server
   * changes its rank.
   *
   * **Lost data.** A server that loses its data, or goes back to older data, does not vote for `longestTtl`,
   * which a majority of the servers measures. By then no lease is left that it may have forgotten. **Two
   * clients can hold a lock if a majority of the servers lose their data within that time**, or if some do
   * and others are replaced by new servers. A server that is back counts for a held lease once the locker
   * asks it again: at its readmission, or at a renewal. Until then the lease may be at risk.
   *
   * **Clocks.** The servers' clocks must differ by less than `longestTtl` and `tokenRetention`. A clock that
   * is set forward ends the leases on its server early. While that server does not vote, this makes no second
   * holder.
   *
   * The quorum engine is a separate WebAssembly module, which the first call loads.
   *
   * @throws LeaseholdError as `connect` does; the message has the server's place in the list
   * @throws LeaseholdError `config` for another number of servers, a server that is listed twice, Redis and
   * in-memory servers together, or a cluster
   * @throws LeaseholdError `unavailable` if no majority is up
   * @throws LeaseholdError `config` at the first acquisition of a lock with dense tokens
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
    const urls = members.filter((member) => typeof member === "string");
    refuseThread(settings.thread && urls.length < members.length, OF_CLIENT);
    refuseThread(settings.thread && inMemory(members), OF_MEMORY);
    const [quorum, module] = await Promise.all([loadQuorum(), wasmModuleAsync()]);
    check(settings);
    if (settings.thread) {
      const opening = { module, quorum: quorum.module, urls, lazily: false, settings, counts: COUNTS };
      return new Locker(await hostInThread(opening), settings);
    }
    const { connectTimeout: timeout, namespace } = settings;
    return Locker.#onOpened(await openQuorum(members, quorum.newInstance, { timeout, namespace }), settings);
  }

  /** Makes a locker on a store of its own in this process, for tests and for programs that run alone. */
  static inMemory(options?: LockerOptions): Locker {
    const settings = checked(options);
    refuseThread(settings.thread, OF_MEMORY);
    return Locker.#on(new Memory(), settings);
  }

  static #on(store: Store, options: Checked, findings?: readonly Finding[]): Locker {
    return new Locker(new Host(store, options), options, findings);
  }

  /**
   * Returns a handle on one name of 1 to 512 bytes of UTF-8. This does no I/O.
   *
   * Acquisitions of a name exclude each other, whether they go through one handle or several, in this locker
   * or elsewhere.
   *
   * @throws LeaseholdError `config` for a bad name or option
   * @example
   * ```ts
   * const lock = locker.lock("orders/42", { ttl: 30_000 });
   * ```
   */
  lock(name: string, options?: LockOptions): Lock {
    checkAttached(this, Locker, "locker.lock");
    checkText("a lock's name", name);
    const read = readOptions("the options of a lock", options, LOCK_OPTIONS);
    return new Lock(this.#host, this.#host.newLock(specOf(name, read, this.#options)));
  }

  /**
   * Returns a handle on a name with this many slots, from 1 to 10,000. This does no I/O.
   *
   * Slots have the numbers from 0, and each slot has one holder at a time, with a growing token. The first
   * permit sets the capacity at the store, where it stays until `Semaphore.resize` changes it, or until the
   * name is unused for the `tokenRetention`.
   *
   * @throws LeaseholdError `config` for a bad name, number of slots or option
   * @example
   * ```ts
   * const licenses = locker.semaphore("licenses", 3, { ttl: 10_000 });
   * await licenses.using(async ({ resource, token }) => console.log(resource, token));
   * ```
   */
  semaphore(name: string, slots: number, options?: SemaphoreOptions): Semaphore {
    checkAttached(this, Locker, "locker.semaphore");
    return this.#semaphore("a semaphore", "slots", name, slots, options);
  }

  /**
   * Returns a handle on a name whose holders share this many units, from 1 to 1,000,000,000, without slots.
   * This does no I/O.
   *
   * It suits large amounts, such as bytes of memory or rows: a permit may have any number of units. A guard
   * cannot tell its holders apart.
   *
   * @throws LeaseholdError `config` for a bad name, number of units or option
   * @example
   * ```ts
   * const memory = locker.quota("memory/mb", 64_000);
   * await using permit = await memory.acquire({ weight: 48_000 });
   * ```
   */
  quota(name: string, units: number, options?: SemaphoreOptions): Semaphore {
    checkAttached(this, Locker, "locker.quota");
    return this.#semaphore("a quota", "units", name, units, options);
  }

  #semaphore(
    what: string,
    kind: "slots" | "units",
    name: string,
    capacity: number,
    options: SemaphoreOptions | undefined,
  ): Semaphore {
    checkText("a lock's name", name);
    checkWhole(`the number of ${kind}`, capacity);
    const read = readOptions(`the options of ${what}`, options, SEMAPHORE_OPTIONS);
    const { maxLine = Infinity, strict = false } = read;
    const one: Share = { kind, weight: 1, capacity, maxLine, strict };
    return new Semaphore(this.#permits(name, read, one, this.#capacities), one);
  }

  /**
   * Returns a handle on a name that many readers or one writer hold. This does no I/O.
   *
   * @throws LeaseholdError `config` for a bad name or option
   * @example
   * ```ts
   * const prices = locker.rwLock("prices");
   * await prices.write().using(({ token }) => console.log(`writing with token ${token}`));
   * await prices.read().using(({ generation }) => console.log(`the last writer had the token ${generation}`));
   * ```
   */
  rwLock(name: string, options?: SharedOptions): RwLock {
    checkAttached(this, Locker, "locker.rwLock");
    checkText("a lock's name", name);
    const read = readOptions("the options of a lock for readers and writers", options, SHARED_OPTIONS);
    const share: Share = { kind: "read", weight: 1, capacity: 1, maxLine: read.maxLine ?? Infinity, strict: false };
    return new RwLock(this.#permits(name, read, share), share);
  }

  #permits(name: string, read: SharedOptions, share: Share, capacities?: Capacities): Permits {
    const spec = { ...specOf(name, read, this.#options), share };
    return new Permits(this.#host, this.#host.newLock(spec), capacities);
  }

  /**
   * Returns a handle on several names, which are acquired one after the other in one global order. This does no
   * I/O.
   *
   * The order is that of the names' bytes, whatever the order of the list. So callers that want the same names
   * never wait for each other in a circle. While a name is awaited, those before it in the order are held and
   * renewed. All requests for names that are free leave together.
   *
   * @throws LeaseholdError `config` if the list is empty, has a name twice, more than 64 names, or a bad name; or
   * for a bad option
   * @example
   * ```ts
   * await locker.all(["accounts/7", "accounts/3"]).using(({ tokens }) => console.log(tokens));
   * ```
   */
  all(names: readonly string[], options?: LockSetOptions): LockSet {
    checkAttached(this, Locker, "locker.all");
    return this.#several("all", names, options, false);
  }

  /**
   * Returns a handle on several names, of which none is held while another one is awaited. This does no I/O.
   *
   * It stands in line for one busy name at a time. Once it gets that name, it tries all others at once. If one of
   * them is busy, it passes on what it has, and stands in line for that one. So it never keeps a name from others
   * for longer than a round trip, and it may starve: callers that keep only one of the names busy each may pass
   * it for ever. Bound the time with a `timeout`.
   *
   * @throws LeaseholdError as `all`
   */
  allAtOnce(names: readonly string[], options?: LockSetOptions): LockSet {
    checkAttached(this, Locker, "locker.allAtOnce");
    return this.#several("allAtOnce", names, options, true);
  }

  #several(what: string, names: readonly string[], options: LockSetOptions | undefined, atOnce: boolean): LockSet {
    const read = readOptions(`the options of ${what}`, options, LOCK_SET_OPTIONS);
    const checked = attempt(`${what}: the names cannot be read`, () => checkNames(what, names));
    checked.forEach((name) => checkText("a lock's name", name));
    checked.sort(byCodePoints);
    const host = this.#host;
    return new LockSet(checked.map((name) => new Lock(host, host.newLock(specOf(name, read, this.#options)))), atOnce);
  }

  /**
   * Returns a job: work that runs once per tick in all processes together. This does no I/O.
   *
   * @throws LeaseholdError `config` for a bad name or option; a bad cron text fails the job's first use
   * @example
   * ```ts
   * const job = locker.job("report", { every: 900_000 });
   * ```
   */
  job(name: string, options?: JobOptions): Job {
    checkAttached(this, Locker, "locker.job");
    checkText("a job's name", name);
    const read = readOptions("the options of a job", options, JOB_OPTIONS);
    const spec = specOf(name, read, this.#options);
    // This refuses a bad name or `ttl`.
    this.#host.newLock(spec);
    const claims = new Claims(this.#host, spec, scheduleOf(read));
    this.#closed ??= new AbortController();
    return new Job(claims, { ...read, missed: missedOf(read.missed) }, this.#closed.signal);
  }

  /**
   * Accepts a lease that another locker passed on (`Lease.pass`), and renews it from then on.
   *
   * The lease has the next token and the ticket's name and time to live. For other options, and for the errors, see
   * `Lock.accept`.
   *
   * @example
   * ```ts
   * process.once("message", async (text) => {
   *   const lease = await locker.accept(text);
   *   console.log(`going on with token ${lease.token}`);
   * });
   * ```
   */
  async accept(
    ticket: Ticket | string,
    options?: { readonly signal?: AbortSignal | undefined },
  ): Promise<Lease> {
    checkAttached(this, Locker, "locker.accept");
    const read = ticketOf(ticket);
    return this.lock(read.name, { ttl: read.ttl }).accept(read, options);
  }

  /**
   * True if the locker's client, or one client of its quorum, cannot subscribe, such as Upstash's.
   *
   * Waiters then ask the store every second, and a holder learns of a forced release only at its next
   * renewal.
   */
  get polls(): boolean {
    return this.#host.polled;
  }

  /**
   * Returns what this locker has counted since it was made: leases held, acquired and lost, waiting times and
   * more.
   *
   * This does no I/O. The locker always counts, at next to no cost. The example `metrics` exports the numbers
   * to Prometheus.
   */
  stats(): Stats {
    checkAttached(this, Locker, "locker.stats");
    return statsOf(this.#host.counts(...COUNTS));
  }

  /** Returns the events of all locks of this locker, beginning with the current state. */
  events(): LeaseEvents {
    checkAttached(this, Locker, "locker.events");
    return new LeaseEvents(this.#host.addReader());
  }

  /**
   * Asks the store who holds a lock and who waits for it.
   *
   * @throws LeaseholdError `config` for a bad name
   * @throws LeaseholdError `timeout` or `unavailable` if the store did not reply within the `patience`
   * @throws LeaseholdError `auth`, `wrongType`, `store`, `overloaded` or `shutdown`
   * @example
   * ```ts
   * const { holder, waiting } = await locker.inspect("orders/42");
   * console.log(holder ? `held by ${holder.owner.label}` : "free", `${waiting} waiting`);
   * ```
   */
  async inspect(name: string): Promise<Inspection> {
    checkAttached(this, Locker, "locker.inspect");
    checkText("a lock's name", name);
    return this.#host.inspect(name);
  }

  /**
   * Returns the holders of a name, one after another, beginning with the current one: see {@link Observer}.
   *
   * @throws LeaseholdError `config` for a bad name or option
   * @example
   * ```ts
   * for await (const leader of locker.observe("leader")) {
   *   console.log(leader ? `${leader.owner.label} leads` : "nobody leads");
   * }
   * ```
   */
  observe(name: string, options?: ObserveOptions): Observer {
    checkAttached(this, Locker, "locker.observe");
    checkText("a lock's name", name);
    const read = readOptions("the options of observe", options, OBSERVE_OPTIONS);
    // This refuses a bad name.
    this.#host.newLock(specOf(name, {}, this.#options));
    this.#closed ??= new AbortController();
    return new Observer(this.#host, name, read, this.#closed.signal);
  }

  /**
   * Yields the names that match a pattern and are held.
   *
   * In the pattern `*` stands for any characters, `\*` for a star, and `\\` for a backslash. (A string
   * literal needs each backslash twice.) Everything else stands for itself. The server is scanned in steps,
   * between which it does other work. A name may be yielded more than once. A name that is held during the whole scan
   * is always yielded.
   *
   * @throws LeaseholdError `config` for a pattern that is empty, too long, or has a backslash before another
   * character
   * @throws LeaseholdError `unsupported` on a cluster
   * @throws LeaseholdError as `inspect`, at any step
   * @example
   * ```ts
   * for await (const name of locker.list("orders/*")) console.log(name);
   * ```
   */
  async *list(pattern: string): AsyncGenerator<string, void, undefined> {
    checkAttached(this, Locker, "locker.list");
    checkText("a pattern", pattern);
    let cursor: string | null = "0";
    while (cursor !== null) {
      const [next, names]: Listed = await this.#host.list(pattern, cursor);
      yield* names;
      cursor = next;
    }
  }

  /**
   * Frees a lock, whoever holds it, and resolves to that holder, or to `undefined` if the lock was free.
   *
   * The next waiter gets the lock. The call ends only the tenure that it finds at its first look, however
   * often it retries.
   *
   * @throws LeaseholdError as `inspect`; and `readOnly` if the server is a replica and the lock is held
   */
  async forceRelease(name: string): Promise<HolderInfo | undefined> {
    checkAttached(this, Locker, "locker.forceRelease");
    checkText("a lock's name", name);
    return this.#forceRelease(name, 0);
  }

  /**
   * Frees a lock only if its current tenure has this token; any other holder keeps the lock.
   *
   * Use it after `inspect`, when the holder that you saw may be gone. Calling it again is safe. Resolves to
   * the holder, or to `undefined` if that tenure is over and nothing was released.
   *
   * For a quorum, pass the token that `inspect` shows. That number depends on which servers answer. If other
   * servers answer now, nothing may be released.
   *
   * @throws LeaseholdError as `forceRelease`; and `config` if `token` is not a token
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
      throw config(`a fencing token must be a whole number from 1 up; got ${shown(token)}`);
    }
    return this.#forceRelease(name, token);
  }

  /** Frees a lock if its tenure has this token. 0 stands for any token. */
  async #forceRelease(name: string, token: number): Promise<HolderInfo | undefined> {
    return (await this.#host.forceRelease(name, token)) ?? undefined;
  }

  /**
   * Asks the holder of a lock to release it within some time, and resolves when it has: to true once that tenure is
   * over in any way, or at once if the lock is free. Resolves to false if the holder still has the lock after that
   * time. With `force` the lock is then freed by force.
   *
   * The holder gets the event `wanted`: at once if it is connected, otherwise with its next renewal. So it can stop at
   * a good point. The request names the tenure that it finds at first, so no later holder is asked, however often it is
   * retried. It stays with that tenure until its time is over, even after an abort. While a request is pending, another
   * only counts if it ends sooner.
   *
   * @throws the reason of the `signal`, if that is aborted; the holder may have been asked
   * @throws LeaseholdError as `inspect`; `config` for a bad option; and `readOnly` if the server is a replica
   * @example
   * ```ts
   * if (!(await locker.requestYield("leader", { within: 10_000 }))) console.log("it goes on");
   * ```
   */
  async requestYield(name: string, options: YieldOptions): Promise<boolean> {
    checkAttached(this, Locker, "locker.requestYield");
    checkText("a lock's name", name);
    const read = readOptions("the options of requestYield", options, YIELD_OPTIONS);
    if (read.within === undefined) {
      throw config("the options of requestYield: within is missing: give the milliseconds that the holder has");
    }
    return requestYield(this.#host, name, this.#options.owner ?? defaultLabel(), read);
  }

  /**
   * Shuts the locker down and frees its locks.
   *
   * Its leases are lost with the reason `shutdown`, and the store frees them. Pending and later calls fail
   * with the code `shutdown`. The promise resolves when the store has confirmed, or after the `patience` (10
   * seconds by default) if the store does not reply. It never rejects. A client given to `Locker.from` stays
   * open.
   */
  async shutdown(): Promise<void> {
    checkAttached(this, Locker, "locker.shutdown");
    const ended = this.#host.shutdown();
    this.#closed?.abort(new LeaseholdError("shutdown", "the locker was shut down"));
    await ended;
  }

  /** Shuts the locker down, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.shutdown();
  }

  /**
   * Returns the locker's options, for logs and `JSON.stringify`. It leaves out the connection, whose URL may
   * contain a password.
   */
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
  readonly thread: boolean;
  readonly owner?: string | undefined;
}

/** Returns the settings with their defaults, checked before anything connects. */
function checked(options: LockerOptions | undefined): Checked {
  const settings = readSettings(options);
  check(settings);
  return settings;
}

/** Checks the settings, with the locker's owner as the owner of some lock. */
function check(settings: Checked): void {
  const any = readOptions("", undefined, LOCK_OPTIONS);
  checkSettings(settings, settings.owner === undefined ? undefined : specOf("n", any, settings));
}

/** Returns the specification of a lock from its options and those of its locker. */
function specOf(name: string, read: LockOptions, ofLocker: Checked): LockSpec {
  const { ttl = DEFAULT_TTL, fixed = false, reentrant = false, denseTokens: dense = false } = read;
  const { owner = ofLocker.owner, replicas = 0, replicasTimeout = 1_000, fsynced = false } = read;
  const reclaimable = owner !== undefined;
  const copies = replicas > 0 || fsynced ? { replicas, fsynced, timeout: replicasTimeout } : undefined;
  const { atMost: most = Infinity, atLeast: least = 0 } = read;
  const ages = most < Infinity || least > 0 ? { most, least } : undefined;
  const label = owner ?? defaultLabel();
  return { name, ttl, fixed, reentrant, owner: label, reclaimable, dense, copies, ages, tick: 0, retention: 0 };
}

function readSettings(options: LockerOptions | undefined): Checked {
  const read = readOptions("the options of a locker", options, LOCKER_OPTIONS);
  // Without a prototype, so that an absent owner is `undefined`.
  const settings: Checked = { __proto__: null, ...LOCKER_DEFAULTS, ...read } as Checked;
  const { connectTimeout } = settings;
  // The engine checks the other settings; it makes no connections.
  if (connectTimeout < 1 || connectTimeout > 60_000) {
    throw config(`connectTimeout must be from 1 ms to 60 s; got ${connectTimeout} ms`);
  }
  return settings;
}
