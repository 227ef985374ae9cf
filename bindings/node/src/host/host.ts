import { LeaseholdError, type LossReason } from "../common/errors.js";
import type { Finding, HolderInfo, Inspection } from "../common/types.js";
import { now, random, soon, startPulse, type Words } from "../common/platform.js";
import { isAborted, onAbort, reasonOf } from "../common/signals.js";
import {
  accept,
  acquire,
  type Admission,
  cancel,
  complete,
  defineLock,
  downgrade,
  type Engine,
  type LockSpec,
  newEngine,
  parsed,
  pass,
  release,
  renew,
  type Settings,
  type Share,
  shareLock,
  thrown,
} from "../module/wasm.js";
import { type Batch, type Reply, type Store, StoreHost } from "../store/store.js";
import { Alarm } from "./alarm.js";
import { Alive } from "./alive.js";
import { type Call, Calls, NOBODY } from "./calls.js";
import { and, Effects } from "./effects.js";
import type { Listed, LockHost } from "./lock-host.js";
import { Locks } from "./locks.js";
import { Outputs } from "./outputs.js";
import { Reader } from "./reader.js";
import { Servers } from "./servers.js";
import { Task } from "./task.js";
import type { LockState, Tenure } from "./tenure.js";

type Input = (engine: Engine, at: number) => void;
type CallInput = (engine: Engine, at: number, id: number) => void;

/** The most times that outputs wait because more inputs came. */
const MOST_DELAYS = 16;

/**
 * Connects a locker's engine to the world. It is the only place that runs the engine.
 *
 * It feeds an input, reads the outputs, and then, with the engine at rest, does what the outputs ask for.
 */
export class Host extends StoreHost implements LockHost {
  readonly server = 0;
  readonly #calls = new Calls(() => this.tick());
  readonly #readers = new Map<number, Reader>();
  readonly #locks = new Locks();
  readonly #servers: Servers;
  /** The counts of the previous engines, and those of all engines at the last look. */
  #countedBefore: readonly number[] = [];
  #counted: Iterable<number> = [];
  /** The number of tenures that were lost because an engine failed. */
  crashed = 0;
  readonly #alarm = new Alarm(() => this.tick());
  readonly #alive = new Alive(
    () => this.#calls.size > 0 || (this.#locks.held > 0 && !this.#isShutDown),
    (alive) => this.#keepAlive(alive),
    () => (this.#calls.size > 0 || this.#isShutDown ? [] : this.#locks.tenures()),
  );
  readonly #pulse = () => startPulse(() => this.tick());
  #engine: Engine;
  #outputs: Outputs;
  #lastReader = 0;
  /** True if notifications on the channel arrive; `undefined` until the engine asks for the channel. */
  #hears: boolean | undefined;
  #isShutDown = false;
  #restarting = false;
  /** The number of inputs since outputs were last read, and whether outputs will be read soon. */
  #fed = 0;
  #settling = false;

