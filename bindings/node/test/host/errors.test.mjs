// Servers that refuse or are down: a typed error names the culprit and leaks no password.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe } from "node:test";
import { LeaseholdError, Locker } from "../../dist/index.js";
import { freePort, startRedis } from "../support/redis.mjs";
import { clients, forEachStore, inTheEnd, key, lockerOf } from "../support/stores.mjs";
import { test } from "../support/test.mjs";
import { awake, pause, waitFor, within } from "../support/wait.mjs";

const settings = { commandTimeout: 300, patience: 600 };
/** A server that refuses everything is asked every second. */
const patient = { commandTimeout: 2_000, patience: 5_000 };

/** Returns the error of a call that must fail, with one of these codes and without passwords. */
async function fails(call, ...codes) {
  const failed = call.then(() => new Error("it did not fail"), (error) => error);
  const error = await within(failed, 20_000, () => `an error: ${codes}`);
  assert.ok(error instanceof LeaseholdError, String(error?.stack));
  assert.ok(codes.includes(error.code), `${codes}: ${error.stack}`);
  assert.ok(!/s3cret|wr0ng/.test(`${error} ${error.stack} ${error.cause?.stack}`), error.stack);
  return error;
}

/** Checks that each call to the store fails with this code, on a locker without leases. */
const allFail = (locker, code) =>
  Promise.all(Object.entries(calls).map(([what, call]) => fails(call(locker, what), code)));

const calls = {
  tryAcquire: (locker, name) => locker.lock(name).tryAcquire(),
  acquire: (locker, name) => locker.lock(name).acquire(),
  using: (locker, name) => locker.lock(name).using(() => assert.fail("it is not held")),
  hold: (locker, name) => locker.lock(name).hold().next(),
  inspect: (locker, name) => locker.inspect(name),
  forceRelease: (locker, name) => locker.forceRelease(name),
  list: (locker) => locker.list("*").next(),
};

forEachStore(
  (store) => {
    test("a user without the right to run scripts learns so", async (t) => {
      const { server } = store;
      await server.command("ACL", "SETUSER", "poor", "on", ">s3cret", "~*", "&*", "+@all", "-@scripting");
      const url = `redis://poor:s3cret@127.0.0.1:${server.port}`;
      const { locker, end } = await lockerOf(store.kind, url, patient);
      t.after(async () => {
        await locker.shutdown();
        await end();
      });
      await allFail(locker, "auth");
      await fails(Locker.connect(url), "auth");
    });

    test("a server without memory is waited for", async () => {
      const { server } = store;
      const locker = await store.locker();
      await locker.inspect("warm");
      await server.command("CONFIG", "SET", "maxmemory", "1");
      await fails(locker.lock("x").tryAcquire(), "unavailable");
      const waiting = locker.lock("x").acquire();
      await pause(200);
      await server.command("CONFIG", "SET", "maxmemory", "0");
      await (await waiting).release();
    });

    test("a server that forgot the script is sent it again", async () => {
      const locker = await store.locker();
      await locker.inspect("warm");
      await store.server.command("CONFIG", "RESETSTAT");
      await store.server.command("SCRIPT", "FLUSH");
      await (await locker.lock("x").tryAcquire()).release();
      assert.equal((await store.server.commandStats()).eval, 1, "once");
    });
  },
  { only: clients },
);

