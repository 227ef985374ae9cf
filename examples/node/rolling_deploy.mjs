// A rolling deploy: each version leads until it is asked to yield, and the next one then leads at once. Then, for
// comparison, a leader that is silent: its lock has to expire. LEASEHOLD_URL names a server, if there is one.
import { setTimeout as sleep } from "node:timers/promises";
import { Locker } from "leasehold";

const url = process.env.LEASEHOLD_URL ?? "memory://rolling_deploy";
const deploy = await Locker.connect(url);
const versions = [];
for (const version of [1, 2, 3, 4]) {
  versions.push(lead(await Locker.connect(url), version));
  await sleep(200); // By now it leads, or stands in line.
  if (version === 1) continue;
  const asked = performance.now();
  const yielded = await deploy.requestYield("leader", { within: 10_000 });
  console.log(`yielded: ${yielded}, ${since(asked)}`);
}
await deploy.requestYield("leader", { within: 10_000 });
await Promise.all(versions);
const lock = deploy.lock("silent", { ttl: 2_000, fixed: true });
await lock.acquire();
const began = performance.now();
await (await lock.acquire()).release();
console.log(`expired: ${since(began)}`);
await deploy.shutdown();

/** Leads until somebody wants the lock: by a request, or in line. */
async function lead(locker, version) {
  await locker.lock("leader").using(async (lease) => {
    console.log(`version ${version} leads with token ${lease.token}`);
    await lease.wanted(); // The leader's work goes here, up to a good point to stop.
  });
  await locker.shutdown();
}

function since(start) {
  return `${(performance.now() - start).toFixed(1)} ms`;
}
