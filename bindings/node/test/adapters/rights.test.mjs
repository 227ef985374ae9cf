// A server user with only the rights that the book asks for, without even PING.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe } from "node:test";
import { startCluster, startRedis } from "../support/redis.mjs";
import { test } from "../support/test.mjs";
import { awake, pause, steady, waitFor, within } from "../support/wait.mjs";
import { bundle } from "./bundle.mjs";
import { adapters, answered, given, opened, useKind } from "./kinds.mjs";

const LOCKS =
  "~{leasehold:* +eval +evalsha +time +exists +hget +hgetall +hset +hdel +pexpire +pexpireat +persist " +
  "+zadd +zcard +zcount +zmscore +zrange +zrangebyscore +zrem +zscore";
const PUSHES = "&leasehold:leasehold:* +subscribe +publish +pubsub|numsub";
const RIGHTS = `${LOCKS} ${PUSHES}`.split(" ");
const PAGE = new URL("../../../../docs/book/src/acl.md", import.meta.url);
const PASSWORD = "pw";

let users = 0;

/** Makes a separate user for each attempt, which identifies its connections. */
async function newUser(server) {
  const name = `readme-${(users += 1)}`;
  await server.command("ACL", "SETUSER", name, "on", `>${PASSWORD}`, ...RIGHTS);
  const own = async () => (await server.clients()).filter(({ user }) => user === name);
  return {
    name,
    url: server.url.replace("://", `://${name}:${PASSWORD}@`),
    connections: async () => (await own()).map(({ id }) => id).sort(),
    subscribers: async () => (await own()).filter(({ sub }) => sub === "1").length,
    /** Returns how often the user was refused a PING. */
    async pings() {
      const entries = (await server.command("ACL", "LOG", 1_000)).map(fieldsOf);
      const refused = entries.filter(({ username, object }) => username === name && object === "ping");
      return refused.reduce((sum, { count }) => sum + Number(count), 0);
    },
  };
}

const fieldsOf = (list) => Object.fromEntries(list.flatMap((_, at) => (at % 2 ? [] : [list.slice(at, at + 2)])));

/** Lockers on every client: the program's own, and those that `Locker.connect` makes. */
const lockers = [
  ...given.map(({ name, make, end }) => ({
    name: `Locker.from with ${name}`,
    async start(url) {
      const client = await make(url);
      return { locker: adapters.Locker.from(client), end: () => end(client) };
    },
  })),
  ...opened.map(({ name, versions, package: used }) => ({
    name: name.replace("openClient", "Locker.connect"),
    async start(url) {
      const others = used === "redis" ? { ioredis: "no-such-ioredis" } : {};
      const { Locker } = await bundle({ ...versions, ...others });
      return { locker: await Locker.connect(url), end: () => {} };
    },
  })),
];

describe("the documented rights are enough", { concurrency: lockers.length + 2 * opened.length }, () => {
  let server;
  let admin;
  before(async () => {
    server = await startRedis({ config: ["acllog-max-len 1000"] });
    admin = await adapters.Locker.connect(server.url);
  });
  after(async () => {
    await admin.shutdown();
    await server.stop();
  });

  for (const { name, start } of lockers) {
    test(`${name}: locks, hears what is pushed, and keeps its connections`, { timeout: 300_000 }, async (t) => {
      // Catches: a refused PING that is taken for silence, so that a locker cannot be made, or its connection
      // for pushes is replaced at each check.
      await steady(t, async () => {
        const user = await newUser(server);
        const { locker, end } = await start(user.url);
        t.after(async () => {
          await locker.shutdown();
          await end();
        });
        const lease = await locker.lock(name, { ttl: 60_000 }).acquire();
        await waitFor(async () => (await user.subscribers()) === 1, 10_000, "the subscription");
        const [ids, pings] = [await user.connections(), await user.pings()];

        const begin = awake();
        const lost = new Promise((resolve) => lease.signal.addEventListener("abort", resolve));
        await admin.forceRelease(name);
        await within(lost, 30_000, "the loss");
        // Without a push, the next renewal would report it, 20 s after the last.
        assert.ok(awake() - begin < 5_000, `told after ${awake() - begin} ms`);

        await waitFor(async () => (await user.pings()) >= pings + 2, 60_000, "two checks, and both refused");
        await pause(500);
        assert.deepEqual(await user.connections(), ids);
        await locker.lock(name).using(() => {});
      });
    });
  }

  for (const kind of opened) {
    test(`${kind.name}: a database that the user may not select is reported`, async () => {
      // Catches: locks in another database than the URL's, because only PING may be refused.
      const user = await newUser(server);
      await assert.rejects(answered(() => kind.open(`${user.url}/3`)), { code: "auth", message: /NOPERM .*select/ });
      await waitFor(async () => (await user.connections()).length === 0, 10_000, "no connection is left");
      await server.command("ACL", "SETUSER", user.name, "+select");
      await (await answered(() => kind.open(`${user.url}/3`))).close();
    });

    test(`${kind.name}: a connection under suspicion that refuses a PING is kept`, async (t) => {
      // Catches: a refusal that is taken for a half-open connection.
      await steady(t, async () => {
        const user = await newUser(server);
        const { adapter, link } = await useKind(t, { open: async () => opens(await kind.open(user.url)) }, user.url);
        const [ids, pings] = [await user.connections(), await user.pings()];
        adapter.suspect();
        await waitFor(async () => (await user.pings()) === pings + 1, 10_000, "the question");
        await pause(300);
        assert.deepEqual(await user.connections(), ids);
        assert.deepEqual(link.log, [["up"]]);
        assert.deepEqual(await adapter.eval("return { '1' }", [], []), ["1"]);
        // The negative control: the connection of a demoted server is replaced.
        adapter.suspect(true);
        await waitFor(async () => !(await user.connections()).includes(ids[0]), 10_000, "another connection");
      });
    });
  }
});

