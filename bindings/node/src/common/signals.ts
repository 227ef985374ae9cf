import { attempt } from "./check.js";
import { startTimer } from "./platform.js";

/** The callbacks of each signal, in the order of registration. One listener runs them all. */
const waiting = new WeakMap<AbortSignal, Waiting>();

interface Waiting {
  readonly acts: Set<() => void>;
  readonly listener: () => void;
}

/**
 * Runs a callback when the signal is aborted, unless the returned function is called before. A listener for
 * each callback would make Node warn of a leak from the eleventh on.
 */
export function onAbort(signal: AbortSignal, act: () => void): () => void {
  const there = waiting.get(signal) ?? listen(signal);
  // Callers may register the same function twice.
  const own = () => act();
  there.acts.add(own);
  return () => {
    if (there.acts.delete(own) && there.acts.size === 0) {
      forget(signal, there);
    }
  };
}

/**
 * True if the signal is aborted. A signal that is not the platform's may throw; it then counts as not
 * aborted.
 */
export function isAborted(signal: AbortSignal | undefined): signal is AbortSignal {
  try {
    return signal?.aborted === true;
  } catch {
    return false;
  }
}

/**
 * Returns what a call rejects with when its signal is aborted. A signal that is not the platform's may have
 * no reason.
 */
export function reasonOf(signal: AbortSignal): unknown {
  let reason: unknown;
  try {
    reason = signal.reason;
  } catch {
    // A signal whose reason cannot be read has none.
  }
  return reason === undefined ? new DOMException("This operation was aborted", "AbortError") : reason;
}

/** Resolves as the promise does, or rejects with the signal's reason as soon as it is aborted. */
export async function orAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) {
    return promise;
  }
  let stopListening = () => {};
  const aborted = new Promise<never>((_, reject) => {
    const abort = () => reject(reasonOf(signal));
    stopListening = onAbort(signal, abort);
    if (isAborted(signal)) {
      abort();
    }
  });
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    stopListening();
  }
}

/** Returns a controller that any of these signals aborts, and a function that stops listening to them. */
export function following(
  ...signals: readonly (AbortSignal | undefined)[]
): [controller: AbortController, stopListening: () => void] {
  const controller = new AbortController();
  const stops = signals.map((signal) => {
    if (signal === undefined) {
      return undefined;
    }
    const abort = () => controller.abort(reasonOf(signal));
    return isAborted(signal) ? abort() : onAbort(signal, abort);
  });
  return [controller, () => stops.forEach((stop) => stop?.())];
}

function listen(signal: AbortSignal): Waiting {
  const made: Waiting = { acts: new Set(), listener: () => run(signal, made) };
  attempt("the signal cannot be listened to", () => signal.addEventListener("abort", made.listener));
  waiting.set(signal, made);
  return made;
}

function forget(signal: AbortSignal, there: Waiting): void {
  // First, because removing the listener runs the program's code, which may call this file again.
  waiting.delete(signal);
  try {
    signal.removeEventListener("abort", there.listener);
  } catch {
    // The listener stays, and does nothing: no callback is left.
  }
}

/** Runs the callbacks, except those that an earlier callback removed. */
function run(signal: AbortSignal, there: Waiting): void {
  forget(signal, there);
  for (const act of there.acts) {
    there.acts.delete(act);
    try {
      act();
    } catch (error) {
      // As with event listeners, the error is reported as uncaught, and the remaining callbacks still run.
      startTimer(() => {
        throw error;
      }, 0);
    }
  }
}
