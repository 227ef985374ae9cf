// A client, in a worker of its own: an engine, a locker, and a program that writes under the lock.
import { setRate } from "./clock.mjs";
import { Locker } from "./leasehold/index.browser.js";

/** The time to live of a lease, in milliseconds. */
const TTL = 5_000;
/** The time from checking the lease to sending the write: really microseconds, here long enough to pause in it. */
const MOMENT = 1_500;
const RUNNING = 0;
const PAUSED = 1;

/** Memory shared with the page, which pauses this thread by it. */
let control;
let lock;
let lease;
let giveUp;

/** Blocks this thread while the page says so: no timer, message or engine gets a turn. */
function standStill() {
  while (Atomics.load(control, 0) === PAUSED) Atomics.wait(control, 0, PAUSED);
}

/** Works for a moment without checking the lease; the page may pause it there. */
function work() {
  Atomics.wait(control, 0, RUNNING, MOMENT);
  standStill();
}

const report = (what) => postMessage({ kind: "report", ...what });

/** A short text for an error while the network is cut, because the page has little room. */
const inShort = ({ code, message }) => (code === "timeout" ? "the lock service did not answer" : message);

const commands = {
  start({ memory, denseTokens }) {
    control = memory;
    const locker = Locker.from(service, { commandTimeout: 1_000, patience: 3_000 });
    lock = locker.lock("document", { ttl: TTL, denseTokens });
    void watch(lock.events());
    report({ state: "ready" });
  },

  pause: standStill,

  slow: ({ rate }) => setRate(rate),

  async acquire() {
    giveUp = new AbortController();
    report({ state: "waiting" });
    try {
      lease = await lock.acquire({ signal: giveUp.signal });
    } catch (error) {
      report({ state: "ended", why: giveUp.signal.aborted ? "left the line" : inShort(error) });
    } finally {
      giveUp = undefined;
    }
  },

  async release() {
    if (giveUp !== undefined) {
      giveUp.abort();
      return;
    }
    report({ state: "releasing" });
    await lease.release().catch((error) => report({ state: "ended", why: inShort(error) }));
  },

  async write() {
    const mine = lease;
    const { token } = mine;
    report({ state: "writing" });
    try {
      const read = await ask("storage", { read: true, token });
      // Every careful program checks its lease as late as it can.
      if (!mine.valid) {
        report({ state: "gaveUp", token });
        return;
      }
      report({ state: "looked", token, remaining: mine.remaining });
      work();
      await ask("storage", { write: read, token });
      report({ state: "written", token });
    } catch (error) {
      report({ state: "refused", token, why: error.message });
    }
  },
};

/** Reports the events of the lease. */
async function watch(events) {
  for await (const { type, token, remaining, reason } of events) {
    report({ state: type, token, remaining, reason });
  }
}

/** A stand-in for a Redis client: its scripts and channels use the network of the page. */
const service = {
  eval: (_script, keys, args) => ask("service", { keys, args }),
  subscribe: async (channel, onMessage) => {
    hear = onMessage;
    await ask("service", { subscribe: channel });
    return () => {};
  },
};

let hear;
let count = 0;
const asked = new Map();

/** Sends a request over the network, and resolves to its reply if one arrives. */
function ask(to, request) {
  const id = (count += 1);
  postMessage({ kind: "request", id, to, request });
  return new Promise((resolve, reject) => asked.set(id, { resolve, reject }));
}

onmessage = ({ data }) => {
  if (data.kind === "push") {
    hear(data.text);
  } else if (data.kind === "reply") {
    const { resolve, reject } = asked.get(data.id);
    asked.delete(data.id);
    if (data.error === undefined) resolve(data.reply);
    else reject(new Error(data.error));
  } else {
    void commands[data.kind](data);
  }
};
