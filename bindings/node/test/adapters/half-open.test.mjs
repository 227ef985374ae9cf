// Connections that only seem to be there. All kinds at once, for there is mostly waiting.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { startProxy } from "../support/proxy.mjs";
import { startRedis } from "../support/redis.mjs";
import { pause, waitFor } from "../support/wait.mjs";
import { all, hearingLog, useKind } from "./kinds.mjs";

describe("a subscriber", { concurrency: all.length }, () => {
  let server;
  before(async () => {
    server = await startRedis();
  });
  after(() => server.stop());

  for (const kind of all) {
    test(`${kind.name}: is replaced if it is half-open, and kept if it answers`, { timeout: 90_000 }, async (t) => {
      // Catches: a waiter that hears nothing for as long as TCP takes to notice, a quarter of an hour;
      // and a question that is not understood on a connection that is subscribed.
      const proxy = await startProxy(server.port);
      t.after(() => proxy.close());
      const { adapter } = await useKind(t, kind, proxy.url);
      const hearing = hearingLog();
      adapter.listen(kind.name, hearing);
      await waitFor(() => hearing.state === "subscribed");
      await pause(12_500);
      assert.deepEqual(hearing.log, [["subscribed"]]);
      const before = performance.now();
      proxy.freeze();
      await waitFor(() => hearing.state === "unsubscribed", 20_000, "noticed");
      const noticed = performance.now() - before;
      assert.ok(noticed < 14_000, `after ${noticed} ms`);
      await waitFor(() => hearing.state === "subscribed", 20_000, "subscribed anew");
      await server.command("PUBLISH", kind.name, "heard");
      await waitFor(() => hearing.messages.includes("heard"));
    });
  }
});
