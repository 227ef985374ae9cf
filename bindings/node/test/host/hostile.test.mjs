// Objects that lie, change, or throw when touched: as each option of each public call, as clients, and as a
// client's replies and rejections. Each gives a LeaseholdError or works, and the engine survives. An
// unhandled rejection would fail the file.
import assert from "node:assert/strict";
import { after, describe } from "node:test";
import { fileURLToPath } from "node:url";
import { init, LeaseholdError, Locker } from "../../dist/index.js";
import { startNode } from "../support/program.mjs";
import { test } from "../support/test.mjs";
import { awake, steady } from "../support/wait.mjs";

const boom = () => {
  throw new RangeError("boom");
};
const traps = Object.fromEntries(Object.getOwnPropertyNames(Reflect).map((trap) => [trap, boom]));
const thrower = (target = {}) => new Proxy(target, traps);
const throwing = (...names) => Object.defineProperties({}, Object.fromEntries(names.map((name) => [name, { get: boom, enumerable: true }])));
function revoked() {
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  return proxy;
}

/** Makes a signal, with some members replaced. */
const signalWith = (other) => {
  const signal = { aborted: false, reason: undefined, addEventListener() {}, removeEventListener() {} };
  return Object.defineProperties(signal, Object.getOwnPropertyDescriptors(other));
};

/** Makes the values anew, because some can be touched only once. */
const hostileValues = () => [
  Object.create(null),
  thrower(),
  thrower(() => {}),
  revoked(),
  throwing("message", "code", "name", "then", "aborted", "toString", "valueOf", Symbol.toPrimitive, "constructor"),
  { toString: boom, valueOf: boom, [Symbol.toPrimitive]: boom },
  { toString: () => "x", valueOf: () => 20 },
  new String("x"),
  new Number(20),
  new Boolean(true),
  Symbol("s"),
  20n,
  -0,
  NaN,
  5e-324,
  "x".repeat(1_000_000),
  "\ud800",
  "\0",
  [thrower()],
  Object.assign(new Error("x"), { code: Object.create(null) }),
  Object.assign(Object.create(LeaseholdError.prototype), { code: 5, message: 5 }),
  { [Symbol.for("leasehold.LeaseholdError")]: true, get code() { return boom(); } },
  { [Symbol.toStringTag]: "WebAssembly.Module" },
  AbortSignal.prototype,
  thrower(new AbortController().signal),
  signalWith({ addEventListener: boom }),
  signalWith({ removeEventListener: boom }),
  signalWith({ addEventListener: (_, act) => queueMicrotask(act), get reason() { return boom(); } }),
  signalWith({ addEventListener: (_, act) => (act(), act()), removeEventListener: boom }),
  changing(false, thrower()),
  Promise.resolve(20),
];

/** A signal whose `aborted` is a different value each time. */
function changing(...values) {
  return signalWith({ get aborted() { return values.length > 1 ? values.shift() : values[0]; } });
}

/** The ways in which an object can have an option. */
const placed = [
  ["own", (key, value) => ({ [key]: value })],
  ["inherited", (key, value) => Object.create({ [key]: value })],
  ["of a getter", (key, value) => ({ get [key]() { return value; } })],
  ["of a class", (key, value) => new (class { get [key]() { return value; } })()],
  ["of a proxy", (key, value) => new Proxy({}, { get: (_, name) => (name === key ? value : undefined) })],
];

/** An option that is valid when it is checked, and `then` when it is read again. */
const turning = (key, valid, then) => {
  let reads = 0;
  return { get [key]() { return (reads += 1) === 1 ? valid : then; } };
};

/** Makes a call. Its result does not matter, but its error must be ours. */
async function survives(call, what) {
  try {
    const result = await call();
    await (typeof result?.next === "function" ? Promise.race([result.next(), result.return?.()]) : undefined);
    await result?.shutdown?.();
    await result?.release?.();
  } catch (error) {
    const own = Object.prototype.isPrototypeOf.call(LeaseholdError.prototype, error) || error?.name === "AbortError";
    assert.ok(own, `${what}: ${error instanceof Error ? error.stack : typeof error}`);
    assert.notEqual(error.code, "internal", `${what}: ${error.stack}`);
  }
}

const LOCKER = { namespace: "n", owner: "o", commandTimeout: 100, patience: 100, tokenRetention: 5_000 };
const LOCK = { ttl: 1_000, fixed: true, owner: "o", denseTokens: true, reentrant: true };
const ACQUIRE = { signal: new AbortController().signal, timeout: 20 };
const SIGNAL = { signal: ACQUIRE.signal };

