// Semaphores, quotas, and locks for readers and writers.
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { LeaseLostError, Locker } from "../../dist/index.js";
import { startProgram } from "../support/program.mjs";
import { startRedis } from "../support/redis.mjs";
import { aborted, collect, forEachStore } from "../support/stores.mjs";
import { test } from "../support/test.mjs";
import { steady, waitFor, within } from "../support/wait.mjs";

const LIMIT = 10_000;

/** Resolves to the promise's result, which must come soon. */
const soon = (promise, what = "the permit") => within(promise, LIMIT, what);

/** Releases all permits together. */
const releaseAll = (...permits) => Promise.all(permits.map((permit) => permit.release()));

/** Returns what the store knows of a shared name. */
const sharedOf = async (store, name) => (await store.admin.inspect(name)).shared;

forEachStore((store) => {
  test("slots have one holder each, and their tokens grow", async () => {
    // Catches: more holders than slots, a slot with two holders, and a slot's token that does not grow.
    const name = store.name();
    const lockers = [await store.locker(), await store.locker()];
    const holders = [0, 0, 0];
    const last = [0, 0, 0];
    const callers = Array.from({ length: 12 }, async (_, n) => {
      const licenses = lockers[n % 2].semaphore(name, 3);
      for (let turn = 0; turn < 10; turn += 1) {
        await licenses.using(async ({ slot, slots, token, resource }) => {
          assert.deepEqual([slots, resource], [[slot], `${name}#${slot}`]);
          assert.equal((holders[slot] += 1), 1);
          assert.ok(token > last[slot], `${token} after ${last[slot]}`);
          last[slot] = token;
          await sleep(1);
          holders[slot] -= 1;
        });
      }
    });
    await within(Promise.all(callers), 3 * LIMIT, "all callers");
    assert.ok(last.every((token) => token > 0), "all slots were used");
    await store.nothingLeft(name);
  });

  test("the lowest free slots are given, and a permit tells what it is", async () => {
    const name = store.name();
    const gpus = (await store.locker()).semaphore(name, 4, { ttl: 20_000, owner: "worker-7" });
    const [one, two] = [await gpus.acquire(), await gpus.acquire({ weight: 2 })];
    assert.deepEqual([one.slots, two.slots, two.slot], [[0], [1, 2], 1]);
    assert.deepEqual([two.name, two.resource, two.capacity, two.epoch], [name, `${name}#1`, 4, 1]);
    assert.equal(two.generation, undefined);
    assert.ok(two.valid && two.remaining > 15_000 && two.remaining <= 20_000 && two.holdCount === 1);
    const { holder, shared } = await store.admin.inspect(name);
    assert.equal(holder, null);
    assert.deepEqual(
      [shared.sharing, shared.capacity, shared.epoch, shared.used, shared.held],
      ["slots", 4, 1, 3, 2],
    );
    const { token, slots, weight, by, remaining } = shared.holders.find((permit) => permit.token === two.token);
    assert.deepEqual([token, slots, weight, by], [two.token, [1, 2], 2, "worker-7"]);
    assert.ok(remaining > 15_000);
    await one.release();
    const again = await gpus.acquire();
    assert.equal(again.slot, 0);
    assert.ok(again.token > one.token);
    await releaseAll(again, two);
    await store.nothingLeft(name);
  });

  test("a quota counts units, and has no slots", async () => {
    const name = store.name();
    const rows = (await store.locker()).quota(name, 1_000_000_000);
    const most = await rows.acquire({ weight: 999_999_999 });
    const last = await rows.acquire();
    assert.deepEqual([most.slot, most.slots, most.resource], [undefined, [], name]);
    assert.equal(await rows.tryAcquire(), undefined);
    assert.deepEqual((await sharedOf(store, name)).used, 1_000_000_000);
    await releaseAll(most, last);
    await store.nothingLeft(name);
  });

  test("nobody overtakes a heavy waiter, and `tryAcquire` overtakes nobody", async () => {
    const name = store.name();
    const gpus = (await store.locker()).semaphore(name, 4);
    const [two, one] = [await gpus.acquire({ weight: 2 }), await gpus.acquire()];
    const heavy = gpus.acquire({ weight: 3 });
    await store.inLine(name, 1);
    // One slot is free all the time.
    assert.equal(await gpus.tryAcquire(), undefined);
    await assert.rejects(gpus.acquire({ timeout: 50 }), { code: "timeout", message: /other holders/ });
    const light = gpus.acquire();
    await store.inLine(name, 2);
    await two.release();
    const first = await soon(heavy);
    assert.deepEqual(first.slots, [0, 1, 3]);
    await store.inLine(name, 1);
    await one.release();
    const second = await soon(light);
    assert.equal(second.slot, 2);
    await releaseAll(first, second);
  });

  test("a waiting writer is not overtaken by later readers, which enter together after it", async () => {
    const name = store.name();
    const [prices, others] = [(await store.locker()).rwLock(name), (await store.locker()).rwLock(name)];
    const [first, second] = [await prices.read().acquire(), await others.read().acquire()];
    assert.deepEqual([first.generation, first.slot, first.resource], [undefined, undefined, name]);
    const order = [];
    const writer = prices.write().acquire().finally(() => order.push("writer"));
    await store.inLine(name, 1);
    assert.equal(await others.read().tryAcquire(), undefined);
    const readers = [1, 2, 3].map((n) => [prices, others][n % 2].read().acquire().finally(() => order.push("reader")));
    await store.inLine(name, 4);
    await releaseAll(first, second);
    const written = await soon(writer, "the writer");
    assert.deepEqual(order, ["writer"]);
    assert.equal(written.generation, written.token);
    assert.equal(await prices.write().tryAcquire(), undefined);
    await written.release();
    const permits = await soon(Promise.all(readers), "the readers");
    for (const permit of permits) {
      assert.equal(permit.generation, written.token);
      assert.ok(permit.token > 0 && permit.valid);
    }
    assert.equal((await sharedOf(store, name)).held, 3);
    assert.equal((await sharedOf(store, name)).generation, written.token);
    await releaseAll(...permits);
    await store.nothingLeft(name);
  });

  test("a writer becomes a reader without letting go, and nobody else can", async () => {
    const name = store.name();
    const [prices, others] = [(await store.locker()).rwLock(name), (await store.locker()).rwLock(name)];
    const permit = await prices.write().acquire();
    const reader = others.read().acquire();
    await store.inLine(name, 1);
    const writer = others.write().acquire();
    await store.inLine(name, 2);
    await permit.downgrade();
    const other = await soon(reader, "the reader");
    assert.equal(other.generation, permit.token);
    assert.ok(permit.valid);
    // A second call only renews.
    await permit.downgrade();
    await store.inLine(name, 1);
    await assert.rejects(other.downgrade(), ({ code, message }) => {
      assert.match(message, new RegExp(`^lock "${name}": only a writer's permit can become a reader's`));
      return code === "config";
    });
    await releaseAll(permit, other);
    const next = await soon(writer, "the writer");
    assert.ok(next.token > permit.token);
    await next.release();
    await assert.rejects(next.downgrade(), { code: "notHeld" });
    await store.nothingLeft(name);
  });

  test("`maxLine` refuses a longer line at once", async () => {
    const name = store.name();
    const locker = await store.locker();
    const one = locker.semaphore(name, 1, { maxLine: 1 });
    const permit = await one.acquire();
    const next = one.acquire();
    await store.inLine(name, 1);
    await assert.rejects(soon(one.acquire(), "the refusal"), { code: "overloaded", message: new RegExp(`"${name}"`) });
    const none = locker.semaphore(name, 1, { maxLine: 0 });
    await assert.rejects(soon(none.acquire(), "the refusal"), { code: "overloaded" });
    await store.inLine(name, 1);
    await permit.release();
    await (await soon(next)).release();
    // Nobody is ahead, so nothing is refused.
    await (await none.acquire()).release();
  });

  test("another capacity is an event, and with `strict` an error", async () => {
    const name = store.name();
    const locker = await store.locker();
    const held = await locker.semaphore(name, 2).acquire();
    const other = locker.semaphore(name, 5);
    const told = collect(other.events());
    const second = await other.acquire();
    assert.deepEqual([second.capacity, second.epoch], [2, 1]);
    await waitFor(() => told.length >= 2, LIMIT, "the events");
    const { token } = second;
    assert.equal(told[0].type, "acquired");
    assert.deepEqual(told[1], { type: "capacityDiffers", name, token, capacity: 2, wanted: 5 });
    assert.equal(await other.tryAcquire(), undefined, "the capacity stays");
    const message = `the capacity of "${name}" is 2, but this program asks for 5; resize the name, or change the program`;
    const finding = { type: "capacity", name, capacity: 2, wanted: 5, message };
    const found = () => locker.findings.filter(({ type }) => type === "capacity");
    assert.deepEqual(found(), [finding]);
    assert.deepEqual(store.admin.findings, [], "the other program asks for what there is");
    await second.release();
    await other.resize(4);
    await other.using(() => {});
    assert.deepEqual(found().map(({ name, capacity }) => [name, capacity]), [[name, 4]], "one for each name, the last");
    await other.resize(2);
    const strict = locker.semaphore(name, 5, { strict: true });
    await assert.rejects(soon(strict.acquire(), "the refusal"), { code: "config", message: new RegExp(`"${name}"`) });
    assert.equal((await sharedOf(store, name)).held, 1, "the refused caller has nothing");
    await held.release();
  });

  test("`hold` of a semaphore has one permit after another, and leaving it leaves the line", async () => {
    // Catches: leases instead of permits, a second permit while the first is held, a waiter that stays in line.
    const name = store.name();
    const locker = await store.locker();
    const partitions = locker.semaphore(name, 2);
    const other = await partitions.acquire();
    const tenures = partitions.hold();
    const { value: first } = await soon(tenures.next());
    assert.deepEqual([first.slot, first.resource], [1, `${name}#1`]);
    const next = tenures.next();
    await other.release();
    await sleep(20);
    assert.equal((await sharedOf(store, name)).held, 1, "it waits for the end of its permit");
    await store.admin.forceReleaseToken(name, first.token);
    const { value: second } = await soon(next, "the next permit");
    assert.ok(!first.valid && second.valid && second.slot === 0, `slot ${second.slot}`);
    assert.deepEqual(tenures.toJSON(), { name, token: second.token, ended: false });
    await second.release();

    const full = await partitions.acquire({ weight: 2 });
    const leaving = new AbortController();
    const waits = partitions.hold({ signal: leaving.signal }).next();
    const again = tenures.next();
    await store.inLine(name, 2);
    leaving.abort();
    await tenures.return();
    assert.deepEqual([await soon(waits), await soon(again)].map(({ done }) => done), [true, true]);
    await store.inLine(name, 0);
    await full.release();
    const { value: heavy } = await soon(partitions.hold({ weight: 2 }).next());
    assert.deepEqual(heavy.slots, [0, 1]);
    await heavy.release();
    await store.nothingLeft(name);
  });

  test("`hold` of a side holds the name as a reader, or as the writer", async () => {
    // Catches: a side that holds as the other one does.
    const name = store.name();
    const prices = (await store.locker()).rwLock(name);
    const [readers, writers] = [prices.read().hold(), prices.write().hold()];
    const { value: reader } = await soon(readers.next());
    await prices.read().using(() => {});
    const next = writers.next();
    await store.inLine(name, 1);
    await reader.release();
    const { value: writer } = await soon(next);
    assert.equal(writer.generation, writer.token);
    assert.equal(await prices.read().tryAcquire(), undefined);
    await writer.release();
    await store.nothingLeft(name);
  });

  test("`resize` admits waiters, and a smaller capacity drains", async () => {
    const name = store.name();
    const licenses = (await store.locker()).semaphore(name, 1);
    const first = await licenses.acquire();
    const waits = licenses.acquire();
    await store.inLine(name, 1);
    assert.equal(await licenses.resize(3), 2);
    const second = await soon(waits);
    const third = await licenses.acquire();
    assert.deepEqual([second.slot, third.slot, third.capacity, third.epoch], [1, 2, 3, 2]);
    const heavy = (await store.locker()).semaphore(name, 3).acquire({ weight: 3 });
    const refused = assert.rejects(soon(heavy, "the refusal"), { code: "config" });
    await store.inLine(name, 1);
    assert.equal(await licenses.resize(1), 3);
    await refused;
    assert.ok(first.valid && second.valid && third.valid, "nobody is revoked");
    await releaseAll(first, second);
    assert.equal(await licenses.tryAcquire(), undefined, "slot 2 is still held");
    await third.release();
    const last = await soon(licenses.acquire());
    assert.equal(last.slot, 0);
    await last.release();
  });

  test("a shutdown frees the permits of its locker, and the next waiter gets them", async () => {
    const name = store.name();
    const locker = await store.locker();
    const permit = await locker.semaphore(name, 2).acquire({ weight: 2 });
    const next = (await store.locker()).semaphore(name, 2).acquire({ weight: 2 });
    await store.inLine(name, 1);
    await locker.shutdown();
    await assert.rejects(permit.run(() => {}), (error) => error instanceof LeaseLostError && error.reason === "shutdown");
    const after = await soon(next);
    assert.ok(after.token > permit.token);
    await after.release();
    await store.nothingLeft(name);
  });

  test("a permit is lost by itself, and no later than its deadline", (t) =>
    steady(t, async () => {
      const name = store.name();
      const prices = (await store.hearing()).rwLock(name, { ttl: 20_000 });
      const fixed = (await store.locker()).rwLock(name, { ttl: 500, fixed: true });
      const began = performance.now();
      const [one, other] = [await prices.read().acquire(), await fixed.read().acquire()];
      const { reason } = await aborted(other.signal);
      assert.equal(reason, "expired");
      assert.ok(performance.now() - began < 500 + 250, "the loss came late");
      assert.ok(!other.valid && other.remaining === 0);
      await assert.rejects(other.release(), (error) => error.code === "notHeld" && error.cause.reason === "expired");
      assert.ok(one.valid && one.remaining > 15_000, "each reader has an expiry of its own");
      // A forced release ends one permit.
      const third = await prices.read().acquire();
      await assert.rejects(store.admin.forceRelease(name), { code: "config" });
      assert.equal((await store.admin.forceReleaseToken(name, third.token)).token, third.token);
      assert.equal((await aborted(third.signal)).reason, "revoked");
      assert.ok(one.valid);
      await one.release();
    }));

  test("permits are renewed, and end at their greatest age", async () => {
    const name = store.name();
    const licenses = (await store.locker()).semaphore(name, 2, { ttl: 900 });
    const renewed = await licenses.acquire();
    const aged = await (await store.locker()).semaphore(name, 2, { ttl: 900, atMost: 1_000 }).acquire();
    assert.equal((await aborted(aged.signal)).reason, "overheld");
    assert.ok(renewed.valid);
    await renewed.renew({ ttl: 20_000 });
    assert.ok(renewed.remaining > 15_000);
    await renewed.release();
    const { done, value } = await licenses.using((permit) => ({ done: permit.valid, value: permit.slot }));
    assert.deepEqual([done, value], [true, 0]);
    await store.nothingLeft(name);
  });

  test("a holder learns that somebody waits for its permit", async () => {
    const name = store.name();
    const licenses = (await store.locker()).semaphore(name, 2, { ttl: 1_500 });
    const [one, other] = [await licenses.acquire(), await licenses.acquire()];
    const wanted = one.wanted();
    const next = licenses.acquire();
    await soon(wanted, "the news of the waiter");
    await one.release();
    await releaseAll(other, await soon(next));
  });

  test("the events of a handle are those of its permits", async () => {
    const name = store.name();
    const locker = await store.locker();
    const prices = locker.rwLock(name);
    const told = collect(prices.events());
    const [one, other] = [await prices.read().acquire(), await prices.read().acquire()];
    const late = collect(prices.events());
    await waitFor(() => late.length === 2, LIMIT, "the current state");
    const state = new Map(late.map(({ type, token }) => [token, type]));
    assert.deepEqual(state, new Map([[one.token, "acquired"], [other.token, "acquired"]]));
    await releaseAll(one, other);
    await (await prices.write().acquire()).release();
    const types = () => told.map(({ type }) => type).sort();
    const all = ["acquired", "acquired", "acquired", "released", "released", "released"];
    await waitFor(() => types().length === all.length, LIMIT, "all events");
    assert.deepEqual(types(), all);
  });

  test("aborted at any time, it leaves nothing", async () => {
    const name = store.name();
    const locker = await store.locker();
    const licenses = locker.semaphore(name, 2);
    let given = 0;
    for (let n = 0; n < 40; n += 1) {
      const busy = n % 3 === 0 ? await licenses.acquire({ weight: 2 }) : undefined;
      const controller = new AbortController();
      const acquired = licenses.acquire({ weight: 1 + (n % 2), signal: controller.signal });
      const ended = acquired.then((permit) => permit.release(), (error) => {
        assert.match(String(error), /given up/);
        given += 1;
      });
      await (n % 4 === 0 ? null : sleep(n % 5));
      const keeps = n % 6 === 0;
      await (keeps ? null : busy?.release());
      await (n % 7 === 0 ? null : sleep(n % 4));
      controller.abort(new Error("given up"));
      await within(ended, LIMIT, "the end of the call");
      await (keeps ? busy?.release() : null);
    }
    assert.ok(given >= 7, `${given} were aborted before they ended`);
    await store.nothingLeft(name);
    const signal = AbortSignal.abort(new Error("given up"));
    await assert.rejects(licenses.acquire({ signal }), /given up/);
    await assert.rejects(locker.rwLock(store.name()).read().tryAcquire({ signal }), /given up/);
  });

  test("it releases with `await using`, also after a loss, and after work that throws", async () => {
    const name = store.name();
    const locker = await store.locker();
    const thrown = locker.semaphore(name, 1, { ttl: 60_000 }).using(() => {
      throw new Error("of the work");
    });
    await assert.rejects(thrown, /of the work/);
    await store.nothingLeft(name);
    const licenses = locker.semaphore(name, 1, { ttl: 300, fixed: true });
    const permit = await licenses.acquire();
    await aborted(permit.signal);
    await permit[Symbol.asyncDispose]();
    await assert.rejects(licenses.using(({ signal }) => aborted(signal)), LeaseLostError);
    await store.nothingLeft(name);
  });

  test("one name has one use, and bad numbers are named", async () => {
    const name = store.name();
    const locker = await store.locker();
    const held = await locker.semaphore(name, 2).acquire();
    const others = [
      locker.quota(name, 2).acquire(),
      locker.rwLock(name).read().acquire(),
      locker.lock(name).acquire(),
      locker.quota(name, 2).resize(3),
    ];
    for (const other of others) {
      await assert.rejects(soon(other, "the refusal"), { code: "wrongType", message: /used for a semaphore/ });
    }
    const licenses = locker.semaphore(name, 3);
    for (const [call, culprit] of [
      [() => locker.semaphore(name, 0), /capacity is 0; .* 1 to 10000/],
      [() => locker.semaphore(name, 10_001), /capacity is 10001/],
      [() => locker.quota(name, 1_000_000_001), /capacity is 1000000001/],
      [() => licenses.acquire({ weight: 0 }), /weight is 0; .* 1 to 3/],
      [() => licenses.acquire({ weight: 4 }), /weight is 4; .* 1 to 3/],
      // Catches: a handle that remembers a bad weight as one that the engine knows.
      [() => licenses.acquire({ weight: 4 }), /weight is 4; .* 1 to 3/],
      // A weight of 4,000 broke `unpack` elsewhere.
      [() => locker.semaphore(name, 5_000).tryAcquire({ weight: 4_000 }), /weight is 4000; .* 1 to 64/],
      [() => licenses.resize(0), /capacity is 0/],
      [() => licenses.resize(10_001), /capacity is 10001/],
      // Two slots are all that the store has.
      [() => licenses.acquire({ weight: 3 }), /3/],
    ]) {
      const refused = soon((async () => call())(), `the refusal of ${call}`);
      await assert.rejects(refused, ({ code, message }) => {
        assert.match(message, culprit);
        return code === "config" && message.includes(JSON.stringify(name));
      });
    }
    // The handle works on after a bad weight.
    const permit = await licenses.acquire();
    assert.equal(permit.slot, 1);
    await releaseAll(held, permit);
  });
});

