// How a buyer buys one article, if there is one; each way tells whether it did.
import { setTimeout as sleep } from "node:timers/promises";

/** Milliseconds that a lease lives. */
export const TTL = 500;

/** `pause` is where a buyer is stopped for longer than its lease lives. */
export function buy(act, shop, locker, pause) {
  return ACTS[act](shop, locker.lock("article", { ttl: TTL, fixed: act === "paused" }), pause);
}

/** What a buyer that was refused has to tell; any other error is one. */
export function isRefused(error) {
  if (error.code !== "staleToken") throw error;
  return { bought: false, refused: error.message };
}

const ACTS = {
  async unlocked(shop) {
    const stock = await shop.read();
    // Long enough for all to have read before anyone writes.
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
    // It should look at `lease.valid`, but no look is proof against a pause right after it.
    await shop.writeGuarded(stock - 1, lease);
    return true;
  },
};