  constructor(readonly store: Store, private readonly settings: Settings) {
    super();
    this.#servers = new Servers(store.serverOf);
    [this.#engine, this.#outputs] = this.#newEngine();
    store.keepAlive(false);
    store.open(this);
  }

  get polled(): boolean {
    return this.store.polled;
  }

  get findings(): readonly Finding[] {
    return this.store.findings;
  }

  newLock(spec: LockSpec): LockState {
    const { name, ttl, fixed, reentrant, owner, reclaimable, dense, copies, ages, tick, retention, backlog, share } = spec;
    // No spread, which would take as long as everything else here.
    const lock = {
      name, ttl, fixed, reentrant, owner, reclaimable, dense, copies, ages, tick, retention, backlog, share,
      id: 0, uses: 0, tenures: [],
    };
    this.#define(lock);
    return lock;
  }

  inspect(name: string): Promise<Inspection> {
    return this.#ask((engine, at, id) => engine.inspect(at, id, name));
  }

  async list(pattern: string, from: string): Promise<Listed> {
    if (this.store.clustered) {
      const message = "the locks of a cluster cannot be listed: its keys are on several servers";
      throw new LeaseholdError("unsupported", message);
    }
    return this.#ask((engine, at, id) => engine.list(at, id, pattern, from));
  }

  forceRelease(name: string, token: number): Promise<HolderInfo | null> {
    return this.#ask((engine, at, id) => engine.forceRelease(at, id, name, token));
  }

  requestYield(name: string, by: string, within: number): Promise<HolderInfo | null> {
    return this.#ask((engine, at, id) => engine.requestYield(at, id, name, by, within));
  }

  acquire<Result>(
    lock: LockState,
    wait: number,
    signal: AbortSignal | undefined,
    finish: (call: Call<Tenure>) => Result,
    share?: Share,
  ): Promise<Result> {
    return this.#get(lock, wait, undefined, signal, finish, share);
  }

  accept<Result>(
    lock: LockState,
    ticket: string,
    signal: AbortSignal | undefined,
    finish: (call: Call<Tenure>) => Result,
  ): Promise<Result> {
    return this.#get(lock, 0, ticket, signal, finish);
  }

  /** Acquires a lock, or accepts a lease of it if there is a ticket. */
  #get<Result>(
    lock: LockState,
    wait: number,
    ticket: string | undefined,
    signal: AbortSignal | undefined,
    finish: (call: Call<Tenure>) => Result,
    share?: Share,
  ): Promise<Result> {
    if (isAborted(signal)) {
      throw reasonOf(signal);
    }
    this.#define(lock);
    const lease = random();
    const call = this.#call(
      lock,
      (engine, at, id) => {
        if (share !== undefined && (share.weight !== lock.share?.weight || share.kind !== lock.share.kind)) {
          shareLock(engine, lock.id, lock.name, share);
          lock.share = share;
        }
        const isDefined =
          ticket === undefined
            ? acquire(engine, at, id, lock.id, wait, lease)
            : accept(engine, at, id, lock.id, ticket, lease);
        if (!isDefined) {
          throw new LeaseholdError("config", "a lock was acquired before it was defined");
        }
      },
      finish,
      signal && ((id) => onAbort(signal, () => this.#cancel(id, signal, lock, lease))),
    );
    return call.promise as Promise<Result>;
  }

  begun(tenure: Tenure): void {
    tenure.keepTime(this.#pulse);
  }

  release(tenure: Tenure, finish?: (call: Call) => void, completes = false): Promise<void> {
    tenure.giveUp();
    const { lock, lease } = tenure;
    const end = completes ? complete : release;
    const call = this.#call(lock, (engine, at, id) => end(engine, at, id, lease), finish);
    return call.promise as Promise<void>;
  }

  async pass(tenure: Tenure): Promise<string> {
    const { lock, lease } = tenure;
    const ticket = await this.#call<string>(lock, (engine, at, id) => pass(engine, at, id, lease)).promise;
    tenure.giveUp();
    return ticket as string;
  }

  renew({ lock, lease }: Tenure, ttl: number | undefined): Promise<void> {
    return this.#call(lock, (engine, at, id) => renew(engine, at, id, lease, ttl)).promise as Promise<void>;
  }

  downgrade({ lock, lease }: Tenure): Promise<void> {
    return this.#call(lock, (engine, at, id) => downgrade(engine, at, id, lease)).promise as Promise<void>;
  }

  resize(lock: LockState, capacity: number): Promise<number> {
    this.#define(lock);
    return this.#call<number>(lock, (engine, at, id) => {
      engine.resize(at, id, lock.id, capacity);
    }).promise as Promise<number>;
  }

