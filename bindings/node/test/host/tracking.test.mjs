// A holder learns at once that another client has changed its lock.
import assert from "node:assert/strict";
import { describe } from "node:test";
import { Locker } from "../../dist/index.js";
import { given } from "../adapters/kinds.mjs";
import { startRedis } from "../support/redis.mjs";
import { test } from "../support/test.mjs";
import { waitFor } from "../support/wait.mjs";

const KEY = "{leasehold:x}";

/** On an idle machine it takes a few milliseconds; the next renewal is 8 s away. */
const AT_ONCE = 1_000;

async function started(t) {
  const server = await startRedis();
  t.after(() => server.stop());
  return server;
}

async function count(server, field) {
  return Number(new RegExp(`${field}:(\\d+)`).exec(await server.info("stats"))?.[1]);
}

/** Acquires a lock of 30 s, and waits until the server reports its changes. */
async function tracked(server, locker) {
  const lease = await locker.lock("x").acquire();
  await waitFor(async () => (await count(server, "tracking_total_keys")) === 1, 10_000, "the key is read");
  return lease;
}

async function lostAtOnce(lease, reason) {
  const begin = performance.now();
  await waitFor(() => lease.signal.aborted, AT_ONCE, "the lease is lost");
  assert.equal(lease.signal.reason.reason, reason);
  return performance.now() - begin;
}

async function lockerOf(t, made, options) {
  const locker = await made(options);
  t.after(() => locker.shutdown());
  return locker;
}

const tracking = given.filter(({ name }) => !name.includes("pool"));

describe("a loss is reported at once", { concurrency: 2 }, () => {
  for (const { name, make, end } of tracking) {
    test(`with ${name}`, async (t) => {
      const server = await started(t);
      const client = await make(server.url);
      t.after(() => end(client));
      const locker = await lockerOf(t, (options) => Locker.from(client, options));
      for (const [command, reason] of [
        [["DEL", KEY], "deleted"],
        [["FLUSHALL"], "deleted"],
        [["PEXPIREAT", KEY, "1"], "deleted"],
        [["RENAME", KEY, "elsewhere"], "deleted"],
      ]) {
        const lease = await tracked(server, locker);
        await server.command(...command);
        t.diagnostic(`${command[0]}: ${(await lostAtOnce(lease, reason)).toFixed(1)} ms`);
      }
      // A replaced connection, of either kind.
      for (const kind of ["normal", "pubsub"]) {
        const lease = await tracked(server, locker);
        await server.command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes");
        const redirected = async () => {
          const list = await server.command("CLIENT", "LIST");
          const ears = [...list.matchAll(/\bid=(\d+) .*\bsub=[1-9]/g)].map(([, id]) => id);
          return [...list.matchAll(/\bredir=(\d+)/g)].some(([, id]) => ears.includes(id));
        };
        await waitFor(redirected, 10_000, "it is turned on again");
        await waitFor(async () => (await count(server, "tracking_total_keys")) === 1, 10_000, "it is read again");
        await new Promise((resolve) => setTimeout(resolve, 100));
        await server.command("DEL", KEY);
        await lostAtOnce(lease, "deleted");
      }
    });
  }

  test("with Locker.connect", async (t) => {
    const server = await started(t);
    const locker = await lockerOf(t, (options) => Locker.connect(server.url, options));
    const lease = await tracked(server, locker);
    await server.command("DEL", KEY);
    await lostAtOnce(lease, "deleted");
  });
});

// The negative control.
test("without tracking a loss is not reported at once", async (t) => {
  const server = await started(t);
  const locker = await lockerOf(t, (options) => Locker.connect(server.url, options), { tracking: false });
  const lease = await locker.lock("x").acquire();
  await new Promise((resolve) => setTimeout(resolve, 200));
  await server.command("DEL", KEY);
  await new Promise((resolve) => setTimeout(resolve, AT_ONCE));
  assert.ok(!lease.signal.aborted);
  assert.equal(await count(server, "tracking_total_keys"), 0);
});

/** Returns a client's connection for commands, as the server sees it. */
async function tracks(server) {
  const list = await server.command("CLIENT", "LIST");
  return [...list.matchAll(/\bredir=(-?\d+)/g)].some(([, id]) => id !== "-1");
}

