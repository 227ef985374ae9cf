// What a locker counts, on a page that Prometheus reads.
import { createServer } from "node:http";
import { Locker } from "leasehold";
import { Registry } from "prom-client";
import { checkScheme, fail, promise, readArgs, shutdownAtSignals, wrongUse } from "./common.mjs";
import { register } from "./metrics/register.mjs";

const HELP = `Ten callers want three locks, one is taken away by force, and what the locker has counted is printed as
Prometheus reads it.

  node metrics.mjs                                 in memory, without a server
  node metrics.mjs --url redis://127.0.0.1:6379    on a server
  node metrics.mjs --port 9464                     goes on, and serves http://127.0.0.1:9464/metrics`;

const { url, port } = readArgs(HELP, { url: { type: "string" }, port: { type: "string" } });
checkScheme(url, ["redis", "rediss"], HELP);
if (port !== undefined && !(/^\d+$/.test(port) && Number(port) <= 65_535)) {
  wrongUse("--port is a number up to 65535", HELP);
}

console.log("# Ten callers want three locks.");
try {
  const locker = url === undefined ? Locker.inMemory() : await Locker.connect(url);
  shutdownAtSignals(locker);
  const registry = new Registry();
  register(registry, locker, { service: "example" });
  if (port === undefined) {
    await contend(locker);
    check(await registry.metrics());
    await locker.shutdown();
  } else {
    serve(registry);
    await contendOn(locker);
  }
} catch (error) {
  fail(error);
}

/** Ten callers take turns at three locks; one of them stays, and an operator frees its lock. */
async function contend(locker) {
  const names = Array.from({ length: 10 }, (_, caller) => `metrics/${caller % 3}`);
  const work = () => new Promise((resolve) => setTimeout(resolve, 10));
  await Promise.all(names.map((name) => locker.lock(name).using(work)));
  const stuck = await locker.lock(names[0]).acquire();
  const lost = new Promise((resolve) => stuck.signal.addEventListener("abort", resolve));
  await locker.forceRelease(stuck.name);
  await lost;
}

/** Until the locker is shut down. */
async function contendOn(locker) {
  try {
    for (;;) {
      await contend(locker);
    }
  } catch (error) {
    if (!["shutdown", "lost", "notHeld"].includes(error.code)) {
      throw error;
    }
  }
}

function check(page) {
  console.log(page);
  const value = (line) => Number(page.split("\n").find((own) => own.startsWith(`${line} `))?.split(" ").at(-1));
  promise(value('leasehold_acquired_total{service="example"}') === 11, "eleven acquisitions are counted");
  promise(value('leasehold_released_total{service="example"}') === 10, "ten releases are counted");
  promise(value('leasehold_lost_total{reason="revoked",service="example"}') === 1, "one loss by force is counted");
  promise(value('leasehold_holding_seconds_count{service="example"}') === 11, "the times of eleven tenures are counted");
  promise(value('leasehold_held{service="example"}') === 0, "nothing is held");
}

function serve(registry) {
  const server = createServer(async (request, response) => {
    if (request.url !== "/metrics") {
      response.writeHead(404).end();
      return;
    }
    response.writeHead(200, { "content-type": registry.contentType }).end(await registry.metrics());
  });
  server.on("error", fail);
  server.listen(Number(port), "127.0.0.1", () => {
    console.log(`# http://127.0.0.1:${server.address().port}/metrics`);
  });
}
