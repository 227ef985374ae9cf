import type { Link } from "./adapter.js";
import { closed, startSoon } from "./shared.js";

// `any`, because the arguments differ from event to event.
type Listener = (...args: any[]) => void;

/** The methods that every client with a connection has. */
export interface Emitter {
  on(event: string, listener: Listener): unknown;
  removeListener(event: string, listener: Listener): unknown;
}

/**
 * The only listener on a client for an event, and the callbacks that it calls, in the order of registration.
 */
interface Shared {
  readonly listener: Listener;
  readonly calls: Set<Listener>;
}

/**
 * Remembers the first error of a connection that this package makes, and returns a function that gives it.
 * The first error says what is wrong; later ones may not.
 *
 * The listener is never removed, because an error without one would be printed or end the process.
 */
export function firstError(own: Emitter): () => unknown {
  let first: unknown;
  own.on("error", (error) => {
    first ??= error;
  });
  return () => first;
}

/** This package's listeners on each client, by event. */
const shared = new WeakMap<Emitter, Map<string, Shared>>();

/**
 * Listens for events of a client until the returned function is called. However many lockers share a client,
 * it gets one listener for each event: from the eleventh on, Node would warn of a leak.
 */
export function hearEvents(emitter: Emitter, listeners: Record<string, Listener>): () => void {
  const stops = Object.entries(listeners).map(([event, listener]) => hear(emitter, event, listener));
  return () => stops.forEach((stop) => stop());
}

/**
 * Reports the state of a client's connection to a link, until the returned function is called. A client that
 * is `idle` is started soon.
 */
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
  // Callers may register the same function twice.
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
    // A listener that is added or removed during an event does not hear that event.
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