test("a crash frees permits after their time to live, and no reader keeps another alive", async (t) => {
  // Peers' bugs: available permits were wrong after a crash, and a dead reader stayed while another one renewed.
  const server = await startRedis();
  const locker = await Locker.connect(server.url);
  t.after(() => Promise.all([locker.shutdown(), server.stop()]));
  const child = new URL("child.mjs", import.meta.url).pathname;
  const crash = async (what, name) => {
    const program = startProgram(process.execPath, [child, "ioredis", server.url, what, name]);
    const token = parseInt(await program.says(`${what} `, LIMIT));
    program.kill("SIGKILL");
    await program.end(LIMIT);
    return token;
  };
  const token = await crash("permit", "licenses");
  const permit = await soon(locker.semaphore("licenses", 2).acquire({ weight: 2 }));
  assert.deepEqual(permit.slots, [0, 1]);
  assert.ok(permit.token > token);
  const prices = locker.rwLock("prices", { ttl: 1_000 });
  const lives = await prices.read().acquire();
  await crash("reader", "prices");
  await waitFor(async () => (await locker.inspect("prices")).shared.held === 1, LIMIT, "the dead reader expires");
  assert.ok(lives.valid);
  await lives.release();
  await (await soon(prices.write().acquire(), "the writer")).release();
});

