// A lock at several independent servers, of which a majority decides: it outlives the others.
//
//   node quorum.mjs redis://one redis://two redis://three
//   node quorum.mjs      five stores in this program's memory, of which two are cut off
import { setTimeout as sleep } from "node:timers/promises";
import { Locker, MemoryStore } from "leasehold";

const given = process.argv.slice(2);
const inMemory = [1, 2, 3, 4, 5].map((number) => `memory://${number}`);
const locker = await Locker.quorum(given.length > 0 ? given : inMemory);
const printed = print(locker.events());

const lease = await locker.lock("orders/42", { ttl: 2_000 }).acquire();
if (given.length === 0) {
  MemoryStore.named("1").cutOff();
  MemoryStore.named("2").cutOff();
}
// The work. If a majority were lost, the signal would be aborted, and this would be an error.
await lease.run((signal) => sleep(4_000, undefined, { signal }));
await lease.release();
await locker.shutdown();
await printed;

async function print(events) {
  for await (const event of events) {
    console.log(JSON.stringify(event));
  }
}
