// The guard for Redis, for every kind of client.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import http from "node:http";
import { after, before, describe } from "node:test";
import { inspect } from "node:util";
import { Redis as Upstash } from "@upstash/redis";
import { Cluster, Redis } from "ioredis";
import { createClient, createCluster } from "redis";
import { startCluster, startRedis } from "../support/redis.mjs";
import { test } from "../support/test.mjs";
import { fence } from "./bundle.mjs";
import { kill, startWriter } from "./checks.mjs";
import { conforms, fails, noticed, refused } from "./conformance.mjs";

const { FencedRedis, Script } = fence;

/** The register is a key with the resource's name, and the history a list beside it. */
const WRITE = new Script(`redis.call('SET', KEYS[1], ARGV[2])
  redis.call('RPUSH', KEYS[2], ARGV[1] .. ' ' .. ARGV[2])`);

/** Returns a key on the slot of the resource. */
const beside = (resource, what) => (resource.includes("{") ? `${resource}:${what}` : `{${resource}}:${what}`);

/** Functions that end the connections, also those of a failed test. */
const ends = [];
after(() => ends.forEach((end) => end()));

function ioredis(...args) {
  const client = new Redis(...args);
  client.on("error", () => {});
  ends.push(() => client.disconnect());
  return client;
}

/** Starts the server behind HTTP, as Upstash has it. */
async function overHttp() {
  const bridge = http.createServer(async (req, res) => {
    const chunks = await req.toArray();
    const answer = await server.command(...JSON.parse(Buffer.concat(chunks))).then(
      (result) => ({ result }),
      (error) => ({ error: error.message }),
    );
    res.statusCode = "error" in answer ? 400 : 200;
    res.end(JSON.stringify(answer));
  });
  await new Promise((resolve) => bridge.listen(0, "127.0.0.1", resolve));
  ends.push(() => (bridge.closeAllConnections(), bridge.close()));
  return `http://127.0.0.1:${bridge.address().port}`;
}

const clients = {
  ioredis: async (url) => ioredis(url),
  "node-redis": async (url) => {
    const client = createClient({ url });
    client.on("error", () => {});
    ends.push(() => client.destroy());
    return client.connect();
  },
  "@upstash/redis": async () => {
    const url = await overHttp();
    return new Upstash({ url, token: "a-secret-token", responseEncoding: false, enableTelemetry: false, retry: false });
  },
  "an object with eval": async (url) => {
    const client = ioredis(url);
    return { eval: (script, keys, args) => client.eval(script, keys.length, ...keys, ...args) };
  },
};

let server;
before(async () => {
  server = await startRedis();
});
after(() => server.stop());

/** Writers with different tokens use different connections. */
async function registers(open, read) {
  const opened = await Promise.all([1, 2, 3, 4].map(open));
  const guards = opened.map((client) => new FencedRedis(client));
  const at = (token) => guards[Number(String(token?.token ?? token).at(-1)) % 4] ?? guards[0];
  return {
    opened,
    write: async (resource, token, value) => {
      const redis = at(token).resource(resource, token);
      const number = token.token ?? token;
      await redis.script(WRITE, [resource, beside(resource, "history")], [number, value]);
    },
    history: async (resource) => {
      const lines = await read("LRANGE", beside(resource, "history"), 0, -1);
      return lines.map((line) => line.split(" ").map(Number));
    },
    read: async (resource) => Number(await read("GET", resource)),
  };
}

