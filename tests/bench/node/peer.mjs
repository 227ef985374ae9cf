/** A side that `cargo xtask bench` drives: see ../peers/README.md. */
import { createInterface } from "node:readline";
import { readFile } from "node:fs/promises";
import { open } from "./open.mjs";
import { QUORUMS, SIDES } from "./peers.mjs";

/** How many locks are acquired at a time when many are held. */
const AT_ONCE = 64;

/** The names of the packages. */
const PACKAGES = {
  "leasehold, node-redis": "redis",
  "redlock 5 beta": "redlock",
  "redis-semaphore": "redis-semaphore",
  "bare SET NX": "ioredis",
};

const [port, name] = process.argv.slice(2);
const ports = port.split(",").map(Number);
const side = await (ports.length > 1 ? QUORUMS[name](ports) : SIDES[name](ports[0]));
const held = [];

const WORKS = {
  pairs: (callers, milliseconds) => paired(callers, milliseconds, (caller) => side.pair(`pairs/${caller}`)),

  semaphore: (callers, milliseconds) => paired(callers, milliseconds, side.shared?.semaphore),
  readers: (callers, milliseconds) => paired(callers, milliseconds, side.shared?.readers),
  several: (callers, milliseconds) => paired(callers, milliseconds, side.shared?.several),

  async handoff(tasks, milliseconds) {
    if (name === "bare SET NX") {
      return { cannot: "it does not wait" };
    }
    const begin = performance.now();
    const counts = Array(tasks).fill(0);
    await each(tasks, async (task) => {
      while (performance.now() - begin < milliseconds) {
        const release = await side.acquire("handoff");
        counts[task] += performance.now() - begin < milliseconds ? 1 : 0;
        await release();
      }
    });
    const count = counts.reduce((sum, one) => sum + one, 0);
    return { count, millis: milliseconds, least: Math.min(...counts), most: Math.max(...counts) };
  },

  async hold(count) {
    if (!side.renews) {
      return { cannot: "it does not renew by itself" };
    }
    let next = 0;
    await each(AT_ONCE, async () => {
      while (next < count) {
        held.push(await side.acquire(`held/${(next += 1)}`));
      }
    });
    return { held: held.length };
  },

  async drop() {
    await each(AT_ONCE, async () => {
      while (held.length > 0) {
        await held.pop()();
      }
    });
    return { held: 0 };
  },

  async watch() {
    if (side.watch === undefined) {
      return { cannot: "it does not tell" };
    }
    await side.watch("watched", () => print({ lost: true }));
    return { held: 1 };
  },
};

print({ ready: await version() });
for await (const line of createInterface({ input: process.stdin })) {
  const [work, ...numbers] = line.split(" ");
  print(work === "open" ? await open(side, line.slice("open ".length)) : await WORKS[work](...numbers.map(Number)));
}
process.exit(0);

/** Lets callers acquire and release for this time. */
async function paired(callers, milliseconds, pair) {
  if (pair === undefined) {
    return { cannot: "it has no such thing" };
  }
  const begin = performance.now();
  let count = 0;
  await each(callers, async (caller) => {
    while (performance.now() - begin < milliseconds) {
      await pair(caller);
      count += 1;
    }
  });
  return { count, millis: performance.now() - begin };
}

function each(count, work) {
  return Promise.all(Array.from({ length: count }, (_, index) => work(index)));
}

function print(value) {
  console.log(JSON.stringify(value));
}

async function version() {
  if (PACKAGES[name] === undefined) {
    return name.split(" ")[0];
  }
  const file = new URL(`node_modules/${PACKAGES[name]}/package.json`, import.meta.url);
  const { version } = JSON.parse(await readFile(file, "utf8"));
  return `${PACKAGES[name]} ${version}`;
}
