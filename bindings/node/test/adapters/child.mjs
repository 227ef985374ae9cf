// A separate program, for what happens when a process ends: node child.mjs <bundle> <how> <url> <what…> It
// writes one line for each event.
import { pathToFileURL } from "node:url";

const [, , bundle, how, url, ...what] = process.argv;
const { adapt, openClient } = await import(pathToFileURL(bundle));

process.on("unhandledRejection", (error) => {
  console.log(`unhandled ${error?.message}`);
  process.exitCode = 9;
});
process.on("exit", (code) => console.log(`exit ${code}`));

async function given() {
  const [version] = how.split(":");
  const module = await import(version);
  const client = version.startsWith("ioredis")
    ? new module.Redis(url, { lazyConnect: true })
    : module.createClient({ url });
  client.on("error", () => {});
  return adapt(client);
}

const adapter = how.endsWith(":given") ? await given() : await openClient(url, { packages: [how.split(":")[1]] });
let started = false;
let flickers = what.includes("flicker");
const link = {
  up: () => console.log("up"),
  down: (error) => {
    console.log(`down ${error.message}`);
    // Releases what it holds while the server is down.
    if (flickers) {
      flickers = false;
      setTimeout(() => adapter.keepAlive(false), 500);
    }
  },
};
const hearing = {
  subscribed: () => started || ((started = true), console.log("subscribed")),
  unsubscribed: () => console.log("unsubscribed"),
  message: () => {},
};
// A waiter keeps the process alive until it is subscribed.
const waiting = setInterval(() => started && clearInterval(waiting), 20);
const unwatch = adapter.watch(link);
// Without a subscriber only the connection for commands keeps the process alive.
const deaf = what.includes("deaf");
started = deaf;
const stop = deaf ? () => {} : adapter.listen("child", hearing);
adapter.keepAlive(what.includes("alive") || flickers);
if (what.includes("close")) {
  // It ends after half a second; with a server, not before it is subscribed.
  const lonely = what.includes("lonely");
  const closing = setInterval(async () => {
    if (started || lonely) {
      clearInterval(closing);
      stop();
      unwatch();
      await adapter.close();
      console.log("closed");
    }
  }, 500);
}