  addReader(lock?: LockState): Reader {
    const reader = new Reader(this, (this.#lastReader += 1), lock);
    if (lock !== undefined) {
      lock.uses += 1;
    }
    this.#readers.set(reader.id, reader);
    this.#attach(reader);
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

  /**
   * Returns the reader's next event as JSON; an empty string at the end; `undefined` if there is no event
   * yet.
   */
  nextEvent(reader: Reader): string | undefined {
    let event: string | undefined;
    this.step((engine, at) => {
      event = engine.nextEvent(at, reader.id);
    });
    return event;
  }

  counts(length: number, gauges: number): [counted: readonly number[], crashed: number] {
    let own: number[] = Array.from({ length }, () => 0);
    this.#use((engine) => {
      own = this.#outputs.counts(engine, length);
    });
    // Gauges count this engine alone.
    const counted = own.map((number, at) => number + (at < gauges ? 0 : (this.#countedBefore[at] ?? 0)));
    this.#counted = counted;
    return [counted, this.crashed];
  }

  /** Copies the counted numbers, the first of which are gauges. The array stays this host's until the next. */
  copyCounts(into: Float64Array, gauges: number): void {
    this.#use((engine) => this.#outputs.copyCounts(engine, into));
    this.#countedBefore.forEach((number, at) => {
      if (at >= gauges) {
        into[at] = (into[at] ?? 0) + number;
      }
    });
    this.#counted = into;
  }

  async shutdown(): Promise<void> {
    // A failure of the engine here ends everything, too.
    await this.#call(undefined, (engine, at, id) => engine.shutdown(at, id)).promise.catch(() => {});
    this.step((engine) => engine.endReaders());
    await this.store.close(this);
    // The engine retries unconfirmed releases as long as the connection lasts, but nothing waits for them.
    this.#isShutDown = true;
    this.#alive.update();
  }

  override connected(): void {
    this.step((engine, at) => this.#servers.connected(engine, at));
  }

  override hears(hears: boolean): void {
    this.#hears = hears;
    super.hears(hears);
  }

  /** A batch was executed, with this reply. A reply that comes too late is ignored. */
  replied(engine: Engine, batch: Batch, reply: Reply): void {
    if (engine !== this.#engine) {
      return;
    }
    this.#stepSoon((_, at) => {
      const server = this.#server(engine, at, batch);
      if (typeof reply === "number") {
        engine.reply(at, server, batch.request, reply);
      } else {
        engine.replyFields(at, server, batch.request, reply);
      }
    });
  }

  replyFailed(engine: Engine, batch: Batch, { code, message }: LeaseholdError): void {
    if (engine === this.#engine) {
      this.step((_, at) =>
        engine.replyFailed(at, this.#server(engine, at, batch), batch.request, code, message),
      );
    }
  }

  /** Returns the server that a batch was for; on a cluster, the server that serves the slot now. */
  #server(engine: Engine, at: number, { place }: Batch): number {
    return this.store.clustered ? this.#servers.serving(engine, at, place) : place;
  }

  /** Feeds the engine and does what its outputs ask for. Outputs of earlier inputs come first. */
  step(input: Input): void {
    if (this.#fed > 0) {
      this.#settle();
    }
    this.#feed(input);
    this.#settle();
  }

  /** Makes a call that is not about a lock of this host. */
  #ask<Answer>(begin: CallInput): Promise<Answer> {
    return this.#call(undefined, begin).promise as Promise<Answer>;
  }

