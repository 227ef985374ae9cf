// The loss of a lease is never reported late, whatever happens to the store. The delay is the time at which
// `signal` is aborted, minus the deadline. At the end the file prints a table of the delays.
import assert from "node:assert/strict";
import { after, before, describe } from "node:test";
import { startProxy } from "../support/proxy.mjs";
import { startRedis } from "../support/redis.mjs";
import { aborted, clients, collect, heard, inTheEnd, key, lockerOf } from "../support/stores.mjs";
import { test } from "../support/test.mjs";
import { awake, block, steady, waitFor } from "../support/wait.mjs";

const TTL = 1_500;
/**
 * The longest time in milliseconds, after a third of the TTL, until a renewal is due: it is slightly random.
 */
const NEXT_RENEWAL = 600;
/**
 * How late a timer may fire, in milliseconds of the process's awake time. It is never early, and slightly
 * late on a busy machine.
 */
const SCHEDULING = 250;

const table = [];
let names = 0;

/** If the machine stalls for longer than a renewal may take, a lease may be lost for that reason alone. */
const timed = (name, work) => test(name, (t) => steady(t, () => work(t)));

for (const kind of clients) {
  describe(kind, () => {
    let server;
    before(async () => {
      server = await startRedis();
    });
    after(() => server.stop());

    /** Makes a lease that was renewed once, through a proxy. Any moment between two renewals may follow. */
    async function held(t, { own = false } = {}) {
      const target = own ? await startRedis() : server;
      const proxy = await startProxy(target.port);
      const made = await lockerOf(kind, proxy.url, { commandTimeout: 300, patience: 500 });
      t.after(async () => {
        await made.locker.shutdown();
        await made.end();
        await proxy.close();
        await (own ? target.stop() : target.command("FLUSHALL"));
      });
      const name = `name ${(names += 1)}`;
      const lock = made.locker.lock(name, { ttl: TTL });
      const events = collect(lock.events());
      const lease = await heard(target, () => inTheEnd(lock));
      await waitFor(() => events.some(({ type }) => type === "renewed"), 10_000, "a renewal");
      return { target, proxy, lease, events, lock, name };
    }

    /** Follows a lease until it is lost, by its latest own account. */
    async function lost({ lease, events }, what, cause) {
      const before = events.length;
      let deadline = awake() + lease.remaining;
      const seen = aborted(lease.signal).then((reason) => ({ reason, at: awake() }));
      const begin = awake();
      await cause();
      // A renewal that was in flight may arrive after the cause.
      const watch = setInterval(() => {
        if (lease.valid) {
          deadline = Math.max(deadline, awake() + lease.remaining);
        }
      }, 1);
      const { reason, at } = await seen;
      clearInterval(watch);
      const late = at - deadline;
      const risks = events.slice(before).filter(({ type }) => type === "atRisk").length;
      table.push({ kind, what, reason: reason.reason, after: at - begin, late, risks });
      assert.equal(lease.valid, false);
      assert.ok(late <= SCHEDULING, `${what}: late by ${late} ms`);
      return { reason: reason.reason, after: at - begin, late, risks };
    }

    timed("DEL by an admin", async (t) => {
      const up = await held(t);
      const loss = await lost(up, "DEL by an admin", () => up.target.command("DEL", key(up.name)));
      assert.equal(loss.reason, "deleted");
      assert.ok(loss.after < NEXT_RENEWAL + SCHEDULING, `at the next renewal: ${loss.after} ms`);
      assert.equal(await up.target.command("EXISTS", key(up.name)), 0, "nothing is acquired again");
    });

    timed("FLUSHALL", async (t) => {
      const up = await held(t);
      const loss = await lost(up, "FLUSHALL", () => up.target.command("FLUSHALL"));
      assert.equal(loss.reason, "deleted");
      assert.ok(loss.after < NEXT_RENEWAL + SCHEDULING, `at the next renewal: ${loss.after} ms`);
    });

    timed("a takeover", async (t) => {
      const up = await held(t);
      const rival = await lockerOf(kind, up.target.url);
      t.after(async () => {
        await rival.locker.shutdown();
        await rival.end();
      });
      await rival.locker.inspect(up.name);
      let taken;
      const loss = await lost(up, "takeover after DEL", async () => {
        await up.target.command("DEL", key(up.name));
        taken = await rival.locker.lock(up.name).acquire();
      });
      assert.equal(loss.reason, "superseded");
      assert.ok(loss.after < NEXT_RENEWAL + SCHEDULING, `at the next renewal: ${loss.after} ms`);
      assert.ok(taken.valid && taken.token > up.lease.token);
    });

    timed("a foreign value in its place", async (t) => {
      const up = await held(t);
      const loss = await lost(up, "foreign value", async () => {
        await up.target.command("DEL", key(up.name));
        await up.target.command("RPUSH", key(up.name), "mine");
      });
      assert.equal(loss.reason, "superseded");
      assert.equal(await up.target.command("LLEN", key(up.name)), 1);
    });

    timed("a forced release", async (t) => {
      const up = await held(t);
      const admin = await lockerOf(kind, up.target.url);
      t.after(admin.end);
      await admin.locker.inspect(up.name);
      const loss = await lost(up, "forced release", () => admin.locker.forceRelease(up.name));
      assert.equal(loss.reason, "revoked");
      assert.ok(loss.after < TTL / 6, `at the push: ${loss.after} ms`);
    });

    timed("the server is killed", async (t) => {
      const up = await held(t, { own: true });
      const loss = await lost(up, "server killed", () => up.target.kill());
      assert.equal(loss.reason, "expired");
      assert.ok(loss.risks > 0, "it was told to be at risk before");
    });

    timed("the server is stopped", async (t) => {
      const up = await held(t, { own: true });
      const loss = await lost(up, "server SIGSTOPped", () => up.target.pause());
      assert.equal(loss.reason, "expired");
      assert.ok(loss.risks > 0, "it was told to be at risk before");
      up.target.resume();
      const again = await inTheEnd(up.lock);
      assert.ok(again.token > up.lease.token);
      await again.release();
    });

    timed("the connection is a black hole", async (t) => {
      const up = await held(t);
      const loss = await lost(up, "black-holed connection", () => up.proxy.blackHole());
      assert.equal(loss.reason, "expired");
      assert.ok(loss.risks > 0, "it was told to be at risk before");
      up.proxy.heal();
    });

    timed("the event loop stands still", async (t) => {
      const up = await held(t);
      // It is as late as the process stalled beyond the deadline, and the lease itself says so.
      const until = up.lease.remaining + 300;
      const seen = aborted(up.lease.signal).then((reason) => ({ reason, at: awake() }));
      block(until);
      assert.equal(up.lease.valid, false);
      const back = awake();
      const { reason, at } = await seen;
      table.push({ kind, what: "event loop stalled, from its return", reason: reason.reason, after: until, late: at - back, risks: 0 });
      assert.equal(reason.reason, "expired");
      assert.ok(at - back <= SCHEDULING, `${at - back} ms after the loop was back`);
    });
  });
}

after(() => {
  const line = ({ kind, what, reason, after, late, risks }) =>
    `${kind.padEnd(11)}${what.padEnd(38)}${reason.padEnd(12)}${after.toFixed(0).padStart(8)}${late.toFixed(1).padStart(10)}${String(risks).padStart(9)}`;
  const head = `${"".padEnd(61)}${"after ms".padStart(8)}${"late ms".padStart(10)}${"at risk".padStart(9)}`;
  console.log([head, ...table.map(line)].join("\n"));
});
