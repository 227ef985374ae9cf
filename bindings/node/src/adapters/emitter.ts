// What events carry differs from event to event.
type Told = (...told: any[]) => void;

/** What all clients that have a connection are. */
export interface Emitter {
  on(event: string, listener: Told): unknown;
  removeListener(event: string, listener: Told): unknown;
}

/** One listener at a client, and whom it tells, in the order in which they came. */
interface Heard {
  readonly listener: Told;
  readonly tell: Set<Told>;
}

/** What is heard of each client, by event. */
const heard = new WeakMap<Emitter, Map<string, Heard>>();

/**
 * Hears events of a client until the returned function is called, and then none of them any more.
 * However many hear a client, it has one listener for each event: from the eleventh on Node would
 * warn of a leak.
 */
export function hearEvents(emitter: Emitter, listeners: Record<string, Told>): () => void {
  const stops = Object.entries(listeners).map(([event, listener]) => hear(emitter, event, listener));
  return () => stops.forEach((stop) => stop());
}

function hear(emitter: Emitter, event: string, listener: Told): () => void {
  const events = heard.get(emitter) ?? new Map<string, Heard>();
  heard.set(emitter, events);
  const { tell } = events.get(event) ?? listen(emitter, event, events);
  // The same function may hear twice.
  const own: Told = (...told) => listener(...told);
  tell.add(own);
  return () => {
    if (tell.delete(own) && tell.size === 0) {
      forget(emitter, event, events);
    }
  };
}

function listen(emitter: Emitter, event: string, events: Map<string, Heard>): Heard {
  const tell = new Set<Told>();
  const listener: Told = (...told) => {
    // As with a client's own listeners: who comes meanwhile is not told, and who leaves neither.
    for (const one of [...tell]) {
      if (tell.has(one)) {
        one(...told);
      }
    }
  };
  const made = { listener, tell };
  events.set(event, made);
  emitter.on(event, listener);
  return made;
}

function forget(emitter: Emitter, event: string, events: Map<string, Heard>): void {
  const there = events.get(event);
  events.delete(event);
  if (there !== undefined) {
    emitter.removeListener(event, there.listener);
  }
}
