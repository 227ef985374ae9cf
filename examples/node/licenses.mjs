// Shares three licenses between eight callers. Each license is a slot with tokens of its own, so a guard refuses a holder that
// comes too late.
//
//   LEASEHOLD_URL=redis://127.0.0.1:6379 node licenses.mjs
import { setTimeout as sleep } from "node:timers/promises";
import { Locker } from "leasehold";
import { Gate } from "leasehold/fence";

const locker = await Locker.connect(process.env.LEASEHOLD_URL ?? "memory://licenses");
const licenses = locker.semaphore("licenses", 3);
const gate = new Gate(); // The guard of the vendor's server: it knows each license by its name.

await Promise.all(Array.from({ length: 8 }, (_, caller) =>
  licenses.using(async (permit) => {
    gate.check(permit.resource, permit.token);
    console.log(`caller ${caller + 1} uses ${permit.resource}`);
    await sleep(100);
  }),
));

// A holder that does not come back in time, as after a long pause: its slot has a later holder.
const late = await licenses.acquire();
await late.release();
await licenses.using((next) => {
  gate.check(next.resource, next.token);
  try {
    gate.check(late.resource, late.token);
  } catch (error) {
    console.log("late:", error.message);
  }
});
await locker.shutdown();
