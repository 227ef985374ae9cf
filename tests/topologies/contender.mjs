// `contender.rs` in JavaScript: node contender.mjs "URL …" GUARD NAME TTL_MS
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { FencedRedis } from "../../bindings/node/dist/fence.js";
import { Locker } from "../../bindings/node/dist/index.js";
import { Redis } from "../../bindings/node/node_modules/ioredis/built/index.js";

const [, , url, guardUrl, name, ttl] = process.argv;
const client = new Redis(guardUrl);
const guard = new FencedRedis(client);
const urls = url.split(" ");
const locker = await (urls.length === 1 ? Locker.connect(url) : Locker.quorum(urls));
const lock = locker.lock(name, { ttl: Number(ttl) });
let over = false;
once(process.stdin, "data").then(() => {
  over = true;
});

async function write(token, done) {
  try {
    await guard.resource("resource", token).push("log", String(token));
    console.log(`${done} ${token}`);
  } catch (error) {
    if (error.code !== "staleToken") {
      throw error;
    }
    console.log(`refused ${token}`);
  }
}

console.log("ready");
let turns = 0;
while (!over) {
  let lease;
  try {
    lease = await lock.acquire();
  } catch (error) {
    console.log(`failed ${error.message}`);
    await sleep(20);
    continue;
  }
  const { token } = lease;
  // Not by performance.timeOrigin: if the process was slow to start, it is wrong by tens of milliseconds.
  const now = Date.now() * 1000;
  if (lease.valid) {
    console.log(`got ${token} ${now}`);
  }
  await write(token, "wrote");
  await sleep(2);
  try {
    await lease.release();
  } catch (error) {
    console.log(`failed ${error.message}`);
  }
  turns += 1;
  if (turns % 4 === 0) {
    await sleep(10);
    await write(token, "late");
  }
}
console.log(`done ${turns}`);
process.exit();
