/** What differs from one runtime to the next: clocks, randomness, timers, the machine's name. */

// Taken when this loads, so that they are real ones: a test that puts fakes in their place later on
// means its own code. A store's clock would not follow, and leases are counted against that.
const { setTimeout, clearTimeout, setInterval, clearInterval, performance } = globalThis;
const resolved = Promise.resolve();

/** Milliseconds of a clock that never goes back. */
export const now: () => number = performance.now.bind(performance);

/** Has something done before the event loop goes on. Not `queueMicrotask`, which tests can fake, too. */
export function soon(act: () => void): void {
  void resolved.then(act);
}

/** Four random 32-bit numbers. Many are drawn at once, since each draw is a system call. */
export function random(): readonly [number, number, number, number] {
  if (drawn === pool.length) {
    pool = crypto.getRandomValues(new Uint32Array(1_024));
    drawn = 0;
  }
  const { [drawn]: r0 = 0, [drawn + 1]: r1 = 0, [drawn + 2]: r2 = 0, [drawn + 3]: r3 = 0 } = pool;
  drawn += 4;
  return [r0, r1, r2, r3];
}

let pool = new Uint32Array(0);
let drawn = 0;

/** A timer that can be told whether it keeps the process alive, where the runtime has such a thing. */
export type Timer = ReturnType<typeof setTimeout>;

/** The longest delay that runtimes take: about 24 days. */
const LONGEST = 2 ** 31 - 1;

/** Never early: what is due at a moment is done once it has come. */
export function startTimer(run: () => void, delay: number): Timer {
  return setTimeout(run, Math.min(Math.max(0, Math.ceil(delay)), LONGEST));
}

export function stopTimer(timer: Timer | undefined): void {
  clearTimeout(timer);
}

export function keepAlive(timer: Timer | undefined, alive: boolean): void {
  // A number in browsers and workers.
  const object = timer as { ref?: () => void; unref?: () => void } | undefined;
  if (alive) {
    object?.ref?.();
  } else {
    object?.unref?.();
  }
}

/**
 * In Cloudflare's workers a timer belongs to the request that made it, and ends with it, even if
 * others need what it does. So there each call and each lease looks at the clock by itself, until the
 * function that this returns is called.
 */
export function startPulse(run: () => void): () => void {
  if (!IN_WORKER) {
    return NOTHING;
  }
  const timer = setInterval(run, PULSE);
  return () => clearInterval(timer);
}

const IN_WORKER =
  (globalThis as { navigator?: { userAgent?: string } }).navigator?.userAgent === "Cloudflare-Workers";
const PULSE = 100;
const NOTHING = () => {};

/** A reference that keeps nothing alive, where the runtime has such a thing. */
export interface Weak<T> {
  deref(): T | undefined;
}

export function weak<T extends object>(object: T): Weak<T> {
  return typeof WeakRef === "undefined" ? { deref: () => object } : new WeakRef(object);
}

/** `machine/process`, for people who look who holds a lock. */
export function defaultLabel(): string {
  return (label ??= machineAndProcess());
}

let label: string | undefined;

function machineAndProcess(): string {
  const process = (globalThis as { process?: NodeProcess }).process;
  if (process?.pid === undefined) {
    return "javascript";
  }
  let machine = "";
  try {
    machine = process.getBuiltinModule?.("node:os")?.hostname?.() ?? "";
  } catch {
    // Not every runtime lets everyone know.
  }
  return machine === "" ? String(process.pid) : `${machine.slice(0, 64)}/${process.pid}`;
}

interface NodeProcess {
  readonly pid?: number;
  getBuiltinModule?(name: string): { hostname?(): string } | undefined;
}
