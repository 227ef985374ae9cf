// Locker.connectLazily: a program may start while its server is down.
import assert from "node:assert/strict";
import { LeaseholdError, Locker } from "../../dist/index.js";
import { freePort, startRedis } from "../support/redis.mjs";
import { test } from "../support/test.mjs";
import { awake, waitFor } from "../support/wait.mjs";

test("a server that comes later is used once it is there", async (t) => {
  // Catches a locker that gives up on a server that starts later.
  const server = await startRedis();
  t.after(() => server.stop());
  await server.kill();
  const locker = await Locker.connectLazily(server.url);
  t.after(() => locker.shutdown());
  const begin = awake();
  await assert.rejects(locker.lock("x").acquire({ timeout: 300 }), (error) => {
    assert.ok(error instanceof LeaseholdError, error.stack);
    assert.equal(error.code, "unavailable", error.stack);
    return true;
  });
  assert.ok(awake() - begin < 3_000, `after ${awake() - begin} ms`);
  const waiting = locker.lock("x").acquire();
  await server.start();
  const lease = await waiting;
  assert.ok(lease.valid);
  await lease.release();
});

test("calls right after it wait for the first connection", async (t) => {
  const server = await startRedis();
  t.after(() => server.stop());
  const locker = await Locker.connectLazily(server.url);
  const lease = await locker.lock("x").tryAcquire();
  assert.ok(lease?.valid);
  await locker.shutdown();
  const memory = await Locker.connectLazily("memory://");
  assert.ok(await memory.lock("x").tryAcquire());
  await memory.shutdown();
});

test("a bad server fails later calls, and a bad URL fails connectLazily itself", async (t) => {
  const server = await startRedis({ password: "s3cret" });
  t.after(() => server.stop());
  const locker = await Locker.connectLazily(`redis://:wr0ng@127.0.0.1:${server.port}`, { patience: 2_000 });
  t.after(() => locker.shutdown());
  await waitFor(async () => {
    const error = await locker.inspect("x").catch((error) => error);
    assert.doesNotMatch(error.message, /wr0ng/);
    return error.code === "auth" && /WRONGPASS/.test(error.message);
  });
  for (const url of ["", "redis://", "http://h"]) {
    await assert.rejects(Locker.connectLazily(url), { code: "config" });
  }
  await assert.rejects(Locker.connectLazily("rediss://127.0.0.1:1?ca=/no/such/ca.pem"), {
    code: "config",
    message: /^rediss:\/\/127\.0\.0\.1:1: the ca file \/no\/such\/ca\.pem cannot be read/,
  });
  await assert.rejects(Locker.connectLazily(`redis://127.0.0.1:${await freePort()}`, { patience: -1 }), { code: "config" });
});
