// One lock on several servers, a majority of which decides.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { statSync } from "node:fs";
import { createRequire } from "node:module";
import { describe } from "node:test";
import { FencedRedis } from "../../dist/fence.js";
import { LeaseholdError, Locker, MemoryStore } from "../../dist/index.js";
import { startProxy } from "../support/proxy.mjs";
import { freePort, startCluster, startRedis, startSentinel } from "../support/redis.mjs";
import { aborted, clients, collect, isHeld, key, lockerOf } from "../support/stores.mjs";
import { test } from "../support/test.mjs";
import { awake, steady, waitFor } from "../support/wait.mjs";

const TTL = 3_000;
/** How long a silent server is awaited before the others decide alone. */
const OPTIONS = { commandTimeout: 400, patience: 4_000 };

async function start(t, count, options) {
  const servers = await Promise.all(Array.from({ length: count }, () => startRedis(options)));
  t.after(() => Promise.all(servers.map((server) => server.stop())));
  return servers;
}

const urlsOf = (servers) => servers.map(({ url }) => url);

/** Returns at how many of the servers the lock is held. */
async function heldAt(servers, name = "x") {
  const held = await Promise.all(servers.map((server) => isHeld(server, key(name))));
  return held.filter(Boolean).length;
}

/** The sources of a quorum's locker: URLs, or clients of the program. */
const sources = {
  urls: async (_, servers) => urlsOf(servers),
  ...Object.fromEntries(
    clients.map((kind) => [
      kind,
      async (t, servers) => {
        const made = await Promise.all(servers.map(({ url }) => lockerOf(kind, url)));
        t.after(() => Promise.all(made.map(({ end }) => end())));
        await Promise.all(made.map(({ locker }) => locker.shutdown()));
        return made.map(({ client }) => client);
      },
    ]),
  ),
};

/** Makes lockers on the servers, which are shut down with the test. */
async function quorum(t, source, servers, options = OPTIONS) {
  const locker = await Locker.quorum(await sources[source](t, servers), options);
  t.after(() => locker.shutdown());
  return locker;
}

const FAULTS = {
  down: (server) => server.kill(),
  paused: (server) => server.pause(),
  "read-only": (server) => server.command("REPLICAOF", "127.0.0.1", "1"),
  emptied: (server) => server.command("FLUSHALL"),
};

