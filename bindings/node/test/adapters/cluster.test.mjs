// Clients of clusters and sentinels.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { after, before, describe } from "node:test";
import calculateSlot from "cluster-key-slot";
import { startCluster, startSentinel } from "../support/redis.mjs";
import { test } from "../support/test.mjs";
import { awake, waitFor } from "../support/wait.mjs";
import { bundle } from "./bundle.mjs";
import { adapters, hearingLog, linkLog, useAdapter } from "./kinds.mjs";

const sha1 = (script) => createHash("sha1").update(script).digest("hex");

/** Every kind of cluster client. */
const kinds = [
  ...["ioredis", "ioredis-v6"].flatMap((version) =>
    [{}, { enableAutoPipelining: true }].map((options) => [
      `${version} ${JSON.stringify(options)}`,
      async (cluster) => {
        const { Cluster } = await import(version);
        const client = new Cluster(cluster.nodes, { lazyConnect: true, ...options });
        client.on("error", () => {});
        return { adapter: adapters.adapt(client), client, end: () => client.disconnect() };
      },
    ]),
  ),
  ...["redis-v4", "redis", "redis-v6"].map((version) => [
    version,
    async (cluster) => {
      const { createCluster } = await import(version);
      const rootNodes = cluster.nodes.map((socket) => ({ socket }));
      const client = createCluster({ rootNodes });
      client.on("error", () => {});
      const end = () => (client.destroy ? client.destroy() : client.disconnect());
      return { adapter: adapters.adapt(client), client, end };
    },
  ]),
  ...["ioredis", "ioredis-v6"].map((version) => [
    `openClient with ${version}`,
    async (cluster) => {
      const { openClient } = await bundle(version === "ioredis" ? {} : { ioredis: version });
      return { adapter: await openClient(cluster.url, { packages: ["ioredis"] }), end: () => {} };
    },
  ]),
];

describe("a cluster", { concurrency: 3 }, () => {
  let cluster;
  before(async () => {
    cluster = await startCluster();
  });
  after(() => cluster.stop());

  for (const [name, make] of kinds) {
    test(`${name}: scripts go to the node of their keys, and messages come from every node`, async (t) => {
      // Catches: a script that is sent to the node of its hash instead of its keys; a subscriber that hears
      // only what its own node publishes.
      const { adapter: made, client, end } = await make(cluster);
      const { adapter } = await useAdapter(t, made, end);
      assert.equal(adapter.clustered, true);
      const hearing = hearingLog();
      adapter.listen(`${name} channel`, hearing);
      await waitFor(() => hearing.state === "subscribed");
      const script = `-- ${name}\nredis.call('SET', KEYS[1], ARGV[1]); redis.call('PUBLISH', ARGV[2], KEYS[1]); return { KEYS[1] }`;
      const names = Array.from({ length: 30 }, (_, i) => `${name} ${i}`);
      const begin = awake();
      const run = async (key, how = "evalsha") => {
        try {
          return await adapter[how](how === "eval" ? script : sha1(script), [key], ["1", `${name} channel`]);
        } catch (error) {
          const { code, reply } = adapters.failure(error);
          if (code === "unavailable" && awake() - begin < 20_000) {
            // Version 4 of node-redis may not have found all nodes yet.
            await new Promise((resolve) => setTimeout(resolve, 50));
            return run(key, how);
          }
          assert.match(reply ?? error.stack, /^NOSCRIPT/);
          return run(key, "eval");
        }
      };
      const answers = await Promise.all(names.map((key) => run(key)));
      assert.deepEqual(answers.flat(), names);
      const at = (slot) => cluster.servers.find(({ port }) => adapter.serverOf(slot) === `127.0.0.1:${port}`);
      for (const key of names) {
        const server = at(calculateSlot(key));
        assert.ok(server, "an address of the cluster");
        assert.equal(await server.command("EXISTS", key), 1, `${key} is where the client says`);
      }
      // A script whose reply was lost ran twice.
      const heard = () => new Set(hearing.messages).size;
      await waitFor(() => heard() === names.length, 10_000, () => `${names.length} messages, not ${heard()}`);
      assert.match(await adapter.info("server"), /^redis_version:7/m);
      assert.match(await adapter.info("replication"), /^role:master/m);
      const refused = await adapter.eval("return {}", ["a", "b"], []).catch((error) => error);
      assert.match(adapters.failure(refused).reply ?? adapters.failure(refused).message, /slot/i, refused.stack);
      if (client) {
        const counts = () => client.eventNames().map((event) => client.listenerCount(event));
        const before = counts();
        const stop = adapter.watch(linkLog());
        stop();
        assert.deepEqual(counts(), before);
      }
    });
  }

  test("openClient of a cluster that is not there", async () => {
    const gone = await startCluster();
    await gone.stop();
    await assert.rejects(adapters.openClient(gone.url), { code: "unavailable", message: /redis-cluster:/ });
  });
});

