// Serves what a locker counts, as Prometheus reads it, by prom-client; and gives it something to count.
//
//   node metrics.mjs      at http://127.0.0.1:9464/metrics; with LEASEHOLD_URL=redis://… on a server
import { once } from "node:events";
import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { Locker } from "leasehold";
import { Registry } from "prom-client";
import { register } from "./metrics/register.mjs";

const locker = await Locker.connect(process.env.LEASEHOLD_URL ?? "memory://metrics");
const registry = new Registry();
register(registry, locker, { service: "example" });

// Ten callers take turns at three locks. Then an operator takes one away from a caller that is stuck.
const names = Array.from({ length: 10 }, (_, caller) => `metrics/${caller % 3}`);
await Promise.all(names.map((name) => locker.lock(name).using(() => sleep(10))));
const stuck = await locker.lock(names[0]).acquire();
await Promise.all([once(stuck.signal, "abort"), locker.forceRelease(stuck.name)]);

const server = createServer(async (_, response) => {
  response.writeHead(200, { "content-type": registry.contentType }).end(await registry.metrics());
});
server.listen(Number(process.env.PORT ?? 9464), "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${server.address().port}/metrics`);
});
process.once("SIGINT", async () => {
  await locker.shutdown();
  server.close();
  server.closeAllConnections();
});