describe("a quorum of real servers", { concurrency: 2 }, () => {
  for (const source of Object.keys(sources)) {
    // What a server replies is the same to every client.
    const faults = source === "urls" ? Object.keys(FAULTS) : ["down", "paused"];
    for (const fault of faults) {
      // Catches a minority that delays or breaks the majority's work. A machine that stalls for longer than a
      // lease lives is not its fault.
      test(`of ${source}: two of five may be ${fault}`, (t) => steady(t, () => goesOn(t, source, FAULTS[fault]), 3));
    }
  }

  async function goesOn(t, source, fail) {
    const servers = await start(t, 5);
    const [one, other] = [await quorum(t, source, servers), await quorum(t, source, servers)];
    const lock = one.lock("x", { ttl: TTL });
    const events = collect(lock.events());
    const first = await lock.acquire();
    const of = (type) => events.filter((event) => event.type === type).length;
    // By then, servers that granted the lease after the majority count, too.
    await waitFor(() => of("renewed") > 0, 20_000, "a renewal");
    // Waiters may queue at none, one or both of any two of the five servers.
    await Promise.all(servers.slice(0, 2).map(fail));
    const before = of("renewed");
    await waitFor(() => of("lost") > 0 || of("renewed") >= before + 3, 20_000, "renewals");
    assert.equal(of("lost"), 0, JSON.stringify(events.slice(-4)));
    assert.ok(first.valid);
    const waiting = other.lock("x", { ttl: TTL }).acquire();
    const begin = awake();
    await first.release();
    const second = await waiting;
    assert.ok(awake() - begin < TTL * 3, `${awake() - begin} ms`);
    assert.ok(second.token > first.token);
    await second.release();
    servers.slice(0, 2).forEach((server) => server.resume());
  }

  // Catches a call that waits for all, and a lease that stays on a slow server.
  test("two of five that are slow delay each call by a timeout, and keep nothing", (t) =>
    steady(t, async () => {
      const servers = await start(t, 5);
      const proxies = await Promise.all(servers.map(({ port }) => startProxy(port)));
      t.after(() => Promise.all(proxies.map((proxy) => proxy.close())));
      const [one, other] = [await quorum(t, "urls", proxies), await quorum(t, "urls", proxies)];
      const lock = one.lock("x", { ttl: TTL });
      await lock.using(() => {});
      for (const slow of [proxies.slice(0, 2), proxies.slice(3)]) {
        slow.forEach((proxy) => proxy.slow(1_000));
        const begin = awake();
        const lease = await lock.acquire();
        const waiting = other.lock("x", { ttl: TTL }).acquire();
        // Where the attempt fails, nobody awaits it.
        waiting.catch(() => {});
        await lease.renew();
        await lease.release();
        const next = await waiting;
        assert.ok(next.token > lease.token);
        await next.release();
        const took = awake() - begin;
        assert.ok(took < 5 * (OPTIONS.commandTimeout + 1_000), `${took} ms`);
        slow.forEach((proxy) => proxy.slow(0));
        await waitFor(async () => (await heldAt(servers)) === 0, 10_000, "nothing is left");
      }
    }, 3));

  test("without three of five it names the missing ones in time, and keeps nothing", (t) =>
    steady(t, async () => {
      const servers = await start(t, 5);
      const locker = await quorum(t, "urls", servers);
      await Promise.all([0, 2, 4].map((at) => servers[at].kill()));
      const begin = awake();
      const lock = locker.lock("x", { ttl: TTL });
      const error = await lock.tryAcquire().catch((error) => error);
      assert.ok(error instanceof LeaseholdError);
      assert.equal(error.code, "unavailable");
      assert.match(error.message, /3 of 5 servers are missing, .*server 1: .*server 3: .*server 5: /);
      assert.ok(awake() - begin < 2_500, `${awake() - begin} ms`);
      await waitFor(async () => (await heldAt([servers[1], servers[3]])) === 0, 5_000, "nothing is left");
      await assert.rejects(lock.acquire(), { code: "unavailable" });
    }));

  test("a lease that loses its majority is lost in time", (t) =>
    steady(t, async () => {
      const servers = await start(t, 3);
      const locker = await quorum(t, "urls", servers);
      const events = collect(locker.events());
      const lease = await locker.lock("x", { ttl: TTL }).acquire();
      const lost = aborted(lease.signal);
      const begin = awake();
      servers[0].pause();
      servers[1].pause();
      assert.equal((await lost).reason, "expired");
      assert.ok(awake() - begin < TTL + 200, `${awake() - begin} ms`);
      const risk = events.find(({ type }) => type === "atRisk");
      assert.match(risk?.error.message, /server [12]/);
      servers[0].resume();
      servers[1].resume();
    }));

  test("guards take its tokens, which grow while servers come and go", async (t) => {
    const servers = await start(t, 3);
    const locker = await quorum(t, "ioredis", servers);
    const storage = await startRedis();
    const { client, locker: unused, end } = await lockerOf("ioredis", storage.url);
    t.after(async () => {
      await unused.shutdown();
      await end();
      await storage.stop();
    });
    const fenced = new FencedRedis(client);
    // A server that went down before all knew it would not vote at once when it comes back.
    await locker.lock("x").using(() => waitFor(async () => (await heldAt(servers)) === 3, 5_000, "it is held everywhere"));
    let last = 0;
    for (let round = 0; round < 12; round++) {
      const away = servers[round % 3];
      away.pause();
      const lease = await locker.lock("x", { ttl: TTL }).acquire();
      assert.ok(lease.token > last, `${lease.token} after ${last}`);
      await fenced.resource("account", lease).set("account", String(round));
      if (last > 0) {
        await assert.rejects(fenced.resource("account", last).set("account", "late"), { code: "staleToken" });
      }
      last = lease.token;
      away.resume();
      await lease.release();
    }
  });

  test("a server that is down at the start joins when it comes up", async (t) => {
    const servers = await start(t, 3);
    await servers[1].kill();
    // The second time the others know it, so it does not vote at once.
    const options = { ...OPTIONS, longestTtl: TTL };
    for (const source of ["urls", "ioredis"]) {
      const given = source === "urls" ? urlsOf(servers) : await ioredis(t, servers);
      const locker = await Locker.quorum(given, options);
      const lease = await locker.lock("x", { ttl: TTL }).acquire();
      assert.equal(await heldAt([servers[0], servers[2]]), 2);
      await servers[1].start();
      await waitFor(async () => (await heldAt(servers)) === 3, 20_000, "it is held everywhere");
      await lease.release();
      await waitFor(async () => (await heldAt(servers)) === 0, 5_000, "nothing is left");
      await locker.shutdown();
      await servers[1].kill();
    }
  });

  test("a locker with another longestTtl is refused, and the error has both", async (t) => {
    const urls = urlsOf(await start(t, 3));
    const first = await Locker.quorum(urls, { ...OPTIONS, longestTtl: 60_000 });
    await first.lock("x").using(() => {});
    const other = await Locker.quorum(urls, { ...OPTIONS, longestTtl: 30_000 });
    const refused = { code: "config", message: /longestTtl is 30s.*60s.*\{leasehold:\}/ };
    await assert.rejects(other.lock("x", { ttl: TTL }).acquire(), refused);
    await assert.rejects(other.lock("x", { ttl: TTL }).tryAcquire(), refused);
    await first.lock("x").using(() => {});
    await assert.rejects(Locker.quorum(urls, { ...OPTIONS, longestTtl: 86_400_001 }), { code: "config" });
    await Promise.all([first.shutdown(), other.shutdown()]);
  });

  test("too few at the start are an error that names them, and leave nothing behind", async (t) => {
    const servers = await start(t, 3);
    await servers[0].kill();
    await servers[2].kill();
    // A client of the program stays connected.
    for (const [given, left] of [[urlsOf(servers), 0], [await ioredis(t, servers), 1]]) {
      const error = await Locker.quorum(given, OPTIONS).catch((error) => error);
      assert.equal(error.code, "unavailable", error.stack);
      assert.match(error.message, /^2 of 3 servers are missing, and 2 are needed: server 1: .*; server 3: /);
      await waitFor(async () => (await servers[1].clients()).length === left, 5_000, "no connection is left");
    }
  });

  test("a member may be by sentinels", async (t) => {
    const [other, third] = await start(t, 2);
    const { url, primary, stop } = await startSentinel();
    t.after(stop);
    const locker = await Locker.quorum([url, other.url, third.url], OPTIONS);
    await locker.lock("x").using(async () => {
      await waitFor(async () => (await heldAt([primary, other, third])) === 3, 5_000, "it is held everywhere");
    });
    const twice = [url, other.url, primary.url];
    await assert.rejects(Locker.quorum(twice), { code: "config", message: /server 3 of the quorum is server 1/ });
    await locker.shutdown();
  });

  test("the findings of all servers are reported, and a shutdown closes all connections except the program's", async (t) => {
    const [first, second] = await start(t, 2);
    const [third] = await start(t, 1, { config: ["maxmemory 100mb", "maxmemory-policy allkeys-lru"] });
    const servers = [first, second, third];
    const locker = await Locker.quorum(urlsOf(servers));
    assert.deepEqual(locker.findings.map(({ policy }) => policy), ["allkeys-lru"]);
    await locker.lock("x").using(() => {});
    await locker.shutdown();
    const all = async () => (await Promise.all(servers.map((server) => server.clients()))).flat().length;
    await waitFor(async () => (await all()) === 0, 5_000, "no connection is left");
    const given = await ioredis(t, servers);
    const other = await Locker.quorum(given);
    await other.lock("x").using(() => {});
    await other.shutdown();
    await waitFor(async () => (await all()) === 3, 5_000, "those of the program are left");
    assert.deepEqual(await Promise.all(given.map((client) => client.ping())), ["PONG", "PONG", "PONG"]);
  });

  test("a bad quorum is refused, with the server's place in the list", async (t) => {
    const servers = await start(t, 3);
    const [closed] = await start(t, 1, { password: "s3cret" });
    const cluster = await startCluster();
    t.after(cluster.stop);
    const good = urlsOf(servers);
    const others = [...(await ioredis(t, servers.slice(0, 1))), ...good.slice(1)];
    const with_ = (at, server) => good.map((url, i) => (i === at ? server : url));
    const locker = await Locker.quorum(others);
    const cases = [
      ["redis://127.0.0.1", "config", /the servers must be an array/],
      [[], "config", /not 0$/],
      [good.slice(1), "config", /^quorum must have 3, 5 or 7 servers, not 2$/],
      [[...good, closed.url], "config", /not 4$/],
      [with_(2, good[0]), "config", /server 3 of the quorum is server 1/],
      // One server, under another name.
      [with_(2, good[0].replace("127.0.0.1", "localhost")), "config", /server 3 of the quorum is server 1/],
      [[others[0], good[1], good[0]], "config", /server 3 of the quorum is server 1/],
      [with_(1, "memory://m"), "config", /all Redis, or all in memory/],
      [["memory://a", "memory://b", "MEMORY://a"], "config", /server 3 of the quorum is server 1/],
      [with_(1, "http://x"), "config", /^server 2 of the quorum: .*scheme "http"/],
      [with_(1, "memory://x?y"), "config", /^server 2 of the quorum: .*takes only a name/],
      [with_(1, {}), "config", /^server 2 of the quorum: the object is not a Redis client/],
      [with_(1, undefined), "config", /^server 2 of the quorum: undefined is not/],
      [with_(2, `redis://:wr0ng@127.0.0.1:${closed.port}`), "auth", /^server 3 of the quorum: .*WRONGPASS/],
      [with_(0, cluster.url), "config", /^server 1 of the quorum: it is a cluster/],
      [with_(0, `redis-cluster://127.0.0.1:${await freePort()}`), "config", /^server 1 of the quorum: it is a cluster/],
      [with_(0, locker), "config", /^server 1 of the quorum: an object of Locker/],
    ];
    const left = await Promise.all(servers.map((server) => server.clients()));
    for (const [given, code, says] of cases) {
      const error = await Locker.quorum(given).then(() => assert.fail(`${given} was taken`), (error) => error);
      assert.ok(error instanceof LeaseholdError, error.stack);
      assert.equal(error.code, code, error.message);
      assert.match(error.message, says);
      assert.doesNotMatch(`${error.stack} ${error.cause?.stack}`, /s3cret|wr0ng/);
    }
    const now = async () => (await Promise.all(servers.map((server) => server.clients()))).flat().length;
    await waitFor(async () => (await now()) <= left.flat().length, 5_000, "no connection is left");
    await assert.rejects(Locker.quorum(good, { patience: -1 }), { code: "config", message: /patience/ });
    await assert.rejects(Locker.quorum(good, { ttl: 1 }), { code: "config", message: /have no "ttl"/ });
    await assert.rejects(locker.lock("x", { denseTokens: true }).acquire(), { code: "config", message: /denseTokens/ });
    await locker.shutdown();
  });
});

