import type { Link } from "./adapter.js";
import { closed, startSoon } from "./shared.js";

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

/**
 * The first error of a connection that we make, once there is one: it says what is wrong, and what follows may not.
 * Its listener is never removed, because an error without one would be printed or end the process.
 */
export function firstError(own: Emitter): () => unknown {
  let first: unknown;
  own.on("error", (error) => {
    first ??= error;
  });
  return () => first;
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

/** Tells a link of a client's connection, which is started soon if it is `idle`, until the returned function is called. */
export function watchConnection(
  client: Emitter & { connect(): unknown },
  link: Link,
  is: { ready(): boolean; idle(): boolean },
  others: Record<string, Listener> = {},
): () => void {
  let last: unknown;
  const ended = () => link.down(last ?? closed());
  const stopHearing = hearEvents(client, {
    ready: () => {
      last = undefined;
      link.up();
    },
    error: (error) => {
      last = error;
      if (!is.ready()) {
        link.down(error);
      }
    },
    close: ended,
    end: ended,
    ...others,
  });
  if (is.ready()) {
    link.up();
  }
  const stopStarting = startSoon(is.idle, () => client.connect(), link);
  return () => {
    stopStarting();
    stopHearing();
  };
}

function hear(emitter: Emitter, event: string, listener: Listener): () => void {
  const events = shared.get(emitter) ?? new Map<string, Shared>();
  shared.set(emitter, events);
  const there = events.get(event) ?? listen(emitter, event, events);
  // The same function may be given twice.
  const own: Listener = (...args) => listener(...args);
  there.calls.add(own);
  return () => {
    if (there.calls.delete(own) && there.calls.size === 0) {
      events.delete(event);
      emitter.removeListener(event, there.listener);
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
