// `runner.rs` in JavaScript: node runner.mjs URL GUARD NAME PERIOD_MS TTL_MS job
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { FencedRedis } from "../../bindings/node/dist/fence.js";
import { Locker } from "../../bindings/node/dist/index.js";
import { Redis } from "../../bindings/node/node_modules/ioredis/built/index.js";

const [, , url, guardUrl, name, period, ttl] = process.argv;
const guard = new FencedRedis(new Redis(guardUrl));
const locker = await Locker.connect(url);
once(process.stdin, "data").then(() => locker.shutdown());

console.log("ready");
const job = locker.job(name, { every: Number(period), ttl: Number(ttl), missed: { all: 1_000 } });
for await (const turn of job.turns()) {
  const { tick, token } = turn;
  try {
    await guard.resource("resource", token).push("log", `${tick} ${token}`);
    await sleep(15);
    await turn.done();
    console.log(`done ${tick} ${token}`);
  } catch (error) {
    console.log(`failed ${error.message}`);
  }
}
process.exit();
