// Lockers whose engine is in a worker thread. The shared suites run on them, too: see `kinds`. Here is what
// only they promise: a blocked event loop costs no lease, a lease is right in a loop that never yields, and a
// thread that fails is never silent.
import assert from "node:assert/strict";
import { after, before, describe } from "node:test";
import { fileURLToPath } from "node:url";
import { Redis } from "ioredis";
import { LeaseholdError, LeaseLostError, Locker } from "../../dist/index.js";
import { startNode } from "../support/program.mjs";
import { startRedis } from "../support/redis.mjs";
import { aborted, collect, inTheEnd, key } from "../support/stores.mjs";
import { test } from "../support/test.mjs";
import { first, workers } from "../support/threads.mjs";
import { awake, block, pause, steady, waitFor, within } from "../support/wait.mjs";

const BLOCKER = fileURLToPath(new URL("blocker.mjs", import.meta.url));
/** Beyond the reach of any machine that stalls. */
const LONG_TTL = 60_000;
/** Far below the time of the first renewal of a lease with `LONG_TTL`. */
const SOON = 10_000;

let server;
let names = 0;
const newName = () => `name ${(names += 1)}`;
before(async () => {
  server = await startRedis();
});
after(() => server.stop());

/** Makes a locker that is shut down at the end of the test. */
async function made(t, connect = Locker.connect, url = server.url, options = {}) {
  const locker = await connect.call(Locker, url, { thread: true, ...options });
  t.after(() => locker.shutdown());
  return locker;
}

/** Blocks this thread until the condition is met, and returns the time that took. It fails at the limit. */
function spin(condition, limit = SOON) {
  const begin = performance.now();
  while (!condition()) {
    assert.ok(performance.now() - begin < limit, `not met within ${limit} ms: ${condition}`);
  }
  return performance.now() - begin;
}

describe("a program that blocks its event loop for ten times the time to live", () => {
  const [TTL, BLOCK] = [300, 3_000];

  /** Starts the program, and waits for its lock in this process. Returns both accounts. */
  async function rivals(t, thread) {
    const name = newName();
    const program = startNode(BLOCKER, server.url, thread, name, TTL, BLOCK);
    const token = Number(await program.says("held"));
    const rival = await made(t, Locker.connect, server.url, { thread: false });
    const taken = rival.lock(name).acquire({ timeout: 60_000 });
    let stolen = false;
    taken.then(() => (stolen = true));
    const blocked = JSON.parse(await program.says("blocked"));
    const before = stolen;
    const then = JSON.parse(await program.says("then"));
    assert.equal(await program.end(), 0, program.output());
    const next = await taken;
    await next.release();
    assert.ok(next.token > token, "a token that does not grow");
    return { stolen: before, blocked, then };
  }

  test("keeps its lock with a thread", (t) =>
    steady(t, async () => {
      const { stolen, blocked, then } = await rivals(t, "yes");
      assert.deepEqual([stolen, blocked.valid, blocked.gone, then.acquired], [false, true, undefined, 1]);
      assert.ok(blocked.remaining > 0 && blocked.remaining <= TTL, `${blocked.remaining} ms remain`);
      assert.ok(then.valid);
    }));

  test("loses it in time without one", async (t) => {
    // The control: without it the test above would prove nothing.
    const { stolen, blocked, then } = await rivals(t, "no");
    assert.deepEqual([stolen, blocked.valid, blocked.remaining, blocked.aborted], [true, false, 0, false]);
    // The process may stand still before it sees that the lease is over, so `gone` may be a little later.
    assert.ok(blocked.last <= TTL && blocked.gone > 0, `valid after ${blocked.last} ms`);
    assert.equal(then.reason, "expired");
  });
});

