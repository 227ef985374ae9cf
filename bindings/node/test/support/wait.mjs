/** A turn of the event loop that takes longer than this is a stall of the machine, or of a test on purpose. */
const LONG_TURN = 50;
/** What the condition of a `waitFor` may take to be answered, beyond the limit. */
const ANSWER = 30_000;

let looked = performance.now();
let stood = 0;
// It only looks: a process may end all the same.
setInterval(stalled, 20).unref();

/** For how many milliseconds in all this process has stood still so far, beyond a long turn for each time. */
export function stalled() {
  const now = performance.now();
  stood += Math.max(0, now - looked - LONG_TURN);
  looked = now;
  return stood;
}

/**
 * A clock in milliseconds that stops while this process stands still: for limits of what must happen
 * soon, which say nothing if nothing could happen.
 */
export function awake() {
  const stalls = stalled();
  return looked - stalls;
}

/** Resolves to what the condition returns as soon as that is truthy; rejects after the limit. */
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

/** What the promise comes to, if it comes within the limit; otherwise it rejects and names what did not come. */
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

/**
 * For what must be on time: an attempt that fails while the machine stood still says nothing, and is
 * made again. One that fails without that has failed.
 */
export async function steady(t, attempt, tries = 5) {
  for (let left = tries - 1; ; left--) {
    const before = stalled();
    try {
      return await attempt();
    } catch (error) {
      const pauses = Math.round(stalled() - before);
      if (left === 0 || pauses < LONG_TURN) {
        throw error;
      }
      t.diagnostic(`made again after the machine stood still for ${pauses} ms: ${error.message}`);
    }
  }
}

/** Only to show that something does not happen, or to pace a loop. */
export function pause(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

const cleanups = new Set();

/**
 * Has something undone when the process ends, however it ends short of SIGKILL; returns a function
 * to call when it was undone earlier. It must be synchronous.
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
      // The others are to be undone all the same.
      process.stderr.write(`${error}\n`);
    }
  }
  cleanups.clear();
}
