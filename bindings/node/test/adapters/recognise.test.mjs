// The choice of an adapter, the adapters without a connection, and the meaning of failures.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import http from "node:http";
import { after, before, describe } from "node:test";
import { execFile } from "node:child_process";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { startRedis } from "../support/redis.mjs";
import { test } from "../support/test.mjs";
import { waitFor } from "../support/wait.mjs";
import { adapters, hearingLog, linkLog } from "./kinds.mjs";

const { adapt, failure } = adapters;
const here = dirname(fileURLToPath(import.meta.url));
const sha1 = (script) => createHash("sha1").update(script).digest("hex");

let server;
before(async () => {
  server = await startRedis();
});
after(() => server.stop());

test("each client is recognised by what it can do", async () => {
  // Catches: a check by class, of which a program may have another copy.
  const { Redis, Cluster } = await import("ioredis");
  const { createClient, createCluster, createClientPool, createSentinel } = await import("redis");
  const upstash = await import("@upstash/redis");
  const rootNodes = [{ url: "redis://localhost" }];
  class Mine extends Redis {}
  const http = { url: "http://localhost", token: "s3cret" };
  const cases = [
    [new Redis({ lazyConnect: true }), "ioredis", false],
    [new Mine({ lazyConnect: true }), "ioredis", false],
    [new Proxy(new Redis({ lazyConnect: true }), {}), "ioredis", false],
    [new Cluster([{ port: 1 }], { lazyConnect: true }), "ioredis (Cluster)", true],
    [createClient(), "node-redis", false],
    [createClientPool(), "node-redis (pool)", false],
    [createCluster({ rootNodes }), "node-redis (cluster)", true],
    [createSentinel({ name: "a", sentinelRootNodes: [{ host: "localhost", port: 1 }] }), "node-redis (sentinel)", false],
    [new upstash.Redis(http), "@upstash/redis", false],
    [new upstash.Redis({ ...http, enableAutoPipelining: false }), "@upstash/redis", false],
    [{ eval: async () => [] }, "the given object with eval", false],
    [new (class { async eval() {} })(), "the given object with eval", false],
  ];
  for (const [client, name, clustered] of cases) {
    const adapter = adapt(client);
    assert.equal(adapter.client, name);
    assert.equal(adapter.clustered, clustered);
    await adapter.close();
  }
  assert.deepEqual(adapt(new upstash.Redis(http)).secrets, ["s3cret"]);
});

test("anything else is a config error that says what is expected", () => {
  const { Redis: _, ...nothings } = { a: undefined, b: null, c: 1, d: "redis://u:s3cret@h", e: true, f: Symbol("x") };
  const others = [{}, [], new Map(), class A {}, () => {}, Promise.resolve({ eval() {} }), { eval: 1 }];
  for (const client of [...Object.values(nothings), ...others]) {
    assert.throws(
      () => adapt(client),
      (error) => {
        assert.equal(error.name, "LeaseholdError");
        assert.equal(error.code, "config");
        assert.match(error.message, /ioredis, node-redis \(redis\) or @upstash\/redis/);
        assert.doesNotMatch(error.message, /s3cret/);
        return true;
      },
    );
  }
  assert.throws(() => adapt(Promise.resolve()), /a promise \(await it first\)/);
  assert.throws(() => adapt("redis://localhost"), /Locker\.connect/);
  assert.throws(() => adapt({ eval() {}, subscribe: 1 }), { code: "config", message: /`subscribe` must be a function; got 1/ });
  assert.throws(() => adapt({ eval() {}, evalsha: {} }), { code: "config", message: /`evalsha` must be a function; got an object/ });
});