test("findings of capacities are of a bounded number of names, each the last", async () => {
  const locker = Locker.inMemory();
  for (let n = 0; n < 70; n += 1) {
    await locker.semaphore(`s${n}`, 2).using(() => {});
    await locker.semaphore(`s${n}`, 5).using(() => {});
  }
  await locker.semaphore("s0", 7).using(() => {});
  await locker.quota("q", 5).using(() => locker.rwLock("rw").read().using(() => {}));
  const names = locker.findings.map(({ name }) => name);
  assert.deepEqual(names, Array.from({ length: 64 }, (_, n) => `s${n}`));
  assert.equal(locker.findings[0].wanted, 7);
  await locker.shutdown();
});

test("a quorum refuses shared names", async () => {
  const locker = await Locker.quorum(["one", "two", "three"].map((name) => `memory://shared-${name}`));
  const licenses = locker.semaphore("licenses", 3);
  for (const call of [
    licenses.acquire(),
    licenses.tryAcquire({ weight: 2 }),
    licenses.resize(4),
    locker.quota("rows", 3, { maxLine: 5 }).acquire(),
    locker.rwLock("prices").read().acquire(),
  ]) {
    await assert.rejects(soon(call, "the refusal"), { code: "unsupported" });
  }
  await locker.shutdown();
});

