// Leads for as long as it holds a lock, one process at a time. Start it several times: if the leader is killed, the
// next in line leads when its lease has ended; at Ctrl-C it leads at once.
//
//   LEASEHOLD_URL=redis://127.0.0.1:6379 node leader.mjs
import { setTimeout as sleep } from "node:timers/promises";
import { Locker } from "leasehold";

const locker = await Locker.connect(process.env.LEASEHOLD_URL ?? "redis://127.0.0.1:6379");
// Hands the lock to the next in line, and ends the loop.
process.once("SIGINT", () => locker.shutdown());

for await (const lease of locker.lock("leader", { ttl: 5_000 }).hold()) {
  console.log(`leading with token ${lease.token}`);
  // The loss aborts the work; then it waits for its next turn.
  await lease.run(lead).catch(({ message }) => console.log(`no longer leading: ${message}`));
}

/** The work, which takes as long as it may. */
async function lead(signal) {
  for (;;) {
    await sleep(1_000, undefined, { signal });
  }
}
