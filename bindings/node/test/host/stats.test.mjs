// The numbers that a locker counts.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { Locker } from "../../dist/index.js";
import { aborted, forEachStore } from "../support/stores.mjs";
import { test } from "../support/test.mjs";
import { waitFor } from "../support/wait.mjs";

const NONE = { expired: 0, deleted: 0, superseded: 0, revoked: 0, shutdown: 0, crashed: 0 };

/** Yields every number of a snapshot except gauges and bounds, by its path. */
function counters(value, way = "") {
  if (typeof value === "number") return ["held", "waiting"].includes(way) ? [] : [[way, value]];
  const fields = Object.entries(value).filter(([name]) => name !== "bounds");
  return fields.flatMap(([name, field]) => counters(field, way === "" ? name : `${way}.${name}`));
}

/** Takes snapshots of a locker, whose counters must never fall. */
function watched(locker) {
  let before = [];
  return () => {
    const stats = locker.stats();
    const now = new Map(counters(stats));
    before.forEach(([way, count]) => assert.ok(now.get(way) >= count, `${way} fell from ${count} to ${now.get(way)}`));
    before = [...now];
    return stats;
  };
}

forEachStore((store) => {
  test("a pair, a busy call and a call in line are counted", async () => {
    const locker = await store.locker();
    const stats = watched(locker);
    assert.equal(stats().acquired, 0);
    const lock = locker.lock(store.name());
    const lease = await lock.acquire();
    assert.equal(await lock.tryAcquire(), undefined);
    const next = lock.acquire();
    await waitFor(() => stats().waiting === 1);
    assert.deepEqual([stats().held, stats().busy], [1, 1]);
    await lease.release();
    await (await next).release();
    const { held, waiting, acquired, released, lost, failed, ...rest } = stats();
    assert.deepEqual([held, waiting, acquired, released, lost, failed], [0, 0, 2, 2, NONE, 0]);
    assert.deepEqual([rest.waitingTimes.count, rest.holdingTimes.count], [2, 2]);
    assert.ok(rest.operations >= 5 && rest.scriptCalls > 0 && rest.roundTrips.count > 0, JSON.stringify(rest));
    await locker.shutdown();
  });

  test("losses are counted by reason, renewals, pushes and failures, too", async () => {
    const locker = await store.hearing();
    const stats = watched(locker);
    // On a server, it acquired something in order to subscribe.
    const { acquired } = stats();
    const name = store.name();
    const expired = await locker.lock(name, { ttl: 50, fixed: true }).acquire();
    await aborted(expired.signal);
    assert.deepEqual(stats().lost, { ...NONE, expired: 1 });
    const revoked = await locker.lock(name).acquire();
    await revoked.renew();
    assert.equal(stats().renewals, 1);
    await store.admin.forceRelease(name);
    await aborted(revoked.signal);
    await waitFor(() => stats().lost.revoked === 1 && stats().pushes === 1);
    // An owner takes its lock over from another locker.
    const owner = { owner: store.name() };
    const superseded = await locker.lock(name, owner).acquire();
    const successor = await store.admin.lock(name, owner).acquire();
    await aborted(superseded.signal);
    assert.deepEqual(stats().lost, { ...NONE, expired: 1, revoked: 1, superseded: 1 });
    await successor.release();
    const last = await locker.lock(name).acquire();
    await locker.shutdown();
    await aborted(last.signal);
    assert.deepEqual(stats().lost, { ...NONE, expired: 1, revoked: 1, superseded: 1, shutdown: 1 });
    await assert.rejects(locker.lock(name).acquire(), { code: "shutdown" });
    assert.deepEqual([stats().failed, stats().held, stats().acquired - acquired], [1, 0, 4]);
  });
});

test("a snapshot is of its moment, and frozen numbers of the engine are not in it", async () => {
  const locker = Locker.inMemory();
  const before = locker.stats();
  await (await locker.lock("x").acquire()).release();
  assert.equal(before.acquired, 0);
  assert.throws(() => {
    before.roundTrips.bounds[0] = 7;
  }, TypeError);
  await locker.shutdown();
});

test("the numbers have the names that they have in Rust, in the order of the engine's", async () => {
  const url = new URL("../../../../tests/vectors/stats.json", import.meta.url);
  const { stats } = JSON.parse(readFileSync(url, "utf8"));
  const locker = Locker.inMemory();
  const { lost, ...own } = locker.stats();
  await locker.shutdown();
  assert.deepEqual(Object.keys(lost), [...Object.keys(stats.lost), "crashed"]);
  assert.deepEqual(Object.keys(own), Object.keys(stats).filter((name) => name !== "lost"));
  assert.deepEqual(Object.keys(locker.stats()), Object.keys(stats));
  for (const name of ["waitingTimes", "holdingTimes", "roundTrips"]) {
    assert.deepEqual(Object.keys(own[name]), Object.keys(stats[name]));
    assert.deepEqual(own[name].bounds, stats[name].bounds);
    assert.equal(own[name].buckets.length, stats[name].buckets.length);
  }
});
