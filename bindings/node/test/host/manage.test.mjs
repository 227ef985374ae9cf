// Inspecting, forced releases, and shutting down.
import assert from "node:assert/strict";
import { aborted, collect, forEachStore } from "../support/stores.mjs";
import { test } from "../support/test.mjs";
import { pause, waitFor, within } from "../support/wait.mjs";

forEachStore((store) => {
  test("inspect shows a free name, the holder and the line", async () => {
    const name = store.name();
    const locker = await store.locker();
    const { serverTime, ...unused } = await locker.inspect(name);
    assert.deepEqual(unused, { holder: null, lastToken: null, waiting: 0, line: [] });
    assert.ok(Math.abs(serverTime - Date.now()) < 60_000, String(serverTime));
    const holder = await locker.lock(name, { owner: "holder", ttl: 20_000 }).acquire();
    const waiters = [];
    for (const [i, owner] of ["first", "second:with a colon", undefined].entries()) {
      waiters.push(locker.lock(name, { owner }).acquire());
      await store.inLine(name, i + 1);
      await pause(20);
    }
    const seen = await store.admin.inspect(name);
    assert.deepEqual(seen.holder.owner, { label: "holder", reclaimable: true });
    assert.equal(seen.holder.token, holder.token);
    assert.equal(seen.lastToken, holder.token);
    assert.ok(seen.holder.remaining > 5_000 && seen.holder.remaining <= 20_000);
    assert.equal(seen.waiting, 3);
    const [first, second, third] = seen.line;
    assert.deepEqual(first.owner, { label: "first", reclaimable: true });
    assert.deepEqual(second.owner, { label: "second:with a colon", reclaimable: true });
    assert.match(third.owner.label, new RegExp(`/${process.pid}$`));
    assert.equal(third.owner.reclaimable, false);
    assert.ok(first.waited >= second.waited + 15 && second.waited >= third.waited + 15);
    assert.ok(first.waited < 15_000);
    await holder.release();
    for (const waiting of waiters) {
      await (await waiting).release();
    }
    const free = await locker.inspect(name);
    assert.equal(free.holder, null);
    assert.ok(free.lastToken > holder.token);
  });

  test("list walks through the names that are held and match", async () => {
    const locker = await store.locker({ namespace: `list ${store.name()}` });
    const names = async (pattern) => {
      const listed = new Set();
      for await (const name of locker.list(pattern)) {
        listed.add(name);
      }
      return [...listed].sort();
    };
    assert.deepEqual(await names("*"), []);
    const held = ["a/1", "a/2", "b/1", "a*", "[a]", "ü"];
    const leases = await Promise.all(held.map((name) => locker.lock(name).acquire()));
    const released = await locker.lock("a/3").acquire();
    await released.release();
    assert.deepEqual(await names("*"), [...held].sort());
    assert.deepEqual(await names("a/*"), ["a/1", "a/2"]);
    assert.deepEqual(await names("[a]"), ["[a]"]);
    assert.deepEqual(await names("a/1"), ["a/1"]);
    assert.deepEqual(await names("nothing*"), []);
    assert.deepEqual(await names("a\\*"), ["a*"]);
    await Promise.all(leases.map((lease) => lease.release()));
    const many = Array.from({ length: 1_500 }, (_, i) => `many/${String(i).padStart(4, "0")}`);
    const all = await Promise.all(many.map((name) => locker.lock(name).acquire()));
    assert.deepEqual(await names("many/*"), many);
    // A scan may be left early.
    for await (const name of locker.list("*")) {
      assert.ok(name.startsWith("many/"));
      break;
    }
    await Promise.all(all.map((lease) => lease.release()));
  });

  test("a forced release of a token spares a holder with another token", async () => {
    // Catches: a program that inspects the holder, and frees the lock of the next one.
    const name = store.name();
    const locker = await store.hearing();
    const first = await locker.lock(name).acquire();
    const { holder } = await store.admin.inspect(name);
    assert.equal(holder.token, first.token);
    await first.release();
    const next = await locker.lock(name).acquire();
    assert.equal(await store.admin.forceReleaseToken(name, first.token), undefined);
    await next.renew();
    const lost = aborted(next.signal);
    assert.equal((await store.admin.forceReleaseToken(name, next.token)).token, next.token);
    assert.equal((await lost).reason, "revoked");
    assert.equal(await store.admin.forceReleaseToken(name, next.token), undefined);
    for (const bad of [undefined, null, 0, -1, 1.5, 2 ** 53, NaN, "1", 1n, {}]) {
      await assert.rejects(store.admin.forceReleaseToken(name, bad), { code: "config" }, String(bad));
    }
  });

  test("a shutdown ends everything, reports it, and frees all held locks", async () => {
    const locker = await store.hearing();
    const [held, wanted] = [store.name(), store.name()];
    const rival = await store.admin.lock(wanted).acquire();
    const lease = await locker.lock(held).acquire();
    const other = locker.lock(held);
    const ofLock = collect(other.events());
    const ofAll = collect(locker.events());
    const waiting = [locker.lock(wanted).acquire(), other.acquire()].map((call) => call.catch((error) => error));
    const tenures = locker.lock(wanted).hold();
    const tenure = tenures.next();
    await store.inLine(wanted, 2);
    const stream = locker.events().toStream().getReader();

    const told = aborted(lease.signal);
    await Promise.all([locker.shutdown(), locker.shutdown()]);
    assert.deepEqual([(await told).reason, lease.valid], ["shutdown", false]);
    for (const error of await Promise.all(waiting)) {
      assert.equal(error.code, "shutdown", String(error));
    }
    assert.deepEqual(await tenure, { done: true, value: undefined });
    await within(Promise.all([ofLock.ended, ofAll.ended]), 10_000, "the end of the events");
    assert.ok(ofAll.some((event) => event.type === "lost" && event.reason === "shutdown"));
    while (!(await stream.read()).done) {
      // The stream of events ends, too.
    }
    await store.inLine(wanted, 0);
    assert.equal((await store.admin.inspect(held)).holder, null, "it is freed, and does not expire");

    await locker.shutdown();
    await locker[Symbol.asyncDispose]();
    for (const call of [
      () => locker.lock(held).acquire(),
      () => other.tryAcquire(),
      () => other.using(assert.fail),
      () => locker.inspect(held),
      () => locker.forceRelease(held),
      () => locker.list("*").next(),
      () => lease.renew(),
    ]) {
      const error = await call().then(assert.fail, (error) => error);
      assert.ok(error.code === "shutdown" || error.code === "notHeld", `${call}: ${error}`);
    }
    assert.deepEqual(await other.events().next(), { done: true, value: undefined });
    assert.deepEqual(await locker.events().next(), { done: true, value: undefined });
    assert.deepEqual(await other.hold().next(), { done: true, value: undefined });
    await rival.release();
  });

  test("a shutdown right after everything began leaves nothing", async () => {
    // Catches: a grant that arrives after the end.
    const name = store.name();
    for (let turns = 0; turns < 12; turns++) {
      const locker = await store.locker();
      const calls = [locker.lock(name).acquire(), locker.lock(name).acquire(), locker.inspect(name)];
      const ended = Promise.allSettled(calls);
      for (let i = 0; i < turns; i++) {
        await pause(0);
      }
      await locker.shutdown();
      for (const { reason, value } of await ended) {
        assert.ok(reason === undefined ? !value.valid : reason.code === "shutdown", String(reason));
      }
      await store.nothingLeft(name);
    }
  });

  test("the program's own client is left open by a shutdown", async () => {
    const locker = await store.locker();
    await locker.shutdown();
    // The store still answers all others.
    await waitFor(async () => (await store.admin.inspect(store.name())).waiting === 0);
  });
});