test("wrong arguments are refused with the option's name", async () => {
  const locker = Locker.inMemory();
  for (const [options, culprit] of [
    [{ reentrant: true }, /"reentrant"; known options: ttl, fixed, owner, atMost, maxLine, strict/],
    [{ denseTokens: true }, /"denseTokens"/],
    [{ replicas: 1 }, /"replicas"/],
    [{ atLeast: 1 }, /"atLeast"/],
    [{ maxLine: -1 }, /maxLine must be a whole number from 0 up; got -1/],
    [{ maxLine: Infinity }, /maxLine/],
    [{ strict: 1 }, /strict must be true or false/],
    [{ ttl: 0 }, /time to live/],
    [{ ttl: 1_000, atMost: 500 }, /atMost/],
    [{ owner: "x".repeat(129) }, /owner/],
  ]) {
    const refused = (error) => error.code === "config" && culprit.test(error.message);
    assert.throws(() => locker.semaphore("a", 3, options), refused, String(culprit));
    assert.throws(() => locker.quota("a", 3, options), refused, String(culprit));
    if (!("strict" in options || "reentrant" in options)) {
      assert.throws(() => locker.rwLock("a", options), refused, String(culprit));
    }
  }
  assert.throws(() => locker.rwLock("a", { strict: true }), { code: "config", message: /"strict"/ });
  for (const capacity of [undefined, "3", 2.5, -1, NaN, Infinity]) {
    assert.throws(() => locker.semaphore("a", capacity), { code: "config", message: /number of slots/ });
    assert.throws(() => locker.quota("a", capacity), { code: "config", message: /number of units/ });
    await assert.rejects(locker.quota("a", 3).resize(capacity), { code: "config", message: /capacity/ });
  }
  for (const name of ["", "x".repeat(513), 7, undefined]) {
    assert.throws(() => locker.semaphore(name, 3), { code: "config" });
    assert.throws(() => locker.rwLock(name), { code: "config" });
  }
  const one = locker.semaphore("a", 1);
  for (const weight of ["1", 1.5, -1, NaN]) {
    await assert.rejects(one.acquire({ weight }), { code: "config", message: /weight must be a whole number/ });
  }
  await assert.rejects(one.tryAcquire({ timeout: 1 }), { code: "config", message: /"timeout"/ });
  await assert.rejects(locker.rwLock("b").read().acquire({ weight: 1 }), { code: "config", message: /"weight"/ });
  await assert.rejects(one.using(), { code: "config", message: /the work/ });
  const permit = await one.acquire();
  await assert.rejects(permit.pass(), { code: "config", message: /cannot be passed on/ });
  assert.ok(permit.valid);
  await permit.release();
  await locker.shutdown();
});