describe("@upstash/redis", () => {
  let rest;
  before(async () => {
    rest = await startRest(server, "t0ken");
  });
  after(() => rest.close());

  const make = async (options = {}) => {
    const { Redis } = await import("@upstash/redis");
    return adapt(new Redis({ url: rest.url, token: "t0ken", retry: false, ...options }));
  };

  for (const options of [{}, { enableAutoPipelining: false }, { automaticDeserialization: false }, { responseEncoding: false }]) {
    test(`answers are strings as the script made them, with ${JSON.stringify(options)}`, async () => {
      // Catches: numbers that are rounded, and labels that look like JSON and come back as objects.
      const adapter = await make(options);
      const script = `-- ${JSON.stringify(options)}\nreturn { KEYS[1], ARGV[1], ARGV[2], '9007199254740993', '1e3', 'null', '007', '' }`;
      const [keys, args] = [["k\u{1F600}\0"], ['{"label":1}', "[1, 2]"]];
      const missing = await adapter.evalsha(sha1(script), keys, args).catch((error) => error);
      assert.match(missing.message, /^NOSCRIPT/);
      assert.equal(failure(missing).reply, "NOSCRIPT No matching script. Please use EVAL.");
      const expected = [...keys, ...args, "9007199254740993", "1e3", "null", "007", ""];
      assert.deepEqual(await adapter.eval(script, keys, args), expected);
      assert.deepEqual(await adapter.evalsha(sha1(script), keys, args), expected);
    });
  }

  test("it is always up and hears nothing", async () => {
    const adapter = await make();
    assert.equal(adapter.listen, undefined);
    assert.equal(adapter.info, undefined);
    const link = linkLog();
    adapter.watch(link)();
    assert.deepEqual(link.log, [["up"]]);
    await adapter.close();
  });

  test("refusals are replies, and the rest is the connection's", async () => {
    const wrong = await (await make({ token: "wrong" })).eval("return {}", [], []).catch((error) => error);
    assert.match(failure(wrong).reply, /^WRONGPASS [^,]*$/);
    const gone = await (await make({ url: "http://127.0.0.1:1" })).eval("return {}", [], []).catch((error) => error);
    assert.equal(failure(gone).code, "unavailable", gone.stack);
    rest.page = true;
    const page = await (await make()).eval("return {}", [], []).catch((error) => error);
    rest.page = false;
    assert.equal(failure(page).code, "unavailable", page.stack);
  });
});

describe("an object with eval", () => {
  test("its methods are called as methods, and what they return becomes strings", async () => {
    class Store {
      calls = [];
      async eval(...call) {
        this.calls.push(call);
        return ["text", 12, 12n, new TextEncoder().encode("ü")];
      }
      evalsha() {
        throw new Error("NOSCRIPT no such script");
      }
    }
    const store = new Store();
    const adapter = adapt(store);
    assert.deepEqual(await adapter.eval("s", ["k"], ["a"]), ["text", "12", "12", "ü"]);
    assert.deepEqual(store.calls, [["s", ["k"], ["a"]]]);
    await assert.rejects(adapter.evalsha("sha", [], []), /^Error: NOSCRIPT/);
    assert.equal(adapter.listen, undefined);
    assert.equal(adapt({ eval() {} }).evalsha, undefined);
  });

  test("subscribe is confirmed by its return, tried again if it fails, and ended once", async () => {
    // Catches: a subscription that is never ended, and one that is reported too early.
    let tries = 0;
    let ended = 0;
    let confirm;
    const store = {
      eval: async () => [],
      subscribe(channel, onMessage) {
        tries += 1;
        if (tries === 1) {
          throw new Error("at once");
        }
        if (tries === 2) {
          return Promise.reject(new Error("ERR later"));
        }
        if (tries === 3) {
          return undefined;
        }
        return new Promise((resolve) => {
          confirm = () => {
            resolve(() => {
              ended += 1;
            });
            onMessage(`on ${channel}`);
          };
        });
      },
    };
    const adapter = adapt(store);
    const hearing = hearingLog();
    const stop = adapter.listen("c", hearing);
    await waitFor(() => confirm);
    assert.equal(hearing.count("unsubscribed"), 3);
    assert.equal(hearing.count("subscribed"), 0);
    assert.match(String(hearing.log[2][1]), /must return a function/);
    confirm();
    await waitFor(() => hearing.state === "subscribed");
    assert.deepEqual(hearing.messages, ["on c"]);
    stop();
    await adapter.close();
    await waitFor(() => ended === 1);
    assert.equal(ended, 1);
  });
});

