// `client.rs` in JavaScript: node client.mjs SETTINGS, as JSON
import { appendFileSync } from "node:fs";
import { createConnection } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { Locker } from "../../bindings/node/dist/index.js";

const LOOK_MS = 10;
const RECORD_NS = 50_000_000n;
const STORE_MS = 6_000;
const ORPHAN_MS = 40_000;

const settings = JSON.parse(process.argv[2]);
const { urls, names, usage, wait, ttl } = settings;
// As in usage.rs.
const CAPACITY = 3;
let over = false;
process.stdin.on("data", () => {}).on("end", () => {
  over = true;
  setTimeout(() => process.exit(1), ORPHAN_MS).unref();
});

// By CLOCK_MONOTONIC, in nanoseconds.
const now = () => process.hrtime.bigint();

class Recorder {
  constructor(client) {
    this.client = client;
    this.op = 0;
  }

  record(event, name, more, at = now()) {
    const entry = { client: this.client, op: this.op, event, name, ...more };
    // Times are longer than a number's digits, so they are written as text.
    appendFileSync(settings.history, `{"at":${at},${JSON.stringify(entry).slice(1)}\n`);
  }

  call(kind, name, more) {
    this.op += 1;
    this.record("call", name, { kind, ...more });
  }

  back(kind, name, outcome, more) {
    this.record("return", name, { kind, outcome, ...more });
  }

  value() {
    return `${this.client}#${this.op + 1}`;
  }
}

class Store {
  #socket;
  #waiting;

  async #connect() {
    const socket = createConnection({ port: settings.store, host: "127.0.0.1", noDelay: true });
    let unread = "";
    socket.on("data", (data) => {
      unread += data;
      const end = unread.indexOf("\n");
      if (end >= 0) {
        const line = unread.slice(0, end);
        unread = unread.slice(end + 1);
        this.#waiting?.resolve(line);
      }
    });
    const fail = (error) => this.#waiting?.reject(error ?? new Error("the store closed the connection"));
    socket.on("error", fail).on("close", () => fail());
    this.#socket = socket;
  }

  async ask(request) {
    if (!this.#socket) {
      await this.#connect();
    }
    const timer = setTimeout(() => this.#waiting?.reject(new Error("the store did not answer")), STORE_MS);
    try {
      return await new Promise((resolve, reject) => {
        this.#waiting = { resolve, reject };
        this.#socket.write(`${request}\n`);
      });
    } catch (error) {
      // The answer may still come, so the connection is not used again.
      this.#socket.destroy();
      this.#socket = undefined;
      throw error;
    } finally {
      this.#waiting = undefined;
      clearTimeout(timer);
    }
  }

  async recorded(recorder, kind, name, token) {
    const value = kind === "write" ? recorder.value() : undefined;
    recorder.call(kind, name, { token, value });
    try {
      const line = await this.ask(value === undefined ? `read ${name} ${token}` : `write ${name} ${token} ${value}`);
      const outcome = line === "stale" ? "stale" : "ok";
      const got = kind === "read" && outcome === "ok" ? line.slice(3) : undefined;
      recorder.back(kind, name, outcome, { token, value: got });
    } catch (error) {
      recorder.back(kind, name, "failed", { token, text: error.message });
    }
  }
}

// Looks at a lease until it is told to stop, and records its loss.
class Looks {
  #recorded = 0n;
  #last = now();
  // The longest time between two looks since the lease was last valid.
  #gap = 0n;
  #deadline;

  constructor(recorder, lease, name) {
    Object.assign(this, { recorder, lease, name, token: lease.token });
    this.look();
    this.timer = setInterval(() => this.look(), LOOK_MS);
    lease.signal.addEventListener("abort", () => this.#lost(), { once: true });
  }

  look() {
    const at = now();
    this.#widen(at);
    if (this.lease.valid) {
      this.#gap = 0n;
      this.#deadline = now() + BigInt(Math.ceil(this.lease.remaining * 1e6));
      if (at - this.#recorded >= RECORD_NS) {
        this.#recorded = at;
        this.recorder.record("valid", this.name, { token: this.token }, at);
      }
    }
  }

  #widen(at) {
    const gap = at - this.#last;
    this.#gap = gap > this.#gap ? gap : this.#gap;
    this.#last = at;
  }

  #lost() {
    const at = now();
    this.#widen(at);
    const late = this.#deadline === undefined ? 0n : at - this.#deadline;
    const unseen = this.#gap;
    const text = this.lease.signal.reason?.reason;
    this.recorder.record("lost", this.name, { token: this.token, text, late: Number(late), unseen: Number(unseen) }, at);
  }

  end() {
    this.look();
    clearInterval(this.timer);
  }
}

const between = (low, high) => low + Math.floor(Math.random() * (high - low + 1));
const LONG = usage === "locks" ? 0.12 : 0.05;
const holdTime = () => (Math.random() < LONG ? between(300, 2_500) : between(5, 60));

// Returns how to acquire a name once: for a semaphore, one slot; for readers and writers, three times of four for reading.
function acquisition(locker, name) {
  if (usage === "locks") {
    return { of: locker.lock(name, { ttl }), timeout: wait };
  }
  const timeout = Math.random() < 0.6 ? between(0, 150) : wait;
  if (usage === "semaphore") {
    return { of: locker.semaphore(name, CAPACITY, { ttl }), timeout };
  }
  const both = locker.rwLock(name, { ttl });
  const reads = Math.random() < 0.75;
  return { of: reads ? both.read() : both.write(), timeout, reads };
}

async function turn(recorder, store, locker) {
  const asked = names[between(0, names.length - 1)];
  recorder.call("acquire", asked);
  const { of, timeout, reads } = acquisition(locker, asked);
  let lease;
  try {
    lease = await of.acquire({ timeout });
  } catch (error) {
    recorder.back("acquire", asked, error.code === "timeout" ? "none" : "failed", { text: error.message });
    return;
  }
  const { token, generation } = lease;
  const name = lease.resource ?? lease.name;
  recorder.back("acquire", name, "ok", { token, reads, generation });
  // A reader has the last writer's token, if there was one.
  const fence = reads ? generation : token;
  const looks = new Looks(recorder, lease, name);
  if (fence !== undefined) {
    await store.recorded(recorder, "read", name, fence);
  }
  await sleep(holdTime());
  looks.look();
  if (fence !== undefined) {
    await store.recorded(recorder, reads ? "read" : "write", name, fence);
  }
  looks.end();
  recorder.call("release", name, { token });
  try {
    await lease.release();
    recorder.back("release", name, "ok");
  } catch (error) {
    recorder.back("release", name, "failed", { text: error.message });
  }
  if (!reads && Math.random() < 0.1) {
    await sleep(between(0, 40));
    await store.recorded(recorder, "write", name, token);
  }
}

async function connect() {
  const { namespace, timeout: commandTimeout, patience, longest: longestTtl } = settings;
  const options = { namespace, commandTimeout, patience, longestTtl };
  while (!over) {
    try {
      return await (urls.length === 1 ? Locker.connect(urls[0], options) : Locker.quorum(urls, options));
    } catch {
      await sleep(100);
    }
  }
  process.exit();
}

const locker = await connect();
const workers = Array.from({ length: settings.workers }, async (_, number) => {
  const recorder = new Recorder(`${settings.client}/${number}`);
  const store = new Store();
  while (!over) {
    await turn(recorder, store, locker);
    await sleep(between(0, 20));
  }
});
await Promise.all(workers);
await locker.shutdown();
process.exit();
