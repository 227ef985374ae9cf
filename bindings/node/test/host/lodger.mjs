// A separate program whose two lockers share the worker thread: node lodger.mjs <url>
// It waits only by timers that keep no process alive, and ends by itself although one locker is not shut down.
import { Locker } from "../../dist/index.js";

const [, , url] = process.argv;
const say = (...words) => process.stdout.write(`${words.join(" ")}\n`);

const [kept, other] = [await Locker.connect(url, { thread: true }), await Locker.connect(url, { thread: true })];
const lease = await kept.lock("kept", { ttl: 1_200 }).acquire();
// Beyond the time after which an idle locker no longer keeps the process alive.
const later = (act) => setTimeout(act, 1_500).unref();
later(async () => {
  say("idle", lease.valid);
  await other.shutdown();
  later(async () => {
    say("shut", lease.valid);
    await lease.release();
    say("released");
  });
});
await other.lock("other").using(() => {});
say("held");
