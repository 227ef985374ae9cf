// Bad input from plain JavaScript gives an error with the code `config` that names the culprit, and changes
// nothing else. An unhandled rejection would fail the file.
import assert from "node:assert/strict";
import { before, describe } from "node:test";
import { init, LeaseholdError, Locker } from "../../dist/index.js";
import { forEachStore } from "../support/stores.mjs";
import { test } from "../support/test.mjs";

const functions = [() => {}, async () => {}, class {}];
const texts = ["", "x", "redis", "\u{1f512}"];
const numbers = [0, -0, 1, -1, 1.5, 20, 1e300, NaN, Infinity, -Infinity];
const rest = [null, true, false, 10n, Symbol("s"), [], ["x"], {}, new Date(), /x/, new Map(), new URL("http://x"), Promise.resolve()];
const all = [undefined, ...functions, ...texts, ...numbers, ...rest];
const except = (...valid) => all.filter((value) => !valid.includes(typeof value));

const notObjects = all.filter((value) => value !== undefined && (typeof value !== "object" || value === null || Array.isArray(value)));
// The first is an easy slip for `{ signal }`, and would never end anything.
const badObjects = [AbortSignal.abort(), new Date(), new Map(), Promise.resolve(), ...notObjects];
const badNumbers = [...except("undefined", "number"), -1, -0.001, NaN, Infinity, -Infinity];
const badBooleans = except("undefined", "boolean");
const badTexts = [...except("string", "undefined"), "", "half \ud800", "\udc00"];
const badNames = [...badTexts, undefined, "x".repeat(513), "é".repeat(257), "🔒".repeat(129)];
const badOwners = [...badTexts, "x".repeat(129), "é".repeat(65)];
const badSignals = [...except("undefined"), { aborted: true }, new EventTarget(), new AbortController()];
const unknownOptions = [{ unknown: 1 }, { TTL: 5 }, { __proto__: null, extra: 1 }];

const ofLocker = {
  namespace: [...badTexts, "n".repeat(129)],
  owner: badOwners,
  connectTimeout: [...badNumbers, 0, 60_001, 1e300],
  commandTimeout: [...badNumbers, 0, 60_001, 1e300],
  patience: [...badNumbers, 1e300],
  driftMargin: [...badNumbers, 0, 999, 1_000.5, 250_001, 1e300],
  tokenRetention: [...badNumbers, 0, 1e300],
};
const ofLock = {
  ttl: [...badNumbers, 0, 9, 9.99, 366 * 24 * 60 * 60 * 1_000 + 1, 1e18, 1e300],
  fixed: badBooleans,
  denseTokens: badBooleans,
  replicas: [...badNumbers, 0, 1.5, 2 ** 31, 1e300],
  replicasTimeout: badNumbers,
  fsynced: badBooleans,
  owner: badOwners,
};
const ofJob = {
  every: [...badNumbers, 0, 9, 9.99, 366 * 24 * 60 * 60 * 1_000 + 1, 1e300],
  cron: [...except("undefined"), "* * * * *"],
  timeZone: [...except("undefined"), "UTC"],
  missed: [...except("undefined"), "none", { all: 0 }, { all: 1.5 }, { all: "1" }, { all: 10_001 }],
  ttl: [...badNumbers, 0, 9, 1e300],
};
const badTicks = [...except("number"), 0, -0, -1, 1.5, 2 ** 53, NaN, Infinity, -Infinity];
const ofAcquire = { signal: badSignals, timeout: badNumbers.filter((value) => value !== Infinity) };

/** Yields all option objects with one bad option, and values that are not option objects. */
function* badOptions(table) {
  yield* badObjects;
  yield* unknownOptions;
  for (const [option, values] of Object.entries(table)) {
    for (const value of values) {
      yield { [option]: value };
    }
  }
}

