// The engine itself fails, by a trap in WebAssembly. Everything in it ends with a clear error, and the locker
// continues with a new engine.
import assert from "node:assert/strict";
import { before } from "node:test";
import { LeaseholdError, LeaseLostError, Locker } from "../../dist/index.js";
import { aborted, clients, collect, forEachStore, inThread } from "../support/stores.mjs";
import { test } from "../support/test.mjs";
import { waitFor, within } from "../support/wait.mjs";

const traps = trappable();

forEachStore((store) => {
  // An in-memory store is in the instance that fails.
  const survives = !store.isMemory;
  before(() => survives && setApart(store.admin));

  /** Makes a locker with everything that can be pending: leases, waiters, readers. */
  async function busy() {
    const locker = await store.hearing();
    const [held, wanted, other] = [store.name(), store.name(), store.name()];
    const rival = survives ? await store.admin.lock(wanted).acquire() : undefined;
    const lock = locker.lock(held, { reentrant: true });
    const leases = [
      await lock.acquire(),
      await lock.acquire(),
      await locker.lock(other).acquire(),
      // The short time to live makes the timer due soon.
      await locker.lock(store.name(), { ttl: 3_000 }).acquire(),
    ];
    const events = collect(lock.events());
    const all = collect(locker.events());
    // The places of a failed engine stay in line for a time that depends on the time to live.
    const waits = [
      locker.lock(survives ? wanted : other, { ttl: 1_000 }).acquire(),
      locker.lock(other, { ttl: 1_000 }).acquire({ timeout: 60_000 }),
    ];
    const calls = waits.map((call) => call.catch((error) => error));
    await waitFor(() => events.length > 0 && all.filter(({ type }) => type === "waiting").length >= 2);
    const lost = leases.map((lease) => aborted(lease.signal));
    const counted = locker.stats();
    return { locker, lock, leases, lost, calls, events, all, rival, wanted, counted };
  }

  async function givenUp(up) {
    const reasons = await Promise.all(up.lost);
    for (const [i, reason] of reasons.entries()) {
      assert.ok(reason instanceof LeaseLostError);
      assert.deepEqual([reason.code, reason.reason, reason.token], ["lost", "crashed", up.leases[i].token]);
      assert.ok(!up.leases[i].valid);
      assert.equal(up.leases[i].remaining, 0);
    }
    for (const error of await Promise.all(up.calls)) {
      assert.ok(error instanceof LeaseholdError, String(error));
      assert.equal(error.code, "internal");
      assert.ok(error.cause instanceof WebAssembly.RuntimeError, "the trap is there to be reported");
    }
    await waitFor(() => up.events.some(({ type }) => type === "lost"));
    const { token, name } = up.leases[0];
    assert.deepEqual(up.events.find(({ type }) => type === "lost"), { type: "lost", name, token, reason: "crashed" });
    assert.equal(up.all.filter(({ type, reason }) => type === "lost" && reason === "crashed").length, 3);
  }

  function countsOn({ locker, counted }) {
    const stats = locker.stats();
    assert.deepEqual([stats.held, stats.waiting, stats.lost.crashed], [0, 0, 3]);
    assert.deepEqual([counted.held, stats.acquired, stats.busy], [3, counted.acquired, counted.busy]);
    assert.ok(stats.scriptCalls >= counted.scriptCalls);
  }

  async function worksAgain({ locker, lock, leases, events, rival, wanted }) {
    await assert.rejects(leases[0].release(), { code: "notHeld" });
    await assert.rejects(leases[2].renew(), { code: "notHeld" });
    // The store still has the locks of the failed engine. Their tokens are below all later ones.
    await locker.forceRelease(lock.name);
    const lease = await lock.acquire();
    assert.ok(lease.token > leases[0].token || !survives);
    await waitFor(() => events.at(-1).type === "acquired" && events.at(-1).token === lease.token);
    await lease.renew();
    await lease.release();
    await waitFor(() => events.at(-1).type === "released");
    if (rival !== undefined) {
      const next = locker.lock(wanted, { ttl: 1_000 }).acquire();
      await rival.release();
      await (await next).release();
    }
    await locker.shutdown();
  }

  for (const [what, provoke] of Object.entries({
    "while a call begins": async ({ locker }) => {
      traps.next("engine_inspect");
      const error = await locker.inspect("x").catch((error) => error);
      assert.deepEqual([error.code, error.cause?.constructor], ["internal", WebAssembly.RuntimeError]);
    },
    "in the timer": async () => {
      traps.next("engine_tick");
    },
    "while the outputs are taken": async ({ locker }) => {
      traps.next("engine_drain");
      assert.equal((await locker.inspect("x").catch((error) => error)).code, "internal");
    },
    "while an answer is read": async ({ locker }) => {
      traps.next(survives ? "engine_replyFields" : "memorystore_execute");
      assert.equal((await locker.inspect("x").catch((error) => error)).code, "internal");
    },
    "while an event is read": async ({ locker }) => {
      traps.next("engine_nextEvent");
      const events = locker.events();
      assert.ok(["acquired", "lost"].includes((await events.next()).value.type));
      await events.return();
    },
  })) {
    test(`a trap ${what}`, async () => {
      const up = await busy();
      await provoke(up);
      await givenUp(up);
      countsOn(up);
      await worksAgain(up);
    });
  }

  test("traps over and over", async () => {
    const locker = await store.locker();
    const lock = locker.lock(store.name(), { ttl: 10_000 });
    for (let i = 0; i < 20; i++) {
      const lease = await lock.acquire();
      traps.next("engine_inspect");
      assert.equal((await locker.inspect("x").catch((error) => error)).code, "internal");
      assert.equal((await aborted(lease.signal)).reason, "crashed");
      await locker.forceRelease(lock.name);
    }
  });

  test("a trap in a shutdown ends it all the same", async () => {
    const locker = await store.hearing();
    const lease = await locker.lock(store.name()).acquire();
    const events = collect(locker.events());
    const lost = aborted(lease.signal);
    traps.next("engine_shutdown");
    await locker.shutdown();
    assert.ok(["crashed", "shutdown"].includes((await lost).reason));
    await within(events.ended, 10_000, "the end of the events");
  });

  test("hold goes on with a new tenure", async () => {
    const locker = await store.hearing();
    const name = store.name();
    const tenures = locker.lock(name, { ttl: 3_000 }).hold();
    const first = (await tenures.next()).value;
    traps.next("engine_inspect");
    await locker.inspect(name).catch(() => {});
    assert.equal((await aborted(first.signal)).reason, "crashed");
    const second = (await tenures.next()).value;
    assert.ok(second.token > first.token || !survives);
    await tenures.return();
    await second.release();
  });
  // The traps are set in this thread. thread.test.mjs has one in a worker thread.
}, { only: inThread });

