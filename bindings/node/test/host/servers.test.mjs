// The servers of a cluster, as the engine learns of them.
import assert from "node:assert/strict";
import { fileURLToPath, pathToFileURL } from "node:url";
import { describe } from "node:test";
import calculateSlot from "cluster-key-slot";
import { Redis } from "ioredis";
import { bundleParts } from "../support/bundle.mjs";
import { startRedis } from "../support/redis.mjs";
import { test } from "../support/test.mjs";
import { waitFor } from "../support/wait.mjs";

const wasm = {
  name: "wasm",
  setup({ onResolve }) {
    const path = fileURLToPath(new URL("../../src/generated/leasehold.wasm", import.meta.url));
    onResolve({ filter: /^wasm:base64$/ }, () => ({ path }));
  },
};
const parts = `
  export { adapt } from "./src/adapters/index.ts";
  export { Host } from "./src/host/host.ts";
  export { Servers } from "./src/host/servers.ts";
  export { RedisStore } from "./src/store/redis.ts";
  export { newInstance } from "./src/module/wasm.ts";`;
const options = { external: ["ioredis", "redis"], plugins: [wasm], loader: { ".jsonc": "json", ".txt": "text", ".wasm": "base64" } };
const file = await bundleParts("servers", parts, options);
const { adapt, Host, newInstance, RedisStore, Servers } = await import(pathToFileURL(file));

/** Makes a slot map of a cluster: each address with its first slot, and how it is asked. */
function mapOf(...bounds) {
  const map = Array.from({ length: 16_384 }, (_, slot) => bounds.findLast(([first]) => slot >= first)?.[1]);
  return { map, serverOf: (slot) => map[slot] };
}

function logOf(...methods) {
  const log = [];
  const engine = Object.fromEntries(
    methods.map((method) => [method, (_at, ...told) => void log.push([method, ...told])]),
  );
  return { log, engine, taken: () => log.splice(0) };
}

describe("the servers of a cluster", () => {
  const link = () => logOf("slots", "connected");

  test("the engine learns of all servers with slots, each by its own number", () => {
    const { serverOf } = mapOf([0, "a:1"], [10, "b:1"], [20, "a:1"], [30, undefined], [40, "b:1"]);
    const servers = new Servers(serverOf);
    const { engine, taken } = link();
    servers.connected(engine, 0);
    const told = [
      ["slots", 0, 9, 1],
      ["slots", 10, 19, 2],
      ["slots", 20, 29, 1],
      ["slots", 40, 16_383, 2],
      ["connected", 1],
      ["connected", 2],
    ];
    assert.deepEqual(taken(), told);
    assert.deepEqual([...servers.numbers], [1, 2]);
    servers.connected(engine, 0);
    assert.deepEqual(taken(), told, "a second link is told in the same way, as a new engine needs it");
  });

  test("a reply is attributed to the server that serves its slot now", () => {
    // Catches: the clock of one server that is taken for another's, after a slot has moved.
    const { map, serverOf } = mapOf([0, "a:1"], [8_192, "b:1"]);
    const servers = new Servers(serverOf);
    const { engine, taken } = link();
    servers.connected(engine, 0);
    taken();
    assert.equal(servers.serving(engine, 0, 5), 1);
    assert.equal(servers.serving(engine, 0, 9_000), 2);
    assert.deepEqual(taken(), [], "what the engine knows is not told again");
    map[5] = "b:1";
    assert.equal(servers.serving(engine, 0, 5), 2);
    assert.deepEqual(taken(), [["slots", 5, 5, 2]]);
    map[6] = "c:1";
    assert.equal(servers.serving(engine, 0, 6), 3);
    assert.deepEqual(taken(), [["slots", 6, 6, 3], ["connected", 3]]);
    assert.equal(servers.serving(engine, 0, 6), 3);
    map[6] = undefined;
    assert.equal(servers.serving(engine, 0, 6), 3, "as the engine knows it, while the client does not");
    assert.deepEqual(taken(), []);
    assert.deepEqual([...servers.numbers], [1, 2, 3]);
  });

  test("numbers stay, and those of servers that left are reused", () => {
    // Catches: an engine that keeps state for each address that ever existed.
    const { map, serverOf } = mapOf([0, "a:1"], [10, "b:1"]);
    const servers = new Servers(serverOf);
    const { engine, taken } = link();
    for (let round = 0; round < 10; round++) {
      servers.connected(engine, 0);
      assert.deepEqual([...servers.numbers].sort(), [1, 2]);
      assert.deepEqual(taken().slice(0, 2), [["slots", 0, 9, 1], ["slots", 10, 16_383, 2]]);
      map.fill(`new:${round}`, 10);
    }
  });

  test("a store that cannot tell its servers apart has one", () => {
    for (const servers of [new Servers(), new Servers(() => undefined)]) {
      const { engine, taken } = link();
      servers.connected(engine, 0);
      assert.equal(servers.serving(engine, 0, 7), 0);
      assert.equal(servers.serving(engine, 0, 16_384), 0, "a batch without keys");
      assert.deepEqual(taken(), [["connected", 0]]);
    }
  });
});