for (const [name, open] of Object.entries(clients)) {
  describe(name, () => {
    let client;
    before(async () => {
      await server.command("FLUSHALL");
      client = await open(server.url);
    });
    const under = (token) => new FencedRedis(client).resource("r", token);

    test("keys are guarded", async () => {
      const store = await registers(() => open(server.url), (...args) => server.command(...args));
      await conforms(store, name, 20);
    });

    // Catches a command that does something else, or bypasses the check.
    test("each command does what it says, and not under a stale token", async () => {
      const [now, old] = [under(34), under(33)];
      const stale = (write) => refused(write, { resource: "r", offered: 33, highest: 34 });
      await now.set("k", "one");
      await stale(old.set("k", "late"));
      assert.equal(await server.command("GET", "k"), "one");
      await now.set("k", "two", { ttl: 3_600_000 });
      const left = await server.command("PTTL", "k");
      assert.ok(left > 3_500_000 && left <= 3_600_000, `${left}`);
      await stale(old.set("k", "late", { ttl: 1 }));
      await now.set("k", 2.5);
      assert.equal(await server.command("PTTL", "k"), -1, "as with SET");
      // A fence that expires would let the old holder in again.
      assert.equal(await server.command("PTTL", "{r}:fence"), -1);
      assert.equal(await server.command("GET", "{r}:fence"), "34");
      await stale(old.del("k"));
      assert.equal(await now.del("k"), true);
      assert.equal(await now.del("k"), false);
      assert.equal(await now.hset("h", "f", 1), true);
      assert.equal(await now.hset("h", "f", 2n), false);
      await stale(old.hset("h", "f", 3));
      await stale(old.hdel("h", "f"));
      assert.equal(await server.command("HGET", "h", "f"), "2");
      assert.equal(await now.hdel("h", "f"), true);
      assert.equal(await now.hdel("h", "f"), false);
      assert.equal(await now.incrBy("n", 5), 5);
      assert.equal(await now.incrBy("n", -7n), -2);
      await stale(old.incrBy("n", 1));
      // Catches a sum that went through a Lua number.
      await now.set("n", 9223372036854775806n);
      await now.incrBy("n", 1);
      assert.equal(await server.command("GET", "n"), "9223372036854775807");
      assert.equal(await now.push("l", "a"), 1);
      assert.equal(await now.push("l", "b"), 2);
      await stale(old.push("l", "late"));
      assert.deepEqual(await server.command("LRANGE", "l", 0, -1), ["a", "b"]);
      const text = await now.script("return {KEYS[1], ARGV[1], #KEYS, #ARGV}", ["k"], ["é"]);
      assert.deepEqual(text.map(String), ["k", "é", "1", "1"]);
      assert.equal(await now.script("return 7"), 7);
      await stale(old.script("return redis.call('SET', KEYS[1], 'late')", ["k"]));
      assert.equal(await server.command("EXISTS", "k"), 0);
    });

    test("bad input is refused before anything is sent", async () => {
      const redis = under(34);
      const bad = [undefined, null, Number.NaN, Number.POSITIVE_INFINITY, {}, [], true, Symbol("s"), () => 1];
      for (const value of bad) {
        await fails(redis.set("bad", value), "config", /value/);
        await fails(redis.hset("bad", "f", value), "config");
        await fails(redis.script("return 1", [], [value]), "config");
      }
      for (const key of [undefined, null, 7, {}]) {
        await fails(redis.set(key, "v"), "config", /key/);
      }
      for (const ttl of [0, -1, Number.NaN, 2 ** 54, "1", null]) {
        await fails(redis.set("bad", "v", { ttl }), "config", /a time to live must be from/);
      }
      for (const by of [0.5, "1", Number.NaN, undefined]) {
        await fails(redis.incrBy("bad", by), "config", /whole number/);
      }
      for (const script of [undefined, null, 7, {}]) {
        await fails(redis.script(script), "config", /script/);
      }
      await fails(redis.script("return 1", "k"), "config", /arrays/);
      // It would lower the fence, or spoil it.
      await fails(redis.set("{r}:fence", "9"), "config", /\{r\}:fence/);
      assert.equal(await server.command("EXISTS", "bad"), 0);
      assert.equal(await server.command("GET", "{r}:fence"), "34");
    });

    // Catches a client's error that is passed on unchanged, with the whole command in it.
    test("errors show neither the script nor what was to be written", async () => {
      const redis = under(35);
      await redis.hset("hash", "f", 1);
      const script = "--[[ a-private-script ]] return redis.call('INCR', KEYS[1], ARGV[1])";
      const writes = [
        () => redis.push("hash", "a-private-value"),
        () => redis.script(script, ["hash"], ["a-private-value"]),
      ];
      for (const write of writes) {
        const error = await write().catch((error) => error);
        const shown = `${error.stack} ${inspect(error, { depth: 9, showHidden: true })} ${JSON.stringify(error)}`;
        assert.doesNotMatch(shown, /a-private|redis\.call/);
        // The cause is there for readers who look for it.
        assert.match(error.cause.message, /^(WRONGTYPE|ERR) /);
        assert.ok(error.cause.name && error.cause.stack.includes(error.cause.message), error.cause.stack);
      }
    });

    // Catches a server error that is passed on unchanged, or has another code.
    test("errors of the write have their codes", async () => {
      const redis = under(35);
      await redis.set("text", "abc");
      await fails(redis.hset("text", "f", 1), "wrongType", /guarded write to "r"/);
      await fails(redis.incrBy("text", 1), "wrongType");
      await fails(redis.script("this is not Lua"), "config", /compil/);
      await fails(redis.script("return redis.error_reply('MY own error')"), "store", /MY own error/);
      await fails(redis.script("return redis.error_reply('NOSCRIPT mine')"), "store", /NOSCRIPT mine/);
      await server.command("HSET", "{spoilt}:fence", "a", "b");
      await fails(new FencedRedis(client).resource("spoilt", 1).set("k", 1), "wrongType", /spoilt\}:fence/);
      await server.command("SET", "{words}:fence", "many");
      await fails(new FencedRedis(client).resource("words", 1).set("k", 1), "wrongType", /does not hold a token/);
    });
  });
}