  /** Makes a call. `begin` feeds it to the engine; `listen` listens for what may cancel it. */
  #call<Answer>(
    lock: LockState | undefined,
    begin: CallInput,
    finish?: (call: Call<Answer>) => unknown,
    listen?: (id: number) => () => void,
  ): Call<Answer> {
    const call = this.#calls.add<Answer>(lock);
    call.finish = finish;
    try {
      call.stopListening = listen?.(call.id);
      this.#stepSoon(begin, call.id);
    } catch (error) {
      this.#calls.take(call.id)?.fail(error);
    }
    return call;
  }

  stepEach(input: (engine: Engine, at: number, server: number) => void): void {
    this.step((engine, at) => {
      for (const server of this.#servers.numbers) {
        input(engine, at, server);
      }
    });
  }

  /**
   * Feeds the engine, and does what its outputs ask for only after all inputs of this turn. So operations
   * that are asked for together leave in one batch, which makes them cheap.
   */
  #stepSoon(input: CallInput, id = NOBODY): void {
    this.#feed(input, id);
    if (!this.#settling) {
      this.#settling = true;
      this.#settleSoon(MOST_DELAYS);
    }
  }

  #settleSoon(delays: number): void {
    const fed = this.#fed;
    soon(() => {
      if (this.#fed > fed && delays > 0) {
        this.#settleSoon(delays - 1);
        return;
      }
      this.#settling = false;
      if (this.#fed > 0) {
        this.#settle();
      }
    });
  }

  #feed(input: CallInput, id = NOBODY): void {
    this.#fed += 1;
    // It does the same as `#use`, without allocating a function for each input.
    try {
      input(this.#engine, now(), id);
    } catch (error) {
      this.#failed(error);
    }
  }

  #settle(): void {
    const effects = new Effects();
    this.#fed = 0;
    const engine = this.#use((used) => {
      this.#outputs.take(used);
      this.#drain(this.#outputs, effects);
      this.#alarm.set(this.#outputs.deadline);
    });
    if (engine !== undefined) {
      this.#do(engine, effects);
    }
  }

  /** Runs a function on the engine, and returns that engine; `undefined` if it failed and was replaced. */
  #use(use: (engine: Engine) => void): Engine | undefined {
    const engine = this.#engine;
    try {
      use(engine);
      return engine;
    } catch (error) {
      this.#failed(error);
      return undefined;
    }
  }

  /** Throws an error that the engine reported. Replaces an engine that failed. */
  #failed(error: unknown): void {
    const failure = thrown(error);
    if (failure instanceof LeaseholdError) {
      throw failure;
    }
    this.store.abandon(this, error);
  }

  /** Replaces an engine that failed, and ends its tenures and calls. */
  restart(cause: unknown): void {
    if (this.#restarting) {
      // The new engine failed at its start. The next use of it fails, too, and leads here again.
      return;
    }
    const tenures = this.#locks.tenures();
    this.#countedBefore = [...this.#counted];
    this.crashed += tenures.length;
    const calls = this.#calls.takeAll();
    this.store.unsubscribe(this);
    this.#locks.clear();
    this.#fed = 0;
    this.#hears = undefined;
    for (const reader of this.#readers.values()) {
      reader.crashed(tenures);
    }
    this.#restarting = true;
    try {
      [this.#engine, this.#outputs] = this.#newEngine();
      this.#readers.forEach((reader) => this.#attach(reader));
      if (this.#isShutDown) {
        this.step((engine, at) => engine.shutdown(at, NOBODY));
      } else {
        this.store.open(this);
      }
    } catch {
      // There may be no memory for another engine. The next use of the old one fails, and leads here again.
    }
    this.#restarting = false;
    tenures.forEach((tenure) => tenure.lose("crashed"));
    for (const call of calls) {
      call.fail(new LeaseholdError("internal", "the lock engine failed and was replaced", { cause }));
    }
    this.#readers.forEach((reader) => reader.wake());
    this.#alive.update();
  }

  #newEngine(): [Engine, Outputs] {
    const { clustered, members, wire } = this.store;
    const glue = this.store.instance();
    const shape = { clustered, members, command: wire === "command" };
    return [newEngine(glue, this.settings, shape), new Outputs(glue.memory)];
  }

  #attach({ id, lock }: Reader): void {
    if (lock !== undefined) {
      this.#define(lock);
    }
    this.step((engine, at) => engine.addReader(at, id, lock?.id));
  }

  /** Makes a lock known to the engine, unless it already is. */
  #define(lock: LockState): void {
    if (lock.id !== 0) {
      return;
    }
    // Programs often make a new handle for each use of a name. The last handle's number is free by then.
    const old = this.#locks.like(lock);
    if (old !== undefined && this.#locks.replace(old, lock)) {
      return;
    }
    let id = 0;
    const define = (engine: Engine) => {
      id = this.#locks.newId();
      // Copying a known lock is cheaper than defining one from its texts.
      const like = this.#locks.like(lock);
      if (like === undefined || !engine.defineLike(id, like.id)) {
        defineLock(engine, id, lock);
      }
    };
    // If the engine fails here it is replaced, and the next one must know the lock, too.
    this.#use(define) ?? this.#use(define);
    this.#locks.add(id, lock);
    for (const unused of this.#locks.takeUnused(lock)) {
      this.#use((engine) => engine.forget(unused));
    }
  }

  #drain(outputs: Outputs, effects: Effects): void {
    while (outputs.more) {
      const task: Task = outputs.number();
      switch (task) {
        case Task.Send:
          effects.sends = and(effects.sends, outputs.batch(this.store.wire));
          break;
        case Task.Admitted: {
          outputs.number();
          const admission = JSON.parse(outputs.text()) as Admission;
          // `Acquired` follows, for the same call.
          outputs.number();
          this.#acquired(outputs, effects, admission);
          break;
        }
        case Task.Acquired:
          this.#acquired(outputs, effects);
          break;
        case Task.Done:
        case Task.Busy:
          this.#answered(this.#calls.take(outputs.number()), undefined, effects);
          break;
        case Task.Answer:
          this.#answered(this.#calls.take(outputs.number()), JSON.parse(outputs.text()), effects);
          break;
        case Task.Failed:
          this.#answered(this.#calls.takeFailed(outputs.number(), parsed(outputs.text())), undefined, effects);
          break;
        case Task.Deadline:
          this.#locks.moveDeadline(outputs);
          break;
        case Task.Lost:
          this.#lost(this.#locks.takeTenure(outputs), outputs.text() as LossReason, effects);
          break;
        case Task.Released:
          this.#locks.takeTenure(outputs)?.mirror?.over(undefined);
          break;
        default:
          effects.others = and(effects.others, this.#other(task, outputs));
      }
    }
  }

  /** Reads an effect that runs after sends, losses and answers. */
  #other(task: Task, outputs: Outputs): () => void {
    const number = outputs.number();
    switch (task) {
      case Task.Subscribe: {
        const engine = this.#engine;
        return () => engine === this.#engine && this.#subscribe(engine, number);
      }
      case Task.Wake:
        return () => this.#readers.get(number)?.wake();
      case Task.Watch: {
        const keys = outputs.texts();
        return () => this.store.watch(this, keys, number);
      }
      default:
        return () => this.store.suspect(task === Task.Demoted, number);
    }
  }

  /** Does what the outputs ask for, after all outputs were read: any of it may feed the engine again. */
  #do(engine: Engine, effects: Effects): void {
    for (const batch of effects.sends) {
      if (engine === this.#engine) {
        this.store.execute(this, engine, batch);
      }
    }
    for (const [tenure, reason] of effects.losses) {
      tenure.lose(reason);
    }
    // Answers come after losses, so callers that lost a lease know why.
    for (const call of effects.answered) {
      call.settle();
    }
    for (const act of effects.others) {
      act();
    }
    this.#alive.update();
    this.settled();
  }

  /** Is called when everything that the outputs asked for has been done. */
  protected settled(): void {
    // A host whose program is in another thread overrides it.
  }

  /**
   * Subscribes to the client's channel. One subscription serves all servers of a cluster; each server of a
   * quorum has its own.
   */
  #subscribe(engine: Engine, server: number): void {
    if (this.#hears === undefined || this.store.members !== undefined) {
      this.#hears = false;
      this.store.subscribe(this, engine.channel(), this.settings.tracking, server);
    } else if (this.#hears) {
      this.step((own, at) => own.hears(at, server, true));
    }
  }

  #acquired(outputs: Outputs, effects: Effects, admission?: Admission): void {
    const call = this.#calls.take(outputs.number());
    const tenure = this.#locks.acquired(outputs, call?.lock);
    const waited = outputs.number();
    if (call !== undefined) {
      call.waited = waited;
    }
    if (tenure !== undefined && admission !== undefined) {
      tenure.admission = admission;
    }
    this.#answered(call, tenure, effects);
  }

  #answered(call: Call | undefined, answer: unknown, effects: Effects): void {
    if (call !== undefined) {
      call.answer = answer;
      effects.answered = and(effects.answered, call);
    }
  }

  #lost(tenure: Tenure | undefined, reason: LossReason, effects: Effects): void {
    if (tenure !== undefined) {
      effects.losses = and(effects.losses, [tenure, reason] as const);
    }
  }

  #cancel(id: number, signal: AbortSignal, lock: LockState, lease: Words): void {
    if (!this.#calls.has(id)) {
      // The call has its answer, which is about to be delivered.
      return;
    }
    // An earlier input may still bring its answer.
    this.#feed((engine, at) => cancel(engine, at, id, lock.id, lease));
    this.#settle();
    this.#calls.take(id)?.fail(reasonOf(signal));
  }

  /** Tells the engine that time has passed. */
  tick(): void {
    this.#alarm.clear();
    this.step((engine, at) => engine.tick(at));
  }

  #keepAlive(alive: boolean): void {
    this.#alarm.keepAlive(alive);
    this.store.keepAlive(alive);
  }
}
