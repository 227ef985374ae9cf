import { attempt } from "./check.js";
import { startTimer } from "./platform.js";

/** What waits under each signal, in the order in which it came; one listener carries all of it. */
const waiting = new WeakMap<AbortSignal, Waiting>();

interface Waiting {
  readonly acts: Set<() => void>;
  readonly listener: () => void;
}

/**
 * Has something done when the signal is aborted, unless the returned function is called before. A
 * listener for each would make Node warn of a leak from the eleventh on.
 */
export function onAbort(signal: AbortSignal, act: () => void): () => void {
  const there = waiting.get(signal) ?? listen(signal);
  // The same function may wait twice.
  const own = () => act();
  there.acts.add(own);
  return () => {
    if (there.acts.delete(own) && there.acts.size === 0) {
      forget(signal, there);
    }
  };
}

/** Whether it is aborted. A signal of another make than the platform's may throw: then it is not. */
export function isAborted(signal: AbortSignal | undefined): boolean {
  try {
    return signal?.aborted === true;
  } catch {
    return false;
  }
}

/** What a call is rejected with whose signal is aborted. Not every make of signal has a reason. */
export function reasonOf(signal: AbortSignal): unknown {
  let reason: unknown;
  try {
    reason = signal.reason;
  } catch {
    // As if it had none.
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
  // Before the program's code runs, which may come back here.
  waiting.delete(signal);
  try {
    signal.removeEventListener("abort", there.listener);
  } catch {
    // It is heard in vain: nothing waits under it any more.
  }
}

/** What an act undoes of those behind it is not done any more. */
function run(signal: AbortSignal, there: Waiting): void {
  forget(signal, there);
  for (const act of there.acts) {
    there.acts.delete(act);
    try {
      act();
    } catch (error) {
      // As with listeners: it is told, and keeps nobody behind it from being told.
      startTimer(() => {
        throw error;
      }, 0);
    }
  }
}
