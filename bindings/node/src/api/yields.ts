import { LeaseholdError } from "../common/errors.js";
import { now, startTimer, stopTimer } from "../common/platform.js";
import { isAborted, onAbort, reasonOf } from "../common/signals.js";
import type { HolderInfo, Inspection, LeaseEvent } from "../common/types.js";
import type { LockHost } from "../host/lock-host.js";
import type { Tenure } from "../host/tenure.js";
import type { YieldOptions } from "./options.js";

/** The shortest and longest pause in milliseconds between two looks at a lock whose holder was asked to yield. */
const FIRST_PAUSE = 10;
const LONGEST_PAUSE = 1_000;
/** How much later a request may end at the store, which counts whole milliseconds, and for the whole of the last one. */
const ROUNDED_OFF = 2;

/** Asks the holder of a lock to yield, and follows the lock: see `Locker.requestYield`. */
export function requestYield(host: LockHost, name: string, by: string, options: YieldOptions): Promise<boolean> {
  const { within, force = false, signal } = options;
  return abortable(signal, async (run) => {
    let holder = await host.requestYield(name, by, within);
    if (holder === null) {
      return true;
    }
    // By then the request has ended at the store, so that another one is not taken for this one.
    const end = now() + within + ROUNDED_OFF;
    let pause = FIRST_PAUSE;
    for (let left = end - now(); left > 0 && !run.over; left = end - now()) {
      await sleep(run, Math.min(pause, left));
      pause = Math.min(pause * 2, LONGEST_PAUSE);
      const seen = await stillHolds(host, name, holder);
      if (seen === null) {
        return true;
      }
      holder = seen;
    }
    if (!force || run.over) {
      return false;
    }
    const freed = await host.forceRelease(name, holder.token);
    return freed !== null || (await stillHolds(host, name, holder)) === null;
  });
}

/**
 * Returns what the store says of this holder now, or `null` if its tenure is over. The request shows that it goes on
 * at a quorum, where the token depends on the servers that answer.
 */
async function stillHolds(host: LockHost, name: string, { token }: HolderInfo): Promise<HolderInfo | null> {
  const { holder, wanted } = await host.inspect(name);
  return holder?.token === token || wanted !== undefined ? holder : null;
}

/** Resolves once somebody wants the lock, or the tenure is over: see `Lease.wanted`. */
export function untilWanted(host: LockHost, tenure: Tenure, signal: AbortSignal | undefined): Promise<void> {
  const { lock } = tenure;
  return abortable(signal, async (run) => {
    const reader = host.addReader(lock);
    run.stop = () => reader.end();
    // Both go on until they are over, so that no event is missed and at most one timer is set.
    let next: Promise<IteratorResult<LeaseEvent, undefined>> | undefined;
    let nap: Promise<undefined> | undefined;
    try {
      while (!run.over && !isWanted(await look(host, lock.name))) {
        let event: LeaseEvent | undefined;
        do {
          next ??= reader.next(run);
          // Fixed leases have no renewals to look after.
          nap ??= lock.fixed ? sleep(run, lock.ttl / 3) : undefined;
          const told = await (nap === undefined ? next : Promise.race([next, nap]));
          if (told === undefined) {
            nap = undefined;
            break;
          }
          next = undefined;
          event = told.value;
          if (event === undefined || endsWait(event, tenure.token)) {
            return;
          }
        } while (event.type !== "renewed" && event.type !== "lagged");
      }
    } finally {
      run.stop();
    }
  });
}

function isWanted(seen: Inspection | undefined): boolean {
  return seen !== undefined && (seen.waiting > 0 || seen.wanted !== undefined);
}

/** True if the event says that the tenure with this token is wanted, or over. */
function endsWait(event: LeaseEvent, token: number): boolean {
  return ENDS.has(event.type) && "token" in event && event.token === token;
}

const ENDS: ReadonlySet<LeaseEvent["type"]> = new Set(["wanted", "lost", "released", "passed"]);

/** Inspects a lock; returns `undefined` while the store cannot be reached. */
async function look(host: LockHost, name: string): Promise<Inspection | undefined> {
  try {
    return await host.inspect(name);
  } catch (error) {
    if (error instanceof LeaseholdError && error.transient) {
      return undefined;
    }
    throw error;
  }
}

/** A call that may be aborted. */
interface Run {
  /** True once it was aborted, so it should end. */
  over: boolean;
  /** Ends what the call waits for. */
  stop: () => void;
}

/** Makes a call that rejects with the signal's reason as soon as that is aborted. */
async function abortable<T>(signal: AbortSignal | undefined, work: (run: Run) => Promise<T>): Promise<T> {
  const run: Run = { over: false, stop() {} };
  if (signal === undefined) {
    return work(run);
  }
  if (isAborted(signal)) {
    throw reasonOf(signal);
  }
  let stopListening!: () => void;
  const aborted = new Promise<never>((_, reject) => {
    stopListening = onAbort(signal, () => {
      run.over = true;
      reject(reasonOf(signal));
      run.stop();
    });
  });
  try {
    return await Promise.race([aborted, work(run)]);
  } finally {
    stopListening();
  }
}

/** Sleeps, until the call is aborted at the latest. */
function sleep(run: Run, time: number): Promise<undefined> {
  return new Promise((resolve) => {
    const before = run.stop;
    const timer = startTimer(end, time);
    function end(): void {
      stopTimer(timer);
      run.stop = before;
      resolve(undefined);
    }
    run.stop = () => {
      end();
      before();
    };
  });
}
