// The effects of an adapter on its client, the process and the event loop.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { dirname, join } from "node:path";
import { after, before, describe } from "node:test";
import { fileURLToPath } from "node:url";
import { startProxy } from "../support/proxy.mjs";
import { freePort, startRedis } from "../support/redis.mjs";
import { test } from "../support/test.mjs";
import { atExit, pause, steady, waitFor, within } from "../support/wait.mjs";
import { bundleFile } from "./bundle.mjs";
import { adapters, given, hearingLog, linkLog, opened } from "./kinds.mjs";

const here = dirname(fileURLToPath(import.meta.url));
let server;
before(async () => {
  server = await startRedis();
});
after(() => server.stop());

for (const { name, make, end } of given) {
  describe(name, () => {
    test("a client that is not connected is started, and its program may do so first", async (t) => {
      // Catches: a lazy client that never connects; an `already connecting` error for the program's own call.
      for (const connects of [false, true]) {
        const client = await make(server.url);
        t.after(() => end(client));
        const link = linkLog();
        const unwatch = adapters.adapt(client).watch(link);
        assert.equal(link.count("up"), 0);
        if (connects) {
          await client.connect();
        }
        await waitFor(() => link.state === "up");
        unwatch();
      }
    });

    test("the link of a client that is up already is up at once", async (t) => {
      const client = await make(server.url);
      t.after(() => end(client));
      await client.connect();
      const link = linkLog();
      adapters.adapt(client).watch(link)();
      assert.deepEqual(link.log, [["up"]]);
      await pause(20);
      assert.equal(link.log.length, 1);
    });

    test("no listener of ours stays at the program's client", async (t) => {
      // Catches: a leak for each locker that was made from a client.
      const client = await make(server.url);
      t.after(() => end(client));
      await client.connect();
      const counts = () => client.eventNames().map((event) => [event, client.listenerCount(event)]);
      const bare = counts();
      const adapter = adapters.adapt(client);
      for (let i = 0; i < 3; i++) {
        const [link, hearing] = [linkLog(), hearingLog()];
        const unwatch = adapter.watch(link);
        const stop = adapter.listen(`leak ${i}`, hearing);
        await waitFor(() => hearing.state === "subscribed");
        stop();
        unwatch();
      }
      await adapter.close();
      assert.deepEqual(counts(), bare);
    });

    test("a wrong password is reported as the server's refusal", async (t) => {
      // Catches: waiting forever in silence.
      const guarded = await startRedis({ password: "right" });
      t.after(() => guarded.stop());
      const client = await make(guarded.url.replace("right", "s3cret"));
      t.after(() => end(client));
      const link = linkLog();
      const adapter = adapters.adapt(client);
      const unwatch = adapter.watch(link);
      t.after(unwatch);
      const refusal = () => link.log.find(([, error]) => error && "reply" in adapters.failure(error));
      const [, error] = await waitFor(refusal, 10_000, () => `a refusal: ${link.log.at(-1)?.[1]?.stack}`);
      assert.match(adapters.failure(error).reply, /^WRONGPASS/);
      if (!name.includes("pool")) {
        assert.deepEqual(adapter.secrets, ["s3cret"]);
      }
    });

    test("a client that its program closes is down, and stays closed", async (t) => {
      const client = await make(server.url);
      await client.connect();
      const link = linkLog();
      t.after(adapters.adapt(client).watch(link));
      await end(client);
      if (name.includes("pool")) {
        return t.skip("a pool tells nothing of its end");
      }
      await waitFor(() => link.state === "down");
      await pause(200);
      assert.equal(link.state, "down");
      const failed = await adapters.adapt(client).eval("return {}", [], []).catch((error) => error);
      assert.equal(adapters.failure(failed).code, "unavailable", failed?.stack);
    });
  });
}

