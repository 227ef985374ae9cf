import { LeaseholdError } from "../common/errors.js";
import { keepAlive, now, startTimer, stopTimer, type Timer } from "../common/platform.js";
import { isAborted, onAbort, reasonOf } from "../common/signals.js";
import type { Finding, HolderInfo, Inspection } from "../common/types.js";
import { Alarm } from "../host/alarm.js";
import { Alive } from "../host/alive.js";
import { type Call, Calls } from "../host/calls.js";
import type { Listed, LockHost } from "../host/lock-host.js";
import { Locks } from "../host/locks.js";
import { Reader } from "../host/reader.js";
import type { LockState, Tenure } from "../host/tenure.js";
import type { Admission, LockSpec, Share } from "../module/wasm.js";
import { Inflows } from "./inflows.js";
import { Link, type Opening } from "./link.js";
import { SharedTenure } from "./tenure.js";
import { Thread } from "./thread.js";
import { Ask, type Batch, NONE, Reading, reasonAt, Told } from "./wire.js";

/** The least time in milliseconds between the starts of two worker threads. */
const PAUSE = 1_000;

/** Milliseconds that the worker thread may take to shut a locker down, beyond the patience. */
const SLACK = 3_000;

/** Milliseconds between two looks at held leases. */
const LOOK = 2_000;

/** The place of the failed acquisitions among the counted numbers: see `statsOf`. */
const FAILED = 4;

/**
 * The host of a locker whose engine runs in the worker thread. It passes calls on, and keeps for the program
 * what the other thread reports.
 */
