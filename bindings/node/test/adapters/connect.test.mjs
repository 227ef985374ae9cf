// Connecting by URL, and everything that can be wrong with a URL.
import assert from "node:assert/strict";
import net from "node:net";
import { after, before, describe } from "node:test";
import { freePort, startRedis } from "../support/redis.mjs";
import { test } from "../support/test.mjs";
import { awake, pause, waitFor } from "../support/wait.mjs";
import { bundle } from "./bundle.mjs";
import { opened } from "./kinds.mjs";

const { openClient, parseUrl } = await bundle();
const PASSWORD = "p@ss/w:rd+?%";

for (const { name, open: openUrl } of opened) {
  describe(name, { concurrency: true }, () => {
    let server;
    before(async () => {
      server = await startRedis({ password: PASSWORD });
    });
    after(() => server.stop());

    const fails = async (url, code, message) => {
      const begin = awake();
      const error = await openUrl(url).then(
        () => assert.fail(`${url} was opened`),
        (error) => error,
      );
      assert.equal(error.name, "LeaseholdError", error.stack);
      assert.equal(error.code, code, error.stack);
      assert.match(error.message, message);
      assert.doesNotMatch(error.message, /s3cret/);
      return awake() - begin;
    };

    test("user, password and database of a URL are used, over TCP and over a socket", async (t) => {
      const secret = encodeURIComponent(PASSWORD);
      const open = await startRedis();
      t.after(() => open.stop());
      const cases = [
        [server, `redis://:${secret}@127.0.0.1:${server.port}/3`],
        [server, `redis://default:${secret}@127.0.0.1:${server.port}/3`],
        [open, `unix://${open.socket}?db=3`],
      ];
      for (const [at, url] of cases) {
        const adapter = await openUrl(url);
        await adapter.eval("return { redis.call('SET', KEYS[1], ARGV[1]) }", [url], ["x"]);
        await at.command("SELECT", 3);
        assert.equal(await at.command("GET", url), "x", url);
        assert.deepEqual(adapter.secrets, at === server ? [PASSWORD] : []);
        await adapter.close();
      }
    });

    test("a refused user learns so, and no connection is left behind", async () => {
      const at = `127.0.0.1:${server.port}`;
      await fails(`redis://:s3cret@${at}`, "auth", /WRONGPASS.*check the user and password in the URL$/);
      await fails(`redis://nobody:s3cret@${at}/1`, "auth", /WRONGPASS/);
      await fails(`redis://${at}`, "auth", /NOAUTH.*give the user and password in the URL$/);
      const secret = encodeURIComponent(PASSWORD);
      await fails(`redis://:${secret}@${at}/99`, "config", /out of range; the database in the URL does not exist on this server$/);
      await waitFor(async () => {
        const clients = await server.clients();
        return clients.every(({ user, cmd }) => user === "default" && cmd !== "NULL") && clients.length <= 4;
      });
    });

    test("a server that is not there is unavailable, and no more is tried", async (t) => {
      const port = await freePort();
      const took = await fails(`redis://u:s3cret@127.0.0.1:${port}`, "unavailable", /127\.0\.0\.1:\d+: .*ECONNREFUSED/);
      assert.ok(took < 3_000, `after ${took} ms`);
      await fails("unix:///tmp/no/such/socket", "unavailable", /unix:\/\/\/tmp\/no\/such\/socket: .*ENOENT/);
      // Too long for a name, so no DNS server is asked for it.
      const host = `${"x".repeat(64)}.no-such-host.invalid`;
      await fails(`redis://${host}:${port}`, "unavailable", /no-such-host\.invalid/);
      let tries = 0;
      const late = net.createServer(() => tries++).listen(port, "127.0.0.1");
      t.after(() => late.close());
      await pause(1_000);
      assert.equal(tries, 0);
    });

    test("a server that says nothing is given up on within 6 seconds, and left", async (t) => {
      const sockets = new Set();
      const silent = net.createServer((socket) => {
        sockets.add(socket);
        socket.on("close", () => sockets.delete(socket)).on("error", () => {});
        socket.resume();
      });
      await new Promise((resolve) => silent.listen(0, "127.0.0.1", resolve));
      t.after(() => silent.close());
      const { port } = silent.address();
      const took = await fails(`redis://:s3cret@127.0.0.1:${port}`, "timeout", /within 6000 ms/);
      assert.ok(took > 2_000 && took < 10_000, `after ${took} ms`);
      await waitFor(() => sockets.size === 0, 5_000, "no connection is left");
      await pause(500);
      assert.equal(sockets.size, 0);
    });

    test("a server of something else", async (t) => {
      const web = net.createServer((socket) => socket.on("error", () => {}).end("HTTP/1.1 400 Bad Request\r\n\r\n"));
      await new Promise((resolve) => web.listen(0, "127.0.0.1", resolve));
      t.after(() => web.close());
      const error = await openUrl(`redis://127.0.0.1:${web.address().port}`).catch((error) => error);
      assert.equal(error.name, "LeaseholdError");
      assert.ok(["unavailable", "store", "timeout"].includes(error.code), error.stack);
    });
  });
}