test("failures are told apart by words and properties, also if classes were renamed", async () => {
  // Catches: a refusal that is retried forever, and a broken connection that ends a lock.
  const system = Object.assign(new Error("connect ECONNREFUSED 127.0.0.1:1"), { code: "ECONNREFUSED" });
  const aggregate = Object.assign(new AggregateError([system], ""), { code: "ECONNREFUSED" });
  const named = (name, message) => Object.assign(new Error(message), { name });
  class t extends Error {}
  const { errors } = await import("redis-v4").then((module) => ({ errors: module }));
  const cases = [
    [new t("NOSCRIPT No matching script."), { reply: "NOSCRIPT No matching script." }],
    [named("ReplyError", "odd refusal"), { reply: "odd refusal" }],
    [new errors.ErrorReply("MOVED 1 h:1"), { reply: "MOVED 1 h:1" }],
    [new t("WRONGPASS invalid or missing auth token, command was: [\"eval\",\"s\"]"), { reply: "WRONGPASS invalid or missing auth token" }],
    [system, "unavailable"],
    [aggregate, "unavailable"],
    [Object.assign(new TypeError("fetch failed"), { cause: system }), "unavailable"],
    [new TypeError("Failed to fetch"), "unavailable"],
    [new errors.ClientClosedError(), "unavailable"],
    [new errors.SocketClosedUnexpectedlyError(), "unavailable"],
    [new errors.RootNodesUnavailableError(), "unavailable"],
    [new t("The client is closed"), "unavailable"],
    [new t("Connection is closed."), "unavailable"],
    [new t("Stream isn't writeable and enableOfflineQueue options is false"), "unavailable"],
    [new t("Reached the max retries per request limit (which is 20). Refer to \"maxRetriesPerRequest\" option for details."), "unavailable"],
    [new t("Too many Cluster redirections. Last error: Error: x"), "unavailable"],
    [new t("None of startup nodes is available"), "unavailable"],
    [new t("All sentinels are unreachable and retry is disabled. Last error: x"), "unavailable"],
    [named("AbortError", "This operation was aborted"), "unavailable"],
    [Object.assign(new Error("Failed to refresh slots cache."), { name: "ClusterAllFailedError", lastNodeError: new t("WRONGPASS no") }), { reply: "WRONGPASS no" }],
    [new t("Command timed out"), "timeout"],
    [named("TimeoutError", "The operation was aborted due to timeout"), "timeout"],
    [new t("The queue is full"), "overloaded"],
    [new TypeError("x is not a function"), "store"],
    ["a string", "store"],
    [undefined, "store"],
    [null, "store"],
    [{}, "store"],
  ];
  for (const [error, expected] of cases) {
    const found = failure(error);
    if (typeof expected === "string") {
      assert.equal(found.code, expected, `${error?.stack ?? error}`);
      assert.ok(found.message.length > 0);
    } else {
      assert.deepEqual(found, expected);
    }
  }
});

test("the types of the real clients are accepted, and others are not", { timeout: 300_000 }, async () => {
  const tsc = join(here, "../../node_modules/typescript/bin/tsc");
  const run = promisify(execFile)(process.execPath, [tsc, "--noEmit", "-p", here], { timeout: 250_000 });
  const said = await run.then(({ stdout }) => stdout, (error) => error.stdout || error.message);
  assert.equal(said, "");
});

/** Upstash's REST protocol in front of a redis-server. */
async function startRest(redis, token) {
  const rest = { page: false };
  const encode = (value, base64) =>
    Array.isArray(value)
      ? value.map((item) => encode(item, base64))
      : typeof value === "string" && base64 && value !== "OK"
        ? Buffer.from(value).toString("base64")
        : value;
  const web = http.createServer(async (request, response) => {
    let body = "";
    for await (const part of request) {
      body += part;
    }
    const answer = (status, content) => response.writeHead(status).end(content);
    if (rest.page) {
      return answer(502, "<html>Bad gateway</html>");
    }
    if (request.headers.authorization !== `Bearer ${token}`) {
      return answer(401, JSON.stringify({ error: "WRONGPASS invalid or missing auth token" }));
    }
    const base64 = request.headers["upstash-encoding"] === "base64";
    try {
      const result = await redis.command(...JSON.parse(body));
      answer(200, JSON.stringify({ result: encode(result, base64) }));
    } catch (error) {
      answer(400, JSON.stringify({ error: error.message }));
    }
  });
  await new Promise((resolve) => web.listen(0, "127.0.0.1", resolve));
  return Object.assign(rest, {
    url: `http://127.0.0.1:${web.address().port}`,
    close() {
      web.closeAllConnections();
      web.close();
    },
  });
}
