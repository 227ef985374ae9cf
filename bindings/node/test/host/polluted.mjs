// A process in which `Object.prototype` has properties, one after the other, under every name that this
// package uses. It prints as JSON what went wrong with the calls made meanwhile.
import { readdirSync, readFileSync } from "node:fs";
import { LeaseholdError, Locker, MemoryStore } from "../../dist/index.js";

const SRC = new URL("../../src/", import.meta.url);

/**
 * The language describes properties by these names: an inherited one breaks everything that a program
 * defines.
 */
const DESCRIPTORS = ["get", "set", "value", "writable", "enumerable", "configurable"];
/** The language looks this up in everything that a promise is resolved to. */
const THEN = "then";

/**
 * Returns the names of possibly missing members: optional ones, and ones that objects are asked for by name.
 */
function namesIn(folder) {
  const texts = readdirSync(folder, { recursive: true })
    .filter((file) => file.endsWith(".ts") && !/^(fence|generated)\//.test(file))
    .map((file) => readFileSync(new URL(file, folder), "utf8"));
  const code = texts.join("\n").replace(/\/\*[^]*?\*\/|\/\/.*/g, "");
  const optional = [...code.matchAll(/(\w+)\?:/g)].map(([, name]) => name);
  const taken = [...code.matchAll(/(?:const|let) \{([^}]*)\}/g)].flatMap(([, names]) => names.match(/(?<![.:=] ?)\b[a-z]\w*/gi) ?? []);
  const methods = [...code.matchAll(/\bcan\(([^)]*)\)/g)].flatMap(([, args]) => args.match(/(?<=")\w+(?=")/g) ?? []);
  const names = new Set([...optional, ...taken, ...methods]);
  return [...names].filter((name) => !(name in Object.prototype) && ![...DESCRIPTORS, THEN].includes(name));
}

const boom = () => {
  throw new RangeError("boom");
};
/** Ways to put a property on the prototype. */
const ways = {
  number: (name) => Object.defineProperty(Object.prototype, name, { value: 5, configurable: true, writable: true }),
  text: (name) => Object.defineProperty(Object.prototype, name, { value: "\ud800", configurable: true, writable: true }),
  object: (name) => Object.defineProperty(Object.prototype, name, { value: { x: 1 }, configurable: true, writable: true }),
  // Only for option names, because Node's timers set properties with some other names.
  throws: (name) => OPTIONS.test(name) && Object.defineProperty(Object.prototype, name, { get: boom, set: boom, configurable: true }),
  enumerable: (name) => Object.defineProperty(Object.prototype, name, { value: NaN, configurable: true, writable: true, enumerable: true }),
};

const client = { eval: async () => [], evalsha: undefined, subscribe: undefined };
const wrong = [];
const locker = Locker.inMemory();
const held = await locker.lock("held", { ttl: 600_000 }).acquire();
const events = locker.events();
await events.next();
let count = 0;

/** The calls that a program makes, with options that are absent, empty, and given. */
const calls = {
  lock: () => locker.lock("x"),
  "lock {}": () => locker.lock("x", {}),
  "acquire and release": async () => (await locker.lock(`x${(count += 1)}`).acquire()).release(),
  "acquire {}": async () => (await locker.lock(`x${(count += 1)}`, { ttl: 1_000 }).acquire({})).release(),
  "acquire of a class": async () => (await locker.lock(`x${(count += 1)}`, new (class { get ttl() { return 1_000; } })()).acquire()).release(),
  "tryAcquire, held": async () => (await locker.lock("held").tryAcquire())?.release(),
  using: () => locker.lock(`x${(count += 1)}`).using(() => {}),
  "a bad option": () => locker.lock("x", { ttl: -1 }),
  "a bad name": () => locker.lock(""),
  "a bad owner": () => locker.lock("x", { owner: "o".repeat(200) }),
  "acquire, timed out": () => locker.lock("held").acquire({ timeout: 1 }),
  renew: () => held.renew(),
  "renew {}": () => held.renew({ ttl: 600_000 }),
  inspect: () => locker.inspect("held"),
  list: () => locker.list("*").next(),
  forceRelease: () => locker.forceRelease("nobody"),
  events: async () => { const events = locker.events(); await events.next(); await events.return(); },
  stats: () => locker.stats(),
  show: () => JSON.stringify([locker, held, locker.lock("x")]),
  inMemory: () => Locker.inMemory().shutdown(),
  "inMemory {}": () => Locker.inMemory({}).shutdown(),
  "inMemory, bad": () => Locker.inMemory({ patience: -1 }),
  connect: async () => (await Locker.connect("memory://polluted")).shutdown(),
  "connect, bad": () => Locker.connect("http://x"),
  quorum: async () => (await Locker.quorum(["memory://1", "memory://2", "memory://3"])).shutdown(),
  from: async () => { const locker = Locker.from(client, { commandTimeout: 5, patience: 5 }); await locker.lock("x").tryAcquire().finally(() => locker.shutdown()); },
  named: () => MemoryStore.named("polluted").clear(),
};

/**
 * The names of options. These calls must work as if nothing had happened, whatever the prototype has under an
 * option's name.
 */
const OPTIONS = /^(signal|timeout|ttl|fixed|owner|reentrant|denseTokens|replicas|replicasTimeout|fsynced|namespace|connectTimeout|commandTimeout|patience|driftMargin|tokenRetention|longestTtl|tracking|thread)$/;
const WORK = ["lock", "lock {}", "acquire and release", "acquire {}", "acquire of a class", "using", "renew", "renew {}", "inMemory", "inMemory {}", "connect", "quorum"];

const names = namesIn(SRC);
for (const name of names) {
  for (const [way, pollute] of Object.entries(ways)) {
    const failed = [];
    pollute(name);
    for (const [what, call] of Object.entries(calls)) {
      try {
        await call();
      } catch (error) {
        failed.push([what, error]);
      }
    }
    delete Object.prototype[name];
    for (const [what, error] of failed) {
      const own = Object.prototype.isPrototypeOf.call(LeaseholdError.prototype, error);
      const works = OPTIONS.test(name) && WORK.includes(what);
      if (!own || error.code === "internal" || works) {
        wrong.push(`${name} (${way}), ${what}: ${error?.stack ?? error}`.slice(0, 1_000));
      }
    }
    if (!held.valid) {
      wrong.push(`${name} (${way}): the lease is lost: ${held.signal.reason}`);
      break;
    }
  }
  if (!held.valid) {
    break;
  }
}
await held.release();
await locker.shutdown();
console.log(JSON.stringify({ names, wrong }));
