import { existsSync, readFileSync } from "node:fs";
import { availableParallelism } from "node:os";

/**
 * A turn of the event loop that takes longer than this many milliseconds is a stall: of the machine, or of a
 * test on purpose.
 */
const LONG_TURN = 50;
/** How long the condition of a `waitFor` may take to answer, beyond the limit. */
const ANSWER = 30_000;

let looked = performance.now();
let stood = 0;
// Unreferenced, because it only watches: the process may end anyway.
setInterval(stalled, 20).unref();

/**
 * Returns the total milliseconds that this process has stalled so far, beyond one long turn for each stall.
 */
export function stalled() {
  const now = performance.now();
  stood += Math.max(0, now - looked - LONG_TURN);
  looked = now;
  return stood;
}

/**
 * Returns milliseconds of a clock that stops while this process stalls. Use it to limit what must happen
 * soon: a limit says nothing if nothing could run.
 */
export function awake() {
  const stalls = stalled();
  return looked - stalls;
}

/** Resolves to the condition's result as soon as that is truthy. Rejects after the limit. */
export async function waitFor(condition, limit = 30_000, what = () => String(condition)) {
  const end = awake() + limit;
  for (;;) {
    const asked = condition();
    const met = typeof asked?.then === "function" ? await within(asked, limit + ANSWER, what) : asked;
    if (met) {
      return met;
    }
    if (awake() > end) {
      throw new Error(`not met within ${limit} ms: ${shown(what)}`);
    }
    await pause(10);
  }
}

/** Resolves to the promise's result within the limit. Otherwise it rejects, and names what did not come. */
export async function within(promise, limit, what) {
  const end = awake() + limit;
  let timer;
  const late = new Promise((_, reject) => {
    const look = () => {
      const left = end - awake();
      if (left > 0) {
        timer = setTimeout(look, Math.ceil(left));
      } else {
        reject(new Error(`it did not come within ${limit} ms: ${shown(what)}`));
      }
    };
    timer = setTimeout(look, limit);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

const shown = (what) => (typeof what === "function" ? what() : what);

/** How many threads per processor justify another attempt of `steady`. */
const CROWD = 2;

/** Returns the number of runnable threads per processor now, or 0 where that is not known. */
function crowding() {
  // The file reads `0.20 0.18 0.12 9/280 11206` if nine of 280 threads are runnable.
  const load = existsSync("/proc/loadavg") ? readFileSync("/proc/loadavg", "utf8") : "";
  return Math.floor(Number(/ (\d+)\//.exec(load)?.[1] ?? 0) / availableParallelism());
}

/**
 * Repeats an attempt that must be on time if it failed while the machine stalled, or while others wanted the
 * processors, because that says nothing. Any other failure counts.
 */
export async function steady(t, attempt, tries = 5) {
  for (let left = tries - 1; ; left--) {
    const [before, crowd] = [stalled(), crowding()];
    try {
      return await attempt();
    } catch (error) {
      const [pauses, threads] = [Math.round(stalled() - before), Math.max(crowd, crowding())];
      if (left === 0 || (pauses < LONG_TURN && threads < CROWD)) {
        throw error;
      }
      t.diagnostic(`made again after ${pauses} ms of standstill, with ${threads} threads per processor: ${error.message}`);
    }
  }
}

/** Waits. Use it only to show that something does not happen, or to pace a loop. */
export function pause(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

/** Blocks the event loop for this long. Unlike a loop, it keeps no processor from the servers and other tests. */
export function block(milliseconds) {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds);
}

const cleanups = new Set();

/**
 * Undoes something when the process ends, except by SIGKILL. Returns a function to call when it was undone
 * earlier. It must be synchronous.
 */
export function atExit(undo) {
  if (cleanups.size === 0) {
    process.on("exit", undoAll);
    for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
      process.once(signal, () => process.exit(1));
    }
  }
  cleanups.add(undo);
  return () => cleanups.delete(undo);
}

function undoAll() {
  for (const undo of cleanups) {
    try {
      undo();
    } catch (error) {
      // The others must be undone anyway.
      process.stderr.write(`${error}\n`);
    }
  }
  cleanups.clear();
}
