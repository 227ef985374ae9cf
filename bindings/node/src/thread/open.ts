import type { LockSpec } from "../module/wasm.js";
import { ThreadHost } from "./host.js";
import type { Opening } from "./link.js";

export type { Opening };

/**
 * Opens a store in the worker thread, and returns the host that stands for it. `checkLock` throws the error in
 * the specification of a lock.
 *
 * The build makes this file and what it imports a file of the package, so a program that never needs a thread
 * does not load it. For platforms without such threads it is replaced by `open-nowhere.ts`.
 */
export function openThread(opening: Opening, checkLock: (spec: LockSpec) => void): Promise<ThreadHost> {
  return ThreadHost.open(opening, checkLock);
}
