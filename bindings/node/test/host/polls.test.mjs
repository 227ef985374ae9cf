// On a client without subscriptions, the locker says that it polls, and waiters are served anyway.
import assert from "node:assert/strict";
import Redis from "ioredis";
import { Locker } from "../../dist/index.js";
import { startRedis } from "../support/redis.mjs";
import { test } from "../support/test.mjs";
import { awake, waitFor } from "../support/wait.mjs";

test("a client with eval alone is polled", async (t) => {
  const server = await startRedis();
  const redis = new Redis(server.url);
  t.after(async () => {
    redis.disconnect();
    await server.stop();
  });
  const evaluator = { eval: (script, keys, args) => redis.eval(script, keys.length, ...keys, ...args) };
  const [deaf, hearing] = [Locker.from(evaluator), Locker.from(redis)];
  assert.deepEqual([deaf.polls, hearing.polls, Locker.inMemory().polls], [true, false, false]);

  const held = await hearing.lock("x").acquire();
  const waiting = deaf.lock("x").acquire();
  await waitFor(async () => (await hearing.inspect("x")).waiting === 1, 10_000, "it waits");
  const begin = awake();
  await held.release();
  const lease = await waiting;
  // Catches a waiter that relies on a push which cannot come: it would ask at its heartbeat, after 5 s.
  const took = awake() - begin;
  assert.ok(took < 3_000, `served after ${took} ms`);
  assert.ok(lease.token > held.token);
  await Promise.all([deaf.shutdown(), hearing.shutdown()]);
});
