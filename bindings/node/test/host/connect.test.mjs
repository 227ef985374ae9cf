// The errors of Locker.connect for unusable servers, and the URLs of in-memory stores.
import assert from "node:assert/strict";
import net from "node:net";
import { describe } from "node:test";
import { LeaseholdError, Locker } from "../../dist/index.js";
import { freePort, startCluster, startRedis } from "../support/redis.mjs";
import { clients, lockerOf } from "../support/stores.mjs";
import { test } from "../support/test.mjs";
import { awake, waitFor } from "../support/wait.mjs";

const SECRET = /s3cret|wr0ng/;

async function started(t, options) {
  const server = await startRedis(options);
  t.after(() => server.stop());
  return server;
}

/** Returns the error of a URL that must be refused. It begins with the server, and contains no secret. */
async function refused(url, code, begin, advice) {
  const error = await Locker.connect(url).then(() => assert.fail(`${url} was taken`), (error) => error);
  assert.ok(error instanceof LeaseholdError, error.stack);
  assert.equal(error.code, code, error.stack);
  assert.ok(error.message.startsWith(begin), error.message);
  assert.match(error.message, advice);
  assert.doesNotMatch(`${error.message} ${error.stack} ${error.cause?.stack}`, SECRET);
}

describe("Locker.connect names the server and says what to do", { concurrency: 3 }, () => {
  test("credentials and rights", async (t) => {
    const server = await started(t, { password: "s3cret" });
    const at = `127.0.0.1:${server.port}`;
    const begin = `redis://${at}: the server `;
    await refused(`redis://:wr0ng@${at}`, "auth", begin, /WRONGPASS.*; check the user and password in the URL$/);
    await refused(`redis://${at}`, "auth", begin, /NOAUTH.*; give the user and password in the URL$/);
    const noDatabase = /; the database in the URL does not exist on this server$/;
    await refused(`redis://:s3cret@${at}/99`, "config", begin, noDatabase);
    await server.command("ACL", "SETUSER", "poor", "on", ">s3cret", "~*", "&*", "+@all", "-@scripting");
    await refused(`redis://poor:s3cret@${at}`, "auth", begin, /NOPERM.*; the user needs the ACL rules ~\{leasehold:\* \+eval/);
  });

  test("a password that is a word of the server's own does not hide what is wrong", async (t) => {
    const { port } = await started(t, { password: "s3cret" });
    const said = await Locker.connect(`redis://:user@127.0.0.1:${port}`).catch(({ message }) => message);
    assert.match(said, /WRONGPASS.*; check the user and password in the URL$/);
  });

  // Redis echoes the arguments of a command that it does not know.
  test("a server that echoes the password", async (t) => {
    const { port } = await started(t, { config: ['rename-command AUTH ""'] });
    await refused(`redis://:s3cret@127.0.0.1:${port}`, "store", `redis://127.0.0.1:${port}: `, /is not shown/);
  });

  test("a replica", async (t) => {
    const primary = await started(t);
    const replica = await started(t, { config: [`replicaof 127.0.0.1 ${primary.port}`] });
    await waitFor(async () => /master_link_status:up/.test(await replica.info("replication")));
    await refused(replica.url, "readOnly", `${replica.url}: the server is a`, /connect to the primary$/);
  });

  test("a node of a cluster", async (t) => {
    const node = await started(t, { config: ["cluster-enabled yes", `cluster-port ${await freePort()}`] });
    await refused(node.url, "config", `${node.url}: the server is a cluster node; `, /connect to redis-cluster:/);
  });

  test("sentinels", async (t) => {
    const config = ["sentinel monitor mymaster 127.0.0.1 1 1"];
    const [sentinel, server] = await Promise.all([started(t, { sentinel: true, config }), started(t)]);
    await sentinel.command("ACL", "SETUSER", "default", "resetpass", ">guard");
    const at = `redis-sentinel://127.0.0.1:${sentinel.port}`;
    const begin = `${at}: the sentinels `;
    const check = /check sentinelUsername and sentinelPassword in the URL$/;
    await refused(`${at}/mymaster`, "auth", begin, /\(NOAUTH\); check sentinelUsername and sentinelPassword/);
    await refused(`${at}/mymaster?sentinelPassword=s3cret`, "auth", begin, check);
    await refused(`${at}/other?sentinelPassword=guard`, "config", begin, /check the service in the URL$/);
    const plain = `redis-sentinel://127.0.0.1:${server.port}`;
    await refused(`${plain}/mymaster`, "config", `${plain}: the server is not a sentinel`, /name the sentinels in the URL/);
    const direct = `redis://127.0.0.1:${sentinel.port}`;
    await refused(`redis://:guard@127.0.0.1:${sentinel.port}`, "unsupported", `${direct}: `, /it may be a sentinel: /);
  });

  test("a server and a cluster that are not there", async (t) => {
    const [port, other] = [await freePort(), await freePort()];
    const server = `redis://127.0.0.1:${port}`;
    await refused(`redis://:s3cret@127.0.0.1:${port}`, "unavailable", `${server}: the store cannot be`, /ECONNREFUSED/);
    const cluster = `redis-cluster://127.0.0.1:${port}`;
    const nodes = new RegExp(`no node of the cluster .*127\\.0\\.0\\.1:${port}, 127\\.0\\.0\\.1:${other}`);
    const begin = `${cluster}: the store cannot be reached: `;
    await refused(`${cluster}?node=127.0.0.1:${other}`, "unavailable", begin, nodes);
    const { url, stop } = await startCluster();
    t.after(stop);
    // The control: a server that is up is accepted.
    await (await Locker.connect(url)).shutdown();
  });

  test("a server that never answers, after twice the connectTimeout", async (t) => {
    const silent = net.createServer((socket) => socket.on("error", () => {}));
    await new Promise((listening) => silent.listen(0, "127.0.0.1", listening));
    t.after(() => silent.close());
    const url = `redis://127.0.0.1:${silent.address().port}`;
    for (const connectTimeout of [100, 700]) {
      const before = awake();
      const error = await Locker.connect(url, { connectTimeout }).then(() => assert.fail("taken"), (error) => error);
      assert.equal(error.code, "timeout", error.stack);
      const took = awake() - before;
      // The default is 6 s.
      assert.ok(took >= connectTimeout && took < 5_000, `${connectTimeout}: ${took} ms`);
    }
  });

  test("a server that evicts keys is found, and warned of", async (t) => {
    // Catches: a setup that silently hands a held lock to a second client.
    const warnings = [];
    const warned = (warning) => warnings.push(warning);
    process.on("warning", warned);
    t.after(() => process.off("warning", warned));
    for (const policy of ["volatile-ttl", "volatile-lru", "allkeys-lru", "noeviction"]) {
      const { url } = await started(t, { config: ["maxmemory 100mb", `maxmemory-policy ${policy}`] });
      const locker = await Locker.connect(url);
      const found = locker.findings.map(({ type, policy }) => ({ type, policy }));
      await locker.shutdown();
      assert.deepEqual(found, policy === "noeviction" ? [] : [{ type: "eviction", policy }]);
      const isIt = ({ name, message }) => name === "LeaseholdWarning" && message.includes(`is ${policy},`);
      await waitFor(() => warnings.filter(isIt).length === found.length, 5_000, "the warning");
    }
    const shy = await started(t, { config: ["maxmemory-policy allkeys-lru"] });
    await shy.command("ACL", "SETUSER", "shy", "on", ">s3cret", "~*", "&*", "+@all", "-info");
    const locker = await Locker.connect(`redis://shy:s3cret@127.0.0.1:${shy.port}`);
    assert.deepEqual(locker.findings, []);
    await locker.shutdown();
    assert.deepEqual(Locker.inMemory().findings, []);
  });

  test("a server that falls silent after the first answer is given up on in 3 seconds", async (t) => {
    // Catches a connect that never ends: nothing else limits its first requests.
    const sockets = new Set();
    const silent = net.createServer((socket) => {
      sockets.add(socket.on("close", () => sockets.delete(socket)).on("error", () => {}));
      const answer = (data) => (/info/i.test(data) ? 0 : data.match(/^\*\d/gm).length);
      socket.on("data", (data) => socket.write("+PONG\r\n".repeat(answer(String(data)))));
    });
    await new Promise((resolve) => silent.listen(0, "127.0.0.1", resolve));
    t.after(() => silent.close());
    const url = `redis://127.0.0.1:${silent.address().port}`;
    const begin = awake();
    await refused(url, "timeout", `${url}: the server did not answer`, /3000 ms/);
    assert.ok(awake() - begin < 8_000, `${awake() - begin} ms`);
    await waitFor(() => sockets.size === 0, 5_000, "no connection is left");
  });
});

for (const kind of clients) {
  test(`errors of a program's own client do not mention a URL, ${kind}`, async (t) => {
    const server = await started(t);
    const { locker, end } = await lockerOf(kind, server.url, { patience: 5_000 });
    t.after(async () => {
      await locker.shutdown();
      await end();
    });
    if (kind === "ioredis") {
      // A client that was never served takes the first refusal as final.
      await locker.inspect("x");
    }
    await server.command("CONFIG", "SET", "requirepass", "s3cret");
    await server.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").catch(() => {});
    const asked = () => locker.inspect("x").then(() => undefined, (error) => error);
    // Between two links of ioredis, a call may be refused on the new one, which is `auth`, too.
    const code = kind === "ioredis" ? "unavailable" : "auth";
    const error = await waitFor(async () => {
      const failed = await asked();
      return /NOAUTH/.test(failed?.message) && failed.code === code && failed;
    }, 20_000, "the server refuses");
    assert.match(error.message, /NOAUTH.*; check the client's user and password/);
    assert.doesNotMatch(error.message, /URL/);
  });
}

describe("URLs of stores in memory are read as in Rust", () => {
  /** Returns true if both URLs mean one store: if one locker has the lock, the other does not get it. */
  async function isOne(first, second) {
    const [one, two] = await Promise.all([Locker.connect(first), Locker.connect(second)]);
    try {
      await one.lock("x").acquire();
      return (await two.lock("x").tryAcquire()) === undefined;
    } finally {
      await Promise.all([one.shutdown(), two.shutdown()]);
    }
  }

  test("URLs with the same name", async () => {
    for (const [first, second] of [
      ["memory://one", "MEMORY://one"],
      ["memory://one", " memory://one\n"],
      ["memory://", "memory:"],
      ["memory://one/a b", "memory://one/a%20b"],
    ]) {
      assert.ok(await isOne(first, second), `${first} ${second}`);
    }
    // The control.
    for (const [first, second] of [["memory://one", "memory://One"], ["memory://one", "memory://one/"]]) {
      assert.ok(!(await isOne(first, second)), `${first} ${second}`);
    }
  });

  test("other URLs are refused, and leak nothing", async () => {
    const takesOnlyAName = /takes only a name; a store's URL has the form memory:\/\/\[name\]$/;
    await refused("memory://u:s3cret@a?x=1", "config", "", takesOnlyAName);
    await refused("memory://s3cret@a", "config", "", takesOnlyAName);
    await refused("memory://a?", "config", "", takesOnlyAName);
    await refused("memory://a#s3cret", "config", "", /has a fragment/);
    await refused("Memory://s3cret b", "config", "", /percent-encode spaces/);
  });
});