/** Makes a call, whatever it returns, and expects a refusal. */
async function refused(call, what, names) {
  let error;
  try {
    const result = await call();
    // Generators start at the first step.
    await (typeof result?.next === "function" ? result.next() : undefined);
  } catch (thrown) {
    error = thrown;
  }
  const shown = () => `${what} gave ${error?.stack ?? "no error"}`;
  assert.ok(error instanceof LeaseholdError && error instanceof Error, shown());
  assert.equal(error.code, "config", shown());
  assert.equal(error.name, "LeaseholdError", shown());
  assert.ok(error.message.length > 10 && error.message.length < 400, shown());
  for (const name of names) {
    assert.ok(error.message.includes(name), `${name} is named: ${shown()}`);
  }
}

const show = (value) => {
  try {
    return typeof value === "string" ? JSON.stringify(value.slice(0, 20)) : String(value);
  } catch {
    return "an object";
  }
};

/** Checks each bad value of an argument. */
async function eachRefused(what, values, call, names = []) {
  for (const value of values) {
    const [option] = typeof value === "object" && value !== null ? Object.keys(value) : [];
    await refused(() => call(value), `${what}(${option ? `${option}: ${show(value[option])}` : show(value)})`, names);
  }
}

forEachStore(
  (store) => {
    let locker;
    let lock;
    let lease;
    before(async () => {
      locker = await store.locker();
      lock = locker.lock("input");
      lease = await lock.acquire();
    });

    test("locker.lock", async () => {
      await eachRefused("lock", badNames, (name) => locker.lock(name));
      await eachRefused("lock options", badOptions(ofLock), (options) => locker.lock("x", options));
    });

    test("the names of inspect, forceRelease and list", async () => {
      await eachRefused("inspect", badNames, (name) => locker.inspect(name));
      await eachRefused("forceRelease", badNames, (name) => locker.forceRelease(name));
      const badPatterns = badNames.filter((value) => typeof value !== "string" || /\p{Surrogate}/u.test(value));
      await eachRefused("list", badPatterns, (pattern) => locker.list(pattern));
    });

    test("lock.acquire, tryAcquire, using and hold", async () => {
      const free = locker.lock(store.name());
      await eachRefused("acquire", badOptions(ofAcquire), (options) => free.acquire(options));
      const badSignalOptions = [...badOptions({ signal: badSignals }), { timeout: 5 }];
      await eachRefused("tryAcquire", badSignalOptions, (options) => free.tryAcquire(options));
      await eachRefused("using options", badOptions(ofAcquire), (options) => free.using(assert.fail, options));
      await eachRefused("using", except("function"), (work) => free.using(work));
      await eachRefused("hold", badOptions({ signal: badSignals }), (options) => free.hold(options));
      assert.equal((await locker.inspect(free.name)).lastToken, null, "the store was not asked");
    });

    test("locker.job, and what a job can do", async () => {
      await eachRefused("job", badNames, (name) => locker.job(name));
      await eachRefused("job options", badOptions(ofJob), (options) => locker.job("j", options));
      const job = locker.job(store.name());
      await eachRefused("claim", badTicks, (tick) => job.claim(tick));
      await eachRefused("claim options", badOptions(ofAcquire), (options) => job.claim(1, options));
      const every = locker.job(job.name, { every: 1_000 });
      await eachRefused("turns", badOptions({ signal: badSignals }), (options) => every.turns(options));
      await eachRefused("run options", badOptions({ signal: badSignals }), (options) => every.run(assert.fail, options));
      await eachRefused("run", except("function"), (work) => every.run(work));
      assert.equal((await locker.inspect(job.name)).lastToken, null, "the store was not asked");
    });

    test("lease.run", async () => {
      await eachRefused("run", except("function"), (work) => lease.run(work));
    });

    test("methods ignore extra arguments", async () => {
      const free = locker.lock(store.name());
      for (const value of all) {
        await (await free.tryAcquire()).release(value);
        await free.events(value).return(value);
        await locker.events(value).return(value);
      }
    });

    test("extreme but valid values", async () => {
      // Catches: sums that overflow in the engine.
      const free = locker.lock(store.name());
      for (const timeout of [1e9, 1e12, 1e15, 1e18, 1e20, 1e25, Number.MAX_VALUE, Infinity, undefined]) {
        await (await free.acquire({ timeout, signal: undefined })).release();
      }
      for (const timeout of [5e-324, 1e-9, 0.5, -0]) {
        const lease = await free.acquire({ timeout }).catch((error) => assert.equal(error.code, "timeout"));
        await lease?.release();
      }
      for (const ttl of [10, 10.5, 33.333, 366 * 24 * 60 * 60 * 1_000, undefined]) {
        const odd = locker.lock(store.name(), { ttl, fixed: undefined, owner: undefined, denseTokens: undefined });
        const lease = await odd.acquire();
        // On a busy machine 10 ms may end before the server has the release, or before its reply is here.
        await lease.release().catch(({ code }) => assert.ok(["notHeld", "timeout"].includes(code), code));
      }
      await (await locker.lock("x".repeat(512), { owner: "o".repeat(128) }).acquire(Object.create(null))).release();
    });

    test("none of these calls did any harm", async () => {
      assert.ok(lease.valid);
      await lease.release();
    });
  },
  { concurrency: 1 },
);