test("ioredis: a keyPrefix is refused, of a client and of a cluster's connections", async () => {
  // Catches: locks of two processes that do not exclude each other.
  const { Redis, Cluster } = await import("ioredis");
  const lazy = { lazyConnect: true };
  const clients = [
    new Redis({ ...lazy, keyPrefix: "app:" }),
    new Redis({ ...lazy, keyPrefix: Buffer.from("app:") }),
    new Cluster([{ port: 1 }], { ...lazy, keyPrefix: "app:" }),
    new Cluster([{ port: 1 }], { ...lazy, redisOptions: { keyPrefix: "app:" } }),
  ];
  for (const client of clients) {
    assert.throws(() => adapters.adapt(client), { code: "config", message: /keyPrefix.*namespace/ });
  }
  adapters.adapt(new Redis({ ...lazy, keyPrefix: "" }));
  const six = await import("redis-v6");
  const prefixed = six.createClient({ keyPrefix: "app:" });
  assert.throws(() => adapters.adapt(prefixed), { code: "config", message: /keyPrefix.*namespace/ });
  const legacy = (await import("redis-v4")).createClient({ legacyMode: true });
  assert.throws(() => adapters.adapt(legacy), { code: "config", message: /legacyMode/ });
});

test("node-redis: replies come as text, whatever types the client maps them to", async (t) => {
  for (const version of ["redis", "redis-v6"]) {
    const { createClient, RESP_TYPES } = await import(version);
    const typeMapping = { [RESP_TYPES.BLOB_STRING]: Buffer };
    const client = createClient({ url: server.url, RESP: 3, commandOptions: { typeMapping } });
    t.after(() => client.destroy());
    await client.connect();
    const adapter = adapters.adapt(client);
    t.after(() => adapter.close());
    assert.deepEqual(await adapter.eval("return { 'ü', '1' }", [], []), ["ü", "1"]);
    const hearing = hearingLog();
    adapter.listen("mapped", hearing);
    await waitFor(() => hearing.state === "subscribed");
    await server.command("PUBLISH", "mapped", "ü");
    await waitFor(() => hearing.messages.length === 1);
    assert.deepEqual(hearing.messages, ["ü"]);
  }
});

describe("a process", { concurrency: 4 }, () => {
  const hows = [
    ...["ioredis", "ioredis-v6", "redis", "redis-v4", "redis-v6"].map((version) => `${version}:given`),
    ...opened.map((kind) => kind),
  ];
  for (const how of hows) {
    const title = typeof how === "string" ? how : how.name;
    const run = async (url, ...what) => {
      const file = await bundleFile(how.versions);
      return start(file, typeof how === "string" ? how : `opened:${how.package}`, url, what);
    };

    if (typeof how !== "string") {
      test(`${title}: with nothing held ends by itself, also if the server is gone`, async () => {
        // Catches: a socket or timer of this package that keeps a script from ending.
        const child = await run(server.url);
        assert.equal(await child.end(), 0, child.output());
        assert.match(child.output(), /^up\nsubscribed\nexit 0\n$/);

        const lone = await startRedis();
        const other = await run(lone.url, "flicker");
        await other.says("subscribed");
        await lone.stop();
        assert.equal(await other.end(), 0, other.output());
        assert.match(other.output(), /down/);
      });

      test(`${title}: with something held stays, also while the server is gone`, async () => {
        // Catches: a waiter whose process ends too early. The negative control of the test above.
        for (const what of [[], ["deaf"]]) {
          const lone = await startRedis();
          const child = await run(lone.url, "alive", ...what);
          await child.says(what.length ? "up" : "subscribed");
          await lone.kill();
          await child.says("down");
          await pause(1_000);
          assert.equal(child.exitCode, null, child.output());
          await lone.start();
          await waitFor(() => child.output().match(/up/g).length > 1);
          child.kill();
          await lone.stop();
        }
      });
    }

    test(`${title}: ends after close`, async () => {
      const child = await run(server.url, "alive", "close");
      if (typeof how === "string") {
        // The program's own client is open, and keeps the process alive.
        await child.says("closed");
        await pause(300);
        assert.equal(child.exitCode, null, child.output());
        child.kill();
      } else {
        assert.equal(await child.end(), 0, child.output());
        assert.match(child.output(), /subscribed\nclosed\n/);
      }
    });

    if (typeof how === "string") {
      test(`${title}: no rejection is unhandled while there is no server`, async () => {
        const child = await run(`redis://127.0.0.1:${await freePort()}`, "close", "lonely");
        await child.says("closed");
        await pause(500);
        assert.doesNotMatch(child.output(), /unhandled/);
        child.kill();
      });
    }
  }
});

