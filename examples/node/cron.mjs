// Runs a job once per tick in all processes together. Start it several times: each tick runs in one of them. If you
// kill the runner in the middle of a tick, another process runs the same tick.
//
//   LEASEHOLD_URL=redis://127.0.0.1:6379 node cron.mjs
import { setTimeout as sleep } from "node:timers/promises";
import { Locker } from "leasehold";

const locker = await Locker.connect(process.env.LEASEHOLD_URL ?? "memory://app");
// Ends the job, and gives an unfinished tick to another process.
process.once("SIGINT", () => locker.shutdown());

// Also: { cron: "*/15 * * * *", timeZone: "Europe/Berlin" }
await locker.job("report", { every: 2_000 }).run(async (turn, signal) => {
  console.log(`tick ${turn.tick} with token ${turn.token}`);
  await sleep(500, undefined, { signal }); // The work. An error would give the tick to another process.
  if (turn.missed > 0) console.log(`${turn.missed} ticks before it were missed`);
});
