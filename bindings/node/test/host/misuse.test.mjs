// Wrong calls, and platforms that lack something, give errors in this package's own words.
import assert from "node:assert/strict";
import { LeaseholdError, Locker } from "../../dist/index.js";
import { startProgram } from "../support/program.mjs";
import { test } from "../support/test.mjs";

test("a method that was detached from its object says so", async (t) => {
  // Catches: a TypeError about a private name, from deep inside.
  const locker = Locker.inMemory();
  t.after(() => locker.shutdown());
  const lock = locker.lock("x");
  const lease = await lock.acquire();
  const job = locker.job("j");
  const { turn } = await job.claim(1);
  const lockSet = locker.all(["a", "b"]);
  const bundle = await lockSet.acquire();
  const semaphore = locker.semaphore("s", 2);
  const rwLock = locker.rwLock("r");
  const rwPart = rwLock.read();
  const permit = await semaphore.acquire();
  const objects = { locker, lock, lease, job, turn, lockSet, bundle, semaphore, rwLock, rwPart, permit };
  const methods = {
    locker: ["lock", "semaphore", "quota", "rwLock", "job", "all", "allAtOnce", "events", "inspect", "observe", "list", "forceRelease", "forceReleaseToken", "requestYield", "accept", "stats", "shutdown"],
    lock: ["acquire", "tryAcquire", "accept", "using", "hold", "events"],
    lease: ["run", "renew", "wanted", "pass", "release"],
    job: ["run", "turns", "claim", "due"],
    turn: ["done", "giveBack"],
    lockSet: ["acquire", "tryAcquire", "using"],
    bundle: ["run", "renew", "release"],
    semaphore: ["acquire", "tryAcquire", "using", "hold", "resize", "events"],
    rwLock: ["read", "write", "events"],
    rwPart: ["acquire", "tryAcquire", "using", "hold"],
    // Its other methods are those of a lease.
    permit: ["downgrade"],
  };
  for (const [name, object] of Object.entries(objects)) {
    for (const method of methods[name]) {
      const detached = object[method];
      // As with `const { acquire } = lock`, and as with `setTimeout(lease.release)`.
      for (const other of [undefined, {}, setTimeout]) {
        const call = async () => {
          const made = detached.call(other, async () => {});
          return method === "list" ? made.next() : made;
        };
        await assert.rejects(call, (error) => {
          assert.ok(error instanceof LeaseholdError, `${name}.${method}: ${error.stack}`);
          assert.equal(error.code, "config");
          assert.match(error.message, new RegExp(`^${name}\\.${method} was called without its ${name}: .*${name}\\.${method}\\(…\\)`));
          return true;
        });
      }
      // Catches: a TypeError about a private name, or about a proxy that the program's own code does not
      // show.
      const { proxy, revoke } = Proxy.revocable(object, {});
      revoke();
      for (const other of [new Proxy(object, {}), Object.create(object), proxy]) {
        const call = async () => {
          const made = detached.call(other, async () => {});
          return method === "list" ? made.next() : made;
        };
        const message = `${name}.${method} was called on a proxy or a copy of its ${name}: call it on the ${name} itself`;
        await assert.rejects(call, (error) => error instanceof LeaseholdError && error.code === "config" && error.message === message);
      }
    }
  }
  // The list has all of them.
  for (const [name, object] of Object.entries(objects)) {
    const own = Object.entries(Object.getOwnPropertyDescriptors(Object.getPrototypeOf(object)));
    const callable = own.filter(([, { value }]) => typeof value === "function").map(([method]) => method);
    const others = ["constructor", "toJSON", "whenOver", "ask", "complete", "close", "checkHeld", "checkLost", "becomeReader"];
    assert.deepEqual(callable.filter((method) => !others.includes(method)).sort(), [...methods[name]].sort());
  }
  assert.ok(lease.valid && turn.lease.valid && bundle.valid && permit.valid, "nothing was done by any of them");
});

test("without WebAssembly every way to a locker says what is missing", async () => {
  // Catches: a ReferenceError from inside.
  const program = startProgram(process.execPath, ["--jitless", "--input-type=module", "-e", `
    const { init, Locker } = await import("./dist/index.js");
    const client = { eval: async () => [] };
    const ways = [
      () => Locker.inMemory(),
      () => Locker.from(client),
      () => Locker.connect("memory://x"),
      () => Locker.connect("redis://127.0.0.1:1"),
      () => init(),
      () => init(new Uint8Array()),
    ];
    for (const way of ways) {
      const error = await (async () => way())().catch((error) => error);
      console.log(error.constructor.name, error.code, /WebAssembly.*--jitless/.test(error.message));
    }
  `]);
  assert.equal(await program.end(), 0, program.output());
  assert.deepEqual(program.lines, Array(6).fill("LeaseholdError unsupported true"));
});