describe("a quorum in memory", () => {
  const cjs = createRequire(import.meta.url)("../../dist/index.cjs");
  const names = ["memory://one", "memory://two", "memory://three"];

  test("is the same for both module formats, and hands over in line", async () => {
    const [one, other] = await Promise.all([Locker.quorum(names), cjs.Locker.quorum(names)]);
    const lease = await one.lock("x").acquire();
    assert.equal(await other.lock("x").tryAcquire(), undefined);
    const waiting = other.lock("x").acquire();
    await waitFor(async () => (await one.inspect("x")).waiting === 1, 5_000, "one in line");
    // Its token combines the servers that answer first, and each server has its own.
    assert.ok((await other.inspect("x")).holder.remaining > 0);
    await lease.release();
    const next = await waiting;
    assert.ok(next.token > lease.token);
    const lost = aborted(next.signal);
    const { holder } = await one.inspect("x");
    assert.equal(await one.forceReleaseToken("x", holder.token - 1), undefined);
    assert.ok((await one.forceReleaseToken("x", holder.token)).remaining > 0);
    assert.equal((await lost).reason, "revoked");
    await Promise.all([one.shutdown(), other.shutdown()]);
  });

  // Catches a lease that uses its old deadline, which timers and the engine cannot correct meanwhile.
  test("a lease is not valid from an earlier deadline on, even while the event loop is blocked", async (t) => {
    await steady(t, async () => {
      const servers = [1, 2, 3].map((server) => `sooner-${performance.now()}-${server}`);
      const urls = servers.map((name) => `memory://${name}`);
      const [locker, second] = await Promise.all([Locker.quorum(urls), Locker.connect(urls[1])]);
      const lease = await locker.lock("x", { ttl: 2_000, fixed: true }).acquire();
      const deadline = () => performance.now() + lease.remaining;
      const first = deadline();
      await new Promise((resolve) => setTimeout(resolve, 500));
      MemoryStore.named(servers[2]).cutOff();
      await lease.renew();
      assert.ok(deadline() > first + 450, `it was renewed for ${deadline() - first} ms`);
      const events = locker.events();
      await events.next();
      await second.forceRelease("x");
      const { value } = await events.next();
      // An event has whole milliseconds, so slightly more may remain.
      const remaining = value.remaining + 1;
      const announced = performance.now() + remaining;
      assert.equal(value.type, "atRisk");
      assert.ok(value.remaining <= 1_500, `${value.remaining} ms`);
      assert.ok(lease.valid && lease.remaining < remaining, `${lease.remaining} ms of ${remaining} ms`);
      while (performance.now() < announced) {
        // Blocks the event loop on purpose.
      }
      assert.deepEqual([lease.valid, lease.remaining], [false, 0]);
      MemoryStore.named(servers[2]).reconnect();
      await Promise.all([locker.shutdown(), second.shutdown()]);
    });
  });

  test("is a module that nobody else loads", () => {
    // Catches a program that pays for quorums without using one.
    const program = (make) => `
      const compiled = [];
      const { Module } = WebAssembly;
      const note = (bytes) => compiled.push(bytes.byteLength);
      WebAssembly.Module = function (bytes) { note(bytes); return new Module(bytes); };
      const compile = WebAssembly.compile;
      WebAssembly.compile = (bytes) => { note(bytes); return compile(bytes); };
      const { Locker } = await import("${new URL("../../dist/index.js", import.meta.url)}");
      const locker = await ${make};
      await locker.lock("x").using(() => {});
      await locker.shutdown();
      console.log(compiled.sort((a, b) => a - b).join());`;
    const compiled = (make) => {
      const args = ["--input-type=module", "--eval", program(make)];
      return execFileSync(process.execPath, args, { encoding: "utf8" }).trim();
    };
    const size = (name) => statSync(new URL(`../../dist/${name}.wasm`, import.meta.url)).size;
    const [memory, engine, quorum] = ["memory", "leasehold", "quorum"].map(size);
    assert.equal(compiled("Locker.inMemory()"), `${memory},${engine}`);
    // The control.
    assert.equal(compiled(`Locker.quorum(${JSON.stringify(names)})`), `${memory},${engine},${quorum}`);
  });
});

/** Makes ioredis clients, some of which may have servers that are down. */
async function ioredis(t, servers) {
  const { Redis } = await import("ioredis");
  const made = servers.map(({ url }) => new Redis(url, { lazyConnect: true, retryStrategy: () => 50, maxRetriesPerRequest: 0 }));
  t.after(() => made.forEach((client) => client.disconnect()));
  made.forEach((client) => client.on("error", () => {}));
  return made;
}
