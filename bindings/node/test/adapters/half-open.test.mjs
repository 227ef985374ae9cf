// Half-open connections. All kinds run at once, because they mostly wait.
import assert from "node:assert/strict";
import { after, before, describe } from "node:test";
import { startProxy } from "../support/proxy.mjs";
import { startRedis } from "../support/redis.mjs";
import { test } from "../support/test.mjs";
import { awake, pause, steady, waitFor } from "../support/wait.mjs";
import { all, hearingLog, useKind } from "./kinds.mjs";

describe("a subscriber", { concurrency: all.length }, () => {
  let server;
  before(async () => {
    server = await startRedis();
  });
  after(() => server.stop());

  for (const kind of all) {
    test(`${kind.name}: is replaced if it is half-open, and kept if it answers`, { timeout: 180_000 }, async (t) => {
      // Catches: a waiter that hears nothing until TCP notices, a quarter of an hour later; and a check that
      // is not understood on a subscribed connection.
      const proxy = await startProxy(server.port);
      t.after(() => proxy.close());
      const { adapter } = await useKind(t, kind, proxy.url);
      let hearing;
      let stop;
      // A connection that does not answer for 2 s because the machine stalls is replaced as well.
      await steady(t, async () => {
        stop?.();
        hearing = hearingLog();
        stop = adapter.listen(kind.name, hearing);
        await waitFor(() => hearing.state === "subscribed");
        await pause(12_500);
        assert.deepEqual(hearing.log, [["subscribed"]]);
      });
      const before = awake();
      proxy.freeze();
      await waitFor(() => hearing.state === "unsubscribed", 20_000, "noticed");
      const noticed = awake() - before;
      assert.ok(noticed < 14_000, `after ${noticed} ms`);
      await waitFor(() => hearing.state === "subscribed", 20_000, "subscribed anew");
      await server.command("PUBLISH", kind.name, "heard");
      await waitFor(() => hearing.messages.includes("heard"));
    });
  }
});