forEachStore(
  (store) => {
    before(() => setApart(store.admin));

    test("all lockers of an instance learn of a failure once, and continue", async () => {
      // Catches: a neighbor that continues with an engine in untrusted memory; a neighbor that learns of the
      // same failure twice, and loses what it got in between.
      const lockers = [await store.locker(), await store.locker(), await store.locker()];
      const names = lockers.map(() => store.name());
      const leases = await Promise.all(lockers.map((locker, i) => locker.lock(names[i], { ttl: 1_000 }).acquire()));
      const lost = leases.map(({ signal }) => aborted(signal));
      const waiting = lockers[2].lock(names[0]).acquire().catch((error) => error);
      await store.inLine(names[0], 1);
      // The program's reaction to the loss uses the next locker, which does not know of the failure yet.
      const again = new Promise((resolve) => {
        leases[0].signal.addEventListener("abort", () => resolve(lockers[1].lock(store.name()).acquire()));
      });
      traps.anywhere("engine_inspect");
      assert.equal((await lockers[0].inspect("x").catch((error) => error)).code, "internal");
      for (const reason of await Promise.all(lost)) {
        assert.equal(reason.reason, "crashed");
      }
      assert.equal((await waiting).code, "internal");
      const kept = await again;
      const others = await Promise.all(lockers.map((locker) => locker.lock(store.name()).acquire()));
      assert.ok(kept.valid && others.every(({ valid }) => valid));

      // A locker that failed once is isolated: the others lose nothing the next time.
      traps.anywhere("engine_inspect");
      await assert.rejects(lockers[0].inspect("x"), { code: "internal" });
      assert.equal((await aborted(others[0].signal)).reason, "crashed");
      assert.ok(kept.valid && others[1].valid && others[2].valid);
      await kept.renew();
      await Promise.all(lockers.map((locker) => locker.shutdown()));
    });

    test("after its shutdown a locker is not woken by a neighbor's failure", async () => {
      // Catches: a new engine that does not know of the shutdown, and listens on a client forever.
      const [ended, other] = [await store.locker(), await store.locker()];
      await ended.shutdown();
      traps.anywhere("engine_inspect");
      assert.equal((await other.inspect("x").catch((error) => error)).code, "internal");
      await assert.rejects(ended.lock(store.name()).acquire(), { code: "shutdown" });
      await assert.rejects(ended.inspect("x"), { code: "shutdown" });
      await other.shutdown();
    });
  },
  { only: clients },
);

