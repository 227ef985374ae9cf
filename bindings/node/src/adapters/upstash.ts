import { can } from "../common/check.js";
import type { Adapter } from "./adapter.js";
import { alwaysUp, secretsOf, texts } from "./shared.js";

/** A client of `@upstash/redis`. It uses HTTP and cannot subscribe, so waiters poll. */
export interface UpstashClient {
  evalsha(sha: string, keys: string[], args: string[]): Promise<unknown>;
  eval(script: string, keys: string[], args: string[]): Promise<unknown>;
  multi(): unknown;
  pipeline(): unknown;
}

/** The object that sends the client's commands. A program may pass its own to the client's constructor. */
interface Requester {
  request(request: { body: string[] }): Promise<{ result?: unknown; error?: string }>;
  readonly headers?: Record<string, string>;
}

/** True if it is a client of `@upstash/redis`, of any copy or subclass. */
export function isUpstash(client: object): client is UpstashClient {
  const { client: requester } = client as { client?: Requester };
  return can(client, "evalsha", "pipeline") && (typeof requester?.request === "function" || can(client, "autoPipeline"));
}

/** Makes an adapter for a client that the program gave. */
export function upstash(client: UpstashClient): Adapter {
  // The client's methods parse strings that look like numbers or objects; its requester does not.
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

/** Restores the script's strings where the client has parsed them as JSON. */
function strings(reply: unknown): unknown {
  const back = (value: unknown) => (typeof value === "string" ? value : JSON.stringify(value));
  return Array.isArray(reply) ? reply.map(back) : reply;
}
