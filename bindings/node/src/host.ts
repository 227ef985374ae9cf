import { LeaseholdError } from "./errors.js";
import { Reader } from "./events.js";
import { keepAlive, now, random, startPulse, startTimer, type Timer } from "./platform.js";
import { parsed, type Store } from "./store.js";
import { Tenure, type LockState } from "./tenure.js";
import type { LossReason } from "./types.js";
import type { Engine, Glue } from "./wasm.js";

/** What a host is made with. */
export interface Settings {
  readonly namespace: string;
  readonly commandTimeout: number;
  readonly patience: number;
  readonly tokenRetention: number;
}

/** What an acquisition got. */
export interface Acquired {
  readonly tenure: Tenure;
  /** Milliseconds that the call waited. */
  readonly waited: number;
}

/** A call that waits for the engine's answer. */
interface Call {
  /** Of an acquisition. */
  readonly lock: LockState | undefined;
  readonly resolve: (answer: unknown) => void;
  readonly reject: (error: unknown) => void;
}

/** How many locks the engine may know that nobody uses just now. */
const MOST_UNUSED = 1_024;

/** After so many batches in a row without an answer the connection is looked at. */
const TIMEOUTS_TO_SUSPECT = 2;

/**
 * Joins one locker's engine and the world: the only place that runs the engine. An input is fed, the
 * outputs are taken, and then, with the engine at rest, what they ask for is done.
 */
export class Host {
  readonly #settings: Settings;
  readonly #store: Store;
  readonly #calls = new Map<number, Call>();
  readonly #readers = new Map<number, Reader>();
  /** What the engine knows, the longest unused first. */
  readonly #locks = new Map<number, LockState>();
  /** When nobody waits for the answer to a batch any more. */
  readonly #unanswered = new Map<number, number>();
  #earliest = Infinity;
  #timeouts = 0;
  #held = 0;
  #engine: Engine;
  #lastId = 0;
  #timer: Timer | undefined;
  #armed = Infinity;
  #alive = false;
  #subscribed = false;

  constructor(store: Store, settings: Settings) {
    this.#store = store;
    this.#settings = settings;
    this.#engine = this.#newEngine();
    store.keepAlive(false);
    store.open(this);
  }

  /** What a lock is, checked. */
  newLock(options: Omit<LockState, "id" | "uses" | "tenure">): LockState {
    const lock = { ...options, id: 0, uses: 0, tenure: undefined };
    this.#define(lock);
    return lock;
  }

  /** A walk goes through one server's keys. */
  checkWalk(): void {
    if (this.#store.clustered) {
      const message = "the locks of a cluster cannot be listed: its keys are on several servers";
      throw new LeaseholdError("unsupported", message);
    }
  }

