import type { LossReason } from "../common/errors.js";
import { now } from "../common/platform.js";
import type { Finding } from "../common/types.js";
import type { Call } from "../host/calls.js";
import { Host } from "../host/host.js";
import type { Reader } from "../host/reader.js";
import type { LockState, Mirror, Tenure } from "../host/tenure.js";
import type { LockSpec, Settings, Share } from "../module/wasm.js";
import type { Opened } from "../store/open.js";
import type { Store } from "../store/store.js";
import { Counted, WrittenSlots } from "./shared.js";
import { Ask, type Batch, type Begin, codeOf, NONE, type Outbox, Reading, Told, written } from "./wire.js";

/** A host whose program is in another thread. */
class ServedHost extends Host {
  constructor(store: Store, settings: Settings, private readonly onSettled: () => void) {
    super(store, settings);
  }

  protected override settled(): void {
    // The first outputs come before this object is complete.
    this.onSettled?.();
  }
}

/** Runs the host of one locker for the program's thread, and writes deadlines and losses into shared memory. */
export class Served {
  readonly #host: ServedHost;
  readonly #slots = new WrittenSlots();
  readonly #counted: Counted;
  /** The locks by the numbers that the other thread gave them, or the error in a lock's specification. */
  readonly #locks = new Map<number, LockState | { readonly error: unknown }>();
  /** The tenures by slot, until the slot is used again. */
  readonly #tenures: (Tenure | undefined)[] = [];
  readonly #readers = new Map<number, Reader>();
  /** The controllers of the calls that may be canceled. */
  readonly #cancels = new Map<number, AbortController>();
  #findings: readonly Finding[] = [];
  #over: Promise<void> | undefined;
  /**
   * The other thread's clock minus this one's, in milliseconds, or slightly less.
   *
   * Each batch has the time when it left, which was before it arrived. So the largest difference seen is the
   * best bound, and no deadline is later for the other thread than for this one.
   */
  #ahead: number;

  constructor(private readonly start: Begin, { store }: Opened, private readonly outbox: Outbox) {
    const [length, , buffer] = start.counted;
    this.#ahead = start.at - now();
    this.#counted = new Counted(buffer, length + 1);
    this.#host = new ServedHost(store, start.settings, () => outbox.flushSoon());
  }

  get polled(): boolean {
    return this.#host.polled;
  }

  /** Updates the numbers and findings that the program reads without a call. It runs before each batch. */
  look(): void {
    this.#counted.write(this.#fill);
    const findings = this.#host.findings;
    if (findings.length !== this.#findings.length || findings.some((finding, at) => finding !== this.#findings[at])) {
      this.#findings = findings;
      this.outbox.add(Told.Findings, findings);
    }
  }

