// The ways in which a buyer buys one article, if there is one. Each returns whether it did.
import { setTimeout as sleep } from "node:timers/promises";

/** Milliseconds that a lease lives. */
export const TTL = 500;

/** `pause` is called where a buyer is to be paused for longer than its lease lives. */
export function buy(act, shop, locker, pause) {
  return ACTS[act](shop, locker.lock("article", { ttl: TTL, fixed: act === "paused" }), pause);
}

/** The result of a buyer that the shop refused. Any other error is thrown on. */
export function isRefused(error) {
  if (error.code !== "staleToken") throw error;
  return { bought: false, refused: error.message };
}

const ACTS = {
  async unlocked(shop) {
    const stock = await shop.read();
    // Long enough that all have read before anyone writes.
    await sleep(500);
    if (stock > 0) await shop.write(stock - 1);
    return stock > 0;
  },

  locked: (shop, lock) =>
    lock.using(async (lease) => {
      const stock = await shop.read();
      await sleep(10);
      if (stock > 0) await shop.writeGuarded(stock - 1, lease);
      return stock > 0;
    }),

  async paused(shop, lock, pause) {
    const lease = await lock.acquire();
    const stock = await shop.read();
    await pause();
    // To look at `lease.valid` first would not be enough: the pause could come right after that.
    await shop.writeGuarded(stock - 1, lease);
    return true;
  },
};
