/** What differs from one runtime to the next: clocks, randomness, timers, the machine's name. */

// Taken when this file loads, so that they are the real ones: a test that fakes them later means its own
// code. The store's clock is not faked, and leases are measured by it.
const { setTimeout, clearTimeout, setInterval, clearInterval, performance } = globalThis;
const resolved = Promise.resolve();

/** Milliseconds of a clock that never goes back. */
export const now: () => number = performance.now.bind(performance);

/** Does something before the event loop goes on. Not by `queueMicrotask`, which tests can fake. */
export function soon(act: () => void): void {
  void resolved.then(act);
}

/** Four random words, each of 32 bits and signed. */
export type Words = readonly [number, number, number, number];

/** Many are drawn at once, because each draw is a system call. */
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

/** In Node not by the Web's API, which takes a millisecond to load at its first use. */
function draw(words: Int32Array<ArrayBuffer>): Int32Array<ArrayBuffer> {
  const fill = nodeProcess()?.getBuiltinModule?.("node:crypto")?.randomFillSync;
  return fill?.(words) ?? crypto.getRandomValues(words);
}

function word(fromEnd: number): number {
  return pool[drawn - fromEnd] as number;
}

/** A timer. Where the runtime allows it, `keepAlive` sets whether the process stays alive for it. */
export type Timer = ReturnType<typeof setTimeout>;

/** The longest delay that runtimes take: about 24 days. */
const LONGEST = 2 ** 31 - 1;

/** Never early, except for a delay of more than `LONGEST`: then the caller has to look at the clock. */
export function startTimer(run: () => void, delay: number): Timer {
  return setTimeout(run, Math.min(Math.max(0, Math.ceil(delay)), LONGEST));
}

export function stopTimer(timer: Timer | undefined): void {
  clearTimeout(timer);
}

export function keepAlive(timer: Timer | undefined, alive: boolean): void {
  // In browsers and workers it is a number, which has no methods.
  (timer as { ref?: () => void; unref?: () => void } | undefined)?.[alive ? "ref" : "unref"]?.();
}

/**
 * In Cloudflare's workers a timer ends with the request that started it, even if other requests need it.
 * So there each call and each lease has a timer of its own, a pulse, which does `run` again and again
 * until the returned function is called. Elsewhere this does nothing, and returns nothing.
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

/** A reference that does not keep its object alive, where the runtime has such references. */
export interface Weak<T> {
  deref(): T | undefined;
}

export function weak<T extends object>(object: T): Weak<T> {
  return typeof WeakRef === "undefined" ? { deref: () => object } : new WeakRef(object);
}

/** `machine/process`, for people who look up who holds a lock. */
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
    // Some runtimes need a permission for it.
  }
  return machine === "" ? String(process.pid) : `${machine.slice(0, 64)}/${process.pid}`;
}

/** Warns where the runtime can, because whoever starts the program has to see it, too. */
export function warn(message: string): void {
  nodeProcess()?.emitWarning?.(message, "LeaseholdWarning");
}

/** The process, in Node and its like. */
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
