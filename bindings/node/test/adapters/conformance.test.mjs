// One suite for every client of a single server. Each test names the bug that it catches.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { after, before, describe } from "node:test";
import { startProxy } from "../support/proxy.mjs";
import { startRedis } from "../support/redis.mjs";
import { test } from "../support/test.mjs";
import { pause, waitFor, within } from "../support/wait.mjs";
import { adapters, all, hearingLog, linkLog, useKind } from "./kinds.mjs";

const sha1 = (script) => createHash("sha1").update(script).digest("hex");

describe("every client of one server", { concurrency: 3 }, () => {
  for (const kind of all) {
    describe(kind.name, { concurrency: true }, () => conforms(kind));
  }
});

function conforms({ name, open, owned }) {
  let server;
  before(async () => {
    server = await startRedis();
  });
  after(() => server.stop());

  const use = (t, url = server.url) => useKind(t, { open }, url);

  test("scripts by hash and by text, with keys and arguments of any text", async (t) => {
    // Catches: keys taken for arguments, an unrecognizable NOSCRIPT, text that is cut at a NUL, numbers that
    // are rounded on the way.
    const { adapter } = await use(t);
    const script = `-- ${name}\nreturn { KEYS[1], KEYS[2], ARGV[1], ARGV[2], '9007199254740993', '007', '' }`;
    const keys = ["{a}\0\u{1F600}", "{a}b"];
    const args = ['{"json":1}', "ü\r\n$5"];
    const missing = await adapter.evalsha(sha1(script), keys, args).catch((error) => error);
    assert.match(missing.message, /^NOSCRIPT/);
    assert.match(adapters.failure(missing).reply, /^NOSCRIPT/);
    const expected = [...keys, ...args, "9007199254740993", "007", ""];
    assert.deepEqual(await adapter.eval(script, keys, args), expected);
    assert.deepEqual(await adapter.evalsha(sha1(script), keys, args), expected);
    assert.deepEqual(await adapter.evalsha(sha1("return {#KEYS}"), [], []).catch(() => "none"), "none");
    assert.deepEqual(await adapter.eval("return { tostring(#KEYS), tostring(#ARGV) }", [], []), ["0", "0"]);
  });

  test("clients that take ready commands send them", async (t) => {
    // Catches: a version of ioredis that makes commands in another way, so that each batch takes the slow
    // path; bytes that are taken for text.
    const { adapter } = await use(t);
    assert.equal(adapter.send !== undefined, name.includes("ioredis"), "ioredis, and nobody else");
    if (adapter.send === undefined) {
      return;
    }
    const script = `-- ready ${name}\nreturn { KEYS[1], ARGV[1], '007' }`;
    const parts = ["EVALSHA", sha1(script), "1", "{a}\0\u{1F600}", "ü\r\n$5"];
    const written = parts.map((part) => `$${Buffer.byteLength(part)}\r\n${part}\r\n`);
    const bytes = new TextEncoder().encode(`*${parts.length}\r\n${written.join("")}`);
    const missing = await adapter.send(bytes).catch((error) => error);
    assert.match(adapters.failure(missing).reply, /^NOSCRIPT/);
    const expected = [parts[3], parts[4], "007"];
    assert.deepEqual(await adapter.eval(script, [parts[3]], [parts[4]]), expected);
    assert.deepEqual(await Promise.all([adapter.send(bytes), adapter.send(bytes)]), [expected, expected]);
    const text = "return '1731666000000000'";
    await adapter.eval(text, [], []);
    const plain = `*3\r\n$7\r\nEVALSHA\r\n$40\r\n${sha1(text)}\r\n$1\r\n0\r\n`;
    assert.equal(await adapter.send(new TextEncoder().encode(plain)), "1731666000000000");
  });

  test("a server's refusal is a reply, in its own words", async (t) => {
    // Catches: a refusal that is taken for a broken connection and retried forever.
    const { adapter } = await use(t);
    await server.command("SET", "plain", "text");
    const refused = await adapter
      .eval("return redis.call('ZADD', KEYS[1], '1', 'x')", ["plain"], [])
      .catch((error) => error);
    assert.match(adapters.failure(refused).reply, /^WRONGTYPE/);
    const wrong = await adapter.eval("return {", [], []).catch((error) => error);
    assert.match(adapters.failure(wrong).reply, /^ERR/);
  });

  test("INFO is text", async (t) => {
    const { adapter } = await use(t);
    assert.match(await adapter.info("server"), /^redis_version:7/m);
    assert.match(await adapter.info("replication"), /^role:master/m);
  });

  test("messages after `subscribed` are heard, and none after the end", async (t) => {
    // Catches: `subscribed` before the server has confirmed; a subscription that outlives its listener.
    const { adapter } = await use(t);
    const hearing = hearingLog();
    const channel = `${name} heard`;
    const receivers = [];
    const published = new Promise((resolve) => {
      hearing.subscribed = async () => {
        receivers.push(await server.command("PUBLISH", channel, "first \u{1F600}\0"));
        resolve();
      };
    });
    const stop = adapter.listen(channel, hearing);
    await within(published, 10_000, "the subscription");
    assert.deepEqual(receivers, [1]);
    await waitFor(() => hearing.messages.length === 1);
    assert.equal(hearing.messages[0], "first \u{1F600}\0");
    stop();
    await waitFor(async () => (await server.command("PUBLISH", channel, "late")) === 0);
    await pause(50);
    assert.equal(hearing.messages.length, 1);
  });

  test("two channels are heard apart", async (t) => {
    const { adapter } = await use(t);
    const [one, two] = [hearingLog(), hearingLog()];
    adapter.listen(`${name} one`, one);
    adapter.listen(`${name} two`, two);
    await waitFor(() => one.state === "subscribed" && two.state === "subscribed");
    await server.command("PUBLISH", `${name} two`, "for two");
    await waitFor(() => two.messages.length === 1);
    assert.deepEqual(one.messages, []);
  });

  test("a subscriber whose connection is cut says so and is back, again and again", async (t) => {
    // Catches: a subscription that is lost silently, or not made again. It has its own server, because it
    // cuts all subscribers there.
    const lone = await startRedis();
    t.after(() => lone.stop());
    const { adapter } = await use(t, lone.url);
    const hearing = hearingLog();
    const channel = `${name} cut`;
    adapter.listen(channel, hearing);
    for (let round = 1; round <= 3; round++) {
      await waitFor(() => hearing.count("subscribed") >= round && hearing.state === "subscribed");
      const subscribers = (await lone.clients()).filter(({ sub }) => sub === "1");
      assert.equal(subscribers.length, 1);
      await lone.command("CLIENT", "KILL", "ID", subscribers[0].id);
      await waitFor(() => hearing.count("unsubscribed") >= round);
    }
    await waitFor(() => hearing.state === "subscribed");
    await lone.command("PUBLISH", channel, "again");
    await waitFor(() => hearing.messages.includes("again"));
  });

  test("a user that may not subscribe learns so, and does not hammer the server", async (t) => {
    // Catches: a user without rights to channels that asks 20 times a second forever.
    const lone = await startRedis();
    t.after(() => lone.stop());
    await lone.command("ACL", "SETUSER", "deaf", "on", ">pw", "~*", "+@all", "resetchannels");
    const { adapter } = await use(t, lone.url.replace("//", "//deaf:pw@"));
    const hearing = hearingLog();
    adapter.listen("forbidden", hearing);
    // The pauses are half a second, one, two and four, varied by a quarter.
    await waitFor(() => hearing.count("unsubscribed") >= 2);
    await pause(500);
    assert.ok(hearing.count("unsubscribed") <= 4, `${hearing.count("unsubscribed")} tries`);
    assert.equal(hearing.count("subscribed"), 0);
    assert.match(adapters.failure(hearing.log[0][1]).reply, /^NOPERM/);
    await lone.command("ACL", "SETUSER", "deaf", "allchannels");
    await waitFor(() => hearing.state === "subscribed");
  });

  test("a server that is killed and started again: link and subscription come back", async (t) => {
    // Catches: `up` or `subscribed` reported only once; a client that gives up.
    const lone = await startRedis();
    t.after(() => lone.stop());
    const { adapter, link } = await use(t, lone.url);
    const hearing = hearingLog();
    adapter.listen("lone", hearing);
    await waitFor(() => hearing.state === "subscribed");
    const ups = link.count("up");
    await lone.kill();
    await waitFor(() => hearing.state === "unsubscribed", 10_000, "unsubscribed");
    if (link.count("down") === 0 && !name.includes("pool")) {
      await waitFor(() => link.state === "down", 10_000, "down");
    }
    await lone.start();
    if (!name.includes("pool")) {
      await waitFor(() => link.count("up") > ups && link.state === "up", 10_000, "up again");
    }
    await waitFor(() => hearing.state === "subscribed", 10_000, "subscribed again");
    await waitFor(() => adapter.eval("return {'ok'}", [], []).catch(() => false), 10_000, "it answers");
    await lone.command("PUBLISH", "lone", "back");
    await waitFor(() => hearing.messages.includes("back"));
  });

  test("the link goes down and up with the connection, with a failure that is no reply", async (t) => {
    const proxy = await startProxy(server.port);
    t.after(() => proxy.close());
    const { adapter, link } = await use(t, proxy.url);
    if (name.includes("pool")) {
      return t.skip("a pool tells nothing of its connections");
    }
    await proxy.refuse();
    await waitFor(() => link.state === "down");
    assert.equal(adapters.failure(link.log.at(-1)[1]).code, "unavailable");
    if (owned) {
      const failed = await adapter.eval("return {}", [], []).catch((error) => error);
      assert.equal(adapters.failure(failed).code, "unavailable", String(failed?.stack));
    }
    await proxy.accept();
    await waitFor(() => link.state === "up");
    assert.deepEqual(await adapter.eval("return {'ok'}", [], []), ["ok"]);
  });

  test("a command whose connection breaks fails as unavailable", async (t) => {
    // Catches: a cut connection that is taken for a refusal, which nobody would retry.
    const proxy = await startProxy(server.port);
    t.after(() => proxy.close());
    const { adapter } = await use(t, proxy.url);
    proxy.blackHole();
    const lost = adapter.eval("return {}", [], []).then(
      () => undefined,
      (error) => error,
    );
    await pause(100);
    await proxy.refuse();
    if (!owned) {
      // A program's own client may do as it likes: some clients send the command again.
      proxy.heal();
      await proxy.accept();
    }
    const error = await within(lost, 30_000, "the end of the command");
    if (owned || error) {
      assert.equal(adapters.failure(error).code, "unavailable", String(error?.stack));
    }
  });

  test("after `close` nothing of ours is left at the server", async (t) => {
    // Catches: a connection that is forgotten, or that opens although it was closed while connecting.
    const lone = await startRedis();
    t.after(() => lone.stop());
    const connections = async () => (await lone.clients()).length;
    const { adapter, client, end } = await open(lone.url);
    t.after(end);
    const link = linkLog();
    const unwatch = adapter.watch(link);
    await waitFor(() => link.state === "up");
    const alone = client ? await connections() : 0;
    const hearing = hearingLog();
    adapter.listen("a", hearing);
    await waitFor(() => hearing.state === "subscribed");
    for (let i = 0; i < 10; i++) {
      adapter.listen(`b${i}`, hearingLog())();
      // A round trip first, so that the first turn comes before the socket has connected.
      await connections();
      const stop = adapter.listen(`c${i}`, hearingLog());
      for (let turns = 0; turns < i; turns++) {
        await new Promise(setImmediate);
      }
      stop();
      adapter.listen(`d${i}`, hearingLog());
    }
    unwatch();
    await adapter.close();
    await adapter.close();
    await waitFor(async () => (await connections()) <= alone, 10_000, `no more than ${alone} connections`);
    await pause(300);
    assert.ok((await connections()) <= alone);
    if (client) {
      // The program's own client is unchanged.
      assert.deepEqual(await adapter.eval("return {'ok'}", [], []), ["ok"]);
    }
  });
}
