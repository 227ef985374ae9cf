// Many calls that wait under one signal of the program.
import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { Locker } from "../../dist/index.js";
import { forEachStore } from "../support/stores.mjs";
import { test } from "../support/test.mjs";
import { pause, waitFor } from "../support/wait.mjs";

const MANY = 1_000;

const listeners = (signal) => getEventListeners(signal, "abort").length;

/** Collects Node's warnings during the test. */
function warnings(t) {
  const told = [];
  const hear = (warning) => told.push(warning);
  process.on("warning", hear);
  t.after(() => process.off("warning", hear));
  return told;
}

forEachStore((store) => {
  test("a thousand calls under one signal take one listener, and leave none", async (t) => {
    // Catches: a listener for each call, of which Node warns from the eleventh on.
    const told = warnings(t);
    const lockers = [await store.locker(), await store.locker()];
    const name = store.name();
    const holder = await store.admin.lock(name).acquire();
    const stop = new AbortController();
    const order = [];
    const calls = Array.from({ length: MANY }, (_, i) =>
      lockers[i % 2]
        .lock(name)
        .acquire({ signal: stop.signal })
        .catch((error) => {
          order.push(i);
          return error;
        }),
    );
    assert.equal(listeners(stop.signal), 1);
    await store.inLine(name, MANY);
    const reason = new Error("enough");
    stop.abort(reason);
    assert.equal(listeners(stop.signal), 0);
    for (const error of await Promise.all(calls)) {
      assert.equal(error, reason);
    }
    assert.deepEqual(order, Array.from({ length: MANY }, (_, i) => i));
    await holder.release();
    await store.nothingLeft(name, 30_000);
    await pause(20);
    assert.deepEqual(told, []);
  });

  test("calls that end by themselves leave the others under their signal, and no listener behind", async () => {
    // Catches: a listener that goes with the first call, so that the signal no longer ends any call.
    const locker = await store.locker();
    const name = store.name();
    const stop = new AbortController();
    const holder = await locker.lock(name).acquire({ signal: stop.signal });
    assert.equal(listeners(stop.signal), 0);
    const patient = locker.lock(name).acquire({ signal: stop.signal });
    const gone = assert.rejects(patient, { name: "AbortError" });
    for (let i = 0; i < 3; i++) {
      await assert.rejects(locker.lock(name).acquire({ signal: stop.signal, timeout: 0 }), { code: "timeout" });
      assert.equal(listeners(stop.signal), 1);
    }
    stop.abort();
    await gone;
    assert.equal(listeners(stop.signal), 0);
    await holder.release();
    await store.nothingLeft(name);
  });

  test("an abort in the turn of the call or of its answer leaves no lock", async () => {
    // Catches: a lock that is granted to a canceled call, and renewed for the life of the process.
    const locker = await store.locker();
    for (const turns of [0, 1, 2, 3, 5, 8, 13]) {
      for (const method of ["acquire", "tryAcquire"]) {
        const name = store.name();
        const stop = new AbortController();
        const call = locker.lock(name)[method]({ signal: stop.signal }).catch((error) => error);
        for (let turn = 0; turn < turns; turn++) {
          await undefined;
        }
        stop.abort("enough");
        const got = await call;
        if (got !== "enough") {
          // The answer was there before.
          await got.release();
        }
        await store.nothingLeft(name);
      }
    }
  });

  test("an abort ends the wait in line while the lock is held", async () => {
    // Catches: a waiter that stays in line until its turn, and delays those behind it.
    const [name, stop] = [store.name(), new AbortController()];
    const holder = await store.admin.lock(name).acquire();
    const gone = assert.rejects((await store.locker()).lock(name).acquire({ signal: stop.signal }), { name: "AbortError" });
    await store.inLine(name, 1);
    stop.abort();
    await gone;
    await store.inLine(name, 0);
    assert.ok(holder.valid);
    await holder.release();
  });

  test("an abort while the answer is on its way leaves no lock", async () => {
    // Catches: a lease that nobody got, and that a worker thread renews for good.
    const locker = await store.locker();
    await locker.inspect(store.name());
    const [name, stop] = [store.name(), new AbortController()];
    const got = locker.lock(name).acquire({ signal: stop.signal }).catch((error) => error);
    // The request leaves in these turns.
    for (let turn = 0; turn < 20; turn++) {
      await undefined;
    }
    // The answer of a thread arrives meanwhile, and cannot be taken.
    for (const end = performance.now() + 200; performance.now() < end; );
    stop.abort("enough");
    const lease = await got;
    if (lease !== "enough") {
      await lease.release();
    }
    await store.nothingLeft(name);
  });

  test("a call that is made and canceled while a signal is aborted ends", async () => {
    // Catches: a call that waits forever, because it began while earlier calls were being ended.
    const locker = await store.locker();
    const name = store.name();
    const holder = await store.admin.lock(name).acquire();
    const [one, two] = [new AbortController(), new AbortController()];
    const wait = ({ signal }) => locker.lock(name).acquire({ signal }).catch((error) => error);
    const late = [];
    one.signal.addEventListener("abort", () => {
      late.push(wait(one), wait(two));
      two.abort("two");
      one.abort("again");
    });
    const calls = [wait(one), wait(two), wait(one)];
    one.signal.addEventListener("abort", () => late.push(wait(one)));
    await store.inLine(name, 3);
    one.abort("one");
    assert.deepEqual(await Promise.all(calls), ["one", "two", "one"]);
    assert.deepEqual(await Promise.all(late), ["one", "two", "one"]);
    assert.deepEqual([one, two].map(({ signal }) => listeners(signal)), [2, 0]);
    await holder.release();
    await store.nothingLeft(name);
  });
});

