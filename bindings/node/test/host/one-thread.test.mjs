// Lockers that share the worker thread of a process: it starts once, ends with the last of them, and when it
// fails all of them notice, and continue in one other thread.
import assert from "node:assert/strict";
import { after, before, describe } from "node:test";
import { fileURLToPath } from "node:url";
import { Locker } from "../../dist/index.js";
import { startNode } from "../support/program.mjs";
import { startRedis } from "../support/redis.mjs";
import { aborted, collect, inTheEnd } from "../support/stores.mjs";
import { test } from "../support/test.mjs";
import { first, workers } from "../support/threads.mjs";
import { pause, waitFor, within } from "../support/wait.mjs";

const LODGER = fileURLToPath(new URL("lodger.mjs", import.meta.url));
/** Beyond the reach of any machine that stalls. */
const LONG_TTL = 60_000;
/** Far below the time of the first renewal of a lease with `LONG_TTL`. */
const SOON = 10_000;
/** More than the 10 seconds that a thread has to answer, and less than a lease with `LONG_TTL` lives. */
const HUNG = 25_000;

let servers;
let server;
let names = 0;
const newName = () => `name ${(names += 1)}`;
before(async () => {
  servers = await Promise.all([1, 2, 3].map(() => startRedis()));
  [server] = servers;
});
after(() => Promise.all(servers.map((each) => each.stop())));

/** Makes as many lockers at once as there are options. They are shut down at the end of the test. */
async function made(t, ...options) {
  const lockers = await Promise.all(options.map((each) => Locker.connect(server.url, { thread: true, ...each })));
  t.after(() => Promise.all(lockers.map((locker) => locker.shutdown())));
  return lockers;
}

const held = (locker, ttl = LONG_TTL) => locker.lock(newName(), { ttl }).acquire();

describe("one thread", () => {
  test("serves ten lockers and a quorum, and ends with the last of them", async (t) => {
    const before = workers.length;
    const lockers = await made(t, ...Array.from({ length: 10 }, () => ({})));
    lockers.push(await Locker.quorum(servers.map(({ url }) => url), { thread: true }));
    t.after(() => lockers.at(-1).shutdown());
    assert.equal(workers.length, before + 1);
    const worker = workers.at(-1);
    let over = false;
    void worker.over.then(() => (over = true));
    const leases = await Promise.all(lockers.map((locker) => held(locker, 1_000)));
    for (const [at, locker] of lockers.entries()) {
      await locker.shutdown();
      assert.deepEqual(leases.map(({ valid }) => valid), leases.map((_, index) => index > at), `after ${at + 1} shutdowns`);
      assert.equal(over, at === lockers.length - 1);
      await assert.rejects(locker.inspect("x"), { code: "shutdown" });
    }
    // The control: the next locker needs another thread.
    const [next] = await made(t, {});
    assert.equal(workers.length, before + 2);
    await (await held(next)).release();
  });

  test("renews the leases of the others after a shutdown, and takes further lockers", async (t) => {
    const [one, two] = await made(t, {}, {});
    const lease = await held(two, 500);
    const renewals = () => two.stats().renewals;
    await one.shutdown();
    const before = workers.length;
    const [three] = await made(t, {});
    assert.equal(workers.length, before);
    const further = await held(three);
    const seen = renewals();
    await waitFor(() => renewals() >= seen + 3, SOON, "three renewals");
    assert.ok(lease.valid && further.valid);
  });

  test("goes on for the others when one of them cannot connect", async (t) => {
    const lone = await startRedis();
    await lone.stop();
    const [locker] = await made(t, {});
    const before = workers.length;
    const lease = await held(locker);
    await assert.rejects(Locker.connect(lone.url, { thread: true }), { code: "unavailable", message: /127\.0\.0\.1/ });
    assert.ok(lease.valid);
    await locker.inspect("x");
    assert.equal(workers.length, before);
  });

  test("tells each locker the findings of its own server", async (t) => {
    const full = await startRedis({ config: ["maxmemory-policy allkeys-lru"] });
    t.after(() => full.stop());
    const [locker] = await made(t, {});
    const evicted = await Locker.connect(full.url, { thread: true });
    t.after(() => evicted.shutdown());
    assert.deepEqual([locker.findings.length, evicted.findings[0]?.type], [0, "eviction"]);
  });

  test("keeps the process alive as long as one of its lockers does", async () => {
    const program = startNode(LODGER, server.url);
    assert.equal(await program.end(), 0, program.output());
    assert.deepEqual(program.lines, ["held", "idle true", "shut true", "released"]);
  });
});

