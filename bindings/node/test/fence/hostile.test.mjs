// Hostile arguments and options for guards from plain JavaScript: each gives an error with the code `config`
// and no other, before any request to a store.
import assert from "node:assert/strict";
import * as fence from "../../dist/fence.js";
import { test } from "../support/test.mjs";

const { accepted, check, createFenceTable, FencedRedis, fencedTransaction, Gate, withToken } = fence;

const bare = Object.create(null);
const throwing = new Proxy({}, {
  get() { throw null; },
  has() { throw null; },
  ownKeys() { throw null; },
  getPrototypeOf() { throw null; },
});
const revoked = (() => {
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  return proxy;
})();
const objects = { throwing, revoked, "a list": [], null: null, 5: 5, text: "x", function: () => {} };
const values = { bare, throwing, revoked, symbol: Symbol("s"), object: {} };

/** Checks the refusal, even if the thrown value throws when it is examined. */
async function refused(what, call) {
  try {
    await call();
  } catch (error) {
    assert.ok(error instanceof fence.LeaseholdError, `${what}: ${typeof error} ${error?.stack}`);
    assert.equal(error.code, "config", what);
    return;
  }
  assert.fail(`${what}: it passed`);
}

const client = { eval: () => assert.fail("nothing is to be asked") };

// Catches a TypeError of the JavaScript engine, or the error of a getter, in place of a message about the
// culprit.
test("options that cannot be read, or are none", async () => {
  for (const [name, options] of Object.entries(objects)) {
    await refused(`a gate: ${name}`, () => new Gate(options));
    await refused(`a stored gate: ${name}`, () => Gate.fromJSON(options));
    await refused(`enter: ${name}`, () => new Gate().enter("a", 1, options));
    await refused(`guard: ${name}`, () => new Gate().guard("a", 1, () => assert.fail("it ran"), options));
    for (const make of ["fenceExpress", "fenceFastify", "fenceHono"]) {
      await refused(`${make}: ${name}`, () => fence[make](options));
    }
    await refused(`fenceFetch: ${name}`, () => fence.fenceFetch(() => {}, options));
    await refused(`FencedRedis: ${name}`, () => new FencedRedis(client, options));
    await refused(`set: ${name}`, () => new FencedRedis(client).resource("a", 1).set("a", "b", options));
    if (name !== "a list") {
      await refused(`withToken: ${name}`, () => withToken(1, options));
    }
  }
});

test("values of another kind, or that cannot be converted", async () => {
  for (const [name, value] of Object.entries(values)) {
    await refused(`capacity: ${name}`, () => new Gate({ capacity: value }));
    await refused(`signal: ${name}`, () => new Gate().enter("a", 1, { signal: value }));
    for (const option of ["gate", "resource", "optional", "checkOnly"]) {
      await refused(`${option}: ${name}`, () => fence.fenceExpress({ [option]: value }));
    }
    await refused(`timeout: ${name}`, () => new FencedRedis(client, { timeout: value }));
    await refused(`ttl: ${name}`, () => new FencedRedis(client).resource("a", 1).set("a", "b", { ttl: value }));
    await refused(`incrBy: ${name}`, () => new FencedRedis(client).resource("a", 1).incrBy("a", value));
    await refused(`a token: ${name}`, () => withToken(value));
    await refused(`a lease's token: ${name}`, () => withToken({ get token() { return value; } }));
    await refused(`rows: ${name}`, () => accepted(value, "a", 1));
    await refused(`a row's fence: ${name}`, () => accepted(0, "a", 1, value));
    await refused(`a database: ${name}`, () => createFenceTable(value));
    await refused(`a transaction's: ${name}`, () => fencedTransaction(value, "a", 1, () => {}));
    await refused(`isolation: ${name}`, () => {
      const database = { prepare() {}, exec() {} };
      return fencedTransaction(database, "a", 1, () => assert.fail("it ran"), { isolation: value });
    });
    await refused(`a connection: ${name}`, () => check(value, "a", 1));
    await refused(`a client: ${name}`, () => new FencedRedis(value));
  }
  // Infinity would pass as many rows, and `true` as one.
  for (const rows of [true, new Date(), Infinity, "1", 1.5, -1, -1n, null]) {
    await refused(`rows: ${String(rows)}`, () => accepted(rows, "a", 1));
  }
  assert.equal(accepted(1n, "a", 1), true);
  for (const headers of [null, 5, throwing, [["a"]], { "no name": "x" }]) {
    await refused(`headers: ${typeof headers}`, () => withToken(1, { headers }));
  }
});

// Catches the text "false", which is truthy: all requests without a token would pass.
test("options that let requests pass must be true or false", async () => {
  for (const optional of ["false", 0, 1, null]) {
    await refused(`optional: ${optional}`, () => fence.fenceExpress({ optional }));
  }
  await refused("an option's name", () => fence.fenceExpress({ optinal: true }));
});

test("options that are inherited or come from getters count, and are read once", async () => {
  let reads = 0;
  class Options {
    get capacity() {
      reads += 1;
      return reads === 1 ? 1 : "many";
    }
  }
  const gate = new Gate(new Options());
  assert.deepEqual([gate.toJSON().capacity, reads], [1, 1]);
});

// A foreign signal has a reason and events, but lacks other members of the platform's signals.
test("a gate takes foreign signals", async () => {
  const listeners = new Set();
  const signal = {
    aborted: false,
    addEventListener: (_, listener) => listeners.add(listener),
    removeEventListener: (_, listener) => listeners.delete(listener),
  };
  const gate = new Gate();
  const entered = await gate.enter("a", 1, { signal });
  const waits = gate.enter("a", 1, { signal });
  signal.aborted = true;
  [...listeners].forEach((listener) => listener());
  await assert.rejects(waits, { name: "AbortError" });
  await assert.rejects(gate.enter("a", 1, { signal }), { name: "AbortError" });
  entered.release();
  assert.equal(listeners.size, 0);
});
