// A separate program that takes a lock and then blocks its event loop:
// node blocker.mjs <url> <thread: yes or no> <name> <ttl> <milliseconds> [until]
// With `until` it goes on as soon as the lease is not valid.
import { Locker } from "../../dist/index.js";
import { block } from "../support/wait.mjs";

const [, , url, thread, name, ttl, milliseconds, until] = process.argv;
const say = (...words) => process.stdout.write(`${words.join(" ")}\n`);

const locker = await Locker.connect(url, { thread: thread === "yes" });
const lease = await locker.lock(name, { ttl: Number(ttl) }).acquire();
const { signal } = lease;
const begin = performance.now();
const passed = () => performance.now() - begin;
let deadline = lease.remaining;
let gone;
/** When the lease was last seen to be valid. */
let last = 0;
say("held", lease.token);
while (passed() < milliseconds && (until === undefined || gone === undefined)) {
  const at = passed();
  if (lease.valid) {
    last = at;
    const left = lease.remaining;
    deadline = left > 0 ? Math.max(deadline, at + left) : deadline;
  } else {
    gone ??= at;
  }
  // With `until` the tests are about a loop that spins.
  if (until === undefined) {
    block(1);
  }
}
say("blocked", JSON.stringify({ valid: lease.valid, remaining: lease.remaining, gone, last, deadline, aborted: signal.aborted }));
await new Promise((resolve) => setTimeout(resolve, 200));
say("then", JSON.stringify({ valid: lease.valid, reason: signal.reason?.reason, acquired: locker.stats().acquired }));
await lease.release().catch(() => {});
await locker.shutdown();
