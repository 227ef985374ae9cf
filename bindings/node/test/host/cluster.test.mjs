// Clients of clusters and sentinels.
import assert from "node:assert/strict";
import { after, before, describe } from "node:test";
import { Locker } from "../../dist/index.js";
import { startCluster, startSentinel } from "../support/redis.mjs";
import { aborted, collect, key } from "../support/stores.mjs";
import { test } from "../support/test.mjs";
import { awake, waitFor, within } from "../support/wait.mjs";

const settings = { commandTimeout: 1_000, patience: 20_000 };

describe("a cluster", { concurrency: 2 }, () => {
  let cluster;
  before(async () => {
    cluster = await startCluster();
  });
  after(() => cluster.stop());

  const kinds = {
    async ioredis() {
      const { Cluster } = await import("ioredis");
      const client = new Cluster(cluster.nodes, { lazyConnect: true });
      client.on("error", () => {});
      await client.connect();
      return { locker: Locker.from(client, settings), end: () => client.disconnect() };
    },
    async "node-redis"() {
      const { createCluster } = await import("redis");
      const client = createCluster({ rootNodes: cluster.nodes.map((socket) => ({ socket })) });
      client.on("error", () => {});
      await client.connect();
      return { locker: Locker.from(client, settings), end: () => client.destroy() };
    },
    async connect() {
      return { locker: await Locker.connect(cluster.url, settings), end: () => {} };
    },
  };

  for (const [kind, make] of Object.entries(kinds)) {
    test(`${kind}: names on every node are locked, handed over, renewed and freed`, async (t) => {
      // Catches: scripts whose keys are on two nodes; batches with several names in one call; pushes that
      // reach only listeners at the same node.
      const [one, two] = [await make(), await make()];
      t.after(async () => {
        for (const { locker, end } of [one, two]) {
          await locker.shutdown();
          await end();
        }
      });
      const names = Array.from({ length: 24 }, (_, i) => `${kind} ${i}`);
      const locks = names.map((name) => one.locker.lock(name, { ttl: 5_000 }));
      const events = collect(one.locker.events());
      const leases = await Promise.all(locks.map((lock) => lock.acquire()));
      const waiting = names.map((name) => two.locker.lock(name).acquire());
      for (const name of names) {
        await waitFor(async () => (await one.locker.inspect(name)).waiting === 1);
      }
      const nodes = cluster.servers.map((server) => server.command("DBSIZE"));
      assert.ok((await Promise.all(nodes)).every((keys) => keys > 0), "every node has some");
      for (const lease of leases) {
        const renewed = () => events.some(({ type, name }) => type === "renewed" && name === lease.name);
        await waitFor(renewed, 10_000, `${lease.name} is renewed`);
        assert.ok(lease.valid, lease.name);
      }
      const begin = awake();
      await Promise.all(leases.map((lease) => lease.release()));
      const next = await Promise.all(waiting);
      const took = awake() - begin;
      assert.ok(took < 3_000, `by pushes, and not by asking every 5 s: ${took} ms`);
      for (const [i, lease] of next.entries()) {
        assert.ok(lease.token > leases[i].token);
      }
      const told = Promise.all(next.map((lease) => aborted(lease.signal)));
      const freed = await Promise.all(names.map((name) => one.locker.forceRelease(name)));
      assert.deepEqual(freed.map(({ token }) => token), next.map(({ token }) => token));
      for (const { reason } of await told) {
        assert.equal(reason, "revoked");
      }
      await assert.rejects(one.locker.list("*").next(), { code: "unsupported", message: /cluster/ });
    });

    test(`${kind}: slots, units, readers and writers on every node, and of a slot that moves`, async (t) => {
      // Catches: a key of a shared name in another slot; waiters that hear one node only; holders, a line,
      // tokens or a generation that stay behind when the slot moves.
      const [one, two] = [await make(), await make()];
      t.after(async () => {
        for (const { locker, end } of [one, two]) {
          await locker.shutdown();
          await end();
        }
      });
      const waiting = (name) => waitFor(async () => (await one.locker.inspect(name)).waiting === 1);
      const used = new Set();
      for (let number = 0; used.size < 3; number += 1) {
        const name = `${kind} shared ${number}`;
        const slot = await cluster.servers[0].command("CLUSTER", "KEYSLOT", key(name));
        const from = cluster.servers.findIndex((_, at) => slot < cluster.bounds[at + 1]);
        if (used.has(from)) {
          continue;
        }
        used.add(from);
        const gpus = one.locker.semaphore(name, 2, { ttl: 20_000 });
        const [first, second] = [await gpus.acquire(), await gpus.acquire()];
        const next = two.locker.semaphore(name, 2).acquire();
        await waiting(name);
        await cluster.move(slot, from, (from + 1) % 3);
        await first.renew();
        assert.ok(first.valid && second.valid);
        await second.release();
        const third = await within(next, 10_000, "the slot");
        assert.deepEqual([third.slot, third.resource], [1, `${name}#1`]);
        assert.ok(third.token > second.token);
        assert.equal(await gpus.tryAcquire(), undefined);
        assert.equal(await gpus.resize(3), 2);
        await Promise.all([first.release(), third.release()]);
        await cluster.move(slot, (from + 1) % 3, from);
        const back = await gpus.acquire();
        assert.deepEqual([back.slot, back.capacity], [0, 3]);
        assert.ok(back.token > first.token);
        await back.release();
      }
      const rows = one.locker.quota(`${kind} rows`, 500);
      const most = await rows.acquire({ weight: 400 });
      assert.equal(await two.locker.quota(`${kind} rows`, 500).tryAcquire({ weight: 101 }), undefined);
      await most.release();
      const [prices, others] = [one, two].map(({ locker }) => locker.rwLock(`${kind} prices`));
      const writer = await prices.write().acquire();
      const reads = others.read().acquire();
      await waiting(`${kind} prices`);
      await writer.release();
      const reader = await within(reads, 10_000, "the reader");
      assert.equal(reader.generation, writer.token);
      await reader.release();
    });
  }
});