// Catches a check in a call of its own, and a script that is sent in full each time.
for (const name of ["ioredis", "node-redis"]) {
  test(`${name}: a write is one call, and the bytes of a value are kept`, async () => {
    const client = await clients[name](server.url);
    const redis = new FencedRedis(client).resource("calls", 1);
    await redis.set("k", 1);
    const before = await server.commandStats();
    await redis.set("k", new Uint8Array([0xff, 13, 10, 0]).subarray(0, 4));
    const after = await server.commandStats();
    assert.equal(after.evalsha - before.evalsha, 1);
    assert.equal(after.eval ?? 0, before.eval ?? 0);
    assert.equal(await server.command("STRLEN", "k"), 4);
    await server.command("SCRIPT", "FLUSH");
    await redis.set("k", "two");
    assert.equal(await server.command("GET", "k"), "two", "EVAL is the way back");
  });
}

test("a client that sends text refuses bytes", async () => {
  const redis = new FencedRedis({ eval: async () => null }).resource("r", 1);
  await fails(redis.set("k", new Uint8Array(1)), "config", /cannot send bytes/);
});

test("an object that is not a client, or has a prefix, is refused", async () => {
  for (const client of [undefined, null, 7, "redis://localhost", {}, { eval: 1 }, Redis]) {
    await fails(async () => new FencedRedis(client), "config");
  }
  // Its fences would be under other keys than everyone else's.
  const prefixed = ioredis(server.url, { keyPrefix: "app:", lazyConnect: true });
  await fails(async () => new FencedRedis(prefixed), "config", /keyPrefix/);
  for (const timeout of [0, -1, Number.NaN, "1", null, 86_400_001]) {
    if (timeout !== null) {
      await fails(async () => new FencedRedis({ eval() {} }, { timeout }), "config", /timeout/);
    }
  }
});

// Catches a call that waits forever, and a secret in its message.
test("no answer in time is a timeout, and no connection is unavailable", async () => {
  const own = await startRedis({ password: "a-secret-of-redis" });
  const client = ioredis(own.url, { retryStrategy: null, maxRetriesPerRequest: 0 });
  const redis = new FencedRedis(client).resource("r", 1);
  const impatient = new FencedRedis(client, { timeout: 200 }).resource("r", 1);
  await redis.set("k", 1);
  own.pause();
  await fails(impatient.set("k", 2), "timeout", /unknown/);
  own.resume();
  await own.command("SET", "k", "after");
  await own.stop();
  await fails(redis.set("k", 3), "unavailable");
});

test("fence keys are where everybody looks", () => {
  const vectors = JSON.parse(readFileSync(new URL("../../../../tests/vectors/fence_keys.json", import.meta.url)));
  assert.ok(vectors.length > 20);
  for (const { resource, slot, fence: key } of vectors) {
    assert.equal(fence.fenceKey(resource), key);
    assert.equal(fence.slotOf(resource), slot, resource);
    assert.equal(fence.slotOf(key), slot, key);
  }
});

