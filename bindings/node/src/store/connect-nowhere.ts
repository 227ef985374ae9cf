import type { Adapter } from "../adapters/adapter.js";
import { LeaseholdError } from "../common/errors.js";

/** What `openClient` is in browsers and workers, which have no sockets for ioredis and node-redis. */
export async function openClient(_url: string, _options?: object): Promise<Adapter> {
  throw new LeaseholdError(
    "config",
    "here Locker.connect takes memory://name only; make a client that works here, such as one of " +
      "@upstash/redis, and give it to Locker.from",
  );
}

export function preload(): void {
  // There is nothing to load.
}
