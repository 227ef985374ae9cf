// Takes a lock, works while it holds it, and releases it. Run it in two terminals: the second one waits in line.
//
//   LEASEHOLD_URL=redis://127.0.0.1:6379 node lock.mjs
import { setTimeout as sleep } from "node:timers/promises";
import { Locker } from "leasehold";

const locker = await Locker.connect(process.env.LEASEHOLD_URL ?? "redis://127.0.0.1:6379");
const lock = locker.lock("orders/42", { ttl: 10_000 });
// The work fails at once then, and whoever is next in line need not wait for the lease to end.
process.once("SIGINT", () => locker.shutdown());

try {
  await lock.using(ship, { timeout: 30_000 });
  console.log("released");
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
} finally {
  await locker.shutdown();
}

/** The signal is aborted at the moment of loss, if it comes to that: nothing else can stop the work. */
async function ship(lease, signal) {
  console.log(`held with token ${lease.token}, which goes with every write`);
  for (let step = 1; step <= 30; step++) {
    signal.throwIfAborted();
    await sleep(100);
  }
}
