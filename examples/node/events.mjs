// The events of a lock while its lease lives, is renewed, is lost, and is held again.
import { Locker } from "leasehold";
import { fail, promise, readArgs, shutdownAtSignals, sleep, wrongUse } from "./common.mjs";

const HELP = `Holds a lock and prints its events, while a second locker takes it away by force.

  node events.mjs                                  in memory, without a server
  node events.mjs --url redis://127.0.0.1:6379     on a server
  node events.mjs --url … --watch [--seconds 30]   hold it, and take it again whenever it is lost,
                                                   while you delete its key or stop the server

  --name NAME     the lock's name [example]
  --json          the events as JSON lines`;

const args = readArgs(HELP, {
  url: { type: "string", default: "memory://events" },
  name: { type: "string", default: "example" },
  watch: { type: "boolean", default: false },
  seconds: { type: "string" },
  json: { type: "boolean", default: false },
});
/** A timer takes no more than about this. */
const MOST_SECONDS = 2_000_000;
const seconds = Number(args.seconds ?? MOST_SECONDS);
if (args.seconds !== undefined && !args.watch) {
  wrongUse("--seconds is for --watch", HELP);
}
if (!(seconds > 0 && seconds <= MOST_SECONDS)) {
  wrongUse(`--seconds is a number above 0, and ${MOST_SECONDS} at the most`, HELP);
}

// Before it connects, which may take long.
say(args.watch ? "a lock is held; take it away" : "a lock is held, and an operator takes it away");
try {
  const locker = await Locker.connect(args.url);
  const operator = await Locker.connect(args.url);
  shutdownAtSignals(locker, operator);
  const lock = locker.lock(args.name, { ttl: 1_500 });
  const printed = print(lock.events());
  await (args.watch ? watch(locker, lock) : story(lock, operator));
  await Promise.all([locker.shutdown(), operator.shutdown()]);
  const seen = await printed;
  if (!args.watch) {
    const tokens = seen.filter(({ type }) => type === "acquired").map(({ token }) => token);
    promise(tokens.length === 2 && tokens[1] > tokens[0], `a second, greater token, not ${tokens}`);
    promise(seen.some(({ type, reason }) => type === "lost" && reason === "revoked"), "a loss by force");
    promise(seen.at(-1)?.type === "released", "a release at the end");
  }
} catch (error) {
  fail(error);
}

async function story(lock, operator) {
  let terms = 0;
  for await (const lease of lock.hold()) {
    terms += 1;
    if (terms === 2) {
      await lease.release();
      break;
    }
    // Work for as long as the lease lives: it ends at the moment of the loss.
    const work = lease.run(async (signal) => {
      await sleep(1_200);
      say("an operator takes the lock away");
      await operator.forceRelease(lock.name);
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
    });
    await work.catch((error) => say(`work stopped: ${error.message}`));
  }
}

async function watch(locker, lock) {
  const stop = AbortSignal.timeout(Math.ceil(seconds * 1_000));
  say(`holding ${JSON.stringify(lock.name)}; its key is {leasehold:${lock.name}}`);
  for await (const lease of lock.hold({ signal: stop })) {
    say(`held with token ${lease.token}`);
  }
}

async function print(events) {
  const [seen, start] = [[], performance.now()];
  for await (const event of events) {
    seen.push(event);
    const { type, name, ...rest } = event;
    const time = ((performance.now() - start) / 1_000).toFixed(3);
    console.log(args.json ? JSON.stringify(event) : `${time} s  ${type.padEnd(9)} ${JSON.stringify(rest)}`);
  }
  return seen;
}

function say(text) {
  (args.json ? console.error : console.log)(`         ${text}`);
}