describe("making a locker", () => {
  const client = { eval: async () => [] };

  test("settings", async () => {
    await eachRefused("inMemory", badOptions(ofLocker), (options) => Locker.inMemory(options));
    await eachRefused("from", badOptions(ofLocker), (options) => Locker.from(client, options));
    await eachRefused("connect", badOptions(ofLocker), (options) => Locker.connect("memory://input", options));
    // Before anything connects.
    const types = Object.fromEntries(Object.keys(ofLocker).map((option) => [option, [null, {}, Symbol("s")]]));
    await eachRefused("connect", badOptions(types), (options) => Locker.connect("redis://127.0.0.1:1", options));
  });

  test("settings are named in the message", async () => {
    for (const [option, values] of Object.entries(ofLocker)) {
      const wrongTypes = values.filter((value) => typeof value === "object" || typeof value === "symbol");
      await eachRefused(`inMemory ${option}`, wrongTypes, (value) => Locker.inMemory({ [option]: value }), [option]);
    }
    await refused(() => Locker.inMemory({ tll: 1 }), "a slip", ['"tll"', "patience"]);
    // The engine's limits, under the JavaScript names of the options.
    await refused(() => Locker.inMemory({ commandTimeout: 0 }), "too short", ["commandTimeout must be from 1", "60"]);
    await refused(() => Locker.inMemory({ tokenRetention: 999 }), "too short", ["tokenRetention must be from 1"]);
    await refused(() => Locker.inMemory({ patience: 4e6 }), "too long", ["patience must be from 0"]);
  });

  test("Locker.from", async () => {
    const halves = [{ eval: 1 }, { eval() {}, subscribe: 1 }, { eval() {}, evalsha: "x" }, { status: "ready" }];
    await eachRefused("from", [...all, ...halves], (value) => Locker.from(value));
  });

  test("Locker.connect", async () => {
    const urls = ["http://x", "redis://", "redis://h:0x", "redis://h:70000", "redis//x", "memory//x", "//x", "x"];
    await eachRefused("connect", [...except("string"), "", "half \ud800", ...urls], (url) => Locker.connect(url));
    const error = await Locker.connect("redis://:s3cret@h:70000").catch((error) => error);
    assert.ok(!`${error} ${error.stack} ${error.cause}`.includes("s3cret"), String(error));
  });

  test("init", async () => {
    const none = [new Uint8Array(3), new ArrayBuffer(8), new DataView(new ArrayBuffer(0))];
    const values = all.filter((value) => value !== undefined);
    await eachRefused("init", [...values, ...none], (module) => init(module));
    // The engine is still there.
    await (await Locker.inMemory().lock("x").acquire()).release();
  });

  test("new Locker is refused", async () => {
    await eachRefused("new Locker", [undefined, {}, "redis://x"], (value) => new Locker(value));
  });
});
