// The rule of every guard: a write is refused if a greater token was seen for its resource, an equal one
// passes, and after a token was accepted nothing smaller ever passes. The same scenarios as
// tests/guards/src/conformance.rs.
import assert from "node:assert/strict";
import { pause } from "../support/wait.mjs";
import { fence } from "./bundle.mjs";

const MOST = Number.MAX_SAFE_INTEGER;

/**
 * Runs the whole suite on a guarded store with one register for each resource.
 *
 * - `write(resource, token, value)` writes under a token, and adds the write to the history in the same
 *   atomic step.
 * - `history(resource)` gives `[token, value]` of every accepted write, in the order that the store recorded.
 * - `read(resource)` gives the register's value.
 * - `texts` is true if a resource's name must be a text.
 *
 * `rounds` is how often the writers race. Each resource's name starts with `prefix`.
 */
export async function conforms(store, prefix, rounds) {
  await oneWriterAfterTheOther(store, prefix);
  await tokensAtTheLimits(store, prefix);
  await badInput(store, prefix);
  for (let round = 0; round < rounds; round += 1) {
    await race(store, `${prefix}/race ${round}`, round);
  }
}

/** Checks that a write is refused, with these details. */
export async function refused(write, expected) {
  await assert.rejects(write, (error) => {
    assert.ok(error instanceof fence.StaleTokenError, `${error?.stack}`);
    const { name, code, resource, offered, highest } = error;
    assert.deepEqual({ name, code }, { name: "StaleTokenError", code: "staleToken" });
    for (const [key, value] of Object.entries(expected)) {
      assert.equal(error[key], value, key);
    }
    return true;
  });
}

/** Checks that a write rejects with this code. */
export async function fails(write, code, message = /./) {
  await assert.rejects(write, (error) => {
    assert.ok(error instanceof fence.LeaseholdError, `${error?.stack}`);
    assert.equal(error.code, code, error.message);
    assert.match(error.message, message);
    return true;
  });
}

async function oneWriterAfterTheOther(store, prefix) {
  const resource = `${prefix}/it's "42" {é} %`;
  await store.write(resource, 33, 1);
  await store.write(resource, 33, 2);
  await store.write(resource, 35, 3);
  await refused(store.write(resource, 34, 4), { resource, offered: 34, highest: 35 });
  assert.equal(await store.read(resource), 3, "what was refused left no trace");
  assert.deepEqual(await store.history(resource), [
    [33, 1],
    [33, 2],
    [35, 3],
  ]);
  const other = `${prefix}/other`;
  await store.write(other, 1, 5);
  assert.equal(await store.read(other), 5, "resources have tokens of their own");
}

async function tokensAtTheLimits(store, prefix) {
  const resource = `${prefix}/limits`;
  await store.write(resource, 1, 1);
  await store.write(resource, MOST - 1, 2);
  await store.write(resource, MOST, 3);
  // Catches a guard that compares rounded numbers, or text.
  await refused(store.write(resource, MOST - 1, 4), { highest: MOST });
  const nine = `${prefix}/nine`;
  await store.write(nine, 10, 1);
  await refused(store.write(nine, 9, 2), { highest: 10 });
}

async function badInput(store, prefix) {
  const names = ["", "x".repeat(513), "é".repeat(257)];
  for (const resource of [...names, ...(store.texts ? [] : ["a\ud800", undefined, null, 7])]) {
    await fails(store.write(resource, 1, 1), "config", /resource/);
  }
  const bad = [0, -1, 1.5, 2 ** 53, Number.NaN, Number.POSITIVE_INFINITY, "", "0", "01", "+1", "1 ", "abc"];
  bad.push("9007199254740992", "99999999999999999", undefined, null, true, 1n, [], {}, { token: 0 });
  bad.push({ token: { token: 1 } }, () => 1);
  const resource = `${prefix}/bad`;
  for (const token of bad) {
    await fails(store.write(resource, token, 1), "config", /fencing token/);
  }
  assert.deepEqual(await store.history(resource), [], "nothing bad was written");
  for (const token of ["1", 1, { token: 2 }, { token: "2" }]) {
    await store.write(resource, token, 1);
  }
  await refused(store.write(resource, { token: "1" }, 1), { offered: 1, highest: 2 });
}

/** Races sixteen writers with tokens in a random order, each writing until it is refused or done. */
async function race(store, resource, seed) {
  const tokens = shuffled(16, seed);
  const accepted = new Map();
  const writer = async (token) => {
    accepted.set(token, 0);
    for (let step = 0; step < 3; step += 1) {
      try {
        await store.write(resource, token, token * 10 + step);
        accepted.set(token, step + 1);
      } catch (error) {
        if (error?.code === "staleToken") {
          break;
        }
        throw error;
      }
      await new Promise((resolve) => setImmediate(resolve));
    }
  };
  await Promise.all(tokens.map(writer));
  sound(await store.history(resource), accepted);
  assert.equal(await store.read(resource), 162, "the last write is the highest's");
}

/** Checks that the race notices a store with a broken guard: the negative control of the suite. */
export async function noticed(store, prefix, rounds, message) {
  const racing = async () => {
    for (let round = 0; round < rounds; round += 1) {
      await race(store, `${prefix}/${round}`, round);
    }
  };
  await assert.rejects(racing(), message);
}

/** Waits between a check and its write: the longer, the lower the token in a race is. */
export const dawdle = (token) => pause(2 * (16 - token));

/** Checks that the recorded history is in order and matches the writers' results. */
export function sound(history, accepted) {
  const recorded = history.map(([token]) => token);
  const sorted = [...recorded].sort((a, b) => a - b);
  assert.deepEqual(recorded, sorted, "accepted out of order");
  for (const [token, count] of accepted) {
    const times = recorded.filter((other) => other === token).length;
    assert.equal(times, count, `writer ${token} was told otherwise: ${recorded}`);
  }
  assert.equal(accepted.get(16), 3, "nobody is greater than the last");
}

/**
 * Shuffles the numbers from 1 to `count` (Fisher and Yates) with a small generator: the same seed gives the
 * same order.
 */
export function shuffled(count, seed) {
  const items = Array.from({ length: count }, (_, index) => index + 1);
  let state = (Math.imul(seed, 0x9e3779b9) | 1) >>> 0;
  for (let last = count - 1; last > 0; last -= 1) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    const other = state % (last + 1);
    [items[last], items[other]] = [items[other], items[last]];
  }
  return items;
}
