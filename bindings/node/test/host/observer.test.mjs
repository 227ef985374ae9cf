// Following the holders of a lock.
import assert from "node:assert/strict";
import { Locker, MemoryStore } from "../../dist/index.js";
import { forEachStore } from "../support/stores.mjs";
import { test } from "../support/test.mjs";
import { pause, within } from "../support/wait.mjs";

const LIMIT = 10_000;
const END = { done: true, value: undefined };

/** Returns the label of the next holder, or `undefined` if the lock is free. */
async function next(observer) {
  const { done, value } = await within(observer.next(), LIMIT, "a change");
  assert.ok(!done, "it goes on");
  return value?.owner.label;
}

forEachStore((store) => {
  // Catches: a semaphore that is held, and of which an observer says that nobody has it.
  test("a shared name has no single holder", async () => {
    const name = store.name();
    const locker = await store.locker();
    const permit = await locker.semaphore(name, 2).acquire();
    await assert.rejects(locker.observe(name).next(), { code: "unsupported", message: /^lock ".*": a shared name/ });
    await permit.release();
  });

  test("an observer sees each change once, and renewals are none", async () => {
    const name = store.name();
    const locker = await store.locker();
    const lock = locker.lock(name, { ttl: 1_200, owner: `owner of ${name}` });
    const observer = (await store.locker()).observe(name, { every: 20 });
    assert.equal(await next(observer), undefined);
    for (let turn = 0; turn < 2; turn += 1) {
      const lease = await lock.acquire();
      const { value } = await within(observer.next(), LIMIT, "the holder");
      assert.equal(value.token, lease.token);
      assert.equal(value.owner.label, `owner of ${name}`);
      // Catches: a renewal that counts as a change.
      const more = observer.next();
      assert.equal(await Promise.race([more, pause(700)]), undefined);
      await lease.release();
      assert.equal((await within(more, LIMIT, "the release")).value, undefined);
    }
    const lease = await lock.acquire();
    assert.equal(await next(observer), `owner of ${name}`);
    // Catches: another tenure of the same owner that is missed, because the lock was never seen free.
    await lease.release();
    const again = await lock.acquire();
    assert.equal((await observer.next()).value.token, again.token);
    await observer.return();
    assert.deepEqual(await observer.next(), END);
    await again.release();
  });

  test("an observer ends when it is left or aborted, and with its locker, at once", async () => {
    const name = store.name();
    for (const end of ["return", "abort", "shutdown", "dispose"]) {
      const locker = await store.locker();
      const controller = new AbortController();
      const observer = locker.observe(name, { every: 60_000, signal: controller.signal });
      assert.equal(await next(observer), undefined);
      const waits = observer.next();
      const ends = {
        return: () => observer.return(),
        abort: () => controller.abort(),
        shutdown: () => locker.shutdown(),
        dispose: () => observer[Symbol.asyncDispose](),
      };
      await ends[end]();
      assert.deepEqual(await within(waits, LIMIT, end), END);
      assert.deepEqual(await observer.next(), END);
      assert.ok(observer.toJSON().ended);
    }
    const ended = (await store.locker()).observe(name, { signal: AbortSignal.abort() });
    assert.deepEqual(await ended.next(), END);
  });
});

test("an observer goes on when the store is back, and ends with an error that stays", async () => {
  const store = MemoryStore.named("observed");
  const options = { commandTimeout: 20, patience: 40 };
  const locker = await Locker.connect("memory://observed", options);
  const observer = locker.observe("x", { every: 10 });
  assert.equal(await next(observer), undefined);
  const lease = await locker.lock("x", { owner: "one" }).acquire();
  store.cutOff();
  const waits = next(observer);
  assert.equal(await Promise.race([waits, pause(300)]), undefined);
  store.reconnect();
  assert.equal(await waits, "one");
  await lease.release();
  await locker.shutdown();
});

test("an observer refuses bad input at once", async () => {
  const locker = Locker.inMemory();
  const refused = [
    [() => locker.observe(""), /name/],
    [() => locker.observe(7), /name/],
    [() => locker.observe("x", { every: 9 }), /every must be from 10 ms to 366 days; got 9 ms/],
    [() => locker.observe("x", { every: 1e12 }), /every must be from 10 ms to 366 days/],
    [() => locker.observe("x", { every: "1s" }), /every must be a number/],
    [() => locker.observe("x", { each: 1 }), /known options: every, signal/],
  ];
  for (const [call, message] of refused) {
    assert.throws(call, { code: "config", message });
  }
  await locker.shutdown();
});
