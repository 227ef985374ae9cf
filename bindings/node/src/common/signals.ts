import { attempt } from "./check.js";
import { startTimer } from "./platform.js";

/** What is done when a signal is aborted, in the order in which it was asked for, by one listener. */
const waiting = new WeakMap<AbortSignal, Waiting>();

interface Waiting {
  readonly acts: Set<() => void>;
  readonly listener: () => void;
}

/**
 * Does something when the signal is aborted, unless the returned function is called before. With a
 * listener for each, Node would warn of a leak from the eleventh on.
 */
export function onAbort(signal: AbortSignal, act: () => void): () => void {
  const there = waiting.get(signal) ?? listen(signal);
  // The same function may be given twice.
  const own = () => act();
  there.acts.add(own);
  return () => {
    if (there.acts.delete(own) && there.acts.size === 0) {
      forget(signal, there);
    }
  };
}

/** Whether it is aborted. A signal that is not the platform's may throw: then it counts as not aborted. */
export function isAborted(signal: AbortSignal | undefined): signal is AbortSignal {
  try {
    return signal?.aborted === true;
  } catch {
    return false;
  }
}

/** What a call rejects with when its signal is aborted. Signals that are not the platform's may have no reason. */
export function reasonOf(signal: AbortSignal): unknown {
  let reason: unknown;
  try {
    reason = signal.reason;
  } catch {
    // Then it has none.
  }
  return reason === undefined ? new DOMException("This operation was aborted", "AbortError") : reason;
}

function listen(signal: AbortSignal): Waiting {
  const made: Waiting = { acts: new Set(), listener: () => run(signal, made) };
  attempt("the signal cannot be listened to", () => signal.addEventListener("abort", made.listener));
  waiting.set(signal, made);
  return made;
}

function forget(signal: AbortSignal, there: Waiting): void {
  // First, because what comes next runs the program's code, which may call this file again.
  waiting.delete(signal);
  try {
    signal.removeEventListener("abort", there.listener);
  } catch {
    // The listener stays, and does nothing: no act is left.
  }
}

/** Runs the acts, but not those that an act before them took back. */
function run(signal: AbortSignal, there: Waiting): void {
  forget(signal, there);
  for (const act of there.acts) {
    there.acts.delete(act);
    try {
      act();
    } catch (error) {
      // As with listeners: the error is reported as uncaught, and the acts behind it still run.
      startTimer(() => {
        throw error;
      }, 0);
    }
  }
}