// One after the other: servers whose slots move at the same time may not agree on them.
describe("a cluster whose slots move", () => {
  let cluster;
  before(async () => {
    cluster = await startCluster();
  });
  after(() => cluster.stop());

  for (const [index, [name, make]] of kinds.entries()) {
    test(`${name}: a slot belongs to another server once a script ran there`, async (t) => {
      // Catches: a reply after a redirection that is attributed to the server that was asked first.
      const { adapter: made, end } = await make(cluster);
      const { adapter } = await useAdapter(t, made, end);
      const key = `moved ${index}`;
      const slot = calculateSlot(key);
      const runs = () => adapter.eval("return { KEYS[1] }", [key], []).catch(() => false);
      await waitFor(runs, 20_000, "it is up");
      const servedBy = ({ port }) => adapter.serverOf(slot) === `127.0.0.1:${port}`;
      const from = cluster.servers.find(servedBy);
      assert.ok(from, adapter.serverOf(slot));
      const [to, other] = cluster.servers.filter((server) => server !== from);
      const [source, id] = await Promise.all([from, to].map((server) => server.command("CLUSTER", "MYID")));
      // An imported slot belongs to the new server by a newer epoch, and no gossip takes it back.
      await to.command("CLUSTER", "SETSLOT", slot, "IMPORTING", source);
      for (const server of [to, from, other]) {
        await server.command("CLUSTER", "SETSLOT", slot, "NODE", id);
      }
      await waitFor(runs, 20_000, "it is answered");
      // Version 4 of node-redis uses its old map for a while.
      await waitFor(async () => name !== "redis-v4" || ((await runs()) && servedBy(to)));
      assert.ok(servedBy(to), adapter.serverOf(slot));
    });
  }
});

describe("a node of a cluster that is lost", () => {
  for (const version of ["ioredis", "redis"]) {
    test(`${version}: the subscriber goes to another one`, async (t) => {
      // Catches: a subscriber that retries the same dead node forever.
      const cluster = await startCluster({ config: ["cluster-require-full-coverage no", "cluster-node-timeout 2000"] });
      t.after(() => cluster.stop());
      const module = await import(version);
      const client =
        version === "ioredis"
          ? new module.Cluster(cluster.nodes)
          : module.createCluster({ rootNodes: cluster.nodes.map((socket) => ({ socket })) });
      client.on("error", () => {});
      const { adapter } = await useAdapter(t, adapters.adapt(client), () =>
        client.destroy ? client.destroy() : client.disconnect(),
      );
      const hearing = hearingLog();
      adapter.listen("c", hearing);
      await waitFor(() => hearing.state === "subscribed");
      const numbers = await Promise.all(
        cluster.servers.map(async (server) => (await server.command("PUBSUB", "NUMSUB", "c"))[1]),
      );
      const at = numbers.indexOf(1);
      await cluster.servers[at].kill();
      await waitFor(() => hearing.count("unsubscribed") > 0);
      await waitFor(() => hearing.state === "subscribed", 20_000, "subscribed elsewhere");
      const other = cluster.servers[(at + 1) % 3];
      const heard = async () => {
        await other.command("PUBLISH", "c", "still here");
        return hearing.messages.includes("still here");
      };
      await waitFor(heard, 20_000, "it hears another one");
    });
  }
});

describe("a server that sentinels watch", { concurrency: 3 }, () => {
  const kinds = [
    ...["ioredis", "ioredis-v6"].flatMap((version) => [
      [
        version,
        async ({ sentinel }) => {
          const { Redis } = await import(version);
          const client = new Redis({
            sentinels: [{ host: "127.0.0.1", port: sentinel.port }],
            name: "mymaster",
            lazyConnect: true,
          });
          client.on("error", () => {});
          return { adapter: adapters.adapt(client), end: () => client.disconnect() };
        },
      ],
      [
        `openClient with ${version}`,
        async ({ url }) => {
          const { openClient } = await bundle(version === "ioredis" ? {} : { ioredis: version });
          return { adapter: await openClient(url, { packages: ["ioredis"] }) };
        },
      ],
    ]),
    ...["redis", "redis-v6"].map((version) => [
      version,
      async ({ sentinel }) => {
        const { createSentinel } = await import(version);
        const client = createSentinel({
          name: "mymaster",
          sentinelRootNodes: [{ host: "127.0.0.1", port: sentinel.port }],
          scanInterval: 500,
        });
        client.on("error", () => {});
        return { adapter: adapters.adapt(client), end: () => client.destroy() };
      },
    ]),
  ];
  for (const [name, make] of kinds) {
    test(`${name}: after a failover link and subscription are at the new primary`, { timeout: 180_000 }, async (t) => {
      // Catches: a waiter that listens on a server where nothing is published anymore.
      const watched = await startSentinel();
      t.after(() => watched.stop());
      const { adapter: made, end } = await make(watched);
      const { adapter, link } = await useAdapter(t, made, end);
      assert.equal(adapter.clustered, false);
      const hearing = hearingLog();
      adapter.listen("s", hearing);
      await waitFor(() => hearing.state === "subscribed");
      await watched.primary.command("PUBLISH", "s", "first");
      await waitFor(() => hearing.messages.includes("first"));
      assert.match(await adapter.info("replication"), /^role:master/m);
      const ups = link.count("up");
      await watched.failover();
      await waitFor(() => hearing.count("unsubscribed") > 0);
      const writes = () => adapter.eval("return { redis.call('INCR', KEYS[1]) .. '' }", ["n"], []).catch(() => false);
      await waitFor(writes, 30_000, "it writes at the new primary");
      await waitFor(() => link.count("up") > ups && link.state === "up", 30_000, "the link is up again");
      const heard = async () => {
        await watched.replica.command("PUBLISH", "s", "second");
        return hearing.messages.includes("second");
      };
      await waitFor(heard, 30_000, "it hears the new primary");
      assert.equal(hearing.state, "subscribed");
    });
  }
});
