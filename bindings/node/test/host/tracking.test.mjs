// A holder hears at once that somebody else has changed its lock.
import assert from "node:assert/strict";
import { describe } from "node:test";
import { Locker } from "../../dist/index.js";
import { given } from "../adapters/kinds.mjs";
import { startRedis } from "../support/redis.mjs";
import { test } from "../support/test.mjs";
import { waitFor } from "../support/wait.mjs";

const KEY = "{leasehold:x}";

/** On a machine that does nothing else it takes a few milliseconds; the next renewal is 8 s away. */
const AT_ONCE = 1_000;

async function started(t) {
  const server = await startRedis();
  t.after(() => server.stop());
  return server;
}

async function count(server, field) {
  return Number(new RegExp(`${field}:(\\d+)`).exec(await server.info("stats"))?.[1]);
}

/** A lock of 30 s, once the server says what is changed. */
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

describe("a loss is heard at once", { concurrency: 2 }, () => {
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
      // A connection that was replaced, of either kind.
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
test("without tracking it is not heard", async (t) => {
  const server = await started(t);
  const locker = await lockerOf(t, (options) => Locker.connect(server.url, options), { tracking: false });
  const lease = await locker.lock("x").acquire();
  await new Promise((resolve) => setTimeout(resolve, 200));
  await server.command("DEL", KEY);
  await new Promise((resolve) => setTimeout(resolve, AT_ONCE));
  assert.ok(!lease.signal.aborted);
  assert.equal(await count(server, "tracking_total_keys"), 0);
});

test("a client that tracks keys itself is left alone", async (t) => {
  const server = await started(t);
  const { make, end } = tracking[0];
  const client = await make(server.url);
  t.after(() => end(client));
  await client.connect();
  const id = await client.call("CLIENT", "ID");
  await client.call("CLIENT", "TRACKING", "ON", "BCAST", "REDIRECT", String(id));
  const locker = await lockerOf(t, (options) => Locker.from(client, options));
  const lease = await locker.lock("x").acquire();
  await new Promise((resolve) => setTimeout(resolve, 300));
  assert.equal(await client.call("CLIENT", "GETREDIR"), id);
  await lease.release();
});
