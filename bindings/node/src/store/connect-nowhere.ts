import type { Adapter } from "../adapters/adapter.js";
import { config } from "../common/check.js";

/**
 * Rejects. It replaces `openClient` in browsers and workers, which have no sockets for ioredis and
 * node-redis.
 */
export async function openClient(_url: string, _options?: object): Promise<Adapter> {
  const { process } = globalThis as { process?: { versions?: { node?: string } } };
  const advice =
    process?.versions?.node === undefined
      ? "make a client that works here, such as one of @upstash/redis, and give it to Locker.from"
      : "this is the build for browsers: bundle the program for Node (esbuild: --platform=node), and test it in Jest's " +
        "environment node";
  throw config(`Locker.connect accepts only memory://name here; ${advice}`);
}

export function preload(): void {
  // There is nothing to load.
}
