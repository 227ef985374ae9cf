// Five servers of which three decide: two go, one forgets everything, and the lock lives on.
import { Locker, MemoryStore } from "leasehold";
import { Gate } from "leasehold/fence";
import { fail, promise, readArgs, shutdownAtSignals, sleep } from "./common.mjs";

const HELP = `Keeps a lock at five servers in the program's own memory, and takes two of them away, and the data of
one, while it is held. A guard at the storage refuses whoever comes with an old token.

  node quorum.mjs`;

readArgs(HELP, {});
const NAMES = ["one", "two", "three", "four", "five"];
const [one, two, , , five] = NAMES.map((name) => MemoryStore.named(name));
/** In which a lease of a second is renewed more than once. */
const A_WHILE = 900;

console.log("Five servers in this program's memory; three of them decide who has the lock.");
try {
  const urls = NAMES.map((name) => `memory://${name}`);
  // Each would be a process of its own, with the same servers in the same order.
  const [ada, bob] = [await Locker.quorum(urls), await Locker.quorum(urls)];
  shutdownAtSignals(ada, bob);
  const printed = print(ada.events());
  const [ofAda, ofBob] = [ada, bob].map((locker) => locker.lock("account/7", { ttl: 1_000 }));
  const gate = new Gate();
  let balance = 100;

  const lease = await ofAda.acquire();
  await gate.guard("account/7", lease, () => (balance -= 30));
  console.log("\nTwo servers go. Three are left, and renew the lease.");
  one.cutOff();
  two.cutOff();
  await sleep(A_WHILE);
  promise(lease.valid, "the lease outlives two servers");

  console.log("\nThey come back, and are given the lease again. Then another one forgets everything.");
  one.reconnect();
  two.reconnect();
  await sleep(A_WHILE);
  five.clear();
  await sleep(A_WHILE);
  promise(lease.valid, "the lease outlives the loss of data");

  console.log("\nBob gets the lock. His token is greater, whatever the servers forgot.");
  const waiting = ofBob.acquire();
  await lease.release();
  const next = await waiting;
  await gate.guard("account/7", next, () => (balance -= 50));
  console.log(`bob writes with token ${next.token}`);
  // Ada was paused, say, and comes with what she had read before.
  const late = await gate.guard("account/7", lease, () => (balance = 70)).catch((error) => error);
  console.log(`ada is refused: ${late.message}`);
  promise(late.code === "staleToken" && next.token > lease.token && balance === 20, `a balance of 20, not ${balance}`);
  await next.release();
  await Promise.all([ada.shutdown(), bob.shutdown()]);
  const types = new Set((await printed).map(({ type }) => type));
  promise(types.has("atRisk") && types.has("renewed") && !types.has("lost"), "a lease at risk, renewed, and not lost");
} catch (error) {
  fail(error);
}

async function print(events) {
  const [seen, start] = [[], performance.now()];
  for await (const event of events) {
    seen.push(event);
    const { type, name, ...rest } = event;
    const time = ((performance.now() - start) / 1_000).toFixed(3);
    console.log(`${time} s  ${type.padEnd(9)} ${JSON.stringify(rest)}`);
  }
  return seen;
}