test("without a client installed it says what to install", async () => {
  const missing = await bundle({ ioredis: "no-such-ioredis", redis: "no-such-redis" });
  const open = (url) => missing.openClient(url);
  await assert.rejects(open("redis://u:s3cret@localhost"), (error) => {
    assert.equal(error.code, "config");
    assert.match(error.message, /npm install ioredis \(or: npm install redis\)/);
    assert.doesNotMatch(error.message, /s3cret/);
    return true;
  });
  const one = await bundle({ ioredis: "no-such-ioredis" });
  await assert.rejects(one.openClient("redis-cluster://localhost"), {
    code: "config",
    message: /npm install ioredis$/,
  });
  // The negative control: the other one is taken.
  await assert.rejects(one.openClient(`redis://127.0.0.1:${await freePort()}`), { code: "unavailable" });
});

test("the parts of a URL are taken", () => {
  const of = (url) => {
    const { kind, nodes, path, tls, username, password, database, service, shown } = parseUrl(url);
    const parts = { kind, nodes, path, tls, username, password, database, service, shown };
    return Object.fromEntries(Object.entries(parts).filter(([, value]) => value !== undefined));
  };
  const plain = { kind: "server", tls: false, database: 0 };
  const at = (host, port) => [{ host, port }];
  assert.deepEqual(of("redis://me:p%40ss@example.org:7000/5"), {
    ...plain,
    nodes: at("example.org", 7000),
    username: "me",
    password: "p@ss",
    database: 5,
    shown: "redis://example.org:7000",
  });
  assert.deepEqual(of("rediss://:secret@[::1]/"), {
    ...plain,
    nodes: at("::1", 6379),
    tls: true,
    password: "secret",
    shown: "rediss://[::1]:6379",
  });
  assert.deepEqual(of("unix:///run/redis%20a.sock?db=3"), {
    kind: "socket",
    nodes: [],
    path: "/run/redis a.sock",
    tls: false,
    database: 3,
    shown: "unix:///run/redis a.sock",
  });
  assert.deepEqual(of("redis-cluster://u:p@a:1?node=b:2&node=[::2]"), {
    ...plain,
    kind: "cluster",
    nodes: [...at("a", 1), ...at("b", 2), ...at("::2", 6379)],
    username: "u",
    password: "p",
    shown: "redis-cluster://a:1",
  });
  assert.deepEqual(of("redis-sentinel://a/2?sentinelServiceName=mymaster&node=b:2"), {
    ...plain,
    kind: "sentinel",
    nodes: [...at("a", 26379), ...at("b", 2)],
    service: "mymaster",
    database: 2,
    shown: "redis-sentinel://a:26379",
  });
  assert.equal(parseUrl("redis://user:s3cret@host/1").shown, "redis://host:6379");
});

test("bad URLs are config errors that say what is allowed and leak nothing", async () => {
  const urls = [
    undefined,
    42,
    "",
    "localhost:6379",
    "redis://",
    "http://user:s3cret@localhost",
    "constructor://user:s3cret@localhost",
    "redis://user:s3cret@localhost:99999",
    "redis://user:s3cret@localhost:0",
    "redis://user:s3cret@localhost/db",
    "redis://user:s3cret@localhost/256",
    "redis://user:s3cret@localhost/1/2",
    "redis://user:s3cret@localhost?x=1",
    "redis://user:s3cret%ff@localhost",
    "redis://user:s3cret#more@localhost",
    "redis://user:12/s3cret@localhost",
    "redis://user:1?s3cret@localhost",
    "redis://user:s3cret@/1",
    "unix://",
    "unix://user:s3cret@",
    "unix:///socket?s3cret=1",
    "redis-cluster://user:s3cret@a/1",
    "redis-cluster://user:s3cret@a?node=",
    "redis-cluster://user:s3cret@a?node=b:s3cret",
    "redis-sentinel://user:s3cret@a",
    "redis-sentinel://user:s3cret@a?sentinelServiceName=a&sentinelServiceName=b",
  ];
  for (const url of urls) {
    await assert.rejects(openClient(url), (error) => {
      assert.equal(error.code, "config", `${url}: ${error.stack}`);
      assert.match(error.message, /redis:\/\//);
      assert.doesNotMatch(`${error.message} ${error.stack} ${error.cause}`, /s3cret/);
      return true;
    }, String(url));
  }
});