for (const kind of clients) {
  describe(`${kind}, on servers of their own`, { concurrency: 3 }, () => {
    /** Makes a locker that is shut down with the test. */
    async function from(t, server, options = settings) {
      const made = await lockerOf(kind, server.url, options);
      t.after(async () => {
        await made.locker.shutdown();
        await made.end();
      });
      return made.locker;
    }

    async function started(t, options) {
      const server = await startRedis(options);
      t.after(() => server.stop());
      return server;
    }

    test("a password that is asked for meanwhile is named at every call, and final at connect", async (t) => {
      const server = await started(t);
      const locker = await from(t, server);
      await server.command("CONFIG", "SET", "requirepass", "s3cret");
      await server.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").catch(() => {});
      // ioredis reports the refusal for the link, which may recover when the password is right, or for the
      // call between two links; node-redis reports it for the call.
      const codes = kind === "ioredis" ? ["unavailable", "auth"] : ["auth"];
      const refusing = async () => /NOAUTH/.test((await locker.inspect("x").catch((error) => error)).message);
      await waitFor(refusing, 20_000, "the server refuses");
      for (const [what, call] of Object.entries(calls)) {
        // `hold` retries while the store may come back.
        if (what !== "hold" || kind !== "ioredis") {
          const { message } = await fails(call(locker, what), ...codes);
          assert.match(message, /NOAUTH.*; check the client's user and password/, what);
        }
      }
      await fails(Locker.connect(server.url), "auth");
      await fails(Locker.connect(`redis://:wr0ng@127.0.0.1:${server.port}`), "auth");
      await (await Locker.connect(`redis://:s3cret@127.0.0.1:${server.port}`)).shutdown();
    });

    test("a replica is refused as read-only", async (t) => {
      const primary = await started(t);
      const replica = await started(t, { config: [`replicaof 127.0.0.1 ${primary.port}`] });
      await waitFor(async () => /master_link_status:up/.test(await replica.info("replication")));
      const error = await fails(Locker.connect(replica.url), "readOnly");
      assert.match(error.message, /primary/);
      const locker = await from(t, replica, patient);
      await fails(locker.lock("x").tryAcquire(), "readOnly");
      await fails(locker.lock("x").acquire(), "readOnly");
      // A name that is free there needs no write.
      assert.equal(await locker.forceRelease("x"), undefined);
      await (await from(t, primary)).lock("held").acquire();
      await waitFor(async () => (await locker.inspect("held")).holder !== null);
      await fails(locker.forceRelease("held"), "readOnly");
    });

    test("a primary that becomes a replica says so, and is used again when it leads", async (t) => {
      const primary = await started(t);
      const server = await started(t);
      const locker = await from(t, server, patient);
      await (await locker.lock("x").acquire()).release();
      await server.command("REPLICAOF", "127.0.0.1", primary.port);
      await waitFor(async () => /role:slave/.test(await server.info("replication")));
      await fails(locker.lock("x").tryAcquire(), "readOnly");
      const waiting = locker.lock("x").acquire();
      await pause(100);
      await server.command("REPLICAOF", "NO", "ONE");
      await (await waiting).release();
    });

    test("a server that is gone is unavailable after the patience, and not before", async (t) => {
      const server = await started(t);
      const locker = await from(t, server);
      const lease = await inTheEnd(locker.lock("held", { ttl: 20_000 }));
      await server.kill();
      for (const [what, call] of Object.entries(calls)) {
        if (what === "hold") {
          continue;
        }
        await timed(() => fails(call(locker, "x"), "unavailable", "timeout"), what === "tryAcquire" ? 0 : 500, 2_500);
      }
      // The lease cannot be known as lost before its deadline.
      assert.ok(lease.valid);
      await timed(async () => {
        await fails(lease.renew(), "unavailable", "timeout");
        await fails(lease.release(), "unavailable", "timeout");
      }, 0, 5_000);
    });

    test("a server that does not answer is a timeout, in time", async (t) => {
      const server = await started(t);
      const locker = await from(t, server);
      await (await inTheEnd(locker.lock("x"))).release();
      server.pause();
      const inTime = (call, least, most) => timed(() => fails(call(), "timeout", "unavailable"), least, most);
      await inTime(() => locker.lock("x").tryAcquire(), 290, 1_200);
      await inTime(() => locker.lock("x").acquire({ timeout: 400 }), 390, 1_500);
      await inTime(() => locker.lock("x").acquire(), 590, 2_500);
      await inTime(() => locker.inspect("x"), 590, 2_500);
      server.resume();
      await waitFor(() => locker.lock("x").tryAcquire().then(Boolean, () => false), 10_000, "it is back");
    });

    test("an unconfirmed release says so, and is retried", async (t) => {
      const server = await started(t);
      const locker = await from(t, server);
      const lease = await inTheEnd(locker.lock("x"));
      server.pause();
      const error = await fails(lease.release(), "timeout", "unavailable");
      assert.ok(error.transient);
      server.resume();
      const next = await (await from(t, server, patient)).lock("x").acquire({ timeout: 10_000 });
      await next.release();
    });

    test("a client that is made before its server is there", async (t) => {
      const server = await started(t);
      await server.kill();
      const { locker, end } = await unconnected(kind, server.url);
      t.after(async () => {
        await locker.shutdown();
        await end();
      });
      await fails(locker.lock("x").tryAcquire(), "unavailable", "timeout");
      const waiting = locker.lock("x").acquire();
      await server.start();
      await (await waiting).release();
    });

    test("a server that was never there is unavailable, with the cause", async (t) => {
      const port = await freePort();
      const { locker, end } = await unconnected(kind, `redis://127.0.0.1:${port}`, settings);
      t.after(async () => {
        await locker.shutdown();
        await end();
      });
      await Promise.all(
        Object.entries(calls).map(async ([what, call]) => {
          if (what !== "hold") {
            const { message } = await fails(call(locker, what), "unavailable");
            assert.doesNotMatch(message, /too many pending|unknown/, what);
            assert.match(message, /ECONNREFUSED/, what);
          }
        }),
      );
    });

    test("nobody there to connect to", async () => {
      const port = await freePort();
      const error = await fails(Locker.connect(`redis://me:s3cret@127.0.0.1:${port}`), "unavailable");
      assert.ok(error.message.includes(String(port)), error.message);
      await fails(Locker.connect("unix:///nowhere/redis.sock"), "unavailable");
    });
  });
}

test("a store over HTTP that was never there is unavailable, with the cause", async (t) => {
  // Catches: "too many pending requests", and "whether it acted is unknown" of what was never
  // sent. Such a client has no connection that could be down.
  const cause = Object.assign(new Error("connect ECONNREFUSED 127.0.0.1:1"), { code: "ECONNREFUSED" });
  const locker = Locker.from({ eval: () => Promise.reject(new TypeError("fetch failed", { cause })) }, settings);
  t.after(() => locker.shutdown());
  for (const [what, call] of Object.entries(calls)) {
    if (what !== "hold") {
      const { message } = await fails(call(locker, what), "unavailable");
      assert.doesNotMatch(message, /too many pending|unknown/, what);
      assert.match(message, /ECONNREFUSED/, what);
    }
  }
});

/** The server refusals and their meanings, which Rust reads, too. */
const refusals = JSON.parse(readFileSync(new URL("../../../../tests/vectors/refusals.json", import.meta.url)));
const ADVICE = {
  checkCredentials: /\(WRONGPASS\); check the client's user and password, or its token$/,
  giveCredentials: /\(NOAUTH\); check the client's user and password, or its token$/,
  database: /: ERR DB index is out of range; the client's database does not exist on this server$/,
  rights: /; the user needs the ACL rules .* \+select$/,
  primary: /; connect to the primary$/,
  otherName: /; something other than leasehold wrote that key: use another name or namespace$/,
  foreignKey: /; something other than leasehold wrote that key$/,
  cluster: /; give a client of the cluster$/,
  scripts: /; it may be a sentinel: connect to redis-sentinel:.*$/,
};

test("advice on a server's refusal is for a client, not for a URL", async (t) => {
  for (const { said, code, advice } of refusals.filter((refusal) => refusal.advice !== undefined)) {
    const error = Object.assign(new Error(said), { name: "ReplyError" });
    const locker = Locker.from({ eval: () => Promise.reject(error) }, settings);
    t.after(() => locker.shutdown());
    const { message } = await fails(locker.lock("x").tryAcquire(), code);
    assert.match(message, ADVICE[advice], said);
  }
});

/**
 * Checks how many milliseconds a call takes. The upper limit leaves out the time in which this process
 * stalled.
 */
async function timed(call, least, most) {
  const [begin, beginAwake] = [performance.now(), awake()];
  await call();
  const [took, tookAwake] = [performance.now() - begin, awake() - beginAwake];
  assert.ok(took >= least && tookAwake <= most, `${took} ms, ${tookAwake} of them awake, not ${least} to ${most}`);
}

/** Makes a locker on a client that is not connected yet. */
async function unconnected(kind, url, settings = { commandTimeout: 300, patience: 10_000 }) {
  if (kind === "ioredis") {
    const { Redis } = await import("ioredis");
    const client = new Redis(url, { lazyConnect: true, retryStrategy: () => 50 });
    client.on("error", () => {});
    return { locker: Locker.from(client, settings), end: () => client.disconnect() };
  }
  const { createClient } = await import("redis");
  const client = createClient({ url, socket: { reconnectStrategy: 50 } });
  client.on("error", () => {});
  return { locker: Locker.from(client, settings), end: () => client.destroy() };
}
