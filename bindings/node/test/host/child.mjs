// A separate program, for what happens when a process ends: node child.mjs <how> <url> <what> [name] `how` is
// the kind of client, or `connect:` and the package for the connection, or `connect:thread`.
import { register } from "node:module";
import { Locker } from "../../dist/index.js";
import { inTheEnd, lockerOf } from "../support/stores.mjs";
import { waitFor } from "../support/wait.mjs";

const [, , how, url, what, name = "x"] = process.argv;
const say = (...words) => process.stdout.write(`${words.join(" ")}\n`);
process.on("exit", (code) => say("exit", code));

/** Short times where failures are awaited. Otherwise times are longer than a machine may stall. */
const short = ["ask", "failures", "unconfirmed"].includes(what);
const settings = short ? { commandTimeout: 300, patience: 600 } : { commandTimeout: 2_000, patience: 5_000 };
const { locker, end } = await make();

async function make() {
  if (how === "memory") {
    return { locker: Locker.inMemory(settings), end: async () => {} };
  }
  if (!how.startsWith("connect:")) {
    return lockerOf(how, url, settings);
  }
  if (how === "connect:node-redis") {
    hide("ioredis");
  }
  const thread = how === "connect:thread";
  return { locker: await Locker.connect(url, { ...settings, thread }), end: async () => {} };
}

/** Hides a package, as if it were not installed. */
function hide(name) {
  const hook = `export const resolve = (specifier, context, next) => {
    if (specifier === "${name}") throw new Error("hidden");
    return next(specifier, context);
  };`;
  register(`data:text/javascript,${encodeURIComponent(hook)}`);
}

const lock = locker.lock(name, { ttl: short ? 1_000 : 4_000 });
const told = (events) => void (async () => {
  for await (const { type } of events) {
    say("event", type);
  }
})();

const acts = {
  /** Makes only a locker, its readers, and a name that is locked and released. */
  async idle() {
    told(lock.events());
    told(locker.events());
    await lock.using(() => {});
  },
  async released() {
    const lease = await lock.acquire();
    // Until the lease was renewed.
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    await lease.release();
  },
  async shutdown() {
    await lock.acquire();
    await locker.shutdown();
  },
  /** Gives up a lease of a minute, whose release cannot be confirmed. */
  async unconfirmed() {
    const lease = await inTheEnd(locker.lock(name, { ttl: 60_000 }));
    say("held", lease.token);
    await waitFor(() => locker.inspect(name).then(() => false, () => true), 20_000);
    await lease.release().catch(({ code }) => say("refused", code));
    await locker.shutdown();
    await end();
    say("done");
  },
  async hold() {
    const lease = await lock.acquire();
    lease.signal.addEventListener("abort", () => say("lost", lease.signal.reason.reason));
    say("held", lease.token);
  },
  /** Holds a lease, and has something else to do. */
  async busy() {
    setTimeout(() => {}, 60_000);
    await acts.hold();
  },
  async wait() {
    say("waiting");
    say("held", (await lock.acquire()).token);
  },
  async exit() {
    say("held", (await lock.acquire()).token);
    process.exit(3);
  },
  /** Prints again and again whether the store answers. */
  async ask() {
    for (;;) {
      say(await locker.inspect(name).then(() => "answered", () => "failed"));
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  },
  async sigterm() {
    process.once("SIGTERM", async () => {
      await locker.shutdown();
      await end();
    });
    await acts.hold();
  },
  /** Has both slots of a semaphore, with a short time to live. */
  async permit() {
    const permit = await locker.semaphore(name, 2, { ttl: 1_000 }).acquire({ weight: 2 });
    say("permit", permit.token);
  },
  /** Reads, with a short time to live. */
  async reader() {
    const permit = await locker.rwLock(name, { ttl: 1_000 }).read().acquire();
    say("reader", permit.token);
  },
  /** Has a turn of a job, with a short time to live. */
  async turn() {
    const job = locker.job(name, { every: 366 * 86_400_000, ttl: 1_000 });
    const { turn } = await job.claim(await job.due());
    say("turn", turn.tick, turn.token);
  },
  /** Runs a job three times. */
  async job() {
    let runs = 0;
    const stop = new AbortController();
    await locker.job(name, { every: 50 }).run(() => (runs += 1) === 3 && stop.abort(), { signal: stop.signal });
    say("runs", runs);
    await end();
  },
  /** Runs a job that is not due for months, until SIGTERM. */
  async sleep() {
    process.once("SIGTERM", async () => {
      await locker.shutdown();
      await end();
    });
    const run = locker.job(`${name} of a year`, { every: 366 * 86_400_000 }).run(() => {});
    say("sleeping");
    await run;
    say("over");
  },
  /** Causes every kind of failure, without listening to any. */
  async failures() {
    const { token } = await inTheEnd(lock);
    say("held", token);
    const other = locker.lock(name);
    lock.events().next();
    locker.events().toStream();
    other.hold().next().catch(() => {});
    for (const options of [{ timeout: 50 }, { signal: AbortSignal.timeout(50) }]) {
      other.acquire(options).catch((error) => say("failed", error.name));
    }
    await waitFor(() => false, 4_000).catch(() => {});
    await locker.shutdown();
    await end();
  },
};

await acts[what]();
if (what === "idle" || what === "released") {
  say("done");
  if (!how.startsWith("connect:")) {
    // The program itself must end its own client.
    await end();
  }
}