describe("lockers that share a client", { concurrency: 2 }, () => {
  for (const { name, make, end } of tracking) {
    /** Makes a server, a client, and two lockers on it which both learn of changes. */
    const shared = async (t) => {
      const server = await started(t);
      const client = await make(server.url);
      t.after(() => end(client));
      const lockers = [1, 2].map((number) => Locker.from(client, { namespace: `shared-${number}` }));
      t.after(() => Promise.all(lockers.map((locker) => locker.shutdown())));
      return { server, lockers };
    };
    /** Acquires a lease for each locker, and waits until the server reports changes of all. */
    const held = async (server, lockers) => {
      const leases = await Promise.all(lockers.map((locker) => locker.lock("x").acquire()));
      const read = async () => (await count(server, "tracking_total_keys")) === lockers.length;
      await waitFor(read, 10_000, "the keys are read");
      // The last read has its reply by then.
      await new Promise((resolve) => setTimeout(resolve, 100));
      return leases;
    };

    test(`with ${name}: each hears of a DEL at once, and the other still holds`, async (t) => {
      const { server, lockers } = await shared(t);
      for (const first of [0, 1]) {
        const leases = await held(server, lockers);
        for (const at of [first, 1 - first]) {
          await server.command("DEL", `{shared-${at + 1}:x}`);
          t.diagnostic(`${(await lostAtOnce(leases[at], "deleted")).toFixed(1)} ms`);
          assert.equal(leases[1 - first].valid, at === first);
        }
      }
      const leases = await held(server, lockers);
      await server.command("FLUSHALL");
      await Promise.all(leases.map((lease) => lostAtOnce(lease, "deleted")));
      assert.deepEqual(lockers.map(({ findings }) => findings), [[], []]);
    });

    test(`with ${name}: after one was shut down the other hears, and after both it is off`, async (t) => {
      for (const first of [0, 1]) {
        const { server, lockers } = await shared(t);
        const leases = await held(server, lockers);
        await lockers[first].shutdown();
        await server.command("DEL", `{shared-${2 - first}:x}`);
        await lostAtOnce(leases[1 - first], "deleted");
        const again = await held(server, [lockers[1 - first]]);
        await server.command("FLUSHALL");
        await lostAtOnce(again[0], "deleted");
        assert.ok(await tracks(server), "it is on for the one that is left");
        await lockers[1 - first].shutdown();
        assert.ok(!(await tracks(server)), "it is off once nobody is left");
        const late = Locker.from(await make(server.url).then((client) => (t.after(() => end(client)), client)));
        const [lease] = await held(server, [late]);
        await server.command("DEL", KEY);
        await lostAtOnce(lease, "deleted");
        await late.shutdown();
      }
    });

    test(`with ${name}: each hears after new connections`, async (t) => {
      const { server, lockers } = await shared(t);
      for (const kind of ["normal", "pubsub"]) {
        const leases = await held(server, lockers);
        const turnedOn = (await server.commandStats())["client|tracking"];
        await server.command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes");
        const again = async () => (await server.commandStats())["client|tracking"] > turnedOn;
        await waitFor(again, 10_000, "it is turned on again");
        await waitFor(async () => (await count(server, "tracking_total_keys")) === 2, 10_000, "they are read again");
        await new Promise((resolve) => setTimeout(resolve, 300));
        await server.command("FLUSHALL");
        await Promise.all(leases.map((lease) => lostAtOnce(lease, "deleted")));
      }
    });
  }
});

describe("a refusal becomes a finding", { concurrency: 2 }, () => {
  const without = ["-client|tracking", "-client|id", "-client|getredir", "-client|caching"];
  for (const { name, make, end } of tracking) {
    for (const right of without) {
      test(`with ${name}: ${right}`, async (t) => {
        const server = await started(t);
        await server.command("ACL", "SETUSER", "few", "on", ">s3cret", "~*", "&*", "+@all", right);
        const client = await make(server.url.replace("://", "://few:s3cret@"));
        t.after(() => end(client));
        const locker = await lockerOf(t, (options) => Locker.from(client, options));
        const lease = await locker.lock("x").acquire();
        const [finding] = await waitFor(() => locker.findings.length > 0 && locker.findings, 10_000, "a finding");
        assert.equal(finding.type, "untracked");
        assert.match(finding.reason, new RegExp(right.slice(1).replace("|", "\\|")));
        assert.ok(finding.message.endsWith(finding.reason), finding.message);
        assert.ok(Object.isFrozen(locker.findings));
        await lease.release();
      });
    }
  }
});

test("a user who may hear no channel has a finding, until the user may", async (t) => {
  const server = await started(t);
  await server.command("ACL", "SETUSER", "deaf", "on", ">s3cret", "~*", "+@all", "resetchannels");
  for (const tracking of [true, false]) {
    await server.command("ACL", "SETUSER", "deaf", "resetchannels");
    const locker = await Locker.connect(server.url.replace("://", "://deaf:s3cret@"), { tracking });
    t.after(() => locker.shutdown());
    const lease = await locker.lock("x").acquire();
    const [finding] = await waitFor(() => locker.findings.length > 0 && locker.findings, 10_000, "a finding");
    assert.equal(finding.type, "untracked");
    assert.match(finding.reason, /NOPERM.*channels/);
    assert.match(finding.message, /hear no pushes/);
    assert.ok(lease.valid);
    await server.command("ACL", "SETUSER", "deaf", "allchannels");
    await waitFor(() => locker.findings.length === 0, 20_000, "the finding goes");
    await lease.release();
  }
});

test("a client that tracks keys itself is left alone, which is found", async (t) => {
  for (const { name, make, end } of tracking) {
    const server = await started(t);
    const client = await make(server.url);
    t.after(() => end(client));
    await client.connect();
    const call = (...command) => (client.call ? client.call(...command) : client.sendCommand(command));
    const id = await call("CLIENT", "ID");
    await call("CLIENT", "TRACKING", "ON", "BCAST", "REDIRECT", String(id));
    const locker = await lockerOf(t, (options) => Locker.from(client, options));
    const lease = await locker.lock("x").acquire();
    await waitFor(() => locker.findings.length > 0, 10_000, "a finding");
    assert.match(locker.findings[0].reason, /tracks keys itself/, name);
    assert.equal(await call("CLIENT", "GETREDIR"), id);
    await lease.release();
    await locker.shutdown();
    assert.equal(await call("CLIENT", "GETREDIR"), id, "a shutdown leaves it on");
  }
});
