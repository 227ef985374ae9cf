// Asking a holder to yield, and waiting until somebody wants a lock.
import assert from "node:assert/strict";
import { LeaseLostError } from "../../dist/index.js";
import { aborted, forEachStore } from "../support/stores.mjs";
import { test } from "../support/test.mjs";
import { pause, within } from "../support/wait.mjs";

/** Returns a check that tells whether the promise is settled. */
function watched(promise) {
  let settled = false;
  const end = () => (settled = true);
  promise.then(end, end);
  return () => settled;
}

forEachStore((store) => {
  test("a leader goes on for as long as nobody waits", async () => {
    // Catches: a call that resolves without a waiter, or only at the end of the lease.
    const name = store.name();
    const leader = await store.locker();
    const lease = await leader.lock(name, { ttl: 900 }).acquire();
    const wanted = lease.wanted();
    const isWanted = watched(wanted);
    await leader.lock(name).tryAcquire();
    await pause(1_000);
    assert.equal(isWanted(), false);
    const next = (await store.locker()).lock(name).acquire();
    await within(wanted, 5_000, "the waiter");
    assert.ok(lease.valid);
    await lease.release();
    await (await next).release();
  });

  test("a request to yield is heard at once, and asks only the holder that it found", async () => {
    // Catches: a request that is heard only at the next renewal, ten seconds later.
    const name = store.name();
    const leader = await store.hearing();
    const lease = await leader.lock(name).acquire();
    const wanted = lease.wanted();
    const request = store.admin.requestYield(name, { within: 20_000 });
    await within(wanted, 5_000, "the request");
    await lease.release();
    assert.equal(await within(request, 5_000, "the release"), true);
    const next = await leader.lock(name).acquire();
    assert.equal((await store.admin.inspect(name)).wanted, undefined);
    await next.release();
  });

  test("a request right after a refused one reaches the holder", async () => {
    // Catches: a request that is dropped because the one before it has not quite ended at the store.
    const leader = await store.locker();
    for (let turn = 0; turn < 10; turn += 1) {
      const name = store.name();
      const lease = await leader.lock(name).acquire();
      assert.equal(await store.admin.requestYield(name, { within: 20 }), false);
      const again = store.admin.requestYield(name, { within: 20_000 });
      await pause(100);
      assert.ok((await store.admin.inspect(name)).wanted !== undefined, `turn ${turn}: it was dropped`);
      await lease.release();
      assert.equal(await within(again, 5_000, "the release"), true);
    }
  });

  test("a holder that goes on keeps the lock, or loses it by force", async () => {
    const name = store.name();
    const lease = await (await store.hearing()).lock(name).acquire();
    assert.equal(await store.admin.requestYield(name, { within: 100 }), false);
    assert.ok(lease.valid);
    const wanted = lease.wanted().catch((error) => error);
    // The request was over, so only the next one counts.
    assert.equal(await store.admin.requestYield(name, { within: 0, force: true }), true);
    // The renewal that the request caused may find the lock gone before the notification of the forced release comes.
    assert.match((await aborted(lease.signal)).reason, /^(revoked|deleted)$/);
    const error = await wanted;
    assert.ok(error === undefined || error instanceof LeaseLostError, `${error}`);
    await assert.rejects(lease.wanted(), LeaseLostError);
  });

  test("both calls can be aborted, and the lease stays", async () => {
    const name = store.name();
    const lease = await (await store.locker()).lock(name).acquire();
    const calls = [
      (signal) => lease.wanted({ signal }),
      (signal) => store.admin.requestYield(name, { within: 300, force: true, signal }),
    ];
    for (const call of calls) {
      const controller = new AbortController();
      const ended = assert.rejects(call(controller.signal), /given up/);
      await pause(20);
      controller.abort(new Error("given up"));
      await within(ended, 1_000, "the end of the call");
    }
    await pause(500);
    assert.ok(lease.valid);
    await lease.release();
    await assert.rejects(lease.wanted(), { code: "notHeld" });
  });

  test("bad options of a request are refused", async () => {
    for (const options of [undefined, {}, { within: -1 }, { within: "1" }, { within: 366.5 * 86_400_000 }, { wihin: 1 }]) {
      await assert.rejects(store.admin.requestYield("x", options), { code: "config" }, JSON.stringify(options));
    }
    await assert.rejects(store.admin.requestYield("", { within: 1 }), { code: "config" });
  });
});