describe("sentinels", { concurrency: 1 }, () => {
  const kinds = {
    async ioredis({ sentinel }) {
      const { Redis } = await import("ioredis");
      const client = new Redis({
        sentinels: [{ host: "127.0.0.1", port: sentinel.port }],
        name: "mymaster",
        retryStrategy: () => 50,
        sentinelRetryStrategy: () => 50,
      });
      client.on("error", () => {});
      return { locker: Locker.from(client, settings), end: () => client.disconnect() };
    },
    async "node-redis"({ sentinel }) {
      const { createSentinel } = await import("redis");
      const client = createSentinel({
        name: "mymaster",
        sentinelRootNodes: [{ host: "127.0.0.1", port: sentinel.port }],
        scanInterval: 200,
      });
      client.on("error", () => {});
      await client.connect();
      return { locker: Locker.from(client, settings), end: () => client.destroy() };
    },
    async connect({ url }) {
      return { locker: await Locker.connect(url, settings), end: () => {} };
    },
  };

  for (const [kind, make] of Object.entries(kinds)) {
    test(`${kind}: over a failover leases survive or are reported lost, and tokens grow`, async (t) => {
      const group = await startSentinel();
      const { locker, end } = await make(group);
      t.after(async () => {
        await locker.shutdown();
        await end();
        await group.stop();
      });
      const locks = ["a", "b", "c"].map((name) => locker.lock(name, { ttl: 20_000 }));
      const events = collect(locker.events());
      const leases = await Promise.all(locks.map((lock) => lock.acquire()));
      const waiting = locker.lock("a").acquire();
      await waitFor(async () => (await locker.inspect("a")).waiting === 1);
      // The replica has everything.
      const keys = locks.length + 1;
      await waitFor(async () => (await group.replica.command("DBSIZE")) >= keys);
      await group.failover();
      const settled = () =>
        leases.every(
          (lease) =>
            !lease.valid ||
            events.findLast(({ name, type }) => name === lease.name && type !== "waiting")?.type === "renewed",
        );
      await waitFor(settled, 30_000, "every lease is renewed or lost");
      for (const [i, lease] of leases.entries()) {
        const holder = (await locker.inspect(lease.name)).holder;
        assert.equal(lease.valid, holder?.token === lease.token, `${lease.name}: what is said is so`);
        await lease.release().catch((error) => assert.equal(error.code, "notHeld"));
        const next = await (i === 0 ? waiting : locks[i].acquire());
        assert.ok(next.token > lease.token);
        await next.release();
      }
    });
  }
});
