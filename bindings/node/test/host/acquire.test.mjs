// Acquiring and releasing: a holder is the only one.
import assert from "node:assert/strict";
import { LeaseholdError } from "../../dist/index.js";
import { aborted, forEachStore, lockerOf } from "../support/stores.mjs";
import { test } from "../support/test.mjs";
import { block, pause, steady, waitFor } from "../support/wait.mjs";

forEachStore((store) => {
  test("a lease has all that the holder needs", async () => {
    const locker = await store.locker();
    const name = store.name();
    const before = Date.now();
    const lease = await locker.lock(name, { ttl: 20_000 }).acquire();
    assert.equal(lease.name, name);
    assert.ok(Number.isSafeInteger(lease.token) && lease.token > 0);
    assert.ok(lease.remaining > 10_000 && lease.remaining <= 20_000, String(lease.remaining));
    assert.ok(lease.waited >= 0 && lease.waited < 10_000, String(lease.waited));
    // The wall clock and the monotonic clock are not read at the same moment.
    assert.ok(lease.began.getTime() + 500 >= before && lease.began.getTime() <= Date.now() + 500);
    assert.ok(lease.valid && !lease.signal.aborted);
    assert.equal(lease.signal, lease.signal);
    await lease.release();
    assert.ok(!lease.valid);
    assert.equal(lease.remaining, 0);
    // A release is not a loss.
    assert.equal(lease.signal.aborted, false);
    await lease.release();
    await assert.rejects(lease.renew(), { code: "notHeld" });
    assert.equal((await locker.inspect(name)).holder, null);
  });

  test("a lock that a module keeps lets in one caller at a time", async () => {
    // Ten lines that a newcomer writes. Catches a handle that lets in all its callers at once.
    const orders = (await store.locker()).lock(store.name());
    let inside = 0;
    const request = () =>
      orders.using(async (lease) => {
        inside += 1;
        assert.equal(inside, 1);
        await pause(2);
        assert.ok(lease.valid && orders.held);
        inside -= 1;
        return lease.token;
      });
    const tokens = await Promise.all(Array.from({ length: 10 }, request));
    assert.deepEqual(tokens, [...new Set(tokens)].sort((one, next) => one - next));
    assert.equal(orders.held, false);
    await store.nothingLeft(orders.name);
  });

  test("a lease is renewed for another time to live, and other arguments are refused", async () => {
    const lease = await (await store.locker()).lock(store.name(), { fixed: true }).acquire();
    await lease.renew({ ttl: 100_000 });
    assert.ok(lease.remaining > 90_000, String(lease.remaining));
    for (const wrong of [5_000, { ttl: 0 }, { ttl: 1e12 }, { tll: 5 }]) {
      await assert.rejects(lease.renew(wrong), { code: "config" });
    }
    assert.ok(lease.valid);
    await lease.release();
  });

  test("the errors of a lost lease name its loss", async () => {
    const name = store.name();
    const lease = await (await store.locker()).lock(name, { ttl: 500, fixed: true }).acquire();
    const { code, reason } = await aborted(lease.signal);
    assert.deepEqual([code, reason], ["lost", "expired"]);
    const message = `lock ${JSON.stringify(lease.name)}: the lease is not held: it expired`;
    await assert.rejects(lease.renew(), ({ code, message: said, cause }) => {
      assert.deepEqual([code, said, cause.code, cause.reason], ["notHeld", message, "lost", "expired"]);
      return true;
    });
    await assert.rejects(lease.release(), { code: "notHeld", message });
    await store.nothingLeft(name);
  });

  test("using releases, whatever the work does", async () => {
    const lock = (await store.hearing()).lock(store.name());
    assert.equal(
      await lock.using((lease, signal) => {
        assert.ok(lease.valid);
        assert.equal(signal, lease.signal);
        return 42;
      }),
      42,
    );
    await store.nothingLeft(lock.name, 0);
    const failed = new Error("the work's own");
    for (const work of [
      () => {
        throw failed;
      },
      () => Promise.reject(failed),
      async (lease) => {
        await store.admin.forceRelease(lock.name);
        await aborted(lease.signal);
        throw failed;
      },
    ]) {
      assert.equal(await lock.using(work).catch((error) => error), failed);
      await store.nothingLeft(lock.name, 0);
    }
  });

  test("using rejects with the loss if the lease was lost before the work ended", async () => {
    // Catches: work that counts as done although another caller was let in.
    const lock = (await store.hearing()).lock(store.name());
    const lost = lock.using(async (_, signal) => {
      await store.admin.forceRelease(lock.name);
      await aborted(signal);
      return "done";
    });
    await assert.rejects(lost, { name: "LeaseLostError", code: "lost", reason: "revoked", lock: lock.name });
  });

  test("run rejects at the moment of the loss, and does not begin after it", async () => {
    const lock = (await store.hearing()).lock(store.name());
    const lease = await lock.acquire();
    assert.equal(await lease.run(() => 7), 7);
    assert.ok(lease.valid, "it is still held after the work");
    const failed = new Error("the work's own");
    await assert.rejects(lease.run(() => Promise.reject(failed)), failed);
    const never = lease.run(() => new Promise(() => {}));
    // The loss may arrive before the answer of the forced release.
    const rejected = assert.rejects(never, { code: "lost", reason: "revoked", token: lease.token });
    await store.admin.forceRelease(lock.name);
    await rejected;
    await assert.rejects(lease.run(assert.fail), { code: "lost", reason: "revoked" });
    const next = await lock.acquire();
    await next.release();
    await assert.rejects(next.run(assert.fail), { code: "notHeld" });
  });

  // Catches: a result of work that outlived its lease, because no timer could fire.
  test("work that blocks the event loop past the deadline ends with the loss", async () => {
    const lock = (await store.hearing()).lock(store.name(), { ttl: 50, fixed: true });
    const expired = { name: "LeaseLostError", code: "lost", reason: "expired" };
    const once = async (work) => work(await lock.acquire());
    await assert.rejects(once((lease) => lease.run(() => block(80))), expired);
    await assert.rejects(once((lease) => lease.run(async () => block(80))), expired);
    await assert.rejects(once((lease) => lease.run(() => pause(1).then(() => block(80)))), expired);
    await assert.rejects(lock.using(() => block(80)), expired);
  });

  // The control.
  test("work that gives its lease up has not lost it, however long it goes on", (t) =>
    steady(t, async () => {
      const lease = await (await store.hearing()).lock(store.name(), { ttl: 150, fixed: true }).acquire();
      const work = lease.run(async () => {
        await lease.release();
        block(200);
        return "released";
      });
      assert.equal(await work, "released");
    }));

  test("leaving hold leaves the line, and it ends with the locker", async () => {
    const name = store.name();
    const locker = await store.locker();
    const holder = await store.admin.lock(name).acquire();
    for (const leave of [(tenures) => tenures.return(), () => locker.shutdown()]) {
      const tenures = locker.lock(name).hold();
      const next = tenures.next();
      await store.inLine(name, 1);
      await leave(tenures);
      assert.deepEqual(await next, { done: true, value: undefined });
      assert.deepEqual(await tenures.next(), { done: true, value: undefined });
      await store.inLine(name, 0);
    }
    await holder.release();
  });

  // Catches: a timer that was set for the long one, and is not brought forward.
  test("a short lease is renewed beside a long one", (t) =>
    steady(t, async () => {
      const locker = await store.locker();
      const long = await locker.lock(store.name(), { ttl: 60_000 }).acquire();
      const short = await locker.lock(store.name(), { ttl: 400 }).acquire();
      await pause(1_000);
      assert.ok(short.valid && long.valid);
      await Promise.all([long.release(), short.release()]);
    }));

  // Catches: calls that are answered before the losses of the same turn.
  test("a release in the turn of the loss names the loss", { skip: store.kind !== "ioredis" }, async (t) => {
    const { locker, client, end } = await lockerOf("ioredis", store.server.url, { tracking: false });
    t.after(() => locker.shutdown().then(end));
    const [locks, met] = [Array.from({ length: 24 }, () => locker.lock(store.name(), { fixed: true })), []];
    for (const [hops, lock] of locks.entries()) {
      const lease = await lock.acquire();
      const { signal } = lease;
      assert.equal(await store.server.command("DEL", `{leasehold:${lock.name}}`), 1);
      // Both replies come together. The release follows the renewal's by less than a turn, after some number of hops.
      store.server.pause();
      const renewed = assert.rejects(lease.renew(), { code: "notHeld" });
      await pause(1);
      const answered = client.ping();
      store.server.resume();
      await answered;
      for (let hop = 0; hop < hops; hop += 1) await undefined;
      const lostBefore = signal.aborted;
      const released = await lease.release().catch((error) => error);
      await renewed;
      if (!lostBefore && signal.aborted) met.push(released.cause?.reason);
    }
    assert.ok(met.length > 0, "no release came in the turn of a loss");
    assert.deepEqual(met, met.map(() => "deleted"));
  });

  test("await using releases, and an earlier loss is no error there", async () => {
    const lock = (await store.hearing()).lock(store.name());
    const lease = await lock.acquire();
    await lease[Symbol.asyncDispose]();
    await store.nothingLeft(lock.name, 0);
    const lost = await lock.acquire();
    await store.admin.forceRelease(lock.name);
    await aborted(lost.signal);
    await lost[Symbol.asyncDispose]();
  });

  test("many names at once, and one name by many", async () => {
    // Catches: answers that go to the wrong call.
    const locker = await store.locker();
    const names = Array.from({ length: 300 }, () => store.name());
    const leases = await Promise.all(names.map((name) => locker.lock(name).acquire()));
    assert.deepEqual(leases.map((lease) => lease.name), names);
    await Promise.all(leases.map((lease) => lease.release()));

    const name = store.name();
    let inside = 0;
    const visit = async (locker) => {
      const lease = await locker.lock(name).acquire();
      assert.equal((inside += 1), 1, "two at once");
      await pause(0);
      inside -= 1;
      await lease.release();
      return lease.token;
    };
    const others = [locker, await store.locker(), await store.locker()];
    const tokens = await Promise.all(Array.from({ length: 30 }, (_, i) => visit(others[i % 3])));
    assert.equal(new Set(tokens).size, 30);
    await store.nothingLeft(name);
  });

  test("a name is known again after many others, whichever of its handles is left", async () => {
    // Catches: a new handle that takes the number of a handle that the engine no longer knows.
    const locker = await store.locker();
    const name = store.name();
    const visit = async (lock) => {
      const lease = await lock.acquire();
      await lease.release();
      return lease.token;
    };
    const visitOthers = async (count) => {
      for (let i = 0; i < count; i += 1) await visit(locker.lock(`${name}/${count}/${i}`));
    };
    const read = locker.lock(name);
    const events = read.events();
    const tokens = [await visit(read)];
    await visitOthers(300);
    await events.return();
    for (const count of [0, 200, 400]) {
      await visitOthers(count);
      tokens.push(await visit(locker.lock(name)));
    }
    tokens.push(await visit(read));
    assert.deepEqual(tokens, [...new Set(tokens)].sort((one, next) => one - next));
  });

  test("a time to live of a year, and one of ten milliseconds", async () => {
    // Catches: a delay that a timer takes for 1 ms.
    const locker = await store.locker();
    const long = await locker.lock(store.name(), { ttl: 366 * 24 * 60 * 60 * 1_000 }).acquire();
    assert.ok(long.remaining > 300 * 24 * 60 * 60 * 1_000);
    await pause(50);
    assert.ok(long.valid);
    await long.release();
    const short = await locker.lock(store.name(), { ttl: 10, fixed: true }).tryAcquire().catch((error) => error);
    // The lease may be over before the answer arrives.
    if (short instanceof LeaseholdError) {
      assert.equal(short.code, "timeout", String(short));
    } else {
      await waitFor(() => !short.valid);
    }
  });
});
