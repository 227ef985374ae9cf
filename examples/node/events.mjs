// Holds a lock, takes it again whenever it is lost, and prints its events. To see some, delete its key
// (`redis-cli DEL '{leasehold:example}'`), stop the server, or run this twice.
//
//   LEASEHOLD_URL=redis://127.0.0.1:6379 node events.mjs
import { Locker } from "leasehold";

const locker = await Locker.connect(process.env.LEASEHOLD_URL ?? "redis://127.0.0.1:6379");
const lock = locker.lock("example", { ttl: 3_000 });
// Releases what is held, and ends both loops.
process.once("SIGINT", () => locker.shutdown());

await Promise.all([print(), hold()]);

async function print() {
  for await (const event of lock.events()) {
    console.log(JSON.stringify(event));
  }
}

async function hold() {
  for await (const { signal } of lock.hold()) {
    signal.addEventListener("abort", () => console.log(`work must stop: ${signal.reason.message}`));
  }
}