describe("in a loop that never yields", () => {
  /** Runs the program until its lease is not valid, and returns what it saw. */
  async function spun(target, ttl, act) {
    const name = newName();
    const program = startNode(BLOCKER, target.url, "yes", name, ttl, 30_000, "until");
    await program.says("held");
    await act(name);
    const begin = awake();
    const blocked = JSON.parse(await program.says("blocked"));
    const took = awake() - begin;
    const then = JSON.parse(await program.says("then"));
    assert.equal(await program.end(), 0, program.output());
    assert.equal(blocked.aborted, false, "nothing could run");
    assert.deepEqual([blocked.valid, blocked.remaining, then.valid], [false, 0, false]);
    return { took, blocked, then };
  }

  test("a lease is over when its key is deleted", async () => {
    const act = async (name) => {
      // Until the server tracks the key for the holder.
      const tracked = async () => Number(/tracking_total_keys:(\d+)/.exec(await server.info("stats"))[1]) > 0;
      await waitFor(tracked, SOON, "the key is tracked");
      await server.command("DEL", key(name));
    };
    const { took, then } = await spun(server, LONG_TTL, act);
    assert.ok(took < SOON, `${took} ms`);
    assert.equal(then.reason, "deleted");
  });

  test("a lease is over when it is force-released", async (t) => {
    const admin = await made(t, Locker.connect, server.url, { thread: false });
    const act = async (name) => {
      const channels = async () => (await server.command("PUBSUB", "CHANNELS", "*")).length;
      await waitFor(async () => (await channels()) > 0, SOON, "the subscription");
      await admin.forceRelease(name);
    };
    const { took, then } = await spun(server, LONG_TTL, act);
    assert.ok(took < SOON, `${took} ms`);
    assert.equal(then.reason, "revoked");
  });

  test("a lease is over at its deadline when the server is killed", async (t) => {
    const lone = await startRedis();
    t.after(() => lone.stop());
    const { blocked, then } = await spun(lone, 2_000, () => lone.kill());
    // The process may stand still before it sees that the lease is over, but not see it valid.
    assert.ok(blocked.last <= blocked.deadline + 1, `${blocked.last} ms, after the deadline ${blocked.deadline}`);
    assert.equal(then.reason, "expired");
  });

  test("a lease is over when its thread fails", async (t) => {
    const locker = await made(t);
    const lease = await locker.lock(newName(), { ttl: LONG_TTL }).acquire();
    workers.at(-1).postMessage(null);
    spin(() => !lease.valid);
    assert.equal(lease.signal.aborted, false);
    assert.equal((await aborted(lease.signal)).reason, "crashed");
  });
});