describe("hostile options", { concurrency: 1 }, () => {
  const client = { eval: async () => [] };
  const locker = Locker.inMemory();
  const held = locker.lock("held").acquire();
  after(() => locker.shutdown());
  let count = 0;
  const fresh = () => locker.lock(`free-${(count += 1)}`);
  const calls = {
    "Locker.inMemory": [(options) => Locker.inMemory(options), LOCKER],
    "Locker.from": [(options) => Locker.from(client, options), LOCKER],
    "Locker.connect": [(options) => Locker.connect("memory://hostile", options), LOCKER],
    "locker.lock": [async (options) => (await locker.lock(`free-${(count += 1)}`, options).tryAcquire())?.release(), LOCK],
    acquire: [(options) => fresh().acquire(options), ACQUIRE],
    "acquire, in line": [(options) => locker.lock("held").acquire(within(options)), ACQUIRE],
    tryAcquire: [(options) => fresh().tryAcquire(options), SIGNAL],
    using: [(options) => fresh().using(() => {}, options), ACQUIRE],
    renew: [async (options) => (await held).renew(options), { ttl: 60_000 }],
    hold: [(options) => fresh().hold(options), SIGNAL],
  };

  /**
   * Adds a timeout unless there is one; otherwise the call would wait forever. An object that cannot be
   * touched stays as it is.
   */
  function within(options) {
    try {
      return "timeout" in options || Array.isArray(options) ? options : Object.create(options, { timeout: { value: 20 } });
    } catch {
      return options;
    }
  }

  /** Checks that the engine of all these calls is alive, and so is its lease. */
  async function lives(what) {
    assert.ok((await held).valid, `the lease is held after ${what}`);
    await (await fresh().acquire()).release();
  }

  for (const [what, [call, options]] of Object.entries(calls)) {
    test(what, async () => {
      for (const value of hostileValues()) {
        await survives(() => call(value), `${what} of a hostile object`);
      }
      for (const [key, valid] of Object.entries(options)) {
        for (const [where, place] of placed) {
          const values = hostileValues();
          await Promise.all(values.map((value, at) => survives(() => call(place(key, value)), `${what}, ${key} ${where}: ${at}`)));
        }
        const values = hostileValues();
        await Promise.all(values.map((value, at) => survives(() => call(turning(key, valid, value)), `${what}, ${key} turns: ${at}`)));
        await survives(() => call({ get [key]() { return boom(); } }), `${what}, ${key} throws`);
      }
      await lives(what);
    });
  }

  test("an option that cannot be read is named, with why", async () => {
    const named = (key) => ({ name: "LeaseholdError", code: "config", message: new RegExp(`${key} cannot be read: boom$`) });
    assert.throws(() => locker.lock("x", throwing("ttl")), named("ttl"));
    assert.throws(() => Locker.inMemory(throwing("patience")), named("patience"));
    await assert.rejects(fresh().acquire(throwing("signal")), named("signal"));
  });

  test("inherited options and getters count", async () => {
    class Settings {
      get ttl() {
        return 60_000;
      }
    }
    const lease = await locker.lock("class", new Settings()).acquire();
    assert.ok(lease.remaining > 50_000);
    await lease.release();
    // These two once crashed the engine.
    const bad = { name: "LeaseholdError", code: "config", message: /owner must be a string|namespace must be a string/ };
    assert.throws(() => locker.lock("n", Object.create({ owner: 5 })), bad);
    assert.throws(() => Locker.inMemory(Object.create({ namespace: 5 })), bad);
    await lives("these");
  });

  test("names, work and modules", async () => {
    for (const value of hostileValues()) {
      await survives(() => locker.lock(value), "lock");
      await survives(() => locker.inspect(value), "inspect");
      await survives(() => locker.forceRelease(value), "forceRelease");
      await survives(() => locker.list(value), "list");
      await survives(() => Locker.connect(value), "connect");
      await survives(() => new Locker(value), "new Locker");
      if (typeof value !== "function") {
        await survives(() => fresh().using(value), "using");
        await survives(async () => (await held).run(value), "run");
      }
      await survives(() => init(value), "init");
    }
    const other = new WebAssembly.Module(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]));
    await assert.rejects(init(other), { code: "config" });
    await lives("all");
    await Locker.inMemory().shutdown();
  });
});

// Catches texts that exceed the engine's memory, which makes it fail, or that take seconds to examine.
test("texts of any length are refused, wherever they come from", async () => {
  const huge = "x".repeat(2 ** 29 - 100);
  const locker = Locker.inMemory();
  const held = await locker.lock("held", { ttl: 600_000 }).acquire();
  const client = {
    replies: { eval: async () => [huge, "1"] },
    pushes: { eval: async () => [], subscribe: async (_, told) => (setTimeout(told, 1, huge), () => {}) },
    rejects: { eval: () => Promise.reject(new Error(`NOPERM ${huge.slice(0, 2 ** 28)}`)) },
  };
  const times = { commandTimeout: 100, patience: 100 };
  const calls = {
    name: () => locker.lock(huge),
    owner: () => locker.lock("x", { owner: huge }),
    namespace: () => Locker.inMemory({ namespace: huge }),
    pattern: () => locker.list(huge).next(),
    inspect: () => locker.inspect(huge),
    url: () => Locker.connect(`memory://${huge.slice(0, 2 ** 28)}`),
    ...Object.fromEntries(Object.entries(client).map(([way, client]) => [way, async () => {
      const other = Locker.from(client, times);
      const acquire = () => other.lock("x").tryAcquire();
      await acquire().catch(() => {});
      await new Promise((resolve) => setTimeout(resolve, 10));
      await acquire().finally(() => other.shutdown());
    }])),
  };
  for (const [what, call] of Object.entries(calls)) {
    const begin = awake();
    await assert.rejects(async () => call(), (error) => error instanceof LeaseholdError && error.code !== "internal", what);
    assert.ok(awake() - begin < 1_000, `${what} took ${awake() - begin} ms`);
    assert.ok(held.valid, what);
  }
  await locker.shutdown();
});