/** A store on one server, whose client claims to be a cluster. It records what its engine is told. */
class Told extends RedisStore {
  log = [];

  instance() {
    const { log } = this;
    const glue = newInstance();
    class Engine extends glue.Engine {}
    for (const method of ["connected", "disconnected", "hears", "reply", "replyFields", "slots"]) {
      Engine.prototype[method] = function (at, ...told) {
        log.push([method.replace("Fields", ""), ...told]);
        return glue.Engine.prototype[method].call(this, at, ...told);
      };
    }
    return Object.create(glue, { Engine: { value: Engine } });
  }
}

test("a locker of a cluster: each event is attributed to its server", async (t) => {
  const server = await startRedis();
  const client = new Redis(server.url, { lazyConnect: true });
  client.on("error", () => {});
  const { map, serverOf } = mapOf([0, "a:1"], [8_192, "b:1"]);
  const store = new Told({ ...adapt(client), clustered: true, serverOf });
  const host = new Host(store, {
    namespace: "servers",
    commandTimeout: 5_000,
    patience: 5_000,
    driftMargin: 2_000,
    tokenRetention: 60_000,
  });
  t.after(async () => {
    await host.shutdown();
    client.disconnect();
    await server.stop();
  });
  const slotOf = (name) => calculateSlot(`{servers:${name}}`);
  const names = Array.from({ length: 12 }, (_, i) => `n${i}`);
  assert.ok(names.some((name) => slotOf(name) < 8_192) && names.some((name) => slotOf(name) >= 8_192));
  const told = (method) => store.log.filter(([name]) => name === method).map(([, ...rest]) => rest);
  const acquire = (name) => {
    const lock = { name, ttl: 60_000, fixed: false, reentrant: false, owner: "t", reclaimable: false, dense: false };
    return host.acquire(host.newLock(lock), Infinity, undefined, ({ answer: tenure }) => ({ tenure }));
  };

  await waitFor(() => told("connected").length === 2);
  assert.deepEqual(told("slots"), [[0, 8_191, 1], [8_192, 16_383, 2]]);
  for (const name of names) {
    store.log.length = 0;
    const { tenure } = await acquire(name);
    const replies = () => told("reply").map(([number]) => number);
    assert.equal(replies().at(-1), slotOf(name) < 8_192 ? 1 : 2, name);
    store.log.length = 0;
    map[slotOf(name)] = "c:1";
    await host.release(tenure);
    assert.equal(replies().at(-1), 3, `${name} has moved`);
    const of = (method) => store.log.findIndex(([one, ...rest]) => one === method && (rest.at(-1) === 3 || rest[0] === 3));
    assert.ok(of("slots") >= 0 && of("slots") < of("reply"), "which the engine hears of first");
  }

  // One subscription serves all known servers.
  await acquire("held");
  store.log.length = 0;
  await waitFor(async () => (await server.command("PUBSUB", "CHANNELS", "leasehold:servers:*")).length === 1);
  host.hears(true);
  assert.deepEqual(told("hears").slice(-3), [[1, true], [2, true], [3, true]]);
  host.hears(false);
  assert.deepEqual(told("hears").slice(-3), [[1, false], [2, false], [3, false]]);
  host.disconnected({ code: "unavailable", message: "gone" });
  assert.deepEqual(told("disconnected").map(([number]) => number), [1, 2, 3]);
});
