// Waiting: first come, first served, and a canceled waiter is gone.
import assert from "node:assert/strict";
import { setImmediate as turn } from "node:timers/promises";
import { forEachStore, lockerOf } from "../support/stores.mjs";
import { test } from "../support/test.mjs";
import { awake, pause, waitFor } from "../support/wait.mjs";

/** Continues after this many microtasks, or turns of the event loop. */
const delays = [
  ...[0, 1, 2, 3, 5, 8, 13, 21].map((count) => async () => {
    for (let i = 0; i < count; i++) {
      await undefined;
    }
  }),
  ...[1, 2, 3, 5, 8, 13].map((count) => async () => {
    for (let i = 0; i < count; i++) {
      await turn();
    }
  }),
  ...[1, 2, 4, 8].map((milliseconds) => () => pause(milliseconds)),
];

forEachStore((store) => {
  /**
   * Makes this many waiters for a name, and returns the order in which they were served and stood in line.
   */
  async function serve(lockers, waiters) {
    const name = store.name();
    const holder = await store.admin.lock(name, { owner: "holder" }).acquire();
    const served = [];
    const all = [];
    for (let i = 0; i < waiters; i++) {
      const lock = lockers[i % lockers.length].lock(name, { owner: `w${i}` });
      all.push(
        lock.acquire({ timeout: 30_000 }).then(async (lease) => {
          served.push({ label: `w${i}`, token: lease.token });
          await turn();
          assert.ok(lease.valid);
          await lease.release();
        }),
      );
    }
    await store.inLine(name, waiters);
    const { line, waiting } = await store.admin.inspect(name);
    assert.equal(waiting, waiters);
    await holder.release();
    await Promise.all(all);
    await store.nothingLeft(name, 0);
    return {
      line: line.map(({ owner }) => owner.label),
      served: served.map(({ label }) => label),
      tokens: [holder.token, ...served.map(({ token }) => token)],
    };
  }

  const grow = (tokens) => tokens.every((token, i) => i === 0 || tokens[i - 1] < token);

  test("sixty-four of eight lockers that ask at once are served in the order of the line", async () => {
    const lockers = await Promise.all(Array.from({ length: 8 }, () => store.hearing()));
    const { line, served, tokens } = await serve(lockers, 64);
    assert.equal(new Set(line).size, 64);
    assert.deepEqual(served, line);
    assert.ok(grow(tokens), String(tokens));
  });

  test("a timeout comes in time, gives the reason, and leaves the line", async () => {
    const name = store.name();
    const holder = await store.admin.lock(name).acquire();
    const locker = await store.locker();
    for (const timeout of [0, 150]) {
      const [begin, beginAwake] = [performance.now(), awake()];
      const failed = locker.lock(name).acquire({ timeout });
      await assert.rejects(failed, { code: "timeout", message: /another holder kept it/ });
      const [took, tookAwake] = [performance.now() - begin, awake() - beginAwake];
      // By another clock, a timer may be slightly early.
      assert.ok(took > timeout - 2 && tookAwake < timeout + 1_000, `${took} ms of ${timeout}`);
      await store.inLine(name, 0);
    }
    await holder.release();
    await (await locker.lock(name).acquire({ timeout: 10_000 })).release();
  });

  test("a signal that was aborted before asks for nothing", async () => {
    const name = store.name();
    const reason = new Error("not any more");
    const lock = (await store.locker()).lock(name);
    const failed = await lock.acquire({ signal: AbortSignal.abort(reason) }).catch((error) => error);
    assert.equal(failed, reason);
    assert.equal((await store.admin.inspect(name)).lastToken, null, "the store was not asked");
    const work = () => assert.fail("the work does not begin");
    await assert.rejects(lock.using(work, { signal: AbortSignal.abort(reason) }), reason);
  });

  test("tryAcquire has a signal, too", async () => {
    const lock = (await store.locker()).lock(store.name());
    const [stop, reason] = [new AbortController(), new Error("not any more")];
    await assert.rejects(lock.tryAcquire({ signal: AbortSignal.abort(reason) }), reason);
    const failed = assert.rejects(lock.tryAcquire({ signal: stop.signal }), reason);
    stop.abort(reason);
    await failed;
    await store.nothingLeft(lock.name);
    // The control: a signal that is not aborted changes nothing.
    await (await lock.tryAcquire({ signal: new AbortController().signal })).release();
  });

  test("an infinite timeout never ends", async () => {
    const locker = await store.locker();
    const name = store.name();
    const held = await locker.lock(name).acquire({ timeout: Infinity });
    const waiting = locker.lock(name).acquire({ timeout: Infinity });
    await store.inLine(name, 1);
    // The control: a finite timeout ends.
    await assert.rejects(locker.lock(name).acquire({ timeout: 20 }), { code: "timeout" });
    await held.release();
    await (await waiting).release();
  });

  test("an acquisition that is aborted after any time leaves no lock behind", async () => {
    // Catches: a lock that is granted for 30 s to a canceled call.
    const locker = await store.locker();
    const name = store.name();
    let abortions = 0;
    for (const delay of delays) {
      const stop = new AbortController();
      const acquired = locker.lock(name).acquire({ signal: stop.signal }).catch((error) => error);
      await delay();
      stop.abort();
      const lease = await acquired;
      if (lease === stop.signal.reason) {
        abortions += 1;
      } else {
        await lease.release();
      }
      await store.nothingLeft(name);
    }
    // In memory everything is done before the call returns.
    assert.ok(abortions > 0 || store.isMemory);
  });

  test("a waiter that is aborted leaves the line at once", async () => {
    const name = store.name();
    const holder = await store.admin.lock(name).acquire();
    const locker = await store.hearing();
    const stop = new AbortController();
    const gone = assert.rejects(locker.lock(name).acquire({ signal: stop.signal }), { name: "AbortError" });
    // As `AbortSignal.timeout` does it, but not before all are in line.
    const over = new AbortController();
    const timed = locker.lock(name).acquire({ signal: over.signal });
    const late = assert.rejects(timed, { name: "TimeoutError" });
    const stays = locker.lock(name).acquire();
    await store.inLine(name, 3);
    stop.abort();
    over.abort(new DOMException("it took too long", "TimeoutError"));
    await gone;
    await late;
    await store.inLine(name, 1);
    await holder.release();
    await (await stays).release();
    await store.nothingLeft(name);
  });

  test("a waiter that is aborted around the moment of the grant leaves no lock behind", async () => {
    // Catches: a grant that crosses the abort, and is kept until it expires.
    const [one, two] = [await store.hearing(), await store.hearing()];
    const name = store.name();
    const outcomes = { granted: 0, aborted: 0 };
    // The last call is surely granted, however busy the machine is.
    for (const delay of [...delays, ...delays, (granted) => granted]) {
      const holder = await one.lock(name).acquire();
      const stop = new AbortController();
      const waiting = two.lock(name).acquire({ signal: stop.signal }).catch((error) => error);
      await store.inLine(name, 1);
      const released = holder.release();
      await delay(waiting);
      stop.abort();
      const lease = await waiting;
      await released;
      if (lease === stop.signal.reason) {
        outcomes.aborted += 1;
      } else {
        outcomes.granted += 1;
        assert.ok(lease.valid, "an abortion after the grant means nothing");
        await lease.release();
      }
      await store.nothingLeft(name);
    }
    assert.ok(outcomes.granted > 0, JSON.stringify(outcomes));
    assert.ok(outcomes.aborted > 0 || store.isMemory, JSON.stringify(outcomes));
  });

  test("a long-lived signal keeps no listeners", async () => {
    // Catches: a leak for each acquisition with the program's own signal.
    const { signal } = new AbortController();
    let listeners = 0;
    const counting = (method, by) => {
      const original = signal[method].bind(signal);
      signal[method] = (...args) => {
        listeners += by;
        return original(...args);
      };
    };
    counting("addEventListener", 1);
    counting("removeEventListener", -1);
    const lock = (await store.locker()).lock(store.name());
    for (let i = 0; i < 10; i++) {
      await (await lock.acquire({ signal })).release();
    }
    const holder = await lock.acquire();
    const rival = (await store.locker()).lock(lock.name);
    await assert.rejects(rival.acquire({ signal, timeout: 0 }), { code: "timeout" });
    await holder.release();
    assert.equal(listeners, 0);
  });

  test("visitors that come and go at random leave nothing", async () => {
    // Catches: places that stay behind, locks without a holder, and a line that stops.
    const lockers = await Promise.all(Array.from({ length: 4 }, () => store.hearing()));
    const names = [store.name(), store.name()];
    const rooms = new Map(names.map((name) => [name, { inside: 0, tokens: [], gaveUp: 0 }]));
    const until = performance.now() + 1_500;
    // At least this long, and until there is enough to check.
    const few = () => [...rooms.values()].some(({ tokens, gaveUp }) => tokens.length <= 20 || gaveUp <= 20);
    const visit = async (locker) => {
      while (performance.now() < until || few()) {
        const name = names[Math.floor(Math.random() * names.length)];
        const room = rooms.get(name);
        const how = Math.random() * 3;
        const patience = Math.random() * 30;
        const signal = how < 1 ? AbortSignal.timeout(Math.ceil(patience)) : undefined;
        const timeout = how >= 1 && how < 2 ? patience : undefined;
        const lease = await locker.lock(name, { ttl: 20_000 }).acquire({ signal, timeout }).catch((error) => {
          assert.ok(error.name === "TimeoutError" || error.code === "timeout", String(error));
        });
        if (lease === undefined) {
          room.gaveUp += 1;
          continue;
        }
        assert.equal((room.inside += 1), 1, "two at once");
        room.tokens.push(lease.token);
        await pause(Math.random() * 2);
        room.inside -= 1;
        await lease.release();
      }
    };
    await Promise.all(Array.from({ length: 24 }, (_, i) => visit(lockers[i % lockers.length])));
    for (const name of names) {
      await store.nothingLeft(name);
      assert.ok(grow(rooms.get(name).tokens));
    }
  });

  if (store.isMemory) {
    return;
  }

  test("the checks above notice a waiter that does not leave", async () => {
    // The negative control of `nothingLeft`: the place of a vanished client stays for seconds.
    const name = store.name();
    const holder = await store.admin.lock(name).acquire();
    const settings = { commandTimeout: 1_000, patience: 3_000 };
    const { locker, end } = await lockerOf(store.kind, store.server.url, settings);
    const waiting = locker.lock(name).acquire().catch(() => {});
    await store.inLine(name, 1);
    await end();
    await holder.release();
    await assert.rejects(store.nothingLeft(name, 500), /no place in line/);
    await locker.shutdown();
    await waiting;
  });

  test("a line goes on after FLUSHALL", async () => {
    const name = store.name();
    const holder = await store.admin.lock(name, { ttl: 4_000 }).acquire();
    const waiting = (await store.hearing()).lock(name, { ttl: 4_000 }).acquire();
    await store.inLine(name, 1);
    await store.server.command("FLUSHALL");
    const lease = await waiting;
    assert.ok(lease.token > holder.token);
    await waitFor(() => !holder.valid, 10_000, "the old holder is told");
    await lease.release();
  });
});
