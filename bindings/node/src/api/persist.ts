import { storePause } from "../../../../core/engine/src/limits.jsonc";
import { LeaseholdError } from "../common/errors.js";
import { startTimer, stopTimer } from "../common/platform.js";
import { isAborted, onAbort } from "../common/signals.js";

/**
 * Repeats an attempt until it succeeds, with pauses while the store cannot be reached. Resolves to `undefined`
 * once the signal is aborted or the locker is shut down. Throws an error that a retry cannot fix.
 */
export async function persist<T>(attempt: () => Promise<T>, stop: AbortSignal): Promise<T | undefined> {
  while (!stop.aborted) {
    try {
      return await attempt();
    } catch (error) {
      if (stop.aborted || (error instanceof LeaseholdError && error.code === "shutdown")) {
        break;
      }
      if (!(error instanceof LeaseholdError) || !(error.transient || error.code === "internal")) {
        throw error;
      }
      await sleep(storePause, stop);
    }
  }
  return undefined;
}

/** Resolves after this many milliseconds, or as soon as the signal is aborted. */
export function sleep(time: number, stop: AbortSignal | undefined): Promise<void> {
  if (isAborted(stop)) {
    return Promise.resolve();
  }
  return new Promise((resolve) => {
    const end = () => {
      stopTimer(timer);
      stopListening();
      resolve();
    };
    const stopListening = stop === undefined ? () => {} : onAbort(stop, end);
    const timer = startTimer(end, time);
  });
}