describe("one thread that fails", () => {
  const FAILURES = {
    "because it is terminated": (worker) => worker.terminate(),
    "by an error that nobody catches": (worker) => worker.postMessage(null),
  };
  for (const [how, act] of Object.entries(FAILURES)) {
    test(`${how}, ends the leases and calls of all, which share the next one`, async (t) => {
      const lockers = await made(t, {}, {});
      const begun = workers.length;
      const leases = await Promise.all(lockers.map((locker) => held(locker)));
      const events = lockers.map((locker) => collect(locker.events()));
      const pending = lockers.map((locker, at) => locker.lock(leases[1 - at].name).acquire().catch((error) => error));
      await waitFor(async () => (await lockers[0].inspect(leases[1].name)).waiting === 1, SOON, "a waiter");
      await waitFor(async () => (await lockers[1].inspect(leases[0].name)).waiting === 1, SOON, "a waiter");
      const lost = leases.map(({ signal }) => within(aborted(signal), SOON, "the loss"));
      await act(workers.at(-1));
      for (const [at, locker] of lockers.entries()) {
        assert.equal((await lost[at]).reason, "crashed");
        assert.equal(leases[at].valid, false);
        const { code, message } = await pending[at];
        assert.deepEqual([code, message.startsWith("the locker's worker thread ended: ")], ["internal", true]);
        assert.deepEqual([locker.stats().held, locker.stats().lost.crashed], [0, 1]);
        await waitFor(() => events[at].some(({ type, reason }) => type === "lost" && reason === "crashed"), SOON, "the event");
      }
      const again = await Promise.all(lockers.map((locker) => inTheEnd(locker.lock(newName(), { ttl: LONG_TTL }))));
      assert.equal(workers.length, begun + 1);
      assert.ok(again.every(({ valid }) => valid));
      await Promise.all(again.map((lease) => lease.release()));
    });
  }

  test("ends the leases of all in a loop that never yields", async (t) => {
    const lockers = await made(t, {}, {});
    const leases = await Promise.all(lockers.map((locker) => held(locker)));
    const signals = leases.map(({ signal }) => aborted(signal));
    workers.at(-1).postMessage(null);
    for (const begin = performance.now(); leases.some(({ valid }) => valid); ) {
      assert.ok(performance.now() - begin < SOON, "a lease is valid");
    }
    assert.deepEqual((await Promise.all(signals)).map(({ reason }) => reason), ["crashed", "crashed"]);
  });

  test("by a trap in one engine, costs the other lockers nothing", async (t) => {
    // In the thread the engine of the first locker is in the second instance.
    first.code = `{ const { Instance } = WebAssembly; let made = 0; WebAssembly.Instance = function (module, imports) {
      const { exports } = new Instance(module, imports);
      const inspect = (...args) => exports.engine_inspect(0xffff_fff0, ...args.slice(1));
      return { exports: (made += 1) < 3 ? { ...exports, engine_inspect: inspect } : exports };
    }; }`;
    const [trapped] = await made(t, {}).finally(() => (first.code = ""));
    const [other] = await made(t, {});
    const [lost, kept] = [await held(trapped), await held(other)];
    await assert.rejects(trapped.inspect("x"), { code: "internal" });
    assert.equal((await aborted(lost.signal)).reason, "crashed");
    await other.inspect("x");
    assert.deepEqual([kept.valid, other.stats().lost.crashed, trapped.stats().lost.crashed], [true, 0, 1]);
  });

  test("starts again no more than once a second, whoever calls", async (t) => {
    const [one, two] = await made(t, {}, {});
    const first = workers.length - 1;
    for (const caller of [one, two, one]) {
      await workers.at(-1).terminate();
      await inTheEnd(caller.lock(newName()));
    }
    const times = workers.slice(first).map(({ begun }) => begun);
    assert.equal(times.length, 4);
    const pauses = times.slice(1).map((time, at) => time - times[at]);
    // The constructor itself takes some of the time.
    assert.ok(Math.min(...pauses) > 900, `starts after ${pauses} ms`);
  });
});

describe("one thread that hangs", () => {
  /** Hangs in the thread at a message with two numbers, of which it sets the first. */
  const HANGS = `process.getBuiltinModule("node:worker_threads").parentPort.on("message", (asked) => {
    if (asked.length !== 2) return;
    Atomics.store(asked, 0, 1);
    Atomics.wait(asked, 1, 0);
  });`;

  /** Makes two lockers with a lease each, the first of which lives for this long, and makes their thread hang. */
  async function hanging(t, ttl) {
    first.code = HANGS;
    const patience = { patience: 2_000, commandTimeout: 2_000 };
    const [one, two] = await made(t, patience, patience).finally(() => (first.code = ""));
    const worker = workers.at(-1);
    const [lease, kept] = [await held(one, ttl), await held(two)];
    const asked = new Int32Array(new SharedArrayBuffer(8));
    worker.postMessage(asked);
    await waitFor(() => Atomics.load(asked, 0) === 1, SOON, "the hang");
    return { one, two, worker, lease, kept };
  }

  /** Checks that the thread is ended, that this ends the lease, and that its locker goes on. */
  async function replaced({ two, worker, kept }) {
    assert.equal((await within(aborted(kept.signal), HUNG, "the loss")).reason, "crashed");
    await within(worker.over, SOON, "the end of the thread");
    assert.notEqual(await inTheEnd(two.lock(newName())), undefined);
    assert.notEqual(workers.at(-1), worker);
  }

  test("differs from one that answers, which goes on", async (t) => {
    const lockers = await made(t, {}, {});
    const leases = await Promise.all(lockers.map((locker) => held(locker)));
    await pause(11_000);
    assert.ok(leases.every(({ valid }) => valid));
    await Promise.all(lockers.map((locker) => locker.inspect("x")));
  });

  test("delays no shutdown, after which it is ended", async (t) => {
    const all = await hanging(t, LONG_TTL);
    // Until the patience and 3 seconds have passed.
    await within(all.one.shutdown(), SOON, "the shutdown");
    assert.deepEqual([all.lease.signal.reason?.reason, all.kept.valid], ["shutdown", true]);
    await replaced(all);
  });

  test("is ended when another locker connects", async (t) => {
    const all = await hanging(t, LONG_TTL);
    const message = /^the locker's worker thread ended: it did not answer within 10000 ms$/;
    await assert.rejects(Locker.connect(server.url, { thread: true }), { code: "internal", message });
    await replaced(all);
    assert.equal(all.lease.signal.reason?.reason, "crashed");
  });

  test("is ended when a lease expires", async (t) => {
    const all = await hanging(t, 2_000);
    assert.equal((await aborted(all.lease.signal)).reason, "expired");
    await replaced(all);
  });
});