describe("a connection that we made", () => {
  for (const { name, open } of opened) {
    test(`${name}: is replaced if it is suspected and half-open, and kept if it answers`, async (t) => {
      // Catches: a lock that is lost because its connection is dead, and a healthy connection that is cut.
      const proxy = await startProxy(server.port);
      t.after(() => proxy.close());
      const adapter = await open(proxy.url);
      t.after(() => adapter.close());
      adapter.keepAlive(true);
      const link = linkLog();
      t.after(adapter.watch(link));
      // A connection that does not answer for 1 s because the machine stalls is replaced as well.
      await steady(t, async () => {
        await waitFor(() => link.state === "up");
        link.log.splice(0, link.log.length - 1);
        adapter.suspect();
        adapter.suspect();
        await pause(1_300);
        assert.deepEqual(link.log, [["up"]]);
      });
      proxy.freeze();
      const lost = adapter.eval("return {}", [], []).catch((error) => error);
      adapter.suspect();
      await waitFor(() => link.log.length >= 3 && link.state === "up", 10_000, "a new connection");
      const error = await within(lost, 10_000, "the end of the command");
      assert.equal(adapters.failure(error).code, "unavailable");
      assert.deepEqual(await adapter.eval("return {'ok'}", [], []), ["ok"]);
      await waitFor(() => proxy.connections === 1, 10_000, "the old one is gone");
    });

    test(`${name}: is replaced if its server was demoted, though it answers`, async (t) => {
      const proxy = await startProxy(server.port);
      t.after(() => proxy.close());
      const adapter = await open(proxy.url);
      t.after(() => adapter.close());
      adapter.keepAlive(true);
      const link = linkLog();
      t.after(adapter.watch(link));
      adapter.suspect(true);
      adapter.suspect(true);
      await waitFor(() => link.log.length >= 3 && link.state === "up");
      assert.deepEqual(await adapter.eval("return {'ok'}", [], []), ["ok"]);
      await waitFor(() => proxy.connections === 1);
    });

    test(`${name}: stays closed if it is closed while it reconnects`, async (t) => {
      // Catches: a socket that does not exist yet when it is to be closed.
      const proxy = await startProxy(server.port);
      t.after(() => proxy.close());
      for (let turns = 0; turns < 5; turns++) {
        const adapter = await open(proxy.url);
        const { joined } = proxy;
        proxy.reset();
        const limit = performance.now() + 20_000;
        while (proxy.joined === joined) {
          assert.ok(performance.now() < limit, "it does not connect again");
          await new Promise(setImmediate);
        }
        for (let turn = 0; turn < turns; turn++) {
          await new Promise(setImmediate);
        }
        await adapter.close();
        await waitFor(() => proxy.connections === 0, 5_000, "it is closed");
        await pause(200);
        assert.equal(proxy.connections, 0);
      }
    });

    test(`${name}: stays closed if it is suspected while it is being closed`, async (t) => {
      const proxy = await startProxy(server.port);
      t.after(() => proxy.close());
      const adapter = await open(proxy.url);
      proxy.freeze();
      adapter.suspect();
      await adapter.close();
      await pause(1_300);
      assert.equal(proxy.connections, 0);
    });
  }
});

/** Starts child.mjs. Its output and its end can be awaited. */
function start(file, how, url, what) {
  const child = spawn(process.execPath, [join(here, "child.mjs"), file, how, url, ...what]);
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.on("data", (data) => {
      output += data;
    });
  }
  const forget = atExit(() => child.kill("SIGKILL"));
  const closed = new Promise((resolve) => child.once("close", resolve)).finally(forget);
  // A test that failed before it ended the child does not wait for it.
  for (const handle of [child, child.stdin, child.stdout, child.stderr]) {
    handle.unref();
  }
  return {
    output: () => output,
    get exitCode() {
      return child.exitCode;
    },
    end: () => within(closed, 20_000, () => `the end of the program: ${output}`),
    says: (word) => waitFor(() => output.includes(word), 10_000, () => `${word} in ${output}`),
    kill: () => child.kill("SIGKILL"),
  };
}
