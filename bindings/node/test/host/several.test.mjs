// Several names at once.
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { LeaseLostError, Locker } from "../../dist/index.js";
import { aborted, forEachStore } from "../support/stores.mjs";
import { test } from "../support/test.mjs";
import { block, waitFor, within } from "../support/wait.mjs";

const LIMIT = 10_000;
/** The two ways to acquire several names. */
const ways = ["all", "allAtOnce"];

/** Returns three names of which the first comes first in the order. */
function three(store) {
  const name = store.name();
  return ["a", "b", "c"].map((letter) => `${name} ${letter}`);
}

forEachStore((store) => {
  test("a bundle has a token for each name, in their order, and releases them", async () => {
    for (const way of ways) {
      const [a, b, c] = three(store);
      const locker = await store.locker();
      const bundle = await locker[way]([c, a, b], { ttl: 20_000 }).acquire();
      assert.deepEqual([...bundle.tokens.keys()], [a, b, c]);
      assert.ok(bundle.valid && bundle.remaining > 15_000 && bundle.remaining <= 20_000);
      for (const [name, token] of bundle.tokens) {
        assert.equal((await store.admin.inspect(name)).holder.token, token);
      }
      assert.equal(await bundle.run(async (signal) => signal.aborted), false);
      assert.deepEqual(await bundle.release(), [a, b, c]);
      assert.equal(bundle.valid, false);
      await assert.rejects(bundle.run(() => {}), { code: "notHeld" });
      for (const name of [a, b, c]) {
        assert.equal((await store.admin.inspect(name)).holder, null);
      }
    }
  });

  test("two callers that lock [a, b] and [b, a] both get both", async () => {
    // A peer's bug: each got its first name and waited for ever for the other's.
    const [a, b, c] = three(store);
    for (const way of ways) {
      let inside = 0;
      const caller = async (names) => {
        const locker = await store.locker();
        for (let turn = 0; turn < 10; turn += 1) {
          await locker[way](names).using(async () => {
            // Any two of the lists have a name in common.
            assert.equal((inside += 1), 1);
            await null;
            inside -= 1;
          });
        }
      };
      const callers = [[a, b], [b, a], [b, c], [c, a]].map(caller);
      await within(Promise.all(callers), 3 * LIMIT, "all callers");
    }
  });

  test("a bundle with a wait of zero releases only what it held", async () => {
    // A peer's bug (`waitTime = 0`).
    const [a, b, c] = three(store);
    const [locker, other] = [await store.locker(), await store.locker()];
    for (const holder of [locker, other]) {
      const lease = await holder.lock(b).acquire();
      for (const way of ways) {
        const set = locker[way]([c, b, a]);
        await assert.rejects(set.acquire({ timeout: 0 }), { code: "timeout", message: new RegExp(b) });
        assert.equal(await set.tryAcquire(), undefined);
        await assert.rejects(set.acquire({ timeout: 300 }), { code: "timeout" });
      }
      assert.ok(lease.valid);
      assert.equal((await store.admin.inspect(b)).holder.token, lease.token);
      await store.nothingLeft(a);
      await store.nothingLeft(c);
      await lease.release();
    }
  });

  test("only earlier names are held, and renewed, while one is awaited", async () => {
    for (const way of ways) {
      const [a, b, c] = three(store);
      const lease = await store.admin.lock(b).acquire();
      const waits = (await store.locker())[way]([b, c, a], { ttl: 1_200 }).acquire();
      await store.inLine(b, 1);
      const holder = async (name) => (await store.admin.inspect(name)).holder;
      const first = await holder(a);
      assert.equal(first !== null, way === "all");
      await sleep(1_500);
      assert.equal((await holder(a))?.token, first?.token);
      assert.equal(await holder(c), null);
      await lease.release();
      const bundle = await within(waits, LIMIT, "the bundle");
      assert.ok(bundle.valid);
      await bundle.release();
    }
  });

  test("a name that is lost while another is awaited is acquired again", async () => {
    const [a, b] = three(store);
    const other = await store.locker();
    const leaseOfB = await other.lock(b).acquire();
    const waits = (await store.hearing()).all([a, b]).acquire();
    await store.inLine(b, 1);
    const next = other.lock(a).acquire();
    await store.inLine(a, 1);
    const { token } = await store.admin.forceRelease(a);
    const leaseOfA = await within(next, LIMIT, "the next holder");
    // The bundle waits for the earlier name first.
    await store.inLine(b, 0);
    await leaseOfB.release();
    await leaseOfA.release();
    const bundle = await within(waits, LIMIT, "the bundle");
    assert.ok(bundle.valid && bundle.tokens.get(a) > token);
    await bundle.release();
  });

  test("a loss names its lock, and a release says what was released", async () => {
    for (const way of ways) {
      const [a, b, c] = three(store);
      const bundle = await (await store.hearing())[way]([a, b, c]).acquire();
      const work = bundle.run((signal) => aborted(signal).then(() => "stopped"));
      const lost = (error) => error instanceof LeaseLostError && error.lock === b;
      // The loss can arrive before the reply to the forced release.
      const stopped = assert.rejects(within(work, LIMIT, "the loss"), lost);
      await store.admin.forceRelease(b);
      await stopped;
      assert.ok(lost(bundle.signal.reason));
      assert.ok(!bundle.valid && bundle.remaining === 0);
      await assert.rejects(bundle.run(() => {}), lost);
      assert.notEqual((await store.admin.inspect(a)).holder, null);
      await assert.rejects(bundle.release(), ({ code, cause, message }) => {
        assert.ok(message.includes(`released only ${JSON.stringify([a, c])}: lock ${JSON.stringify(b)}`), message);
        return code === "notHeld" && lost(cause);
      });
      // Catches: a second release that boasts of the name that was lost.
      assert.deepEqual(await bundle.release(), [a, c]);
      await store.nothingLeft(a);
      await store.nothingLeft(c);
    }
  });

  // Catches: a result of work that outlived a lease, because no timer could fire. A thread of its own would renew.
  test("work that blocks the event loop past a deadline ends with the loss", { skip: store.kind === "thread" }, async () => {
    const locker = await store.locker();
    for (const work of [() => block(80), async () => block(80)]) {
      const bundle = await locker.all(three(store), { ttl: 50 }).acquire();
      await assert.rejects(bundle.run(work), { name: "LeaseLostError", reason: "expired" });
      await assert.rejects(bundle.release(), { code: "notHeld" });
    }
  });

  test("aborted at any time, it leaves nothing", async () => {
    const names = three(store);
    const locker = await store.locker();
    let given = 0;
    for (let n = 0; n < 60; n += 1) {
      const busy = n % 3 === 0 ? await locker.lock(names[(n / 3) % 3]).acquire() : undefined;
      const controller = new AbortController();
      const acquired = locker[ways[n % 2]](names).acquire({ signal: controller.signal });
      const ended = acquired.then((bundle) => bundle.release(), (error) => {
        assert.match(String(error), /given up/);
        given += 1;
      });
      await (n % 4 === 0 ? null : sleep(n % 5));
      busy?.release();
      await (n % 7 === 0 ? null : sleep(n % 4));
      controller.abort(new Error("given up"));
      await within(ended, LIMIT, "the end of the call");
    }
    assert.ok(given > 2, `${given} were aborted before they ended`);
    for (const name of names) {
      await store.nothingLeft(name);
    }
    await assert.rejects(locker.all(names).acquire({ signal: AbortSignal.abort(new Error("given up")) }), /given up/);
  });

  test("it releases with `await using`, also after a loss", async () => {
    const [a, b] = three(store);
    const locker = await store.hearing();
    const bundle = await locker.all([a, b]).acquire();
    await store.admin.forceRelease(b);
    await within(aborted(bundle.signal), LIMIT, "the loss");
    await bundle[Symbol.asyncDispose]();
    await store.nothingLeft(a);
    const thrown = locker.all([a, b]).using(() => {
      throw new Error("of the work");
    });
    await assert.rejects(thrown, /of the work/);
    await store.nothingLeft(a);
  });
});

