// The package, loaded several times in one process: by import, by require, and slim.
//
// Catches copies that do not share stores, so that several hold one name; and errors and gates that only
// their own copy recognizes.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { before, describe } from "node:test";
import * as esm from "../../dist/index.js";
import * as slim from "../../dist/slim.js";
import * as esmFence from "../../dist/fence.js";
import { test } from "../support/test.mjs";

const require = createRequire(import.meta.url);
const cjs = require("../../dist/index.cjs");
const slimCjs = require("../../dist/slim.cjs");
const cjsFence = require("../../dist/fence.cjs");

const copies = { import: esm, require: cjs, "slim, import": slim, "slim, require": slimCjs };

describe("copies of the package in one process", { concurrency: 1 }, () => {
  before(async () => {
    const module = await WebAssembly.compile(await readFile(new URL("../../dist/leasehold.wasm", import.meta.url)));
    await slim.init(module);
    await slimCjs.init(module);
    assert.equal(new Set(Object.values(copies).map(({ Locker }) => Locker)).size, 4, "they are different");
  });

  for (const [first, { Locker: First }] of Object.entries(copies)) {
    test(`one store for all who name it, if ${first} comes first`, async () => {
      const url = `memory://${encodeURIComponent(first)}`;
      const holder = await First.connect(url);
      const lease = await holder.lock("x").acquire();
      const waiting = [];
      const lockers = [];
      for (const [name, { Locker }] of Object.entries(copies)) {
        const locker = await Locker.connect(url);
        lockers.push(locker);
        assert.equal(await locker.lock("x").tryAcquire(), undefined, `${name} excludes`);
        assert.equal((await locker.inspect("x")).holder.token, lease.token, name);
        // A second each; otherwise it has failed.
        waiting.push(locker.lock("x").acquire({ timeout: 10_000 }));
      }
      let last = lease;
      for (const next of waiting) {
        await last.release();
        const { token } = await next;
        assert.ok(token > last.token, "tokens grow across copies");
        last = await next;
      }
      // One copy notices what another copy does to its lease.
      const { signal } = last;
      await lockers[0].forceRelease("x");
      assert.ok(signal.aborted && signal.reason.reason === "revoked");
      // The first copy may go: the store exists as long as anybody uses it.
      await holder.shutdown();
      const kept = await lockers[3].lock("y").acquire();
      assert.equal(await lockers[1].lock("y").tryAcquire(), undefined);
      await kept.release();
      await Promise.all(lockers.map((locker) => locker.shutdown()));
    });
  }

  // The control: other names, and stores without a name, are separate.
  test("other names are other stores", async () => {
    const lockers = [await esm.Locker.connect("memory://a"), await cjs.Locker.connect("memory://b"), slim.Locker.inMemory(), slimCjs.Locker.inMemory()];
    for (const locker of lockers) {
      assert.ok(await locker.lock("x").tryAcquire());
    }
    await Promise.all(lockers.map((locker) => locker.shutdown()));
  });

  test("errors and gates of one are those of the others", async () => {
    const lost = async ({ Locker }) => {
      const locker = Locker.inMemory();
      const lease = await locker.lock("x").acquire();
      const { signal } = lease;
      await locker.shutdown();
      return signal.reason;
    };
    const stale = ({ Gate }) => {
      const gate = new Gate();
      gate.check("r", 2);
      try {
        gate.check("r", 1);
      } catch (error) {
        return error;
      }
    };
    const [losses, refusals] = [[], []];
    for (const copy of Object.values(copies)) losses.push(await lost(copy));
    for (const copy of [esmFence, cjsFence]) refusals.push(stale(copy));
    for (const { LeaseholdError, LeaseLostError } of Object.values(copies)) {
      for (const error of losses) {
        assert.ok(error instanceof LeaseholdError && error instanceof LeaseLostError && error instanceof Error);
      }
      for (const error of refusals) {
        assert.ok(error instanceof LeaseholdError && !(error instanceof LeaseLostError));
      }
      assert.ok(!(new LeaseholdError("config", "x") instanceof LeaseLostError));
    }
    for (const { StaleTokenError, LeaseholdError, Gate, problemOf, fenceFetch } of [esmFence, cjsFence]) {
      for (const error of refusals) {
        assert.ok(error instanceof StaleTokenError);
        assert.equal(problemOf(error).status, 409);
      }
      for (const error of losses) assert.ok(!(error instanceof StaleTokenError));
      for (const copy of [esmFence, cjsFence]) {
        const gate = new copy.Gate();
        assert.ok(gate instanceof Gate);
        assert.ok(fenceFetch(() => new Response("ok"), { gate }));
        assert.deepEqual(Object.keys(gate), []);
      }
      assert.throws(() => fenceFetch(() => new Response("ok"), { gate: {} }), { code: "config" });
      // Classes that a program derives are its own.
      class Own extends LeaseholdError {}
      class OwnGate extends Gate {}
      assert.ok(new Own("config", "x") instanceof Own && new Own("config", "x") instanceof LeaseholdError);
      assert.ok(!(refusals[0] instanceof Own) && !(new Gate() instanceof OwnGate) && new OwnGate() instanceof OwnGate);
    }
  });

  test("a value that cannot be examined is none of them", () => {
    const throws = () => assert.fail("it was thrown out of instanceof");
    const traps = Object.fromEntries(Object.getOwnPropertyNames(Reflect).map((trap) => [trap, throws]));
    const { proxy, revoke } = Proxy.revocable({}, {});
    revoke();
    for (const value of [new Proxy({}, traps), proxy, Object.create(null), null, undefined, 5, "x", () => {}]) {
      for (const type of [esm.LeaseholdError, esm.LeaseLostError, esmFence.StaleTokenError, esmFence.Gate]) {
        assert.equal(type[Symbol.hasInstance](value), false);
      }
    }
  });
});
