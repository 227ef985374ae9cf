import { can } from "../common/check.js";
import type { Adapter } from "./adapter.js";
import { alwaysUp, secretsOf, texts } from "./shared.js";

/** A client of `@upstash/redis`. It speaks HTTP, so nothing is pushed to it: waiters ask again and again. */
export interface UpstashClient {
  evalsha(sha: string, keys: string[], args: string[]): Promise<unknown>;
  eval(script: string, keys: string[], args: string[]): Promise<unknown>;
  multi(): unknown;
  pipeline(): unknown;
}

/** What sends the commands of such a client; a program may pass its own to the constructor. */
interface Requester {
  request(request: { body: string[] }): Promise<{ result?: unknown; error?: string }>;
  readonly headers?: Record<string, string>;
}

/** Whether it is a client of `@upstash/redis`, of whatever copy or subclass. */
export function isUpstash(client: object): client is UpstashClient {
  const { client: requester } = client as { client?: Requester };
  return can(client, "evalsha", "pipeline") && (typeof requester?.request === "function" || can(client, "autoPipeline"));
}

/** Makes an adapter of a client that the program gave. */
export function upstash(client: UpstashClient): Adapter {
  // The client's methods turn strings that look like numbers or objects into such; its requester does not.
  const requester = (client as { client?: Requester }).client;
  const raw = typeof requester?.request === "function" ? requester : undefined;
  const run = async (command: "evalsha" | "eval", script: string, keys: string[], args: string[]) => {
    if (!raw) {
      return strings(await client[command](script, keys, args));
    }
    const body = [command, script, String(keys.length), ...keys, ...args];
    const { result, error } = await raw.request({ body });
    if (error) {
      throw new Error(error);
    }
    return texts(result);
  };
  return {
    client: "@upstash/redis",
    clustered: false,
    secrets: secretsOf(raw?.headers?.["authorization"]?.replace(/^Bearer /, "")),
    evalsha: (sha, keys, args) => run("evalsha", sha, keys, args),
    eval: (script, keys, args) => run("eval", script, keys, args),
    watch: alwaysUp,
    close: async () => {},
  };
}

/** The script's strings again, where the client has read them as JSON. */
function strings(reply: unknown): unknown {
  const back = (value: unknown) => (typeof value === "string" ? value : JSON.stringify(value));
  return Array.isArray(reply) ? reply.map(back) : reply;
}