  /** Makes a call; `begin` tells the engine of it. */
  call<Answer>(
    begin: (engine: Engine, at: number, id: number) => void,
    lock?: LockState,
    signal?: AbortSignal,
  ): Promise<Answer> {
    return new Promise<Answer>((resolve, reject) => {
      const id = (this.#lastId += 1);
      const abort = () => this.#cancel(id, lock, signal);
      const stopPulse = startPulse(() => this.tick());
      const ended =
        <Value>(then: (value: Value) => void) =>
        (value: Value) => {
          stopPulse();
          signal?.removeEventListener("abort", abort);
          then(value);
        };
      this.#calls.set(id, {
        lock,
        resolve: ended(resolve as (answer: unknown) => void),
        reject: ended(reject),
      });
      signal?.addEventListener("abort", abort, { once: true });
      try {
        this.step((engine, at) => begin(engine, at, id));
      } catch (error) {
        this.#take(id)?.reject(error);
      }
    });
  }

  /** Acquires a lock; nothing if somebody else has it for so many milliseconds. */
  async acquire(
    lock: LockState,
    wait: number,
    signal?: AbortSignal,
  ): Promise<Acquired | undefined> {
    signal?.throwIfAborted();
    lock.uses += 1;
    try {
      this.#define(lock);
      const [r0 = 0, r1 = 0, r2 = 0, r3 = 0] = random(4);
      const begin = (engine: Engine, at: number, id: number) =>
        engine.acquire(at, id, lock.id, wait, r0, r1, r2, r3);
      const acquired = await this.call<Acquired | undefined>(begin, lock, signal);
      acquired?.tenure.keepTime(() => startPulse(() => this.tick()));
      return acquired;
    } finally {
      lock.uses -= 1;
    }
  }

  /** Adds a reader of the events of one lock, or of all. */
  addReader(lock?: LockState): Reader {
    const reader = new Reader(this, (this.#lastId += 1), lock);
    if (lock !== undefined) {
      lock.uses += 1;
      this.#define(lock);
    }
    this.#readers.set(reader.id, reader);
    this.step((engine, at) => engine.addReader(at, reader.id, lock?.id));
    return reader;
  }

  removeReader(reader: Reader): void {
    if (this.#readers.delete(reader.id)) {
      if (reader.lock !== undefined) {
        reader.lock.uses -= 1;
      }
      this.step((engine) => engine.removeReader(reader.id));
    }
  }

  /** The reader's next event in JSON, empty at the end; nothing if there is none yet. */
  nextEvent(reader: Reader): string | undefined {
    let event: string | undefined;
    this.step((engine, at) => {
      event = engine.nextEvent(at, reader.id);
    });
    return event;
  }

  /** Ends every tenure, and lets go of the store. */
  async shutdown(): Promise<void> {
    await this.call((engine, at, id) => engine.shutdown(at, id));
    this.step((engine) => engine.endReaders());
    await this.#store.close(this);
  }

  connected(): void {
    this.#unanswered.clear();
    this.step((engine, at) => engine.connected(at));
  }

  disconnected({ code, message }: LeaseholdError): void {
    this.#unanswered.clear();
    this.step((engine, at) => engine.disconnected(at, code, message));
  }

  subscribed(): void {
    this.step((engine, at) => engine.subscribed(at));
  }

  unsubscribed(): void {
    this.step((engine, at) => engine.unsubscribed(at));
  }

  pushed(text: string): void {
    this.step((engine, at) => engine.push(at, text));
  }

  /** A batch was answered. */
  replied(engine: Engine, request: number, fields: string): void {
    this.#timeouts = 0;
    if (engine === this.#engine && this.answered(request)) {
      let demoted = false;
      this.step((_, at) => {
        demoted = engine.reply(at, request, fields);
      });
      if (demoted) {
        this.#store.suspect();
      }
    }
  }

  replyFailed(engine: Engine, request: number, { code, message }: LeaseholdError): void {
    if (engine === this.#engine && this.answered(request)) {
      this.step((_, at) => engine.replyFailed(at, request, code, message));
    }
  }

  /** Whether somebody still waits for the answer; nobody does from now on. */
  answered(request: number): boolean {
    return this.#unanswered.delete(request);
  }

  /** Feeds the engine, and does what it asks for. */
  step(input: (engine: Engine, at: number) => void): void {
    const engine = this.#engine;
    const effects: Effects = { sends: [], losses: [], wakes: [], subscribes: false };
    try {
      input(engine, now());
      this.#drain(engine, effects);
      this.#arm(engine.wakeAt());
    } catch (error) {
      if (typeof error === "string") {
        throw parsed(error);
      }
      if (error instanceof LeaseholdError) {
        throw error;
      }
      this.#store.abandon(this, error);
      return;
    }
    this.#do(engine, effects);
  }

  /** The engine failed: everything that it kept is lost, and a new one takes its place. */
  restart(cause: unknown): void {
    const failed = () =>
      new LeaseholdError("internal", "the lock engine failed and was replaced", { cause });
    const tenures = [...this.#locks.values()].flatMap(({ tenure }) => tenure ?? []);
    const calls = [...this.#calls.values()];
    this.#calls.clear();
    this.#unanswered.clear();
    this.#store.unsubscribe(this);
    this.#subscribed = false;
    for (const lock of this.#locks.values()) {
      lock.id = 0;
      lock.tenure = undefined;
    }
    this.#locks.clear();
    this.#held = 0;
    this.#engine = this.#newEngine();
    for (const reader of this.#readers.values()) {
      reader.crashed(tenures);
      if (reader.lock !== undefined) {
        this.#define(reader.lock);
      }
      this.#engine.addReader(now(), reader.id, reader.lock?.id);
    }
    this.#store.open(this);
    tenures.forEach((tenure) => tenure.lose("crashed"));
    calls.forEach((call) => call.reject(failed()));
    this.#readers.forEach((reader) => reader.wake());
    this.#arm(this.#engine.wakeAt());
  }

  #newEngine(): Engine {
    const glue: Glue = this.#store.instance();
    const { namespace, commandTimeout, patience, tokenRetention } = this.#settings;
    const [high = 0, low = 0] = random(2);
    try {
      return new glue.Engine(
        high,
        low,
        namespace,
        commandTimeout,
        patience,
        tokenRetention,
        this.#store.clustered,
      );
    } catch (error) {
      throw typeof error === "string" ? parsed(error) : error;
    }
  }

  /** Tells the engine what a lock is, if it does not know it. */
  #define(lock: LockState): void {
    if (lock.id !== 0) {
      return;
    }
    const id = (this.#lastId += 1);
    const { name, ttl, fixed, owner, reclaimable, dense } = lock;
    this.step((engine) => engine.define(id, name, ttl, fixed, owner, reclaimable, dense));
    lock.id = id;
    this.#locks.set(id, lock);
    this.#forgetUnused();
  }

  #forgetUnused(): void {
    let looks = this.#locks.size > MOST_UNUSED ? 4 : 0;
    for (const [id, lock] of this.#locks) {
      if (looks === 0) {
        break;
      }
      looks -= 1;
      this.#locks.delete(id);
      if (lock.uses > 0 || lock.tenure !== undefined) {
        this.#locks.set(id, lock);
      } else {
        lock.id = 0;
        this.step((engine) => engine.forget(id));
      }
    }
  }

  #drain(engine: Engine, effects: Effects): void {
    for (let task = engine.poll(); task !== 0; task = engine.poll()) {
      const id = engine.id;
      switch (task) {
        case 1:
          effects.sends.push([id, engine.deadline]);
          break;
        case 2:
          this.#acquired(engine, id);
          break;
        case 3:
        case 4:
          this.#take(id)?.resolve(undefined);
          break;
        case 5:
          this.#take(id)?.resolve(JSON.parse(engine.takeText()));
          break;
        case 6:
          this.#failed(id, engine.takeText());
          break;
        case 7:
          this.#renewed(id, engine.token, engine.deadline);
          break;
        case 8:
          this.#ended(id, engine.token, engine.takeText() as LossReason, effects);
          break;
        case 9:
          this.#ended(id, engine.token, undefined, effects);
          break;
        case 10:
          effects.subscribes = true;
          break;
        case 11:
          effects.wakes.push(id);
          break;
      }
    }
  }

  /** What the outputs ask for, with the engine at rest: it may be fed again by all of it. */
  #do(engine: Engine, effects: Effects): void {
    for (const [request, deadline] of effects.sends) {
      this.#unanswered.set(request, deadline);
      this.#earliest = Math.min(this.#earliest, deadline);
    }
    this.#arm(this.#earliest);
    for (const [request, deadline] of effects.sends) {
      if (engine === this.#engine) {
        this.#store.execute(this, engine, request, deadline);
      }
    }
    for (const [tenure, reason] of effects.losses) {
      tenure.lose(reason);
    }
    for (const id of effects.wakes) {
      this.#readers.get(id)?.wake();
    }
    if (effects.subscribes && !this.#subscribed && engine === this.#engine) {
      this.#subscribed = true;
      this.#store.subscribe(this, engine.channel());
    }
    this.#stayAlive();
  }

  #acquired(engine: Engine, id: number): void {
    const call = this.#take(id);
    const lock = call?.lock;
    if (call === undefined || lock === undefined) {
      return;
    }
    const { token } = engine;
    let { tenure } = lock;
    if (tenure?.token !== token) {
      this.#held += tenure === undefined ? 1 : 0;
      tenure = new Tenure(lock, token, engine.began, engine.deadline);
      lock.tenure = tenure;
    }
    tenure.leases += 1;
    const acquired: Acquired = { tenure, waited: engine.waited };
    call.resolve(acquired);
  }

  #failed(id: number, json: string): void {
    const call = this.#take(id);
    if (call !== undefined) {
      const error = parsed(json);
      const about = call.lock === undefined ? "" : `lock ${JSON.stringify(call.lock.name)}: `;
      call.reject(about === "" ? error : new LeaseholdError(error.code, about + error.message));
    }
  }

  #renewed(id: number, token: number, deadline: number): void {
    const tenure = this.#locks.get(id)?.tenure;
    if (tenure?.token === token) {
      tenure.deadline = Math.max(tenure.deadline, deadline);
    }
  }

  #ended(id: number, token: number, reason: LossReason | undefined, effects: Effects): void {
    const lock = this.#locks.get(id);
    const tenure = lock?.tenure;
    if (lock !== undefined && tenure?.token === token) {
      lock.tenure = undefined;
      this.#held -= 1;
      if (reason !== undefined) {
        effects.losses.push([tenure, reason]);
      }
    }
  }

  #take(id: number): Call | undefined {
    const call = this.#calls.get(id);
    this.#calls.delete(id);
    return call;
  }

  #cancel(id: number, lock: LockState | undefined, signal: AbortSignal | undefined): void {
    const call = this.#take(id);
    if (call !== undefined) {
      this.step((engine, at) => engine.cancel(at, id, lock?.id));
      call.reject(signal?.reason);
    }
  }

  #arm(at: number): void {
    if (at < this.#armed) {
      clearTimeout(this.#timer);
      this.#armed = at;
      this.#timer = startTimer(() => this.tick(), at - now());
      keepAlive(this.#timer, this.#alive);
    }
  }

  /** Time passed. */
  tick(): void {
    clearTimeout(this.#timer);
    this.#armed = Infinity;
    this.#timer = undefined;
    this.#giveUp(now());
    this.step((engine, at) => engine.tick(at));
    this.#arm(this.#earliest);
  }

  /** Nobody waits any longer for what should have been answered by now. */
  #giveUp(at: number): void {
    if (this.#earliest > at) {
      return;
    }
    this.#earliest = Infinity;
    for (const [request, deadline] of this.#unanswered) {
      if (deadline > at) {
        this.#earliest = Math.min(this.#earliest, deadline);
        continue;
      }
      this.#unanswered.delete(request);
      this.step((engine, time) => engine.replyTimedOut(time, request));
      this.#timeouts += 1;
      if (this.#timeouts >= TIMEOUTS_TO_SUSPECT) {
        this.#store.suspect();
      }
    }
  }

  #stayAlive(): void {
    const alive = this.#calls.size > 0 || this.#held > 0;
    if (alive !== this.#alive) {
      this.#alive = alive;
      keepAlive(this.#timer, alive);
      this.#store.keepAlive(alive);
    }
  }
}

/** What is to be done once the engine is at rest. */
interface Effects {
  /** Requests and their deadlines. */
  readonly sends: [request: number, deadline: number][];
  readonly losses: [tenure: Tenure, reason: LossReason][];
  readonly wakes: number[];
  subscribes: boolean;
}
