// The bounds of a lease's age, on every host: `atMost` and `atLeast`.
import assert from "node:assert/strict";
import { aborted, forEachStore } from "../support/stores.mjs";
import { test } from "../support/test.mjs";

forEachStore((store) => {
  test("leads in turns with `hold`", async () => {
    const [one, other, name] = [await store.locker(), await store.locker(), store.name()];
    const leaders = [];
    const lead = async (locker, who) => {
      for await (const lease of locker.lock(name, { ttl: 900, atMost: 1_000 }).hold()) {
        leaders.push({ who, token: lease.token });
        const reason = await aborted(lease.signal);
        assert.equal(reason.reason, "overheld");
        if (leaders.length > 3) return;
      }
    };
    await Promise.all([lead(one, "one"), lead(other, "other")]);
    const turns = leaders.slice(0, 4).map(({ who }) => who);
    assert.ok(turns.every((who, at) => at === 0 || who !== turns[at - 1]), turns.join());
    const tokens = leaders.map(({ token }) => token);
    assert.deepEqual(tokens, [...tokens].sort((a, b) => a - b));
  });

  test("keeps the name taken after `using`", async () => {
    const [one, other] = [await store.locker(), await store.locker()];
    const job = one.lock("y", { atLeast: 60_000 });
    await job.using(() => {});
    assert.equal(await job.tryAcquire(), undefined);
    assert.equal(await other.lock("y").tryAcquire(), undefined);
    // Catches a lock that is taken for one with other ages: the engine knows locks by their options.
    const plain = one.lock("z");
    await plain.using(() => {});
    await one.lock("z", { atLeast: 60_000 }).using(() => {});
    assert.equal(await plain.tryAcquire(), undefined);
  });

  test("shows its ages", async () => {
    const locker = await store.locker();
    const shown = (options) => {
      const { atMost, atLeast } = JSON.parse(JSON.stringify(locker.lock("x", options)));
      return [atMost, atLeast];
    };
    assert.deepEqual(shown({ atMost: 60_000, atLeast: 1_000 }), [60_000, 1_000]);
    assert.deepEqual(shown({ atLeast: 1_000 }), [undefined, 1_000]);
    assert.deepEqual(shown({}), [undefined, undefined]);
  });

  test("refuses bad ages by their names", async () => {
    const locker = await store.locker();
    for (const [options, says] of [
      [{ atMost: 29_999 }, /atMost must be at least the time to live, 30s; got 29.999s/],
      [{ atMost: 60_000, atLeast: 60_001 }, /atLeast must not exceed the longest time, 60s; got 60.001s/],
      [{ atLeast: Infinity }, /atLeast must be a number of milliseconds/],
      [{ atMost: -1 }, /atMost must be a number of milliseconds/],
      [{ atLeast: 31_622_400_001 }, /atLeast must be from 0 ms to 366 days/],
    ]) {
      const bad = async () => locker.lock("x", options);
      await assert.rejects(bad, (error) => error.code === "config" && says.test(error.message));
    }
  });
});
