// Eight buyers and five articles: too many are sold without a lock, five with one, and a buyer that was paused past
// its lease is refused by its token. It checks what it shows, and ends with an error if it came otherwise.
//
//   node demos/oversell.mjs      with LEASEHOLD_URL=redis://… the locks are on a server
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { Locker } from "leasehold";
import { Gate } from "leasehold/fence";

const [BUYERS, STOCK] = [8, 5];

/** The storage, which knows nothing of locks. Its gate refuses a token that is smaller than one it has seen. */
class Shop {
  #gate = new Gate();
  stock = STOCK;
  sold = 0;

  sell(left) {
    this.stock = left;
    this.sold += 1;
  }

  sellGuarded(left, lease) {
    return this.#gate.guard("article", lease, () => this.sell(left));
  }
}

// Before it connects, which may take long.
console.log(`${BUYERS} buyers, ${STOCK} in stock.`);
const locker = await Locker.connect(process.env.LEASEHOLD_URL ?? "memory://oversell");
const lock = locker.lock("oversell");

/** Lets this many buyers buy, and shows what came of it. */
async function sell(how, shop, buyers, buy) {
  await Promise.all(Array.from({ length: buyers }, () => buy(shop)));
  console.log(`${how}: ${shop.sold} sold, ${shop.stock} left`);
  return shop;
}

async function buyWithoutLock(shop) {
  const { stock } = shop;
  await sleep(10); // All have read before anyone writes.
  if (stock > 0) shop.sell(stock - 1);
}

const buyWithLock = (shop) =>
  lock.using(async (lease) => {
    const { stock } = shop;
    await sleep(10);
    if (stock > 0) await shop.sellGuarded(stock - 1, lease);
  });

const unlocked = await sell("without a lock", new Shop(), BUYERS, buyWithoutLock);
assert.ok(unlocked.sold > STOCK);

const locked = await sell("with a lock", new Shop(), BUYERS, buyWithLock);
assert.deepEqual([locked.sold, locked.stock], [STOCK, 0]);

const shop = new Shop();
const late = await locker.lock("oversell", { ttl: 300, fixed: true }).acquire();
const seen = shop.stock;
await sell("while one is paused past its lease", shop, BUYERS - 1, buyWithLock);
// It could look at `late.valid` first; but the pause may also come right after that.
await assert.rejects(async () => shop.sellGuarded(seen - 1, late), ({ code, message }) => {
  console.log(`the paused buyer resumes: ${message}`);
  return code === "staleToken";
});
assert.deepEqual([shop.sold, shop.stock], [STOCK, 0]);
await locker.shutdown();