forEachStore((store) => {
  test("an abort in any turn after the store's answer leaves no lock", async (t) => {
    // Catches: a grant that the engine has reported and nobody has taken when the call is ended.
    const { Redis } = await import("ioredis");
    const client = new Redis(store.server.url);
    t.after(() => client.disconnect());
    let answered = () => {};
    const evaluator = {
      async eval(script, keys, args) {
        const answer = await client.eval(script, keys.length, ...keys, ...args);
        answered(keys);
        return answer;
      },
    };
    const outcomes = { aborted: 0, acquired: 0 };
    for (let turns = 0; turns < 30; turns++) {
      const locker = Locker.from(evaluator);
      const stop = new AbortController();
      const name = store.name();
      answered = async (keys) => {
        if (!keys.some((key) => key.includes(name))) {
          return;
        }
        answered = () => {};
        for (let turn = 0; turn < turns; turn++) {
          await undefined;
        }
        stop.abort("enough");
      };
      const got = await locker.lock(name).acquire({ signal: stop.signal }).catch((error) => error);
      outcomes[got === "enough" ? "aborted" : "acquired"] += 1;
      if (got !== "enough") {
        await got.release();
      }
      await store.nothingLeft(name);
      await locker.shutdown();
    }
    assert.ok(outcomes.aborted > 0 && outcomes.acquired > 0, JSON.stringify(outcomes));
  });
}, { only: ["ioredis"] });

test("a signal that many lockers share takes one listener", async (t) => {
  const told = warnings(t);
  const stop = new AbortController();
  const calls = [];
  for (let i = 0; i < 20; i++) {
    const locker = Locker.inMemory();
    t.after(() => locker.shutdown());
    await locker.lock("shared").acquire();
    calls.push(assert.rejects(locker.lock("shared").acquire({ signal: stop.signal }), { name: "AbortError" }));
  }
  assert.equal(listeners(stop.signal), 1);
  stop.abort();
  await Promise.all(calls);
  assert.equal(listeners(stop.signal), 0);
  await pause(20);
  assert.deepEqual(told, []);
});

test("a call that ends by the end of its locker leaves no listener", async () => {
  const locker = Locker.inMemory();
  const { signal } = new AbortController();
  await locker.lock("ended").acquire();
  const ended = assert.rejects(locker.lock("ended").acquire({ signal }), { code: "shutdown" });
  await waitFor(async () => (await locker.inspect("ended")).waiting === 1);
  await locker.shutdown();
  await ended;
  assert.equal(listeners(signal), 0);
});

test("work under one lease, and holds under one signal, take one listener", async (t) => {
  const told = warnings(t);
  const locker = Locker.inMemory();
  t.after(() => locker.shutdown());
  const lease = await locker.lock("worked under").acquire();
  const runs = Array.from({ length: 20 }, () => lease.run(() => pause(1)));
  assert.equal(listeners(lease.signal), 1);
  await Promise.all(runs);
  assert.equal(listeners(lease.signal), 0);

  const stop = new AbortController();
  const held = Array.from({ length: 20 }, (_, i) => locker.lock(`held ${i}`).hold({ signal: stop.signal }));
  assert.equal(listeners(stop.signal), 1);
  const leases = await Promise.all(held.map((tenures) => tenures.next()));
  assert.ok(leases.every(({ value }) => value.valid));
  stop.abort();
  for (const tenures of held) {
    assert.deepEqual(await tenures.next(), { done: true, value: undefined });
  }
  assert.equal(listeners(stop.signal), 0);
  await pause(20);
  assert.deepEqual(told, []);
});
