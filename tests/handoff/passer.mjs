// Accepts leases and passes them on, as it is told line by line: node passer.mjs URL GUARD
//   accept TICKET   prints `held TOKEN`, after a guarded write with it, or `refused CODE`
//   write           writes once more with the token, and prints `written` or `stale`
//   pass            prints `ticket TEXT`
import { createInterface } from "node:readline";
import { FencedRedis } from "../../bindings/node/dist/fence.js";
import { Locker } from "../../bindings/node/dist/index.js";
import { Redis } from "../../bindings/node/node_modules/ioredis/built/index.js";

const [, , url, guardUrl] = process.argv;
const guard = new FencedRedis(new Redis(guardUrl));
const locker = await Locker.connect(url);
let lease;

async function write() {
  await guard.resource("resource", lease.token).push("log", `node ${lease.token}`);
}

const acts = {
  async accept(ticket) {
    lease = await locker.accept(ticket);
    await write();
    return `held ${lease.token}`;
  },
  async write() {
    await write();
    return "written";
  },
  async pass() {
    return `ticket ${await lease.pass()}`;
  },
};

console.log("ready");
for await (const line of createInterface(process.stdin)) {
  const [act, text] = line.split(" ");
  console.log(await acts[act](text).catch(({ code }) => (code === "staleToken" ? "stale" : `refused ${code}`)));
}
await locker.shutdown();
process.exit();
