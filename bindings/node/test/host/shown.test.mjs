// Logs and other threads get the useful parts of a locker, lock, lease or error, and no secret.
import assert from "node:assert/strict";
import { inspect } from "node:util";
import { describe } from "node:test";
import { LeaseholdError, Locker } from "../../dist/index.js";
import { createRequire } from "node:module";
import { StaleTokenError, withToken } from "../../dist/fence.js";
import { startRedis } from "../support/redis.mjs";
import { test } from "../support/test.mjs";

const PASSWORD = "s3cret";
const parsed = (value) => JSON.parse(JSON.stringify(value));

describe("logs and threads", () => {
  // Catches consoles and logs that show `Lease {}`, or that show the URL or the client.
  test("consoles and JSON show a locker, a lock and a lease", async (t) => {
    const server = await startRedis({ password: PASSWORD });
    t.after(() => server.stop());
    const { Redis } = createRequire(import.meta.url)("ioredis");
    const client = new Redis({ port: server.port, password: PASSWORD });
    t.after(() => client.disconnect());
    const connect = (thread) => Locker.connect(`redis://:${PASSWORD}@127.0.0.1:${server.port}`, { namespace: "app", owner: "job", thread });
    const [byUrl, inThread] = [await connect(false), await connect(true)];
    const times = { connectTimeout: 3_000, commandTimeout: 2_000, patience: 10_000, tokenRetention: 86_400_000, longestTtl: 60_000 };
    const all = { namespace: "app", owner: "job", driftMargin: 2_000, tracking: true, ...times };
    for (const locker of [byUrl, inThread, Locker.from(client, { namespace: "app", owner: "job" })]) {
      const lock = locker.lock("orders/42", { ttl: 20_000, fixed: true });
      const lease = await lock.acquire();
      assert.deepEqual(parsed(locker), { ...all, thread: locker === inThread });
      const options = { ttl: 20_000, fixed: true, reentrant: false, owner: "job", denseTokens: false };
      assert.deepEqual(parsed(lock), { name: "orders/42", ...options });
      const { remaining, ...rest } = parsed(lease);
      assert.deepEqual(rest, { name: "orders/42", token: lease.token, valid: true });
      assert.ok(Number.isSafeInteger(remaining) && remaining > 10_000 && remaining <= 20_000, String(remaining));
      assert.match(inspect(locker), /^Locker \{[^]*namespace: 'app'/);
      assert.match(inspect(lock), /^Lock \{[^]*name: 'orders\/42',[^]*ttl: 20000/);
      assert.match(inspect(lease), /^Lease \{[^]*name: 'orders\/42',[^]*token: \d+,[^]*valid: true,[^]*remaining: \d+/);
      assert.match(inspect({ deep: { deeper: { lease } } }, { depth: 1 }), /deeper: \[Object\]/);
      assert.match(inspect([[lease]], { depth: 0 }), /\[ \[Array\] \]/);
      assert.match(inspect([lease], { depth: 0 }), /\[Lease\]/);
      for (const object of [locker, lock, lease, { locker, lock, lease }]) {
        const shown = [inspect(object, { depth: Infinity, showHidden: true }), JSON.stringify(object), String(object)].join();
        assert.ok(!shown.includes(PASSWORD) && !shown.includes(String(server.port)), shown);
      }
      await lease.release();
      assert.deepEqual(parsed(lease), { ...rest, valid: false, remaining: 0 });
      await locker.shutdown();
    }
  });

  test("consoles and JSON show objects that are read with `for await`", async () => {
    // Catches consoles that show `Tenures2 {}`.
    const locker = Locker.inMemory();
    const lock = locker.lock("orders/42");
    const tenures = lock.hold();
    assert.equal(inspect(tenures), "Tenures { name: 'orders/42', ended: false }");
    const { value: lease } = await tenures.next();
    assert.deepEqual(parsed(tenures), { name: "orders/42", token: lease.token, ended: false });
    await tenures.return();
    assert.equal(inspect(tenures), `Tenures { name: 'orders/42', token: ${lease.token}, ended: true }`);
    const observer = locker.observe("orders/42", { every: 10 });
    assert.equal(inspect(observer), "Observer { name: 'orders/42', ended: false }");
    await observer.next();
    await observer.return();
    assert.equal(inspect(observer), `Observer { name: 'orders/42', token: ${lease.token}, ended: true }`);
    assert.equal(inspect(lock.events()), "LeaseEvents { name: 'orders/42' }");
    assert.equal(inspect(locker.events()), "LeaseEvents {}");
    await locker.shutdown();
  });

  test("consoles and JSON show semaphores, readers and writers", async () => {
    const locker = Locker.inMemory();
    const options = { ttl: 20_000, fixed: true, owner: "job", atMost: 60_000, maxLine: 5, strict: true };
    const gpus = locker.semaphore("gpus", 8, options);
    assert.deepEqual(parsed(gpus), { name: "gpus", sharing: "slots", capacity: 8, ...options });
    const rows = { name: "rows", sharing: "units", capacity: 500, ttl: 30_000, fixed: false, strict: false };
    assert.deepEqual(parsed(locker.quota("rows", 500)), rows);
    assert.match(inspect(gpus), /^Semaphore \{[^]*name: 'gpus',[^]*capacity: 8/);
    const prices = locker.rwLock("prices");
    assert.equal(inspect(prices), "RwLock { name: 'prices', ttl: 30000, fixed: false }");
    assert.equal(inspect(prices.write()), "RwPart { name: 'prices', writes: true }");
    const permit = await gpus.acquire({ weight: 2 });
    const { name, token, waited, capacity, epoch } = permit;
    const { remaining, ...rest } = parsed(permit);
    assert.deepEqual(rest, { name, token, valid: true, resource: "gpus#0" });
    assert.match(inspect(permit), /^Permit \{[^]*resource: 'gpus#0'/);
    const clone = { name, token, waited, capacity, epoch, slot: 0, slots: [0, 1], resource: "gpus#0", generation: undefined };
    assert.deepEqual(structuredClone(permit), clone);
    await locker.shutdown();
  });

  test("a default owner is not among the options", () => {
    const locker = Locker.inMemory();
    for (const object of [locker, locker.lock("x"), locker.rwLock("x")]) {
      assert.ok(!("owner" in parsed(object)));
    }
  });

  test("JSON shows errors", async () => {
    const locker = Locker.inMemory();
    const lease = await locker.lock("x").acquire();
    await locker.shutdown();
    const { message, token } = lease.signal.reason;
    const lost = { name: "LeaseLostError", code: "lost", message, lock: "x", token, reason: "shutdown" };
    assert.deepEqual(parsed({ lost: lease.signal.reason }), { lost });
    const secret = new LeaseholdError("store", "a message", { cause: new Error(PASSWORD) });
    assert.deepEqual(parsed(secret), { name: "LeaseholdError", code: "store", message: "a message" });
    const stale = new StaleTokenError("r", 1, 2);
    const { message: why } = stale;
    assert.deepEqual(parsed(stale), { name: "StaleTokenError", code: "staleToken", message: why, resource: "r", offered: 1, highest: 2 });
  });

  test("other threads get the parts that the platform copies", async () => {
    const locker = Locker.inMemory();
    const lease = await locker.lock("x").acquire();
    const { name, token, waited } = lease;
    const clone = structuredClone(lease);
    assert.deepEqual(clone, { name, token, waited });
    // A guard there can still read it.
    assert.equal(withToken(clone).headers.get("Fencing-Token"), String(token));
    const error = new LeaseholdError("config", "a message");
    assert.equal(structuredClone(error).message, "a message");
    assert.deepEqual(structuredClone(error.toJSON()), { name: "LeaseholdError", code: "config", message: "a message" });
    await locker.shutdown();
  });
});
