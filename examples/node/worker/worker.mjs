// A Cloudflare-style worker: a lock around what a request does. It runs on workerd.
import { Redis } from "@upstash/redis/cloudflare";
import { Locker } from "leasehold";

let visits = 0;

export default {
  async fetch(request, env) {
    const name = new URL(request.url).pathname.slice(1) || "visits";
    // One for each request, because a worker's connections and timers belong to their request.
    const locker = env.UPSTASH_REDIS_REST_URL
      ? Locker.from(Redis.fromEnv(env))
      : await Locker.connect("memory://worker");
    try {
      // Waits in line for two seconds at the most, or until the client goes away.
      const answer = await locker.lock(name, { ttl: 5_000 }).using(
        async (lease) => {
          const seen = visits;
          await new Promise((resolve) => setTimeout(resolve, 5));
          visits = seen + 1;
          return { name, visits, token: lease.token, waited: Math.round(lease.waited) };
        },
        { timeout: 2_000, signal: request.signal },
      );
      return Response.json(answer);
    } catch ({ code, message }) {
      return Response.json({ code, message }, { status: code === "timeout" ? 503 : 500 });
    } finally {
      await locker.shutdown();
    }
  },
};
