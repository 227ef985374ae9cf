/** A process of `thread.mjs`: node --expose-gc thread-start.mjs [url thread] */
import { Locker } from "../../../bindings/node/dist/index.js";

const [, , url, thread] = process.argv;
const begin = performance.now();
const locker = url === undefined ? undefined : await Locker.connect(url, { thread: thread === "true" });
const connect = performance.now() - begin;
const lease = await locker?.lock("start").acquire();
const lock = performance.now() - begin - connect;
await lease?.release();
globalThis.gc();
console.log(JSON.stringify({ connect, lock, rss: process.memoryUsage.rss() / 2 ** 20 }));
await locker?.shutdown();
