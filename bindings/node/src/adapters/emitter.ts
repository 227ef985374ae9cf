// The arguments differ from event to event.
type Listener = (...args: any[]) => void;

/** What every client with a connection can do. */
export interface Emitter {
  on(event: string, listener: Listener): unknown;
  removeListener(event: string, listener: Listener): unknown;
}

/** The one listener at a client, and those that it calls, in the order in which they came. */
interface Shared {
  readonly listener: Listener;
  readonly calls: Set<Listener>;
}

/** Our listeners at each client, by event. */
const shared = new WeakMap<Emitter, Map<string, Shared>>();

/**
 * Hears events of a client until the returned function is called. However many lockers use a client, it
 * gets one listener for each event, because from the eleventh on Node would warn of a leak.
 */
export function hearEvents(emitter: Emitter, listeners: Record<string, Listener>): () => void {
  const stops = Object.entries(listeners).map(([event, listener]) => hear(emitter, event, listener));
  return () => stops.forEach((stop) => stop());
}

function hear(emitter: Emitter, event: string, listener: Listener): () => void {
  const events = shared.get(emitter) ?? new Map<string, Shared>();
  shared.set(emitter, events);
  const { calls } = events.get(event) ?? listen(emitter, event, events);
  // The same function may be given twice.
  const own: Listener = (...args) => listener(...args);
  calls.add(own);
  return () => {
    if (calls.delete(own) && calls.size === 0) {
      forget(emitter, event, events);
    }
  };
}

function listen(emitter: Emitter, event: string, events: Map<string, Shared>): Shared {
  const calls = new Set<Listener>();
  const listener: Listener = (...args) => {
    // One that is added meanwhile does not hear this event, nor does one that is removed meanwhile.
    for (const one of [...calls]) {
      if (calls.has(one)) {
        one(...args);
      }
    }
  };
  const made = { listener, calls };
  events.set(event, made);
  emitter.on(event, listener);
  return made;
}

function forget(emitter: Emitter, event: string, events: Map<string, Shared>): void {
  const there = events.get(event);
  events.delete(event);
  if (there !== undefined) {
    emitter.removeListener(event, there.listener);
  }
}
