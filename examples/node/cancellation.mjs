// Three ways to stop: a limit for waiting, an aborted call, and work that ends with its lease. The first two leave
// neither a lock nor a place in line behind.
//
//   node cancellation.mjs      with LEASEHOLD_URL=redis://… on a server
import { setTimeout as sleep } from "node:timers/promises";
import { Locker } from "leasehold";

const locker = await Locker.connect(process.env.LEASEHOLD_URL ?? "memory://cancellation");
const lock = locker.lock("cancellation");
const lease = await lock.acquire();
const print = ({ message }) => console.log(message);

await lock.acquire({ timeout: 500 }).catch(print);

const unwanted = new AbortController();
setTimeout(() => unwanted.abort(new Error("no longer wanted")), 500);
await lock.acquire({ signal: unwanted.signal }).catch(print);

const { waiting } = await locker.inspect(lock.name);
console.log(`waiters in line: ${waiting}`);

// The signal is aborted as soon as the lease is lost.
const work = lease.run((signal) => sleep(60_000, undefined, { signal }));
await locker.forceRelease(lock.name);
await work.catch(print);
await locker.shutdown();