// Catches a signal that uses its locker while the engine's outputs are being read.
test("a signal may use the locker while its listener is removed", async () => {
  const locker = Locker.inMemory();
  const held = await locker.lock("held").acquire();
  const made = [];
  const use = () => made.push(locker.lock(`again-${made.length}`).tryAcquire(), locker.events().return(), locker.stats());
  const signals = Array.from({ length: 5 }, () => signalWith({ removeEventListener: use }));
  const leases = await Promise.all(signals.map((signal, at) => locker.lock(`x${at}`).acquire({ signal })));
  await Promise.all(leases.map((lease) => lease.release()));
  for (const lease of await Promise.all(made)) {
    await lease?.release?.();
  }
  assert.equal(made.length, 15);
  assert.ok(held.valid, `${held.signal.reason}`);
  await locker.shutdown();
});

// Catches an absent option that is read from `Object.prototype`, where it may have any type. That ended the
// engine and all its leases.
test("properties of Object.prototype are not options, and end no lease", async () => {
  const program = startNode(fileURLToPath(new URL("polluted.mjs", import.meta.url)));
  assert.equal(await program.end(100_000), 0, program.output());
  const { names, wrong } = JSON.parse(program.lines.at(-1));
  assert.deepEqual(wrong, []);
  for (const name of ["owner", "signal", "ttl", "namespace", "advice", "members", "evalsha"]) {
    assert.ok(names.includes(name), name);
  }
});

describe("a hostile client", () => {
  const members = ["eval", "evalsha", "subscribe", "duplicate", "on", "status", "isOpen", "options", "pipeline", "client"];

  test("is refused or works", async () => {
    const clients = [
      ...hostileValues(),
      ...members.map((name) => throwing(name)),
      ...members.map((name) => ({ eval: async () => [], ...{ [name]: thrower(() => {}) } })),
      { status: "ready", evalsha() {}, duplicate() {}, on: boom },
    ];
    for (const [at, client] of clients.entries()) {
      await survives(() => Locker.from(client), `client ${at}`);
    }
  });

  const ways = {
    rejects: (value) => ({ eval: () => Promise.reject(value) }),
    throws: (value) => ({ eval() { throw value; } }),
    "rejects by its hash": (value) => ({ eval: () => Promise.reject(value), evalsha: () => Promise.reject(value) }),
    answers: (value) => ({ eval: () => value }),
    "answers a list": (value) => ({ eval: async () => [value, "1", value] }),
    "cannot subscribe": (value) => ({ eval: async () => [], subscribe: () => Promise.reject(value) }),
    "subscribes with": (value) => ({ eval: async () => [], subscribe: async () => value }),
    "is told": (value) => ({ eval: async () => [], subscribe: async (_, told) => (told(value), () => boom()) }),
  };
  for (const [what, client] of Object.entries(ways)) {
    test(`a client that ${what} anything`, async () => {
      const one = async (value, at) => {
        const locker = Locker.from(client(value), { commandTimeout: 50, patience: 50 });
        for (const call of [() => locker.lock("x").tryAcquire(), () => locker.inspect("x")]) {
          const error = await call().then(assert.fail, (error) => error);
          assert.ok(Object.prototype.isPrototypeOf.call(LeaseholdError.prototype, error), `${at}: ${error?.stack}`);
          assert.notEqual(error.code, "internal", `${at}: ${error.stack}`);
          assert.equal(typeof error.message, "string");
        }
        await locker.shutdown();
      };
      await Promise.all(hostileValues().map(one));
    });
  }

  // Catches a gateway's page, which some clients put in their error, that floods a log or writes its own log
  // lines.
  test("a client that says too much", (t) =>
    steady(t, async () => {
      const client = { eval: () => Promise.reject(new Error(`line 1\nline 2 ${"x".repeat(100_000)}`)) };
      const locker = Locker.from(client, { commandTimeout: 50, patience: 50 });
      const { message } = await locker.lock("x").tryAcquire().then(assert.fail, (error) => error);
      await locker.shutdown();
      assert.match(message, /line 1 line 2/);
      assert.ok(message.length < 500, `${message.length} characters`);
    }));
});
