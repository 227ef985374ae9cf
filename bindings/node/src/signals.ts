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

function listen(signal: AbortSignal): Waiting {
  const made: Waiting = { acts: new Set(), listener: () => run(signal, made) };
  waiting.set(signal, made);
  signal.addEventListener("abort", made.listener);
  return made;
}

function forget(signal: AbortSignal, { listener }: Waiting): void {
  signal.removeEventListener("abort", listener);
  waiting.delete(signal);
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
      queueMicrotask(() => {
        throw error;
      });
    }
  }
}
