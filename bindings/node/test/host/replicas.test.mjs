// Locks that count only once replicas or the disk have them.
import assert from "node:assert/strict";
import { after, describe } from "node:test";
import { Locker } from "../../dist/index.js";
import { given } from "../adapters/kinds.mjs";
import { startRedis } from "../support/redis.mjs";
import { test } from "../support/test.mjs";
import { waitFor } from "../support/wait.mjs";

/** A timeout in milliseconds that is long enough for a healthy replica on a busy machine. */
const ENOUGH = 3_000;
/** A timeout in milliseconds for a replica that does not confirm. */
const SHORT = 200;

/** Starts a primary and its replica. */
async function started() {
  const primary = await startRedis({ config: ["repl-diskless-sync-delay 0"] });
  const replica = await startRedis({ config: [`replicaof 127.0.0.1 ${primary.port}`] });
  after(() => Promise.all([primary.stop(), replica.stop()]));
  const acknowledges = async () => (await primary.command("WAIT", 1, 100)) === 1;
  await waitFor(acknowledges, 30_000, "the replica is in sync");
  return { primary, replica };
}

function isFree(server, name) {
  const free = async () => (await server.command("HLEN", `{leasehold:${name}}`)) <= 1;
  return waitFor(free, 10_000, "the lock was given back");
}

const single = given.filter(({ name }) => !name.includes("pool"));

describe("a lock counts once its replicas have it", { concurrency: 1 }, async () => {
  const { primary, replica } = await started();

  async function lockerOf(t, { make, end }) {
    const client = await make(primary.url);
    t.after(() => end(client));
    const locker = await Locker.from(client);
    t.after(() => locker.shutdown());
    return locker;
  }

  for (const kind of single) {
    test(`with ${kind.name}`, async (t) => {
      const locker = await lockerOf(t, kind);
      await primary.command("SCRIPT", "FLUSH");
      const lock = locker.lock("x", { ttl: 60_000, replicas: 1, replicasTimeout: ENOUGH });
      const lease = await lock.acquire();
      assert.equal(await replica.command("EXISTS", "{leasehold:x}"), 1);
      await lease.renew();
      const next = lock.acquire();
      await waitFor(async () => (await locker.inspect("x")).waiting === 1, 10_000, "one waits");
      await lease.release();
      await (await next).release();
      replica.pause();
      t.after(() => replica.resume());
      for (const replicas of [1, 2]) {
        const hopeless = locker.lock("x", { replicas, replicasTimeout: SHORT });
        const message = `lock "x": the lock is not durable: 0 of ${replicas} replicas acknowledged it in time`;
        await assert.rejects(hopeless.acquire(), { code: "notReplicated", message, transient: true });
        await isFree(primary, "x");
      }
      // Everything else works.
      await (await locker.lock("y").acquire()).release();
    });
  }

  test("a renewal that too few acknowledge does not count", async (t) => {
    const locker = await lockerOf(t, single[0]);
    const lock = locker.lock("r", { ttl: 1_500, replicas: 1, replicasTimeout: SHORT });
    const events = lock.events();
    const lease = await lock.acquire();
    replica.pause();
    t.after(() => replica.resume());
    for await (const event of events) {
      if (event.type === "atRisk") {
        assert.equal(event.error.code, "notReplicated");
        break;
      }
    }
    await waitFor(() => lease.signal.aborted, 5_000, "the lease is lost");
    assert.equal(lease.signal.reason.reason, "expired");
    await isFree(primary, "r");
  });
});

test("unsupported waits are reported", async (t) => {
  const server = await startRedis({ persistent: true });
  t.after(() => server.stop());
  const version = /redis_version:(\S+)/.exec(await server.info("server"))?.[1] ?? "";
  for (const { name, make, end } of given) {
    const client = await make(server.url);
    t.after(() => end(client));
    const locker = await Locker.from(client);
    t.after(() => locker.shutdown());
    const acquired = locker.lock("x", { fsynced: true }).tryAcquire();
    if (name.includes("pool")) {
      await assert.rejects(acquired, { code: "unsupported", message: /\(pool\) cannot wait for replicas/ });
    } else if (version.startsWith("7.0.")) {
      await assert.rejects(acquired, { code: "unsupported", message: /WAITAOF.*`fsynced` needs Redis 7\.2/ }, name);
    } else {
      await (await acquired)?.release();
    }
    await isFree(server, "x");
  }
  const memory = Locker.inMemory();
  t.after(() => memory.shutdown());
  const none = { code: "unsupported", message: /an in-memory store has neither replicas nor a disk/ };
  await assert.rejects(memory.lock("x", { replicas: 1 }).acquire(), none);
  await assert.rejects(memory.lock("x", { fsynced: true }).tryAcquire(), none);
  const wrong = { code: "config", message: /^replicasTimeout must be from 1 ms to 1 min/ };
  assert.throws(() => memory.lock("x", { replicas: 1, replicasTimeout: 60_001 }), wrong);
  assert.throws(() => memory.lock("x", { fsynced: true, replicasTimeout: 0 }), wrong);
});

test("options are shown, and keep locks apart", async (t) => {
  const locker = Locker.inMemory();
  t.after(() => locker.shutdown());
  const { replicas, replicasTimeout, fsynced } = locker.lock("x", { replicas: 2 }).toJSON();
  assert.deepEqual({ replicas, replicasTimeout, fsynced }, { replicas: 2, replicasTimeout: 1_000, fsynced: false });
  assert.equal("replicas" in locker.lock("x").toJSON(), false);
  // One handle is not taken for another one of the same name.
  await (await locker.lock("x").acquire()).release();
  await assert.rejects(locker.lock("x", { replicas: 2 }).acquire(), { code: "unsupported" });
  await (await locker.lock("x").acquire()).release();
});
