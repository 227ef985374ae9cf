// The in-memory guard.
import assert from "node:assert/strict";
import { test } from "../support/test.mjs";
import { fence } from "./bundle.mjs";
import { conforms, fails, noticed, refused } from "./conformance.mjs";

const { Gate } = fence;
const { MAX_WAITING } = Gate;
const turn = () => new Promise((resolve) => setImmediate(resolve));

function registers(write) {
  const [values, histories] = [new Map(), new Map()];
  const note = async (resource, token, value) => {
    values.set(resource, value);
    await turn();
    const history = histories.get(resource) ?? [];
    histories.set(resource, [...history, [Number(token.token ?? token), value]]);
  };
  return {
    write: (resource, token, value) => write(resource, token, () => note(resource, token, value)),
    history: async (resource) => histories.get(resource) ?? [],
    read: async (resource) => values.get(resource),
  };
}

test("the suite", async () => {
  const gate = new Gate();
  const store = registers((resource, token, act) => gate.guard(resource, token, act));
  await conforms(store, "gate", 40);
});

// The negative control: the check in one turn, the write in a later one.
test("the suite notices a check that holds nothing", async () => {
  const gate = new Gate();
  const store = registers(async (resource, token, act) => {
    gate.check(resource, token);
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 3));
    await act();
  });
  await noticed(store, "raced", 40, /accepted out of order|was told otherwise|the highest's/);
});

/** Returns what the gate accepts against the rule, in random steps. It is stored and restored in between. */
function holes(capacity, seed, spoil = (saved) => saved) {
  let state = seed * 2654435761 + 1;
  const random = (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  let gate = new Gate({ capacity });
  const model = new Map();
  const found = [];
  for (let step = 0; step < 120; step += 1) {
    if (random(2)) {
      gate = Gate.fromJSON(spoil(JSON.parse(JSON.stringify(gate))));
    }
    const [resource, token] = [`${random(8)}`, 1 + random(30)];
    const allowed = (model.get(resource) ?? 0) <= token;
    let accepted = true;
    try {
      gate.check(resource, token);
      model.set(resource, token);
    } catch (error) {
      assert.equal(error.code, "staleToken");
      accepted = false;
    }
    if (accepted && !allowed) {
      found.push(`step ${step}: ${token} passed for ${resource}`);
    }
    if (allowed && !accepted) {
      assert.ok(capacity < 8, `seed ${seed}: refused although all is remembered`);
    }
  }
  return found;
}

// Catches an eviction that opens a hole, and a state that is not restored completely.
test("forgetting a resource opens no hole", () => {
  for (let seed = 0; seed < 300; seed += 1) {
    assert.deepEqual(holes(1 + (seed % 9), seed), [], `seed ${seed}`);
  }
  // The negative control: without the floor.
  const forget = (saved) => ({ ...saved, floor: null });
  const found = Array.from({ length: 50 }, (_, seed) => holes(2, seed, forget)).flat();
  assert.ok(found.length > 0, "old tokens of forgotten resources pass");
});

test("the least recently used resource is forgotten", () => {
  const gate = new Gate({ capacity: 2 });
  gate.check("a", 10);
  gate.check("b", 20);
  gate.check("a", 10);
  gate.check("c", 30);
  // Catches first in, first out: "a" would be gone, with the floor at 10. The text is the one that Rust
  // stores.
  assert.equal(JSON.stringify(gate), '{"capacity":2,"floor":20,"seen":[["a",10],["c",30]]}');
  assert.throws(() => gate.check("d", 19), { code: "staleToken", offered: 19, highest: 20 });
  gate.check("a", 10);
  gate.check("b", 20);
  assert.equal(gate.highest("nobody"), 30);
  assert.equal(new Gate().highest("nobody"), undefined);
});

test("a resource with a write in progress is not forgotten", async () => {
  const gate = new Gate({ capacity: 1 });
  const entered = await gate.enter("a", 2);
  assert.throws(() => gate.check("b", 3), { code: "overloaded" });
  // It is stored anyway, and has no writer after a restart. Catches a stored gate without it, which passes older tokens.
  const restored = Gate.fromJSON(JSON.parse(JSON.stringify(gate)));
  assert.throws(() => restored.check("a", 1), { code: "staleToken", highest: 2 });
  (await restored.enter("a", 2)).release();
  entered.release();
  entered.release();
  gate.check("b", 3);
  assert.equal(gate.highest("a"), 2, "it is the floor");
});

test("waiting writes are served in order, or refused at once", async () => {
  const gate = new Gate();
  const entered = await gate.enter("a", 1);
  const order = [];
  const enter = (name, token) => gate.enter("a", token).then((entry) => (order.push(name), entry));
  const [first, second] = [enter("first", 1), enter("second", 1)];
  await turn();
  assert.deepEqual(order, [], "two are inside");
  entered.release();
  const one = await first;
  await turn();
  assert.deepEqual(order, ["first"], "it overtook");
  const newer = enter("newer", 2);
  await refused(second, { resource: "a", offered: 1, highest: 2 });
  await refused(gate.enter("a", 1), { highest: 2 });
  await turn();
  assert.deepEqual(order, ["first"], "the newer waits for the write that is under way");
  one.release();
  (await newer).release();
  await gate.guard("b", 1, () => gate.guard("c", 1, () => {}));
});

test("a place in line can be given up", async () => {
  const gate = new Gate();
  const entered = await gate.enter("a", 1);
  const given = new AbortController();
  const [gone, next] = [gate.enter("a", 1, { signal: given.signal }), gate.enter("a", 1)];
  given.abort(new Error("the client has gone"));
  await assert.rejects(gone, /the client has gone/);
  entered.release();
  (await next).release();
  await assert.rejects(gate.enter("a", 1, { signal: given.signal }), /the client has gone/);
});

test("the line is bounded, and a write that fails lets the next one in", async () => {
  const gate = new Gate();
  const entered = await gate.enter("a", 1);
  const line = Array.from({ length: MAX_WAITING }, () => gate.guard("a", 1, () => Promise.reject(new Error("mine"))));
  await fails(gate.enter("a", 1), "overloaded");
  entered.release();
  const ends = await Promise.allSettled(line);
  assert.ok(ends.every(({ reason }) => reason?.message === "mine"));
  await gate.guard("a", 1, () => {});
});

test("bad arguments, and spoilt states", async () => {
  for (const capacity of [0, -1, 1.5, Number.NaN, "1", {}]) {
    assert.throws(() => new Gate({ capacity }), { code: "config" });
  }
  await fails(new Gate().guard("a", 1), "config", /write/);
  for (const bad of [
    '{"capacity": 0, "floor": null, "seen": []}',
    '{"capacity": 1, "floor": null, "seen": [["a", 1], ["b", 1]]}',
    '{"capacity": 9, "floor": null, "seen": [["a", 1], ["a", 2]]}',
    '{"capacity": 9, "floor": null, "seen": [["", 1]]}',
    '{"capacity": 9, "floor": null, "seen": [["a", 0]]}',
    '{"capacity": 9, "floor": null, "seen": [["a", 9007199254740992]]}',
    '{"capacity": 9, "floor": null, "seen": [["a"]]}',
    '{"capacity": 9, "floor": null, "seen": {}}',
    '{"capacity": 9, "floor": 0, "seen": []}',
    '{"capacity": 9, "seen": []}',
    '{"floor": null, "seen": []}',
    '{"capacity": 9, "floor": null}',
    "null",
    "7",
  ]) {
    assert.throws(() => Gate.fromJSON(JSON.parse(bad)), { code: "config" }, bad);
  }
});
