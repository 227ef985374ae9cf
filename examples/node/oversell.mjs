// Eight buyers, five articles: without a lock, with one, and with a buyer that was paused.
import { Locker } from "leasehold";
import { checkScheme, fail, promise, readArgs, shutdownAtSignals, sleep } from "./common.mjs";
import { TTL, buy, isRefused } from "./oversell/buyer.mjs";
import { startBuyer } from "./oversell/process.mjs";
import { MemoryShop, RedisShop, STOCK } from "./oversell/shop.mjs";

const HELP = `Eight buyers and five articles. Without a lock too many are sold; with a lock five are; and a buyer
that was paused past its lease is refused by the token that the shop checks.

  node oversell.mjs                                in memory: the buyers are tasks
  node oversell.mjs --url redis://127.0.0.1:6379   each buyer is a process, and the shop is in Redis`;

const BUYERS = 8;
const { url } = readArgs(HELP, { url: { type: "string" } });
checkScheme(url, ["redis", "rediss"], HELP);
const where = url === undefined ? "in memory" : "in Redis, and each buyer is a process";
// Before it connects, which may take long.
console.log(`${BUYERS} buyers, ${STOCK} in stock, ${where}.`);
/** For buyers that are tasks. If they are processes, this one shows at once whether the server can be used. */
const locker = url === undefined ? Locker.inMemory() : await Locker.connect(url).catch(fail);
const shops = [];
shutdownAtSignals(locker);

try {
  await withoutLock();
  await withLock();
  await withPause();
} catch (error) {
  fail(error);
} finally {
  await Promise.all([locker, ...shops].map((open) => open.shutdown()));
}

async function withoutLock() {
  const sold = await sell("unlocked", await openShop("a"), BUYERS);
  console.log(`without a lock: ${sold} sold`);
  promise(sold > STOCK, "too many are sold without a lock");
}

async function withLock() {
  const shop = await openShop("b");
  const sold = await sell("locked", shop, BUYERS);
  const left = await shop.read();
  console.log(`with a lock:    ${sold} sold, ${left} left`);
  promise(sold === STOCK && left === 0, "exactly what was there is sold");
}

async function withPause() {
  const shop = await openShop("c");
  const paused = start("paused", shop);
  await paused.holds;
  paused.stop();
  await sleep(TTL);
  const sold = await sell("locked", shop, BUYERS - 1);
  paused.goOn();
  const { refused } = await paused.result;
  const left = await shop.read();
  console.log(`with one that was paused past its lease: ${sold} sold, ${left} left`);
  console.log(`  it was refused: ${refused}`);
  promise(refused !== undefined && left === 0, "the late write is refused");
}

/** Lets this many buyers buy; returns how many got one. */
async function sell(act, shop, buyers) {
  const started = Array.from({ length: buyers }, () => start(act, shop));
  const results = await Promise.all(started.map(({ result }) => result));
  return results.filter(({ bought }) => bought).length;
}

async function openShop(act) {
  const shop = url === undefined ? new MemoryShop() : new RedisShop(url, `oversell-${process.pid}${act}`);
  shops.push(shop);
  await shop.open();
  return shop;
}

function start(act, shop) {
  return url === undefined ? startTask(act, shop) : startBuyer(act, url, shop.name);
}

/** A buyer in this process. It is paused by waiting. */
function startTask(act, shop) {
  const [holds, goOn] = [deferred(), deferred()];
  const pause = () => {
    holds.resolve();
    return goOn.promise;
  };
  const result = buy(act, shop, locker, pause).then((bought) => ({ bought }), isRefused);
  return { result, holds: holds.promise, stop() {}, goOn: goOn.resolve };
}

function deferred() {
  let resolve;
  const promise = new Promise((done) => (resolve = done));
  return { promise, resolve };
}
