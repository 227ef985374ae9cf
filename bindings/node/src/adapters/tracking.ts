import { LeaseholdError } from "../common/errors.js";
import { messageOf } from "../common/printable.js";
import type { Adapter, Tracked, Tracking, Unheard } from "./adapter.js";
import { nothing, texts } from "./shared.js";

/** The channel on which a server says what was changed, to a connection that speaks RESP2. */
export const CHANGES = "__redis__:invalidate";

/** What `CLIENT GETREDIR` says where nothing is tracked. */
const OFF = -1;

type SendCommand = (...command: string[]) => Promise<unknown>;

/** The tracking of each client: a connection has one, and any number of lockers may share the client. */
const ALL = new WeakMap<object, SharedTracking>();

/** One locker that hears of changes. */
interface TrackingLocker {
  readonly tracked: Tracked;
  /** True while the connection for commands is there. */
  up: boolean;
  /** The id of the connection on which this locker listens, while it does. */
  subscriber: number | undefined;
  /** For which turning on it was told that it hears of changes. */
  told: number;
}

/**
 * Has the server say to one of the lockers of a client what others change. That one passes it on to all of them,
 * and when it stops to listen another takes its place.
 */
class SharedTracking {
  readonly #members = new Set<TrackingLocker>();
  /** Where the server may have been told to say it: the ids of connections that listen. */
  #ours = new Set<number>();
  /** How often it was turned on. */
  #generation = 0;
  /** One at a time sends commands. */
  #last: Promise<void> = Promise.resolve();

  constructor(private readonly call: SendCommand, private readonly own: boolean) {}

  join(tracked: Tracked, up: boolean): ReturnType<Tracking["join"]> {
    const member: TrackingLocker = { tracked, up, subscriber: undefined, told: 0 };
    this.#members.add(member);
    return {
      linked: (up) => {
        member.up = up;
        // A new connection reads everything anew.
        member.told = 0;
        void this.#update();
      },
      hears: (subscriber) => {
        member.subscriber = subscriber;
        void this.#update();
      },
      said: (key) => this.#members.forEach(({ tracked }) => tracked.changed(key)),
      leave: () => {
        this.#members.delete(member);
        // Without a connection there is nothing to turn off, and a command would wait for one.
        return member.up && !this.own ? this.#update() : Promise.resolve();
      },
    };
  }

  #update(): Promise<void> {
    this.#last = this.#last.then(() => this.#redirectAnew()).catch((error) => {
      this.#members.forEach(({ tracked }) => tracked.refused(error));
    });
    return this.#last;
  }

  /** Turns it on, off, or over to another connection, as is needed by now. */
  async #redirectAnew(): Promise<void> {
    const subscribers = [...this.#members].flatMap(({ up, subscriber }) => (up && subscriber !== undefined ? [subscriber] : []));
    const subscriber = subscribers.find((subscriber) => this.#ours.has(subscriber)) ?? subscribers[0];
    if (subscriber === undefined) {
      if (this.#members.size === 0) {
        if (this.#ours.has(await this.#redirect())) {
          await this.call("CLIENT", "TRACKING", "OFF");
        }
        this.#ours.clear();
      }
      return;
    }
    const is = await this.#redirect();
    if (is !== OFF && !this.#ours.has(is)) {
      throw new LeaseholdError("config", "the program's client tracks keys itself, or for another copy of this package");
    }
    if (is !== subscriber) {
      this.#ours.add(subscriber);
      // OPTIN, so that nothing else that is read on this connection is tracked.
      await this.call("CLIENT", "TRACKING", "ON", "REDIRECT", String(subscriber), "OPTIN", "NOLOOP");
      this.#ours = new Set([subscriber]);
      this.#generation += 1;
    }
    for (const member of this.#members) {
      if (member.up && member.told !== this.#generation) {
        member.told = this.#generation;
        member.tracked.watching();
      }
    }
  }

  /** Where the server says it now, if that may be anywhere else than here. */
  async #redirect(): Promise<number> {
    return this.own ? OFF : Number(await this.call("CLIENT", "GETREDIR"));
  }
}

/** A connection's id, or why this user may not have it. */
export async function idBy(call: SendCommand): Promise<number | Unheard> {
  try {
    const id = Number(await call("CLIENT", "ID"));
    return Number.isSafeInteger(id) ? id : { error: new LeaseholdError("store", "the reply to CLIENT ID is no number") };
  } catch (error) {
    return { error };
  }
}

/** Sends two commands, one after the other with nothing between them, and returns the reply to each. */
type SendPair = (first: string[], second: string[]) => readonly [Promise<unknown>, Promise<unknown>];

/**
 * Makes the parts of an adapter that need one connection for all commands. `call` sends one command, and nobody
 * else can turn on tracking for a client that is `own`.
 */
export function onOneConnection(
  client: object,
  call: SendCommand,
  pair: SendPair,
  own: boolean,
): Required<Pick<Adapter, "tracking" | "runThen">> {
  const shared = ALL.get(client) ?? new SharedTracking(call, own);
  ALL.set(client, shared);
  return {
    tracking: {
      join: (tracked, up) => shared.join(tracked, up),
      read: async (keys) => {
        const [caching, reading] = pair(["CLIENT", "CACHING", "YES"], ["EXISTS", ...keys]);
        const refused = caching.then(nothing, (error: unknown) => error);
        const there = Number(await reading);
        const error = await refused;
        // Anything else is not for good: on a new connection it is turned on soon.
        if (error !== undefined && messageOf(error).startsWith("NOPERM")) {
          throw error;
        }
        return there;
      },
    },
    runThen: async (how, script, keys, args, command) => {
      const [ran, waiting] = pair([how, script, String(keys.length), ...keys, ...args], command);
      const waited = waiting.then(
        (waited) => ({ waited }),
        (refused: unknown) => ({ refused }),
      );
      return { reply: texts(await ran), ...(await waited) };
    },
  };
}
