/** Differences between runtimes: clocks, randomness, timers, and the machine's name. */

// Captured when this file loads, so that they are the real ones. A test that fakes them later means only its
// own code: the store's clock is not faked, and leases are measured by it.
const { setTimeout, clearTimeout, setInterval, clearInterval, performance } = globalThis;
const resolved = Promise.resolve();

/** Returns milliseconds of a monotonic clock. */
export const now: () => number = performance.now.bind(performance);

/** Runs something before the event loop continues. It does not use `queueMicrotask`, which tests can fake. */
export function soon(act: () => void): void {
  void resolved.then(act);
}

/** Four random words, each signed and of 32 bits. */
export type Words = readonly [number, number, number, number];

/** Returns random words. It draws many at once, because each draw is a system call. */
export function random(): Words {
  if (drawn === pool.length) {
    pool = draw(new Int32Array(1_024));
    drawn = 0;
  }
  drawn += 4;
  return [word(4), word(3), word(2), word(1)];
}

let pool = new Int32Array(0);
let drawn = 0;

/**
 * Fills an array with random numbers. In Node it avoids the Web API, whose first use takes a millisecond to
 * load.
 */
function draw(words: Int32Array<ArrayBuffer>): Int32Array<ArrayBuffer> {
  const fill = nodeProcess()?.getBuiltinModule?.("node:crypto")?.randomFillSync;
  return fill?.(words) ?? crypto.getRandomValues(words);
}

function word(fromEnd: number): number {
  return pool[drawn - fromEnd] as number;
}

/** Copies bytes. Node takes small copies from a pool, which costs less than a buffer of their own. */
export function copyOf(bytes: Uint8Array): Uint8Array {
  return (globalThis as { Buffer?: { from(bytes: Uint8Array): Uint8Array } }).Buffer?.from(bytes) ?? bytes.slice();
}

/** A running timer. Where the runtime allows it, `keepAlive` sets whether it keeps the process alive. */
export type Timer = ReturnType<typeof setTimeout>;

/** The longest delay that runtimes take: about 24 days. */
const LONGEST = 2 ** 31 - 1;

/**
 * Starts a timer, which never fires early, except for delays above `LONGEST`: then the caller must check the
 * clock.
 */
export function startTimer(run: () => void, delay: number): Timer {
  return setTimeout(run, Math.min(Math.max(0, Math.ceil(delay)), LONGEST));
}

export function stopTimer(timer: Timer | undefined): void {
  clearTimeout(timer);
}

export function keepAlive(timer: Timer | undefined, alive: boolean): void {
  // In browsers and workers a timer is a number, which has no methods.
  (timer as { ref?: () => void; unref?: () => void } | undefined)?.[alive ? "ref" : "unref"]?.();
}

/**
 * Runs `run` again and again in Cloudflare workers, until the returned function is called. In other runtimes
 * it does nothing and returns nothing.
 *
 * In a Cloudflare worker a timer ends with the request that started it, even if other requests need it. So
 * each call and each lease there has its own repeating timer, a pulse.
 */
export function startPulse(run: () => void): (() => void) | undefined {
  if (!IN_WORKER) {
    return undefined;
  }
  const timer = setInterval(run, PULSE);
  return () => clearInterval(timer);
}

const IN_WORKER =
  (globalThis as { navigator?: { userAgent?: string } }).navigator?.userAgent === "Cloudflare-Workers";
const PULSE = 100;

/** A reference that does not keep its object alive, in runtimes that have such references. */
export interface Weak<T> {
  deref(): T | undefined;
}

export function weak<T extends object>(object: T): Weak<T> {
  return typeof WeakRef === "undefined" ? { deref: () => object } : new WeakRef(object);
}

/** Returns `machine/process`, which tells people who holds a lock. */
export function defaultLabel(): string {
  return (label ??= machineAndProcess());
}

let label: string | undefined;

function machineAndProcess(): string {
  const process = nodeProcess();
  if (process?.pid === undefined) {
    return "javascript";
  }
  let machine = "";
  try {
    machine = process.getBuiltinModule?.("node:os")?.hostname?.() ?? "";
  } catch {
    // Some runtimes need a permission for the host name.
  }
  return machine === "" ? String(process.pid) : `${machine.slice(0, 64)}/${process.pid}`;
}

/** Emits a process warning in runtimes that have them, so that whoever runs the program sees it. */
export function warn(message: string): void {
  nodeProcess()?.emitWarning?.(message, "LeaseholdWarning");
}

/** Returns the process object of Node and compatible runtimes. */
export function nodeProcess(): NodeProcess | undefined {
  return (globalThis as { process?: NodeProcess }).process;
}

interface NodeProcess {
  readonly pid?: number;
  readonly stdout?: Output | undefined;
  readonly stderr?: Output | undefined;
  emitWarning?(message: string, type: string): void;
  getActiveResourcesInfo?(): string[];
  getBuiltinModule?(name: string): { hostname?(): string; randomFillSync?: typeof crypto.getRandomValues } | undefined;
}

interface Output {
  readonly _handle?: { hasRef?(): boolean } | null | undefined;
}