test("free names of one server are one script call", async (t) => {
  const { startRedis } = await import("../support/redis.mjs");
  const server = await startRedis();
  const locker = await Locker.connect(server.url);
  t.after(() => Promise.all([locker.shutdown(), server.stop()]));
  await locker.lock("first").using(() => {});
  const calls = () => locker.stats().scriptCalls;
  for (const way of ways) {
    const names = Array.from({ length: 24 }, (_, n) => `${way} ${n}`);
    await waitFor(async () => {
      const before = calls();
      await sleep(50);
      return calls() === before;
    }, LIMIT, "nothing else is sent");
    const before = calls();
    const bundle = await locker[way](names).acquire();
    assert.equal(calls() - before, 1);
    assert.equal((await bundle.release()).length, 24);
    assert.equal(calls() - before, 2);
  }
});

test("a bad list is refused with its culprit, and the order is that of Rust", async () => {
  const locker = Locker.inMemory();
  const many = Array.from({ length: 1_000 }, (_, n) => `name-${n}`);
  for (const way of ways) {
    for (const [names, culprit] of [
      [[], /empty/],
      [["a", "b", "a"], /"a"/],
      [many, /64 names.*"name-64"/],
      [["a", ""], /name/],
      [["a", 7], /name/],
      ["ab", /array/],
      [undefined, /array/],
    ]) {
      assert.throws(() => locker[way](names), (error) => error.code === "config" && culprit.test(error.message));
    }
    for (const options of [{ fixed: true }, { reentrant: true }, { atLeast: 1 }, { ttl: 0 }, { ttl: "1" }]) {
      assert.throws(() => locker[way](["a"], options), { code: "config" }, JSON.stringify(options));
    }
    assert.deepEqual(locker[way](["😀", "\u{ffff}", "z", "zz"]).names, ["z", "zz", "\u{ffff}", "😀"]);
    const bundle = await locker[way](many.slice(0, 64)).acquire();
    assert.equal(bundle.tokens.size, 64);
    await bundle.release();
  }
  await locker.shutdown();
});

test("it works at a quorum", async () => {
  const urls = ["one", "two", "three"].map((name) => `memory://several-${name}`);
  const [locker, other] = [await Locker.quorum(urls), await Locker.quorum(urls)];
  for (const way of ways) {
    const bundle = await locker[way](["a", "b", "c"]).acquire();
    const second = other[way](["c", "b"]).acquire();
    await waitFor(async () => (await other.inspect("b")).waiting === 1, LIMIT);
    await bundle.release();
    const next = await within(second, LIMIT, "the next bundle");
    assert.ok(next.tokens.get("b") > bundle.tokens.get("b"));
    await next.release();
  }
  await Promise.all([locker.shutdown(), other.shutdown()]);
});