test("a quorum's engine that fails takes its leases along, and no servers", async () => {
  const servers = ["memory://crash-1", "memory://crash-2", "memory://crash-3"];
  const [locker, other] = [await Locker.quorum(servers), await Locker.quorum(servers)];
  await setApart(locker);
  const lease = await locker.lock("x", { ttl: 1_000 }).acquire();
  const kept = await other.lock("y", { ttl: 1_000 }).acquire();
  const lost = aborted(lease.signal);
  await setApart(locker);
  assert.equal((await lost).reason, "crashed");
  // The lost lease stays at the servers until it expires there.
  const next = await locker.lock("x").acquire();
  assert.ok(next.token > lease.token);
  await kept.renew();
  assert.ok(kept.valid);
  await Promise.all([locker.shutdown(), other.shutdown()]);
});

test("an in-memory server of a quorum that fails counts as emptied: the others go on", async () => {
  const servers = ["memory://fails-1", "memory://fails-2", "memory://fails-3"];
  const locker = await Locker.quorum(servers);
  const lease = await locker.lock("x", { ttl: 1_000 }).acquire();
  const events = collect(locker.events());
  traps.anywhere("memorystore_execute");
  const renewals = () => events.filter(({ type }) => type === "renewed").length;
  await waitFor(() => renewals() >= 3, 10_000, "renewals");
  assert.ok(lease.valid);
  await lease.release();
  const next = await locker.lock("x").acquire();
  assert.ok(next.token > lease.token);
  await locker.shutdown();
});

/**
 * Isolates a locker: its engine fails once, so it gets an instance of its own, and later failures are not its
 * own.
 */
async function setApart(locker) {
  traps.anywhere("engine_inspect");
  assert.equal((await locker.inspect("x").catch((error) => error)).code, "internal");
}

/**
 * Makes exports of the engine's instances fail on demand, in the newest instance or in the next one that is
 * called. Each failure is a real trap, which leaves the instance unchanged.
 */
function trappable() {
  const { Instance } = WebAssembly;
  // By the names of exports, because an in-memory store is from another module.
  const newest = new Map();
  const wherever = new Set();
  WebAssembly.Instance = function (module, imports) {
    const { exports } = new Instance(module, imports);
    const due = new Set();
    const wrapped = { __proto__: null };
    for (const [name, value] of Object.entries(exports)) {
      newest.set(name, due);
      wrapped[name] = !/^(engine|memorystore)_/.test(name)
        ? value
        : (...args) => {
            // The object's address is replaced by one beyond the memory.
            return due.delete(name) || wherever.delete(name) ? value(0xffff_fff0, ...args.slice(1)) : value(...args);
          };
    }
    return { exports: wrapped };
  };
  return { next: (name) => newest.get(name).add(name), anywhere: (name) => wherever.add(name) };
}
