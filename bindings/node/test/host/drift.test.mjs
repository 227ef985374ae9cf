// The drift margin: how much of the store's time deadlines leave, and what happens when clocks run at different rates.
import assert from "node:assert/strict";
import Redis from "ioredis";
import { Locker } from "../../dist/index.js";
import { startRedis } from "../support/redis.mjs";
import { collect } from "../support/stores.mjs";
import { test } from "../support/test.mjs";
import { waitFor } from "../support/wait.mjs";

/** The rate at which chrony slews by default, in parts per million. */
const SLEWING = 83_333;
/** How much earlier, in parts per million, such a clock reaches the end of a time. */
const EARLIER = SLEWING / (1 + SLEWING / 1e6);

test("the margin is what a deadline leaves of the time to live", async () => {
  // Catches: an option that does not arrive.
  const locker = Locker.inMemory({ driftMargin: 200_000 });
  const lease = await locker.lock("x", { ttl: 60_000 }).acquire();
  assert.ok(lease.remaining <= 48_000 && lease.remaining > 40_000, String(lease.remaining));
  await locker.shutdown();
});

test("readers of all locks learn of clocks that run at different rates, whenever they begin", async (t) => {
  const server = await startRedis();
  const redis = new Redis(server.url);
  t.after(async () => {
    redis.disconnect();
    await server.stop();
  });
  const began = Date.now() * 1_000;
  const slewed = (time) => String(Math.round(Number(time) + ((Number(time) - began) * SLEWING) / 1e6));
  const evaluator = {
    async eval(script, keys, args) {
      // The time alone, or a list that begins with it.
      const [time, ...replies] = [await redis.eval(script, keys.length, ...keys, ...args)].flat();
      return [slewed(time), ...replies];
    },
  };
  const locker = Locker.from(evaluator);
  t.after(() => locker.shutdown());
  const lock = locker.lock("x", { ttl: 900 });
  const [all, own] = [collect(locker.events()), collect(lock.events())];
  await lock.acquire();
  // The lease may be lost on a machine that stalls; answers arrive anyway.
  const asking = setInterval(() => locker.inspect("x").catch(() => {}), 100);
  t.after(() => clearInterval(asking));
  const drifts = (events) => events.filter(({ type }) => type === "clockDrift");
  // Slow answers say less, so it may take some of them.
  await waitFor(() => drifts(all).at(-1)?.driftMargin > EARLIER, 60_000, () => JSON.stringify(drifts(all)));
  assert.deepEqual(drifts(own), []);
  const late = collect(locker.events());
  await waitFor(() => drifts(late).length > 0, 10_000, "who comes late is told too");
  assert.ok(drifts(late)[0].driftMargin >= drifts(all)[0].driftMargin);
});
