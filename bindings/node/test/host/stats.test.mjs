// The numbers that a locker counts. The scenario `counted` shows when each of them grows.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { Locker } from "../../dist/index.js";
import { test } from "../support/test.mjs";

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
