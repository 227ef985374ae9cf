import { LeaseholdError } from "../common/errors.js";
import { messageOf } from "../common/printable.js";
import type { Adapter, Tracked, Tracking, Unheard } from "./adapter.js";
import { nothing, texts } from "./shared.js";

/** The channel on which a server reports changes to a connection that speaks RESP2. */
export const CHANGES = "__redis__:invalidate";

/** The reply to `CLIENT GETREDIR` when tracking is off. */
const OFF = -1;

type SendCommand = (...command: string[]) => Promise<unknown>;

/** The tracking of each client. A connection has only one, and any number of lockers may share the client. */
const ALL = new WeakMap<object, SharedTracking>();

/** A locker that learns of changes. */
interface TrackingLocker {
  readonly tracked: Tracked;
  /** True while the connection for commands is up. */
  up: boolean;
  /** The id of the connection on which this locker listens; `undefined` while it does not listen. */
  subscriber: number | undefined;
  /** The generation of tracking that this locker was told of. */
  told: number;
}

/**
 * Lets the server report changes by other clients to one locker of a client. That locker passes them on to
 * all lockers of the client. When it stops listening, another locker takes over.
 */
class SharedTracking {
  readonly #members = new Set<TrackingLocker>();
  /** The ids of connections that the server may have been told to report to. */
  #ours = new Set<number>();
  /** The number of times that tracking was turned on. */
  #generation = 0;
  /** The last update. Updates run one at a time. */
  #last: Promise<void> = Promise.resolve();

  constructor(private readonly call: SendCommand, private readonly own: boolean) {}

  join(tracked: Tracked, up: boolean): ReturnType<Tracking["join"]> {
    const member: TrackingLocker = { tracked, up, subscriber: undefined, told: 0 };
    this.#members.add(member);
    return {
      linked: (up) => {
        member.up = up;
        // A new connection has no tracked reads, so everything is read again.
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

  /** Turns tracking on or off, or redirects it to another connection, as the members need. */
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
      // OPTIN, so that no other reads on this connection are tracked.
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

  /**
   * Returns the connection that the server reports to now. A client that is `own` cannot have another one.
   */
  async #redirect(): Promise<number> {
    return this.own ? OFF : Number(await this.call("CLIENT", "GETREDIR"));
  }
}

/** Returns a connection's id, or the reason why this user may not have it. */
export async function idBy(call: SendCommand): Promise<number | Unheard> {
  try {
    const id = Number(await call("CLIENT", "ID"));
    return Number.isSafeInteger(id) ? id : { error: new LeaseholdError("store", "the reply to CLIENT ID is not a number") };
  } catch (error) {
    return { error };
  }
}

/** Sends two commands in a row, with nothing between them, and returns the reply to each. */
type SendPair = (first: string[], second: string[]) => readonly [Promise<unknown>, Promise<unknown>];

/**
 * Makes the parts of an adapter that need one connection for all commands.
 *
 * `call` sends one command. If the client is `own`, nothing else can turn on tracking for it.
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
        // Other errors are temporary: on a new connection, tracking is turned on soon.
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
