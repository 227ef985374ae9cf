import { config } from "../common/check.js";
import { messageOf } from "../common/printable.js";
import type { LockHost } from "../host/lock-host.js";
import { defineLock, type LockSpec, newEngine, type Settings, stateless, thrown } from "../module/wasm.js";
import type { Opening } from "../thread/open.js";

/** Refuses the option `thread` where it cannot work. */
export function refuseThread(thread: boolean, why: string): void {
  if (thread) {
    const needed = "Locker.connect, Locker.connectLazily or Locker.quorum with URLs of servers";
    throw config(`thread needs ${needed}: ${why}; leave \`thread\` out`);
  }
}

export const OF_CLIENT = "a client stays in the thread that made it";
export const OF_MEMORY = "an in-memory store is in the thread of the program";

/** Opens a locker in the worker thread. */
export async function hostInThread(opening: Opening): Promise<LockHost> {
  const { openThread } = await import("../thread/open.js").catch(leftOut);
  return openThread(opening, lockChecker(opening.settings));
}

/**
 * Returns a function that throws the error in a lock's specification. It uses an engine in this thread, which
 * does nothing else.
 */
function lockChecker(settings: Settings): (spec: LockSpec) => void {
  const engine = newEngine(stateless(), settings, { clustered: false, members: undefined, command: false });
  return (spec) => {
    try {
      defineLock(engine, LOCK, spec);
      engine.forget(LOCK);
    } catch (error) {
      throw thrown(error);
    }
  };
}

/** The number of the lock that is being checked. */
const LOCK = 1;

/** Throws the error of a file that cannot be loaded, as when a program was bundled without it. */
function leftOut(cause: unknown): never {
  const message = `the code of the worker thread could not be loaded: ${messageOf(cause)}; bundle it with the program`;
  throw config(message, cause);
}
