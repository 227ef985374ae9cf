import type { Adapter } from "./adapter.js";
import { nothing, secretsOf, texts } from "./shared.js";

/** A client of `@upstash/redis`. It speaks HTTP, so nothing is pushed to it: waiters ask again. */
export interface UpstashClient {
  evalsha(sha: string, keys: string[], args: string[]): Promise<unknown>;
  eval(script: string, keys: string[], args: string[]): Promise<unknown>;
  multi(): unknown;
  pipeline(): unknown;
}

/** What carries the commands of such a client, and is part of what its constructor takes. */
interface Requester {
  request(request: { body: string[] }): Promise<{ result?: unknown; error?: string }>;
  readonly headers?: Record<string, string>;
}

/** Whether it is a client of `@upstash/redis`, of whatever copy or subclass. */
export function isUpstash(client: object): client is UpstashClient {
  const { evalsha, pipeline } = client as Partial<UpstashClient>;
  const { client: requester, autoPipeline } = client as { client?: Requester; autoPipeline?: unknown };
  return (
    typeof evalsha === "function" &&
    typeof pipeline === "function" &&
    (typeof requester?.request === "function" || typeof autoPipeline === "function")
  );
}

/** Makes an adapter of a client that the program gave. */
export function upstash(client: UpstashClient): Adapter {
  // The client's own methods make numbers and objects of strings that look like them, for which its
  // requester knows nothing.
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
    watch: (link) => {
      link.up();
      return nothing;
    },
    close: async () => {},
  };
}

/** What was made of the script's strings by JSON, as strings again. */
function strings(reply: unknown): unknown {
  const back = (value: unknown) => (typeof value === "string" ? value : JSON.stringify(value));
  return Array.isArray(reply) ? reply.map(back) : reply;
}
