// Acquiring and releasing: a holder is the only one.
import assert from "node:assert/strict";
import { LeaseholdError } from "../../dist/index.js";
import { aborted, forEachStore } from "../support/stores.mjs";
import { test } from "../support/test.mjs";
import { awake, pause, steady, waitFor } from "../support/wait.mjs";

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

  test("two locks of one name exclude each other, in one locker and in two", async () => {
    // Catches: one owner for all locks of a process.
    const [one, two] = [await store.locker(), await store.locker()];
    const name = store.name();
    const lease = await one.lock(name).acquire();
    for (const locker of [one, two]) {
      assert.equal(await locker.lock(name).tryAcquire(), undefined);
    }
    await lease.release();
    const next = await two.lock(name).tryAcquire();
    assert.ok(next.token > lease.token);
    await next.release();
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

  test("leases of a re-entrant lock share a tenure, and the last to go frees it", async () => {
    const lock = (await store.locker()).lock(store.name(), { reentrant: true });
    const [first, second] = [await lock.acquire(), await lock.acquire()];
    const third = await lock.tryAcquire();
    assert.deepEqual([second.token, third.token], [first.token, first.token]);
    assert.deepEqual([first.holdCount, third.holdCount], [3, 3]);
    await first.release();
    assert.ok(!first.valid && second.valid && third.valid);
    await third.release();
    assert.equal((await store.admin.inspect(lock.name)).holder.token, second.token);
    await second.release();
    await store.nothingLeft(lock.name);
  });

  test("renewals keep a lease beyond its time to live", async () => {
    const lock = (await store.locker()).lock(store.name(), { ttl: 3_000 });
    const lease = await lock.acquire();
    const until = performance.now() + 4_000;
    while (performance.now() < until) {
      assert.ok(lease.valid, "it is renewed in the background");
      await pause(20);
    }
    await lease.renew();
    assert.ok(lease.remaining > 2_000, String(lease.remaining));
    await lease.release();
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

  test("a fixed lease ends by itself, unless it is renewed by hand", async () => {
    // Catches: background renewals of a fixed lease; a manual renewal that does not move the deadline.
    const name = store.name();
    const lease = await (await store.locker()).lock(name, { ttl: 3_000, fixed: true }).acquire();
    await pause(200);
    const before = lease.remaining;
    await lease.renew();
    assert.ok(lease.remaining > before, `${lease.remaining} after ${before}`);
    const left = lease.remaining;
    const begin = awake();
    const { code, reason } = await aborted(lease.signal);
    assert.deepEqual([code, reason], ["lost", "expired"]);
    // Much less than a background renewal would give it, and enough for a busy machine.
    assert.ok(awake() - begin <= left + 1_000, "no later than it was said");
    const message = `lock ${JSON.stringify(lease.name)}: the lease is not held: it expired`;
    await assert.rejects(lease.renew(), ({ code, message: said, cause }) => {
      assert.deepEqual([code, said, cause.code, cause.reason], ["notHeld", message, "lost", "expired"]);
      return true;
    });
    await assert.rejects(lease.release(), { code: "notHeld", message });
    await store.nothingLeft(name);
  });

  test("dense tokens count by one", async () => {
    const locker = await store.locker();
    const name = store.name();
    for (const token of [1, 2, 3]) {
      const lease = await locker.lock(name, { denseTokens: true }).acquire();
      assert.equal(lease.token, token);
      await lease.release();
    }
  });

  test("a restart under the same owner takes over at once, and the old process is notified", async () => {
    // Catches: a restart that waits for its own time to live.
    const name = store.name();
    const [former, restarted] = [await store.hearing(), await store.locker({ owner: "job-7" })];
    const old = await former.lock(name, { owner: "job-7" }).acquire();
    const begin = awake();
    const lost = aborted(old.signal);
    const lease = await restarted.lock(name).acquire();
    assert.ok(lease.token > old.token);
    const { reason } = await lost;
    const took = awake() - begin;
    assert.equal(reason, "superseded");
    assert.ok(took < 5_000, `at the push, not at the next renewal after 10 s: ${took} ms`);
    assert.ok(!old.valid);
    await assert.rejects(old.release(), { code: "notHeld" });
    assert.ok(lease.valid);
    await lease.release();
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
    await store.admin.forceRelease(lock.name);
    await assert.rejects(never, { code: "lost", reason: "revoked", token: lease.token });
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

  test("hold yields one tenure after the other, through losses", async () => {
    const name = store.name();
    const stop = new AbortController();
    const tokens = [];
    for await (const lease of (await store.hearing()).lock(name).hold({ signal: stop.signal })) {
      tokens.push(lease.token);
      if (tokens.length === 1) {
        await store.admin.forceRelease(name);
        await aborted(lease.signal);
      } else if (tokens.length === 2) {
        await lease.release();
      } else {
        stop.abort();
        await lease.release();
      }
    }
    assert.equal(tokens.length, 3);
    assert.deepEqual([...tokens].sort((a, b) => a - b), tokens);
    await store.nothingLeft(name);
  });

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

  test("odd names are names", async () => {
    const locker = await store.locker();
    const names = ["{", "}", "{}", "}{", "a b", "🔒", "a\nb", "a\0b", "%7D", "*?[a]", ":", "€".repeat(170)];
    const leases = [];
    for (const name of names) {
      leases.push(await locker.lock(name).acquire());
      assert.equal(await locker.lock(name).tryAcquire(), undefined, JSON.stringify(name));
      assert.ok((await locker.inspect(name)).holder !== null);
    }
    await Promise.all(leases.map((lease) => lease.release()));
  });

  test("namespaces are apart", async () => {
    const [one, two] = [await store.locker({ namespace: "a" }), await store.locker({ namespace: "a:b" })];
    const lease = await one.lock("b:x").acquire();
    const other = await two.lock("x").tryAcquire();
    assert.ok(other);
    await Promise.all([lease.release(), other.release()]);
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

/** Blocks the event loop. */
function block(milliseconds) {
  const end = performance.now() + milliseconds;
  while (performance.now() < end);
}
