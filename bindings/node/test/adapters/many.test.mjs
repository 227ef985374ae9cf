// Many lockers on one client of the program: they share what each of them would cost the client.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { startRedis } from "../support/redis.mjs";
import { test } from "../support/test.mjs";
import { pause, waitFor } from "../support/wait.mjs";
import { adapters, given } from "./kinds.mjs";

const { adapt, Locker } = adapters;
const LOCKERS = 30;

let server;
before(async () => {
  server = await startRedis();
});
after(() => server.stop());

const listenersOf = (client) => client.eventNames().map((event) => [event, client.listenerCount(event)]);

for (const { name, make, end } of given) {
  test(`${name}: many lockers listen as one, and leave nothing behind`, async (t) => {
    // Catches: listeners for each locker, of which Node warns as a leak from the eleventh on.
    const client = await make(server.url);
    t.after(() => end(client));
    await client.connect();
    const warnings = [];
    const warn = (warning) => warnings.push(warning);
    process.on("warning", warn);
    t.after(() => process.removeListener("warning", warn));

    const bare = listenersOf(client);
    const first = Locker.from(client);
    const ofOne = listenersOf(client);
    assert.notDeepEqual(ofOne, bare, "one locker listens");
    const lockers = [first, ...Array.from({ length: LOCKERS - 1 }, () => Locker.from(client))];
    assert.deepEqual(listenersOf(client), ofOne);

    const leases = await Promise.all(lockers.map((locker, i) => locker.lock(`${name} ${i}`).acquire()));
    assert.ok(leases.every(({ valid }) => valid));
    assert.deepEqual(listenersOf(client), ofOne, "while they hold leases");

    await Promise.all(lockers.slice(1).map((locker) => locker.shutdown()));
    assert.deepEqual(listenersOf(client), ofOne, "for the last of them");
    await leases[0].renew();
    await first.shutdown();
    assert.deepEqual(listenersOf(client), bare);
    // Node reports a warning in a later turn.
    await pause(10);
    assert.deepEqual(warnings, []);
  });

  test(`${name}: each of many is told of the connection, and one that left is not`, async (t) => {
    // Catches: shared listeners that tell only the first locker, or that go with the first locker that
    // leaves.
    const own = await startRedis();
    t.after(() => own.stop());
    const client = await make(own.url);
    t.after(() => end(client));
    await client.connect();
    const told = Array.from({ length: LOCKERS }, () => ({ up: 0, down: 0 }));
    const unwatch = told.map((link) =>
      adapt(client).watch({
        up: () => {
          link.up += 1;
        },
        down: () => {
          link.down += 1;
        },
      }),
    );
    t.after(() => unwatch.forEach((stop) => stop()));
    unwatch[0]();
    const before = { ...told[0] };
    await own.kill();
    // A pool does not check by itself. The answer comes when there is a server again, or never.
    const none = name.startsWith("ioredis") ? 0 : { keys: [], arguments: [] };
    client.eval("return 1", none).catch(() => {});
    await waitFor(() => told.slice(1).every(({ down }) => down > 0), 10_000, "all hear of its end");
    const ups = told.map(({ up }) => up);
    await own.start();
    await waitFor(() => told.slice(1).every(({ up }, i) => up > ups[i + 1]), 10_000, "all hear of its return");
    assert.deepEqual(told[0], before);
  });
}
