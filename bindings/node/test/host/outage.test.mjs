// In-memory stores that a program cuts off and clears.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { describe } from "node:test";
import { Locker, MemoryStore } from "../../dist/index.js";
import { aborted, collect } from "../support/stores.mjs";
import { test } from "../support/test.mjs";
import { awake, waitFor } from "../support/wait.mjs";

const cjs = createRequire(import.meta.url)("../../dist/index.cjs");
const TTL = 1_000;
const OPTIONS = { commandTimeout: 500, patience: 200 };

let count = 0;

/** Returns a new store. Every second one comes from another copy of the package. */
function store() {
  const name = `outage ${(count += 1)}`;
  const control = (count % 2 === 0 ? MemoryStore : cjs.MemoryStore).named(name);
  return { control, url: `memory://${encodeURIComponent(name)}` };
}

const of = (events, type) => events.filter((event) => event.type === type).length;

describe("a store in memory that is cut off", { concurrency: 2 }, () => {
  test("answers nothing, and goes on after", async () => {
    const { control, url } = store();
    const [locker, other] = await Promise.all([Locker.connect(url, OPTIONS), cjs.Locker.connect(url, OPTIONS)]);
    const lock = locker.lock("x", { ttl: TTL });
    const events = collect(lock.events());
    const lease = await lock.acquire();
    const waiting = other.lock("x").acquire({ timeout: 60_000 });
    await waitFor(async () => (await locker.inspect("x")).waiting === 1, 5_000, "one in line");
    control.cutOff();
    await assert.rejects(locker.inspect("x"), { code: "unavailable", message: /cut off/ });
    await assert.rejects(Locker.connect(url), { code: "unavailable", message: /cut off/ });
    const later = await Locker.connectLazily(url);
    await waitFor(() => of(events, "atRisk") > 0, 5_000, "it is at risk");
    control.reconnect();
    const before = of(events, "renewed");
    await waitFor(() => of(events, "renewed") > before, 5_000, "a renewal");
    assert.ok(lease.valid);
    assert.equal((await later.inspect("x")).holder.token, lease.token);
    const begin = awake();
    await lease.release();
    assert.ok((await waiting).token > lease.token);
    assert.ok(awake() - begin < 500, "by a push");
    await Promise.all([locker, other, later].map((made) => made.shutdown()));
  });

  test("loses its leases if that lasts too long", async () => {
    const { control, url } = store();
    const locker = await Locker.connect(url, OPTIONS);
    const lease = await locker.lock("x", { ttl: TTL }).acquire();
    control.cutOff();
    control.cutOff();
    assert.equal((await aborted(lease.signal)).reason, "expired");
    await locker.shutdown();
  });

  test("comes back as a server that lost its data, if it was cleared", async () => {
    const { control, url } = store();
    const locker = await Locker.connect(url, OPTIONS);
    const lock = locker.lock("x", { ttl: TTL });
    const lease = await lock.acquire();
    control.cutOff();
    control.clear();
    control.reconnect();
    assert.equal((await aborted(lease.signal)).reason, "deleted");
    assert.ok((await lock.acquire()).token > lease.token);
    await locker.shutdown();
  });

  test("is one of five servers, and the quorum goes on without it", async () => {
    const stores = Array.from({ length: 5 }, store);
    const urls = stores.map(({ url }) => url);
    const locker = await Locker.quorum(urls);
    const lock = locker.lock("x", { ttl: TTL });
    const events = collect(lock.events());
    const lease = await lock.acquire();
    stores[0].control.cutOff();
    stores[3].control.cutOff();
    await waitFor(() => of(events, "atRisk") > 0, 5_000, "it is at risk");
    const before = of(events, "renewed");
    await waitFor(() => of(events, "renewed") > before, 5_000, "a renewal");
    assert.ok(lease.valid);
    // Two servers that are down at the start join later.
    const other = await Locker.quorum(urls, OPTIONS);
    await lease.release();
    const next = await other.lock("x", { ttl: TTL }).acquire();
    assert.ok(next.token > lease.token);
    stores[1].control.cutOff();
    const missing = /^3 of 5 servers are missing, and 3 are needed: server 1: the in-memory store is cut off; server 2: /;
    await assert.rejects(Locker.quorum(urls), { code: "unavailable", message: missing });
    for (const at of [0, 1, 3]) stores[at].control.reconnect();
    await next.release();
    stores[4].control.clear();
    const last = await lock.acquire();
    assert.ok(last.token > next.token);
    await last.release();
    for (const at of [0, 2, 4]) stores[at].control.cutOff();
    const begin = awake();
    await assert.rejects(other.lock("x").acquire(), { code: "unavailable", message: /3 of 5 servers are missing/ });
    assert.ok(awake() - begin < 1_000, `${awake() - begin} ms`);
    await Promise.all([locker.shutdown(), other.shutdown()]);
  });

  test("is made by its name alone", () => {
    assert.throws(() => MemoryStore.named(5), { code: "config" });
    assert.throws(() => new MemoryStore(), { code: "config", message: /is made by MemoryStore.named/ });
  });
});