  readonly #fill = (bank: Float64Array): void => {
    const [length, gauges] = this.start.counted;
    this.#host.copyCounts(bank.subarray(0, length), gauges);
    bank[length] = this.#host.crashed;
  };

  /** Ends every lease, because this thread ends. */
  lose(): void {
    this.#slots.loseAll("crashed");
  }

  take(batch: Batch): void {
    this.#ahead = Math.max(this.#ahead, (batch[0] as number) - now());
    const read = new Reading(batch, 1);
    while (read.more) {
      this.#take(read.next<Ask>(), read);
    }
  }

  #take(ask: Ask, read: Reading): void {
    switch (ask) {
      case Ask.Page:
        this.#slots.add(read.next<SharedArrayBuffer>());
        break;
      case Ask.Define:
        this.#define(read.next(), read.next<LockSpec>());
        break;
      case Ask.Forget:
        this.#locks.delete(read.next());
        break;
      case Ask.AddReader: {
        const id = read.next();
        const lock = this.#locks.get(read.next());
        this.#readers.set(id, this.#host.addReader(lock !== undefined && "id" in lock ? lock : undefined));
        break;
      }
      case Ask.NextEvent:
        void this.#nextEvent(read.next());
        break;
      case Ask.RemoveReader: {
        const id = read.next();
        this.#readers.get(id)?.end();
        this.#readers.delete(id);
        break;
      }
      case Ask.Cancel:
        this.#cancels.get(read.next())?.abort();
        break;
      default:
        this.#call(ask, read.next(), read);
    }
  }

  #call(ask: Ask, call: number, read: Reading): void {
    const host = this.#host;
    switch (ask) {
      case Ask.Acquire:
      case Ask.Accept:
        this.#acquire(call, this.#lock(read), read.next<number | string>(), read.next(), read.next<boolean>(), read.next<Share | undefined>());
        break;
      case Ask.Pass: {
        const tenure = this.#tenures[read.next()] as Tenure;
        this.#answer(call, () => host.pass(tenure));
        break;
      }
      case Ask.Release: {
        const tenure = this.#tenures[read.next()] as Tenure;
        const completes = read.next<boolean>();
        this.#done(call, () => host.release(tenure, undefined, completes));
        break;
      }
      case Ask.Renew: {
        const tenure = this.#tenures[read.next()] as Tenure;
        const ttl = read.next<number | undefined>();
        this.#done(call, () => host.renew(tenure, ttl));
        break;
      }
      case Ask.Downgrade: {
        const tenure = this.#tenures[read.next()] as Tenure;
        this.#done(call, () => host.downgrade(tenure));
        break;
      }
      case Ask.Resize: {
        const [state, capacity] = [this.#lock(read), read.next()];
        this.#answer(call, () => {
          if ("error" in state) {
            throw state.error;
          }
          return host.resize(state, capacity);
        });
        break;
      }
      case Ask.Inspect: {
        const name = read.next<string>();
        this.#answer(call, () => host.inspect(name));
        break;
      }
      case Ask.List: {
        const [pattern, from] = [read.next<string>(), read.next<string>()];
        this.#answer(call, () => host.list(pattern, from));
        break;
      }
      case Ask.ForceRelease: {
        const [name, token] = [read.next<string>(), read.next()];
        this.#answer(call, () => host.forceRelease(name, token));
        break;
      }
      case Ask.RequestYield: {
        const [name, by, within] = [read.next<string>(), read.next<string>(), read.next()];
        this.#answer(call, () => host.requestYield(name, by, within));
        break;
      }
      default:
        this.#done(call, () => this.shutdown());
    }
  }

  #define(id: number, spec: LockSpec): void {
    try {
      this.#locks.set(id, this.#host.newLock(spec));
    } catch (error) {
      this.#locks.set(id, { error });
    }
  }

  #lock(read: Reading): LockState | { readonly error: unknown } {
    return this.#locks.get(read.next()) as LockState | { readonly error: unknown };
  }

  /** Acquires a lock within a time, or accepts a lease of it with a ticket. */
  #acquire(
    call: number,
    state: LockState | { readonly error: unknown },
    how: number | string,
    slot: number,
    cancels: boolean,
    share: Share | undefined,
  ): void {
    if ("error" in state) {
      this.outbox.add(Told.Failed, call, slot, ...written(state.error));
      return;
    }
    let signal: AbortSignal | undefined;
    if (cancels) {
      const controller = new AbortController();
      this.#cancels.set(call, controller);
      ({ signal } = controller);
    }
    const finish = (ended: Call<Tenure>) => {
      if (ended.error !== undefined) {
        throw ended.error;
      }
      if (ended.answer === undefined) {
        this.outbox.add(Told.Done, call, slot);
      } else {
        this.#acquired(call, slot, ended.answer, ended.waited);
      }
    };
    const done = () => void this.#cancels.delete(call);
    const begin = () =>
      typeof how === "string"
        ? this.#host.accept(state, how, signal, finish)
        : this.#host.acquire(state, how, signal, finish, share);
    this.#end(call, slot, begin, done, done);
  }

  #acquired(call: number, own: number, tenure: Tenure, waited: number): void {
    const { token, began, admission } = tenure;
    let slot = (tenure.mirror as SlotMirror | undefined)?.slot;
    let code = 0;
    if (slot === undefined) {
      slot = own;
      const { lost } = tenure;
      code = codeOf(lost);
      this.#tenures[slot] = tenure;
      if (lost === undefined) {
        tenure.mirror = new SlotMirror(this, tenure, slot);
        tenure.mirror.moved(tenure.deadline);
      }
    }
    this.outbox.add(Told.Acquired, call, own, slot, token, began + this.#ahead, waited, code, admission);
  }

  moved(slot: number, deadline: number): void {
    this.#slots.move(slot, deadline + this.#ahead);
  }

  over(slot: number, reason: LossReason | undefined): void {
    this.#slots.lose(slot, reason);
    this.outbox.add(Told.Over, slot, codeOf(reason));
  }

  #done(call: number, begin: () => Promise<void>): void {
    this.#end(call, NONE, begin, () => this.outbox.add(Told.Done, call, NONE));
  }

  #answer(call: number, begin: () => Promise<unknown>): void {
    this.#end(call, NONE, begin, (value) => this.outbox.add(Told.Answer, call, value));
  }

  /** Makes a call of the host, and tells how it ended. `done` tells of a success. */
  #end<T>(call: number, slot: number, begin: () => Promise<T>, done: (value: T) => void, failed = () => {}): void {
    const fail = (error: unknown) => {
      failed();
      // A call that was canceled rejects with the abort, which the caller knows.
      this.outbox.add(Told.Failed, call, slot, ...written(error));
    };
    try {
      begin().then(done, fail);
    } catch (error) {
      fail(error);
    }
  }

  async #nextEvent(id: number): Promise<void> {
    const reader = this.#readers.get(id);
    if (reader !== undefined) {
      await this.#tellNext(id, reader);
    }
  }

  /** Tells a reader's next event, an empty text at the end. Resolves to false at the end. */
  async #tellNext(id: number, reader: Reader): Promise<boolean> {
    const { done, value } = await reader.next(reader);
    this.outbox.add(Told.Event, id, done === true ? "" : JSON.stringify(value));
    return done !== true;
  }

  /** Shuts the host down, and sends the readers the events that they have not read: the port closes then. */
  shutdown(): Promise<void> {
    return (this.#over ??= this.#shutdown());
  }

  async #shutdown(): Promise<void> {
    await this.#host.shutdown();
    for (const [id, reader] of this.#readers) {
      while (await this.#tellNext(id, reader)) {
        // Until its end.
      }
    }
  }
}

/** Writes a tenure's deadline and its end where the program reads them. */
class SlotMirror implements Mirror {
  constructor(private readonly served: Served, private readonly tenure: Tenure, readonly slot: number) {}

  moved(deadline: number): void {
    this.served.moved(this.slot, deadline);
  }

  over(reason: LossReason | undefined): void {
    // The slot is no longer this tenure's.
    this.tenure.mirror = undefined;
    this.served.over(this.slot, reason);
  }
}