// Catches a lookup that finds properties of `Object.prototype`.
test("a code is one of ours, whatever the server says", async () => {
  for (const said of ["constructor x", "toString", "__proto__ x", "hasOwnProperty x"]) {
    const error = Object.assign(new Error(said), { name: "ReplyError" });
    const redis = new FencedRedis({ eval: () => Promise.reject(error) }).resource("r", 1);
    await fails(redis.set("k", 1), "store", /the server answered/);
  }
});

// Catches a refusal whose code differs from Rust's.
test("a server's refusal is of the code that Rust gives it", async () => {
  const vectors = JSON.parse(readFileSync(new URL("../../../../tests/vectors/refusals.json", import.meta.url)));
  for (const { said, code } of vectors.filter(({ said }) => said !== "")) {
    const error = Object.assign(new Error(said), { name: "ReplyError" });
    const redis = new FencedRedis({ eval: () => Promise.reject(error) }).resource("r", 1);
    const got = await redis.set("k", 1).catch((error) => error);
    assert.equal(got.code, code, said);
  }
});

// Catches a comment at the end of a line of guard.lua, which would comment out the user's script.
test("the guard is one line of code, with its hash", async () => {
  const { text, sha } = fence.partsOf(new Script("return 1"));
  assert.match(text, /^do local fence.* end return 1$/);
  assert.doesNotMatch(text, /--|\n/);
  assert.equal(await sha, createHash("sha1").update(text).digest("hex"));
});

describe("a cluster", () => {
  let cluster;
  before(async () => {
    cluster = await startCluster();
  });
  after(() => cluster.stop());

  const kinds = {
    ioredis: {
      open: async () => {
        const client = new Cluster(cluster.nodes);
        client.on("error", () => {});
        ends.push(() => client.disconnect());
        return client;
      },
      read: (client) => (command, ...args) => client.call(command, ...args.map(String)),
    },
    "node-redis": {
      open: async () => {
        const rootNodes = cluster.nodes.map(({ port }) => ({ url: `redis://127.0.0.1:${port}` }));
        const client = createCluster({ rootNodes });
        client.on("error", () => {});
        await client.connect();
        ends.push(() => client.destroy());
        return client;
      },
      read: (client) => (command, key, ...args) =>
        client.sendCommand(key, true, [command, key, ...args.map(String)]),
    },
  };
  for (const [name, { open, read }] of Object.entries(kinds)) {
    test(`${name}: keys are guarded`, async () => {
      const reader = await open();
      const store = await registers(open, read(reader));
      await conforms(store, `${name} in a cluster`, 5);
      const redis = new FencedRedis(reader).resource("orders/42", 1);
      await redis.set("{orders/42}:state", "paid");
      await fails(redis.set("elsewhere", "paid"), "config", /hash tag/);
      const odd = new FencedRedis(reader).resource("a}b", 1);
      await odd.set("a}b", "on the slot of a name that no tag can hold");
    });
  }
});

// Catches a write that takes several calls. The kill comes at any moment of a script, or between two scripts.
test("a writer that is killed leaves nothing half done", async () => {
  for (let round = 1; round <= 3; round += 1) {
    const child = await startWriter("redis", JSON.stringify(server.url), "killed", String(round * 10));
    await kill(child);
    // Read at one moment, because the last script that it sent may still arrive.
    const keys = ["first", "last", "fence"].map((key) => `{killed}:${key}`);
    const [first, last, seen] = await server.command("MGET", ...keys);
    assert.equal(first, last);
    assert.equal(seen, String(round * 10));
  }
  const late = new FencedRedis(await clients.ioredis(server.url)).resource("killed", 29);
  await refused(late.set("{killed}:first", "late"), { highest: 30 });
});

// The negative control: reads the fence, then raises it and writes, in two calls.
test("the suite notices a check in a call of its own", async () => {
  const store = await registers(() => clients.ioredis(server.url), (...args) => server.command(...args));
  const write = async (resource, token, value) => {
    const client = store.opened[token % 4];
    const key = `fence of ${resource}`;
    const seen = Number((await client.get(key)) ?? 0);
    if (seen > token) {
      throw new fence.StaleTokenError(resource, token, seen);
    }
    await client.set(key, token);
    const history = beside(resource, "history");
    await client.multi().set(resource, value).rpush(history, `${token} ${value}`).exec();
  };
  await noticed({ ...store, write }, "raced", 200, /accepted out of order|was told otherwise|the highest's/);
});
