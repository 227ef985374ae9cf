// Many readers share prices that one writer changes now and then. A reader learns the token of the last writer, and so rejects a
// cache that is older.
//
//   LEASEHOLD_URL=redis://127.0.0.1:6379 node read_mostly.mjs
import { Locker } from "leasehold";

/** The data, and the token of the writer that wrote it. */
let store = { token: 0, price: 0 };
let cache;

const locker = await Locker.connect(process.env.LEASEHOLD_URL ?? "memory://prices");
const lock = locker.rwLock("prices");
for (const price of [10, 12]) {
  await lock.write().using(({ token }) => {
    cache = store; // It misses the last write.
    store = { token, price };
  });
}
await Promise.all([1, 2, 3, 4, 5].map((reader) =>
  lock.read().using(({ generation }) => {
    const isOld = cache.token < generation;
    console.log(`reader ${reader}: ${(isOld ? store : cache).price}, the cache was old: ${isOld}`);
  }),
));
await locker.shutdown();
