/** Resolves to what the condition returns as soon as that is truthy; rejects after the limit. */
export async function waitFor(condition, limit = 10_000, what = () => String(condition)) {
  const end = performance.now() + limit;
  for (;;) {
    const met = await condition();
    if (met) {
      return met;
    }
    if (performance.now() > end) {
      throw new Error(`not met within ${limit} ms: ${typeof what === "function" ? what() : what}`);
    }
    await pause(10);
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