const opens = (adapter) => ({ adapter, end: () => adapter.close() });

test("advice on rights names the patterns of the namespace", async (t) => {
  // Catches: a pattern that does not match the namespace's keys, and a missing right that stops a waiter.
  const server = await startRedis();
  t.after(() => server.stop());
  for (const [at, namespace] of ["shop:eu", "a%b", "x}y", "st*r", "br[a]ck", "back\\slash"].entries()) {
    const name = `in-${at}`;
    const grant = (...rights) => server.command("ACL", "SETUSER", name, "on", `>${PASSWORD}`, ...rights);
    await grant();
    const url = server.url.replace("://", `://${name}:${PASSWORD}@`);
    // The server refuses the whole script, or commands in it.
    const advised = async () => {
      const failed = await adapters.Locker.connect(url, { namespace }).then(
        async (locker) => locker.lock("x").tryAcquire().finally(() => locker.shutdown()),
      ).catch((error) => error);
      assert.equal(failed.code, "auth", failed);
      return failed.message.split(/[ ;,]+/).filter((word) => /^[~&+]./.test(word));
    };
    const rights = await advised();
    await grant("+eval", "+evalsha", "+time");
    assert.deepEqual(await advised(), rights, namespace);
    await grant(...rights);
    await server.command("ACL", "LOG", "RESET");
    const [holder, waiter] = await Promise.all([1, 2].map(() => adapters.Locker.connect(url, { namespace })));
    const lease = await holder.lock("x").acquire();
    const waits = waiter.lock("x").acquire();
    await waitFor(async () => (await holder.inspect("x")).waiting === 1, 10_000, "the waiter");
    await lease.release();
    await (await waits).release();
    await Promise.all([holder.shutdown(), waiter.shutdown()]);
    const denied = (await server.command("ACL", "LOG", 100)).map(fieldsOf).filter(({ context }) => context === "lua");
    assert.deepEqual(denied, [], namespace);
  }
});

test("the book names these rights", () => {
  // Catches: advice that was changed, and is not tested.
  const page = readFileSync(PAGE, "utf8").replaceAll("\\|", "|");
  const text = page.replaceAll("NAMESPACE", "leasehold").replaceAll(/\s+/g, " ");
  for (const rights of [LOCKS, PUSHES, "+client|id +client|tracking +client|caching", "+cluster|slots +cluster|info"]) {
    assert.ok(text.includes(rights), rights);
  }
});

test("a cluster's client needs more rights, and says which", async (t) => {
  // Catches: a time limit that passes without a word about the refused commands.
  const cluster = await startCluster();
  t.after(() => cluster.stop());
  const grant = (...rights) =>
    Promise.all(cluster.servers.map((server) => server.command("ACL", "SETUSER", "readme", ...rights)));
  const url = cluster.url.replace("://", `://readme:${PASSWORD}@`);
  const kinds = opened.filter((kind) => kind.package === "ioredis");
  const each = (check) => Promise.all(kinds.map(({ open }) => check(() => open(url))));

  await grant("on", `>${PASSWORD}`, ...RIGHTS);
  await each((open) => assert.rejects(open(), { code: "auth", message: /cluster\|slots/ }));
  await grant("+cluster|slots");
  await each((open) => assert.rejects(open(), { code: "timeout", message: /\+cluster\|info.* within 6000 ms$/ }));
  await grant("+cluster|info");
  await each(async (open) => {
    const adapter = await open();
    t.after(() => adapter.close());
    assert.deepEqual(await adapter.eval("return { '1' }", ["{leasehold:a}"], []), ["1"]);
  });
});
