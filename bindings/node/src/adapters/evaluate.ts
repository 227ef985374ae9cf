import { config, shown } from "../common/check.js";
import type { Adapter } from "./adapter.js";
import { type Subscriber, Subscriptions, type Wanted } from "./subscriptions.js";
import { alwaysUp, nothing, textOf, texts } from "./shared.js";

/**
 * Any object that runs Lua scripts on a Redis server. It lets Leasehold work with clients that it does not
 * know.
 *
 * ```ts
 * const evaluator: Evaluator = {
 *   eval: (script, keys, args) => client.run("EVAL", script, keys.length, ...keys, ...args),
 *   subscribe: async (channel, onMessage) => {
 *     const subscription = await client.subscribe(channel, onMessage);
 *     return () => subscription.end();
 *   },
 * };
 * ```
 */
export interface Evaluator {
  /** Runs the script by its text, and resolves to its result: a string, or a list of strings. */
  eval(script: string, keys: string[], args: string[]): Promise<unknown>;
  /**
   * Runs the script by its hash. Must reject with an error whose message begins with `NOSCRIPT` if the server
   * does not have the script. Without this method, each call sends the script's text.
   */
  evalsha?(sha: string, keys: string[], args: string[]): Promise<unknown>;
  /**
   * Subscribes to a channel, and subscribes again after the connection was lost.
   *
   * It must return once the server has confirmed the subscription. It returns a function that ends the
   * subscription. Without this method there are no notifications, and waiters poll.
   */
  subscribe?(
    channel: string,
    onMessage: (message: string) => void,
  ): Unsubscribe | Promise<Unsubscribe>;
}

/** Ends a subscription. */
export type Unsubscribe = () => unknown;

/** True if the object can run scripts. */
export function isEvaluator(client: object): client is Evaluator {
  return typeof (client as Partial<Evaluator>).eval === "function";
}

/** Makes an adapter for an object that the program gave. */
export function evaluate(client: Evaluator): Adapter {
  const optional = ["evalsha", "subscribe"] as const;
  for (const method of optional) {
    if (client[method] !== undefined && typeof client[method] !== "function") {
      throw config(`the given client's \`${method}\` must be a function; got ${shown(client[method])}`);
    }
  }
  const subscriptions = new Subscriptions((wanted) => openSubscriber(client, wanted));
  return {
    client: "the given object with eval",
    clustered: false,
    secrets: [],
    ...(client.evalsha && {
      evalsha: async (sha, keys, args) => texts(await client.evalsha?.(sha, keys, args)),
    }),
    eval: async (script, keys, args) => texts(await client.eval(script, keys, args)),
    watch: alwaysUp,
    ...(client.subscribe && {
      listen: (channel, hearing) => subscriptions.listen(channel, hearing),
    }),
    close: async () => subscriptions.close(),
  };
}

function openSubscriber(client: Evaluator, { channel, onMessage }: Wanted): Subscriber {
  const subscribe = async () => {
    const unsubscribe = await client.subscribe?.(channel, (message) => onMessage(textOf(message)));
    if (typeof unsubscribe !== "function") {
      throw new TypeError("the given client's `subscribe` must return a function that unsubscribes");
    }
    return unsubscribe;
  };
  const subscribed = subscribe();
  return {
    ready: subscribed.then(() => undefined),
    check: async () => {},
    keepAlive: nothing,
    close: () => void subscribed.then((unsubscribe) => unsubscribe()).catch(nothing),
  };
}
