// Tests of programs fake timers and clocks. Locks work in real time under these fakes.
import assert from "node:assert/strict";
import { describe } from "node:test";
import FakeTimers from "@sinonjs/fake-timers";
import { Locker } from "../../dist/index.js";
import { startProgram } from "../support/program.mjs";
import { startRedis } from "../support/redis.mjs";
import { aborted, collect, lockerOf } from "../support/stores.mjs";
import { test } from "../support/test.mjs";

const HOUR = 3_600_000;

/** The fakes that tests use. Each returns a function that advances the fake time. */
const fakes = {
  // As jest.useFakeTimers() does. Node itself keeps its `nextTick` there, too.
  everything(t) {
    const clock = FakeTimers.install({ toNotFake: ["nextTick"] });
    t.after(() => clock.uninstall());
    return (milliseconds) => clock.tick(milliseconds);
  },
  "timers and Date alone": (t) => {
    t.mock.timers.enable({ apis: ["setTimeout", "setInterval", "setImmediate", "Date"] });
    return (milliseconds) => t.mock.timers.tick(milliseconds);
  },
};

for (const [what, fake] of Object.entries(fakes)) {
  describe(`with ${what} faked`, () => {
    test("an in-memory store hands locks over, emits events, and ends", async (t) => {
      // Catches: a microtask of the test's fakes, so that the first call never ends.
      fake(t);
      const locker = Locker.inMemory();
      const [first, second] = [locker.lock("x"), locker.lock("x")];
      const events = collect(locker.events());
      const lease = await first.acquire();
      assert.equal(await second.tryAcquire(), undefined);
      const waits = second.acquire({ timeout: 60_000 });
      await lease.release();
      const next = await waits;
      assert.ok(next.token > lease.token);
      await locker.forceRelease("x");
      assert.equal((await aborted(next.signal)).reason, "revoked");
      assert.equal(await first.using(async () => 7), 7);
      await locker.shutdown();
      await events.ended;
      assert.ok(events.some(({ type }) => type === "lost"));
    });

    test("limits, renewals and losses come in real time, and faked time moves none", async (t) => {
      // Catches: a deadline by one clock and its timer by another.
      const tick = fake(t);
      const locker = Locker.inMemory();
      const held = await locker.lock("held", { ttl: 200 }).acquire();
      const fixed = await locker.lock("fixed", { ttl: 30_000, fixed: true }).acquire();
      tick(HOUR);
      assert.ok(held.valid && fixed.valid);
      assert.ok(fixed.remaining > 20_000, `${fixed.remaining}`);

      await assert.rejects(locker.lock("held").acquire({ timeout: 50 }), { code: "timeout" });
      const short = await locker.lock("short", { ttl: 200, fixed: true }).acquire();
      assert.equal((await aborted(short.signal)).reason, "expired");
      // That took as long as a renewed lease lives.
      assert.ok(held.valid, "it was renewed");
      await held.release();
      await locker.shutdown();
    });
  });
}

for (const kind of ["ioredis", "node-redis"]) {
  test(`leases on a server are renewed with timers faked, with ${kind}`, async (t) => {
    // Catches: a lease that expires at the server while the test's time stands still.
    const server = await startRedis();
    t.after(() => server.stop());
    const { locker, end } = await lockerOf(kind, server.url);
    // Clients need these.
    const clock = FakeTimers.install({ toNotFake: ["nextTick", "setImmediate"] });
    t.after(() => clock.uninstall());
    const lease = await locker.lock("x", { ttl: 300 }).acquire();
    clock.tick(HOUR);
    const short = await locker.lock("short", { ttl: 600, fixed: true }).acquire();
    assert.equal((await aborted(short.signal)).reason, "expired");
    assert.ok(lease.valid);
    assert.equal((await locker.inspect("x")).holder.token, lease.token);
    await locker.shutdown();
    await end();
  });
}

test("loaded under fakes, a store in memory does not hang", async () => {
  // Catches: fakes that are used where only a microtask is needed.
  const program = startProgram(process.execPath, ["--input-type=module", "-e", `
    import FakeTimers from "@sinonjs/fake-timers";
    FakeTimers.install();
    const { Locker } = await import("./dist/index.js");
    const locker = Locker.inMemory();
    const [first, second] = [locker.lock("x"), locker.lock("x")];
    const lease = await first.acquire();
    const waits = second.acquire();
    await lease.release();
    await (await waits).release();
    await locker.shutdown();
    console.log("done");
  `]);
  await program.says("done");
  // It would not end by itself, because the timers that keep it alive are faked.
  program.kill();
});