export class ThreadHost implements LockHost {
  polled = false;
  readonly #calls = new Calls(() => {});
  readonly #locks = new Locks();
  readonly #inflows = new Inflows((reader) => {
    this.#link?.send(Ask.NextEvent, reader);
    return this.#link !== undefined;
  });
  readonly #alive = new Alive(
    () => this.#calls.size > 0 || (this.#locks.held > 0 && !this.#isShutDown),
    (alive) => this.#keepAlive(alive),
    () => (this.#calls.size > 0 || this.#isShutDown ? [] : this.#locks.tenures()),
  );
  /** Rings at the earliest deadline that was seen. */
  readonly #alarm = new Alarm(() => this.#expire());
  /** The tenures by their slots. */
  #tenures: (SharedTenure | undefined)[] = [];
  /** The link to the worker thread; `undefined` from its failure to the next call, and after a shutdown. */
  #link: Link | undefined;
  #startedAt = 0;
  #failed: LeaseholdError | undefined;
  #keptAlive = true;
  /** The findings when the locker was made, and those since then. */
  #atOpening: readonly Finding[] | undefined;
  #findings: readonly Finding[] = [];
  #lastReader = 0;
  #watching = false;
  #isShutDown = false;
  #shutdown: Promise<void> | undefined;
  /** The counts of the threads that failed, and those of all threads at the last look. */
  #countedBefore: readonly number[] = [];
  #counted: readonly number[] = [];
  /** The number of tenures that were lost because a thread failed. */
  #crashed = 0;
  /** The number of acquisitions that were refused after the thread was shut down. */
  #refused = 0;
  #opened!: () => void;
  #notOpened!: (error: unknown) => void;

  private constructor(private readonly opening: Opening, private readonly checkLock: (spec: LockSpec) => void) {}

  /**
   * Begins in the worker thread, which the first locker starts, and resolves when the store is open.
   *
   * @param checkLock throws the error in the specification of a lock
   */
  static async open(opening: Opening, checkLock: (spec: LockSpec) => void): Promise<ThreadHost> {
    const host = new ThreadHost(opening, checkLock);
    const open = new Promise<void>((resolve, reject) => ([host.#opened, host.#notOpened] = [resolve, reject]));
    host.#start(opening);
    await open;
    host.#keepAlive(false);
    return host;
  }

  get findings(): readonly Finding[] {
    return [...(this.#atOpening ?? []), ...this.#findings];
  }

  newLock(spec: LockSpec): LockState {
    this.checkLock(spec);
    return { share: undefined, ...spec, id: 0, uses: 0, tenures: [] };
  }

  inspect(name: string): Promise<Inspection> {
    return this.#ask(Ask.Inspect, name);
  }

  list(pattern: string, from: string): Promise<Listed> {
    return this.#ask(Ask.List, pattern, from);
  }

  forceRelease(name: string, token: number): Promise<HolderInfo | null> {
    return this.#ask(Ask.ForceRelease, name, token);
  }

  requestYield(name: string, by: string, within: number): Promise<HolderInfo | null> {
    return this.#ask(Ask.RequestYield, name, by, within);
  }

  acquire<Result>(
    lock: LockState,
    wait: number,
    signal: AbortSignal | undefined,
    finish: (call: Call<Tenure>) => Result,
    share?: Share,
  ): Promise<Result> {
    return this.#get(Ask.Acquire, lock, wait, signal, finish, share);
  }

  accept<Result>(
    lock: LockState,
    ticket: string,
    signal: AbortSignal | undefined,
    finish: (call: Call<Tenure>) => Result,
  ): Promise<Result> {
    return this.#get(Ask.Accept, lock, ticket, signal, finish);
  }

  /** Gets a lock in a way that takes a time to wait, or a ticket. */
  #get<Result>(
    way: Ask,
    lock: LockState,
    how: number | string,
    signal: AbortSignal | undefined,
    finish: (call: Call<Tenure>) => Result,
    share?: Share,
  ): Promise<Result> {
    if (isAborted(signal)) {
      throw reasonOf(signal);
    }
    const call = this.#call(lock, finish, (own) => {
      this.#refused += this.#isShutDown ? 1 : 0;
      const link = this.#linked();
      this.#define(link, lock);
      if (signal !== undefined) {
        own.stopListening = onAbort(signal, () => this.#cancel(own, signal));
      }
      link.send(way, own.id, lock.id, how, link.slots.take(), signal !== undefined, share);
    });
    return call.promise as Promise<Result>;
  }

  begun(): void {
    // Only the runtimes without worker threads have pulses.
  }

  release(tenure: Tenure, finish?: (call: Call) => void, completes = false): Promise<void> {
    tenure.giveUp();
    const { slot, over } = tenure as SharedTenure;
    const call = this.#call(tenure.lock, finish, ({ id }) => {
      // Its slot may belong to another tenure.
      if (over) {
        throw notHeld();
      }
      this.#linked().send(Ask.Release, id, slot, completes);
    });
    return call.promise as Promise<void>;
  }

  async pass(tenure: Tenure): Promise<string> {
    const { lock, slot, over } = tenure as SharedTenure;
    const call = this.#call<string>(lock, undefined, ({ id }) => {
      if (over) {
        throw notHeld();
      }
      this.#linked().send(Ask.Pass, id, slot);
    });
    const ticket = await call.promise;
    tenure.giveUp();
    return ticket as string;
  }

  renew(tenure: Tenure, ttl: number | undefined): Promise<void> {
    return this.#extend(tenure, Ask.Renew, ttl);
  }

  downgrade(tenure: Tenure): Promise<void> {
    return this.#extend(tenure, Ask.Downgrade);
  }

  #extend(tenure: Tenure, ask: Ask, ...values: unknown[]): Promise<void> {
    const { lock, slot, over } = tenure as SharedTenure;
    const call = this.#call(lock, undefined, ({ id }) => {
      if (over && !this.#isShutDown) {
        throw notHeld();
      }
      this.#linked().send(ask, id, slot, ...values);
    });
    return call.promise as Promise<void>;
  }

  resize(lock: LockState, capacity: number): Promise<number> {
    const call = this.#call<number>(lock, undefined, ({ id }) => {
      const link = this.#linked();
      this.#define(link, lock);
      link.send(Ask.Resize, id, lock.id, capacity);
    });
    return call.promise as Promise<number>;
  }

  addReader(lock?: LockState): Reader {
    const reader = new Reader(this, (this.#lastReader += 1), lock);
    if (lock !== undefined) {
      lock.uses += 1;
    }
    this.#inflows.add(reader);
    if (this.#link !== undefined) {
      this.#attach(this.#link, reader);
    }
    return reader;
  }

  removeReader(reader: Reader): void {
    if (this.#inflows.delete(reader)) {
      if (reader.lock !== undefined) {
        reader.lock.uses -= 1;
      }
      this.#link?.send(Ask.RemoveReader, reader.id);
    }
  }

  nextEvent(reader: Reader): string | undefined {
    return this.#inflows.next(reader) ?? (this.#isShutDown ? "" : undefined);
  }

  counts(length: number, gauges: number): [counted: readonly number[], crashed: number] {
    const own = this.#link?.counted.read();
    if (own !== undefined) {
      const before = (at: number) => (at < gauges ? 0 : (this.#countedBefore[at] ?? 0));
      this.#counted = own.map((number, at) => number + before(at));
    }
    const crashed = (this.#counted[length] ?? 0) + this.#crashed;
    const counts = Array.from({ length }, (_, at) => (this.#counted[at] ?? 0) + (at === FAILED ? this.#refused : 0));
    return [counts, crashed];
  }

  shutdown(): Promise<void> {
    return (this.#shutdown ??= this.#shutDown());
  }

  async #shutDown(): Promise<void> {
    if (this.#link !== undefined) {
      // A failure of the thread here ends everything, too, and a thread that hangs delays nothing for long.
      const { patience } = this.opening.settings;
      let timer: Timer | undefined;
      const late = new Promise<void>((resolve) => (timer = startTimer(resolve, patience + SLACK)));
      const givenUp = late.then(() => this.#link?.check());
      await Promise.race([this.#ask(Ask.Shutdown).catch(() => {}), givenUp]);
      stopTimer(timer);
    }
    this.counts(...this.opening.counts);
    this.#isShutDown = true;
    const link = this.#link;
    this.#link = undefined;
    await link?.end();
    const tenures = this.#locks.tenures() as SharedTenure[];
    this.#locks.clear();
    for (const tenure of tenures) {
      // The thread did not shut the locker down in time.
      tenure.close();
      tenure.lose("shutdown");
    }
    for (const call of this.#calls.takeAll()) {
      // It came too late for the thread to answer.
      call.fail(isShutDown());
    }
    this.#inflows.wake();
    this.#alive.update();
  }

  /** Makes a call that is not about a lock of this host. */
  #ask<Answer>(kind: Ask, ...values: unknown[]): Promise<Answer> {
    const call = this.#call(undefined, undefined, ({ id }) => this.#linked().send(kind, id, ...values));
    return call.promise as Promise<Answer>;
  }

  /** Makes a call. `begin` sends it to the worker thread. */
  #call<Answer>(
    lock: LockState | undefined,
    finish: ((call: Call<Answer>) => unknown) | undefined,
    begin: (call: Call<Answer>) => void,
  ): Call<Answer> {
    const call = this.#calls.add<Answer>(lock);
    call.finish = finish;
    try {
      begin(call);
    } catch (error) {
      this.#calls.take(call.id);
      call.error = error;
      call.settle();
    }
    this.#alive.update();
    return call;
  }

  /** Fails a call when its signal is aborted. It keeps its place until the worker thread has answered. */
  #cancel(call: Call<Tenure>, signal: AbortSignal): void {
    if (!this.#calls.has(call.id)) {
      // The call has its answer, which is about to be delivered.
      return;
    }
    call.finish = ({ answer: tenure }) => {
      // The answer was on its way. No caller will get the lease, so release it.
      if (tenure !== undefined) {
        this.release(tenure).catch(() => {});
      }
    };
    this.#link?.send(Ask.Cancel, call.id);
    call.fail(reasonOf(signal));
  }

  /** Makes a lock known to the worker thread, unless it already is. */
  #define(link: Link, lock: LockState): void {
    if (lock.id !== 0) {
      return;
    }
    const { id: _, uses: __, tenures: ___, ...spec } = lock;
    const id = this.#locks.newId();
    link.send(Ask.Define, id, spec);
    this.#locks.add(id, lock);
    for (const unused of this.#locks.takeUnused(lock)) {
      link.send(Ask.Forget, unused);
    }
  }

  #attach(link: Link, { id, lock }: Reader): void {
    if (lock !== undefined) {
      this.#define(link, lock);
    }
    link.send(Ask.AddReader, id, lock?.id ?? 0);
  }

  /** Returns the link to the worker thread, after a failure to the next one. */
  #linked(): Link {
    if (this.#isShutDown) {
      throw isShutDown();
    }
    if (this.#link !== undefined) {
      return this.#link;
    }
    if (now() < Math.max(this.#startedAt, Thread.lastStart) + PAUSE) {
      const message = `${this.#failed?.message}; another one starts in a second at most`;
      throw new LeaseholdError("internal", message, { cause: this.#failed });
    }
    // The server need not be up now: it was when the locker was made.
    const link = this.#start({ ...this.opening, lazily: true });
    for (const reader of this.#inflows.readers) {
      this.#attach(link, reader);
    }
    this.#inflows.wake();
    return link;
  }

  #start(opening: Opening): Link {
    this.#startedAt = now();
    const link = new Link(opening, {
      told: (batch) => this.#told(link, batch),
      ended: (cause) => this.#ended(cause),
    });
    this.#link = link;
    link.keepAlive(this.#keptAlive);
    return link;
  }

  /** Ends all tenures and calls of a worker thread that failed. */
  #ended(cause: LeaseholdError): void {
    const [tenures, calls] = [this.#locks.tenures() as SharedTenure[], this.#calls.takeAll()];
    const { counts } = this.opening;
    this.counts(...counts);
    this.#counted = this.#counted.map((number, at) => (at < counts[1] ? 0 : number));
    this.#countedBefore = this.#counted;
    this.#crashed += tenures.length;
    this.#failed = cause;
    this.#link = undefined;
    this.#locks.clear();
    this.#tenures = [];
    this.#inflows.forget();
    this.#inflows.readers.forEach((reader) => reader.crashed(tenures));
    // From here on the program's code runs, which may start another thread.
    for (const tenure of tenures) {
      tenure.close();
      tenure.lose("crashed");
    }
    for (const call of calls) {
      call.fail(new LeaseholdError(cause.code, cause.message, { cause }));
    }
    this.#notOpened(cause);
    this.#inflows.wake();
    this.#alive.update();
  }

  /** Does what a batch says, in its order: losses come before the answers to calls that noticed them. */
  #told(link: Link, batch: Batch): void {
    const read = new Reading(batch, 0);
    while (read.more) {
      const told: Told = read.next();
      switch (told) {
        case Told.Acquired:
          this.#acquired(link, read);
          break;
        case Told.Done:
        case Told.Failed: {
          const call = this.#calls.take(read.next());
          this.#give(link, read.next());
          const error = told === Told.Failed ? read.error() : undefined;
          if (call !== undefined) {
            call.error = error;
            call.settle();
          }
          break;
        }
        case Told.Answer: {
          const call = this.#calls.take(read.next());
          const answer = read.next<unknown>();
          if (call !== undefined) {
            call.answer = answer;
            call.settle();
          }
          break;
        }
        case Told.Over: {
          const slot = read.next();
          this.#over(link, slot, read.next());
          break;
        }
        default:
          this.#toldMore(told, read);
      }
    }
    this.#alive.update();
    this.#watchHeld();
  }

  /**
   * Looks now and then whether a held lease alone keeps the process alive. Renewals, at which a host in the
   * program's thread looks, do not reach this thread.
   */
  #watchHeld(): void {
    if (this.#watching || this.#locks.held === 0) {
      return;
    }
    this.#watching = true;
    const look = () => {
      this.#watching = false;
      this.#alive.update();
      this.#watchHeld();
    };
    keepAlive(startTimer(look, LOOK), false);
  }

  #toldMore(told: Told, read: Reading): void {
    switch (told) {
      case Told.Opened:
        this.polled = read.next<boolean>();
        this.#openedWith(read.next<readonly Finding[]>());
        break;
      case Told.NotOpened: {
        const error = read.error();
        void this.#link?.end();
        this.#ended(error);
        break;
      }
      case Told.Event:
        this.#inflows.take(read.next(), read.next<string>());
        break;
      default:
        // The findings, the last kind.
        this.#findings = read.next<readonly Finding[]>();
    }
  }

  #openedWith(findings: readonly Finding[]): void {
    this.#atOpening ??= findings;
    this.#findings = [];
    this.#opened();
  }

  #acquired(link: Link, read: Reading): void {
    const call = this.#calls.take(read.next());
    const [own, slot, token, began, waited] = [read.next(), read.next(), read.next(), read.next(), read.next()];
    const [lost, admission] = [read.next(), read.next<Admission | undefined>()];
    let tenure = this.#tenures[slot];
    if (tenure === undefined) {
      // A call keeps its place until it is answered, so this one is known, and so is its lock.
      const lock = call?.lock as LockState;
      tenure = new SharedTenure(lock, token, began, slot, link.slots.at(slot));
      tenure.admission = admission;
      this.#tenures[slot] = tenure;
      lock.tenures.push(tenure);
      this.#locks.held += 1;
    } else {
      this.#give(link, own);
    }
    tenure.leases += 1;
    if (lost > 0) {
      this.#over(link, slot, lost);
    } else if (tenure.lost === undefined) {
      this.#alarm.set(tenure.deadline);
    }
    if (call !== undefined) {
      call.waited = waited;
      call.answer = tenure;
      call.settle();
    }
  }

  /**
   * Ends the tenures whose deadline has passed. The worker thread reports such a loss earlier, unless it
   * hangs: then the signals are aborted in time all the same, and the thread learns to renew no more. A thread
   * that does not answer is ended.
   */
  #expire(): void {
    this.#alarm.clear();
    for (const tenure of this.#locks.tenures()) {
      const { lost } = tenure;
      if (lost === undefined) {
        this.#alarm.set(tenure.deadline);
      } else {
        for (let leases = tenure.leases; leases > 0; leases -= 1) {
          this.#ask(Ask.Release, (tenure as SharedTenure).slot, false).catch(() => {});
        }
        this.#link?.check();
        tenure.lose(lost);
      }
    }
  }

  /** Ends a tenure that the worker thread has reported as lost or released. */
  #over(link: Link, slot: number, code: number): void {
    const tenure = this.#tenures[slot];
    if (tenure === undefined) {
      return;
    }
    this.#tenures[slot] = undefined;
    this.#give(link, slot);
    const { tenures } = tenure.lock;
    tenures.splice(tenures.indexOf(tenure), 1);
    this.#locks.held -= 1;
    tenure.close();
    const reason = reasonAt(code);
    if (reason !== undefined) {
      tenure.lose(reason);
    }
  }

  #give(link: Link, slot: number): void {
    if (slot !== NONE) {
      link.slots.give(slot);
    }
  }

  #keepAlive(alive: boolean): void {
    this.#keptAlive = alive;
    this.#link?.keepAlive(alive);
  }
}

function isShutDown(): LeaseholdError {
  return new LeaseholdError("shutdown", "the locker was shut down");
}

function notHeld(): LeaseholdError {
  return new LeaseholdError("notHeld", "the lease is not held: it was lost or released before");
}
