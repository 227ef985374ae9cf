// The events that readers get.
import assert from "node:assert/strict";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { aborted, collect, forEachStore } from "../support/stores.mjs";
import { test } from "../support/test.mjs";
import { pause, waitFor } from "../support/wait.mjs";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc");
const types = (told) => told.map(({ type }) => type);

forEachStore((store) => {
  test("a life from waiting to the loss, in order", async () => {
    const name = store.name();
    const holder = await store.admin.lock(name).acquire();
    const lock = (await store.hearing()).lock(name, { ttl: 3_000 });
    const told = collect(lock.events());
    const acquiring = lock.acquire();
    await store.inLine(name, 1);
    await waitFor(() => told.length > 0);
    assert.deepEqual(told[0], { type: "waiting", name, position: 1 });
    await holder.release();
    const lease = await acquiring;
    await waitFor(() => told.some(({ type }) => type === "renewed"));
    const { reason } = await Promise.all([store.admin.forceRelease(name), aborted(lease.signal)]).then(
      ([, loss]) => loss,
    );
    assert.equal(reason, "revoked");
    const again = await lock.acquire();
    await again.release();
    await waitFor(() => told.at(-1).type === "released");
    const { token } = lease;
    const without = told.filter(({ type }) => !["renewed", "waiting", "atRisk"].includes(type));
    assert.deepEqual(
      without.map(({ remaining, ...rest }) => rest),
      [
        { type: "acquired", name, token },
        { type: "lost", name, token, reason: "revoked" },
        { type: "acquired", name, token: again.token },
        { type: "released", name, token: again.token },
      ],
    );
    for (const event of told.filter(({ type }) => type === "renewed" || type === "acquired")) {
      assert.ok(event.remaining > 0 && event.remaining <= 3_000, JSON.stringify(event));
    }
  });

  test("a reader begins with the current state", async () => {
    const locker = await store.locker();
    const lock = locker.lock(store.name());
    const lease = await lock.acquire();
    const other = await locker.lock(store.name()).acquire();
    for (const events of [lock.events(), lock.events()]) {
      const { value } = await events.next();
      assert.deepEqual([value.type, value.token], ["acquired", lease.token]);
      assert.ok(value.remaining > 15_000);
      await events.return();
    }
    const all = locker.events();
    const first = [(await all.next()).value, (await all.next()).value];
    assert.deepEqual(first.map(({ type }) => type), ["acquired", "acquired"]);
    assert.deepEqual(new Set(first.map(({ token }) => token)), new Set([lease.token, other.token]));
    await all.return();
    await Promise.all([lease.release(), other.release()]);
  });

  test("readers do not take events from each other, and hear only of their lock", async () => {
    const locker = await store.locker();
    const [one, two] = [locker.lock(store.name()), locker.lock(store.name())];
    const logs = [one.events(), one.events(), two.events(), locker.events()].map(collect);
    for (const lock of [one, two]) {
      await (await lock.acquire()).release();
    }
    await waitFor(() => logs[3].length === 4 && logs.slice(0, 3).every((log) => log.length === 2));
    const life = ["acquired", "released"];
    assert.deepEqual(logs.map(types), [life, life, life, [...life, ...life]]);
    assert.deepEqual(logs[3].map(({ name }) => name), [one.name, one.name, two.name, two.name]);
    assert.deepEqual(new Set(logs[2].map(({ name }) => name)), new Set([two.name]));
  });

  test("renewals that were not read merge into the newest", async () => {
    // Catches: memory that grows while nobody reads.
    const lock = (await store.locker()).lock(store.name(), { ttl: 2_400 });
    const [events, other] = [lock.events(), collect(lock.events())];
    const lease = await lock.acquire();
    await waitFor(() => other.filter(({ type }) => type === "renewed").length === 2, 10_000, "two renewals");
    await lease.release();
    const told = [];
    while (told.at(-1)?.type !== "released") {
      told.push((await events.next()).value);
    }
    assert.deepEqual(types(told), ["acquired", "renewed", "released"]);
    await events.return();
  });

  test("a reader that is too slow gets `lagged`, then the current state", async () => {
    const locker = await store.locker();
    const events = locker.events();
    const lock = locker.lock(store.name());
    for (let i = 0; i < 700; i++) {
      await (await lock.acquire()).release();
    }
    const lease = await lock.acquire();
    const first = (await events.next()).value;
    assert.equal(first.type, "lagged");
    assert.ok(first.missed >= 1_024, String(first.missed));
    const second = (await events.next()).value;
    assert.deepEqual([second.type, second.token], ["acquired", lease.token]);
    await lease.release();
    assert.equal((await events.next()).value.type, "released");
    await events.return();
  });

  test("several calls of next get the events in the order of the calls", async () => {
    const lock = (await store.locker()).lock(store.name());
    const events = lock.events();
    const nexts = [events.next(), events.next(), events.next()];
    await (await lock.acquire()).release();
    assert.deepEqual(types((await Promise.all(nexts.slice(0, 2))).map(({ value }) => value)), [
      "acquired",
      "released",
    ]);
    // `return` ends pending calls.
    await events.return();
    assert.deepEqual(await nexts[2], { done: true, value: undefined });
    assert.deepEqual(await events.next(), { done: true, value: undefined });
    await events.return();
  });

  test("leaving a for await, or disposing, ends the reader", async () => {
    const lock = (await store.locker()).lock(store.name());
    const lease = await lock.acquire();
    const events = lock.events();
    for await (const event of events) {
      assert.equal(event.type, "acquired");
      break;
    }
    await lease.release();
    assert.deepEqual(await events.next(), { done: true, value: undefined });
    const disposed = lock.events();
    await disposed[Symbol.asyncDispose]();
    assert.deepEqual(await disposed.next(), { done: true, value: undefined });
  });

  test("as a stream, which ends its reader when it is canceled", async () => {
    const lock = (await store.locker()).lock(store.name());
    const events = lock.events();
    const stream = events.toStream();
    assert.ok(stream instanceof ReadableStream);
    const reader = stream.getReader();
    const first = reader.read();
    await (await lock.acquire()).release();
    assert.equal((await first).value.type, "acquired");
    assert.equal((await reader.read()).value.type, "released");
    const pending = reader.read();
    await reader.cancel();
    assert.equal((await pending).done, true);
    assert.deepEqual(await events.next(), { done: true, value: undefined });
  });

  test("readers are forgotten without return, if nobody keeps them", async () => {
    const lock = (await store.locker()).lock(store.name());
    const forgotten = new WeakRef(lock.events());
    await waitFor(async () => {
      await pause(1);
      collectGarbage();
      return forgotten.deref() === undefined;
    });
  });

  test("handles of one name that take turns have the events of their own acquisitions", async () => {
    // Catches: a new handle that takes over the engine's number of an older one which is in use.
    const name = store.name();
    const locker = await store.hearing();
    const [read, held] = [locker.lock(name), locker.lock(store.name())];
    const told = collect(read.events());
    const kept = await held.acquire();
    assert.equal(await locker.lock(held.name).tryAcquire(), undefined);
    const tokens = [];
    for (const lock of [read, locker.lock(name), read, locker.lock(name), read]) {
      const lease = await lock.acquire();
      assert.ok(lock.held);
      tokens.push(lease.token);
      await lease.release();
    }
    await waitFor(() => told.filter(({ type }) => type === "released").length === 3);
    assert.deepEqual(
      told.filter(({ type }) => type === "acquired").map(({ token }) => token),
      [tokens[0], tokens[2], tokens[4]],
    );
    assert.ok(kept.valid && held.held);
    await Promise.all([store.admin.forceRelease(held.name), aborted(kept.signal)]);
    assert.equal(held.held, false);
  });

  test("the state of one lock is that of its handle, not of its name", async () => {
    const locker = await store.locker();
    const name = store.name();
    const holder = await locker.lock(name).acquire();
    const other = locker.lock(name).events();
    const next = other.next();
    await holder.release();
    await pause(50);
    await other.return();
    assert.deepEqual(await next, { done: true, value: undefined });
  });
});
