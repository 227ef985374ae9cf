/** A process of `thread.mjs`: node --expose-gc thread-start.mjs [url thread] */
import { Locker } from "../../../bindings/node/dist/index.js";

/** The lockers after the first one, whose memory is measured. */
const MORE = 10;
const [, , url, thread] = process.argv;
const begin = performance.now();
const locker = url === undefined ? undefined : await Locker.connect(url, { thread: thread === "true" });
const connect = performance.now() - begin;
const lease = await locker?.lock("start").acquire();
const lock = performance.now() - begin - connect;
await lease?.release();
globalThis.gc();
const resident = () => process.memoryUsage.rss() / 2 ** 20;
const rss = resident();
const more = [];
for (let count = 0; url !== undefined && count < MORE; count += 1) {
  more.push(await Locker.connect(url, { thread: thread === "true" }));
  await (await more[count].lock(`more ${count}`).acquire()).release();
}
globalThis.gc();
console.log(JSON.stringify({ connect, lock, rss, each: (resident() - rss) / MORE }));
await Promise.all([locker, ...more].map((each) => each?.shutdown()));