describe("a thread that fails", () => {
  const FAILURES = {
    "because it is terminated": { act: (worker) => worker.terminate(), says: /exit code 1/ },
    "by an error that nobody catches": { act: (worker) => worker.postMessage(null), says: /null/ },
    "by an exit": { first: "setTimeout(() => process.exit(7), 3_000);", act: () => {}, says: /exit code 7/ },
  };

  for (const [how, { act, says, first: code = "" }] of Object.entries(FAILURES)) {
    test(`${how}, ends leases and calls, and the next call starts another`, async (t) => {
      first.code = code;
      const locker = await made(t).finally(() => (first.code = ""));
      const worker = workers.at(-1);
      const other = await made(t, Locker.connect, server.url, { thread: false });
      const name = newName();
      const lock = locker.lock(name, { ttl: LONG_TTL, reentrant: true });
      const leases = [await lock.acquire(), await lock.acquire(), await locker.lock(newName()).acquire()];
      const [events, all] = [collect(lock.events()), collect(locker.events())];
      const kept = await other.lock(newName()).acquire();
      const wanted = newName();
      const rival = await other.lock(wanted).acquire();
      const pending = [locker.lock(wanted).acquire(), locker.lock(wanted).acquire({ signal: new AbortController().signal })];
      const failed = pending.map((call) => call.catch((error) => error));
      await waitFor(async () => (await other.inspect(wanted)).waiting === 2 && events.length > 0, SOON, "two in line");
      const lost = leases.map(({ signal }) => aborted(signal));
      await act(worker);

      for (const [at, reason] of (await Promise.all(lost)).entries()) {
        assert.ok(reason instanceof LeaseLostError);
        assert.deepEqual([reason.reason, leases[at].valid, leases[at].remaining], ["crashed", false, 0]);
      }
      for (const error of await Promise.all(failed)) {
        assert.ok(error instanceof LeaseholdError);
        assert.equal(error.code, "internal");
        assert.match(error.message, /^the locker's worker thread ended: /);
        assert.match(error.message, says);
      }
      await waitFor(() => events.some(({ type, reason }) => type === "lost" && reason === "crashed"), SOON, "the event");
      assert.deepEqual([locker.stats().held, locker.stats().lost.crashed], [0, 2]);
      await assert.rejects(leases[0].release(), { code: "notHeld" });
      await assert.rejects(leases[2].renew(), { code: "notHeld" });

      // Its neighbor is in the program's thread.
      assert.ok(kept.valid);
      await kept.release();
      await rival.release();
      await other.forceRelease(name);
      const again = await inTheEnd(lock);
      assert.ok(again.token > leases[0].token);
      assert.notEqual(workers.at(-1), worker);
      await waitFor(() => all.some(({ type, token }) => type === "acquired" && token === again.token), SOON, "the new lease");
      assert.equal(locker.stats().held, 1);
      await again.release();
    });
  }

  test("by a trap in its engine, goes on with a new engine", async (t) => {
    // In the thread the locker's own engine is the last instance.
    first.code = `{ const { Instance } = WebAssembly; WebAssembly.Instance = function (module, imports) {
      const { exports } = new Instance(module, imports);
      const inspect = (...args) => exports.engine_inspect(0xffff_fff0, ...args.slice(1));
      const trapped = globalThis.trapped = (globalThis.trapped ?? 0) + 1;
      return { exports: trapped < 3 ? { ...exports, engine_inspect: inspect } : exports };
    }; }`;
    const locker = await made(t).finally(() => (first.code = ""));
    const worker = workers.at(-1);
    const lease = await locker.lock(newName()).acquire();
    await assert.rejects(locker.inspect("x"), { code: "internal" });
    assert.equal((await aborted(lease.signal)).reason, "crashed");
    assert.deepEqual([lease.valid, locker.stats().lost.crashed], [false, 1]);
    await waitFor(() => locker.inspect("x").then(() => true, () => false), SOON, "it works again");
    assert.equal(workers.at(-1), worker);
  });

  test("to go on, and hangs, makes no loss late, and no shutdown endless", (t) =>
    steady(t, async () => {
      first.code = "setTimeout(() => { for (;;); }, 2_500);";
      const locker = await made(t, Locker.connect, server.url, { patience: 2_000, commandTimeout: 2_000 }).finally(() => (first.code = ""));
      const lease = await locker.lock(newName(), { ttl: 2_000 }).acquire();
      let deadline = 0;
      const watch = setInterval(() => (deadline = lease.valid ? awake() + lease.remaining : deadline), 5);
      assert.equal((await aborted(lease.signal)).reason, "expired");
      clearInterval(watch);
      const late = awake() - deadline;
      assert.ok(late <= 250, `late by ${late} ms`);
      assert.equal(lease.valid, false);
      await within(locker.shutdown(), 20_000, "the shutdown");
      await within(workers.at(-1).over, SOON, "the end of the thread");
      await assert.rejects(lease.release(), { code: "notHeld" });
    }));

  test("again and again, starts no more than once a second", async (t) => {
    const locker = await made(t);
    const before = workers.length;
    const begin = performance.now();
    while (performance.now() - begin < 2_500) {
      void workers.at(-1).terminate();
      await locker.inspect("x").catch(({ code }) => assert.equal(code, "internal"));
      await pause(5);
    }
    const [starts, took] = [workers.length - before, performance.now() - begin];
    // The first one may start at once.
    assert.ok(starts >= 1 && starts <= 1 + took / 1_000, `${starts} threads in ${took} ms`);
  });
});

describe("a thread", () => {
  test("ends with the shutdown of its locker, and with a locker that cannot connect", async (t) => {
    const locker = await made(t);
    const worker = workers.at(-1);
    await locker.shutdown();
    await within(worker.over, SOON, "the end of the thread");
    await locker.shutdown();
    await assert.rejects(locker.inspect("x"), { code: "shutdown" });
    const lone = await startRedis();
    await lone.stop();
    const failed = { code: "unavailable", message: /127\.0\.0\.1/ };
    await assert.rejects(Locker.connect(lone.url, { thread: true }), failed);
    await within(workers.at(-1).over, SOON, "the end of the thread");
  });

  test("answers every call that is made while it shuts down", async (t) => {
    const locker = await made(t);
    const lock = locker.lock(newName());
    const [over, calls] = [locker.shutdown(), []];
    let ended = false;
    void over.then(() => (ended = true));
    while (!ended) {
      calls.push(lock.acquire().catch(({ code }) => code));
      await pause(0);
    }
    const codes = await within(Promise.all(calls), SOON, "the answers");
    assert.deepEqual([...new Set(codes)], ["shutdown"]);
  });

  test("is told of a server that is down at first", async (t) => {
    const lone = await startRedis();
    await lone.kill();
    const locker = await made(t, Locker.connectLazily, lone.url, { patience: 60_000 });
    t.after(() => lone.stop());
    const waiting = locker.lock("x").acquire();
    await lone.start();
    const lease = await within(waiting, 30_000, "the lease");
    assert.ok(lease.valid);
  });

  test("serves a quorum", async (t) => {
    const servers = await Promise.all([1, 2, 3].map(() => startRedis()));
    t.after(() => Promise.all(servers.map((each) => each.stop())));
    const locker = await made(t, Locker.quorum, servers.map(({ url }) => url));
    await assert.rejects(locker.lock("x", { ttl: 61_000 }).acquire(), { code: "config" });
    const lease = await locker.lock("x", { ttl: 2_000 }).acquire();
    // By the first renewal, a server that granted the lease after the two others counts, too.
    await waitFor(() => lease.remaining < 1_400);
    await waitFor(() => lease.remaining > 1_600);
    await servers[0].kill();
    spin(() => lease.remaining < 1_400);
    // A renewal by two of three servers, which this thread did not see.
    spin(() => lease.remaining > 1_600);
    await lease.release();
    const twins = Locker.quorum([1, 2, 3].map(() => servers[1].url), { thread: true });
    await assert.rejects(twins, { code: "config", message: /list each server once/ });
  });

  test("whose clock is ahead has deadlines by the program's clock", async (t) => {
    // Catches a deadline by the thread's own clock.
    first.code = "{ const { now } = performance; performance.now = () => now.call(performance) + 20_000; }";
    const locker = await made(t).finally(() => (first.code = ""));
    const lease = await locker.lock(newName(), { ttl: LONG_TTL }).acquire();
    assert.ok(lease.remaining > LONG_TTL - SOON && lease.remaining <= LONG_TTL, `${lease.remaining} ms remain`);
  });

  test("renews no lease that the program has seen end", async (t) =>
    steady(t, async () => {
      // Catches a lock that a thread holds for good, and nobody else. The thread takes in everything a second
      // late, so the program's deadlines are a second before its own.
      const [ttl, late] = [3_000, 1_000];
      first.code = `{ ${block};
        const channel = new BroadcastChannel("block");
        channel.onmessage = ({ data }) => (channel.postMessage(""), block(data));
        channel.unref();
        block(${late}); }`;
      const channel = new BroadcastChannel("block");
      t.after(() => channel.close());
      const blocked = (milliseconds) => {
        const answer = new Promise((resolve) => (channel.onmessage = resolve));
        channel.postMessage(milliseconds);
        return within(answer, SOON, "the thread's answer");
      };
      const locker = await made(t).finally(() => (first.code = ""));
      const [name, other] = [newName(), await made(t, Locker.connect, server.url, { thread: false })];
      try {
        await blocked(late);
        const lease = await locker.lock(name, { ttl }).acquire();
        assert.ok(lease.remaining < ttl - late, `${lease.remaining} ms remain`);
        await blocked(lease.remaining + late / 4);
        assert.equal((await aborted(lease.signal)).reason, "expired");
        assert.notEqual((await other.inspect(name)).holder, null, "the thread's lease goes on");
        await waitFor(async () => (await other.inspect(name)).holder === null, 2 * ttl, "the release");
      } finally {
        // Another attempt needs another thread.
        await locker.shutdown();
      }
    }));

  test("never lends a lost lease the validity of another", async (t) => {
    // Catches a slot of shared memory that is used again too early.
    const locker = await made(t);
    const many = await Promise.all(Array.from({ length: 1_500 }, () => locker.lock(newName()).acquire()));
    const deleted = many.filter((_, at) => at % 3 === 0);
    await server.command("DEL", ...deleted.map(({ name }) => key(name)));
    await waitFor(() => deleted.every(({ valid }) => !valid), SOON, "the losses");
    const more = await Promise.all(deleted.map(() => locker.lock(newName()).acquire()));
    assert.ok(more.every(({ valid }) => valid));
    assert.ok(deleted.every(({ valid, remaining }) => !valid && remaining === 0));
    for (const [at, lease] of many.entries()) {
      assert.equal(lease.valid, at % 3 !== 0, `lease ${at}`);
    }
    await Promise.all(deleted.map((lease) => assert.rejects(lease.release(), { code: "notHeld" })));
    assert.ok(more.every(({ valid }) => valid), "a release of a lost lease released another");
    assert.equal(locker.stats().held, 1_500);
  });

  test("counts renewals that the program did not see", async (t) => {
    const locker = await made(t);
    const lease = await locker.lock(newName(), { ttl: 900 }).acquire();
    const before = locker.stats().renewals;
    spin(() => locker.stats().renewals >= before + 3);
    assert.ok(lease.valid);
    await lease.release();
    assert.equal(locker.stats().released, 1);
  });

  test("names a finding of its server", async (t) => {
    const full = await startRedis({ config: ["maxmemory-policy allkeys-lru"] });
    t.after(() => full.stop());
    const warned = new Promise((resolve) => process.once("warning", resolve));
    const locker = await made(t, Locker.connect, full.url);
    assert.equal(locker.findings[0]?.type, "eviction");
    assert.equal((await warned).name, "LeaseholdWarning");
  });
});

describe("the option thread", () => {
  const refusals = {
    "a client": () => Locker.from(new Redis({ lazyConnect: true }), { thread: true }),
    "Locker.inMemory": () => Locker.inMemory({ thread: true }),
    "a memory URL": () => Locker.connect("memory://x", { thread: true }),
    "a memory URL, lazily": () => Locker.connectLazily("memory://x", { thread: true }),
    "a quorum in memory": () => Locker.quorum(["memory://1", "memory://2", "memory://3"], { thread: true }),
    "a client in a quorum": () =>
      Locker.quorum([server.url, "redis://127.0.0.1:1", new Redis({ lazyConnect: true })], { thread: true }),
    "a text": () => Locker.connect(server.url, { thread: "yes" }),
  };
  for (const [what, make] of Object.entries(refusals)) {
    test(`is refused for ${what}`, async () => {
      const before = workers.length;
      await assert.rejects(async () => make(), { code: "config", message: /thread/ });
      assert.equal(workers.length, before);
    });
  }

  test("is refused where there are no worker threads", async (t) => {
    const { getBuiltinModule } = process;
    t.after(() => (process.getBuiltinModule = getBuiltinModule));
    process.getBuiltinModule = (name) => (name === "node:worker_threads" ? undefined : getBuiltinModule(name));
    const refused = { code: "config", message: /^thread needs worker threads .*leave `thread` out$/ };
    await assert.rejects(Locker.connect(server.url, { thread: true }), refused);
    const Worker = class {
      constructor() {
        throw new Error("no permission");
      }
    };
    process.getBuiltinModule = (name) => (name === "node:worker_threads" ? { Worker } : getBuiltinModule(name));
    const denied = { code: "config", message: "thread: the runtime does not start a worker thread: no permission" };
    await assert.rejects(Locker.connect(server.url, { thread: true }), denied);
  });

  test("shows a bad lock at once, as without it", async (t) => {
    const locker = await made(t);
    for (const options of [{ ttl: 1 }, { owner: "" }, { fixed: 1 }, { unknown: 1 }]) {
      assert.throws(() => locker.lock("x", options), { code: "config" });
    }
    assert.throws(() => locker.lock(""), { code: "config" });
    assert.equal(locker.toJSON().thread, true);
    await assert.rejects(locker.list("\\x").next(), { code: "config" });
  });
});
