/** The processor time of the library alone: on a client that answers from memory at once. */
import { Locker } from "../../../bindings/node/dist/index.js";
import { mockClient } from "./mock.mjs";
import { processorTime, progress, spread, table } from "./stats.mjs";

const PAIRS = 10_000;
const AIM = 6;

export async function run(_server, { rounds }) {
  const rows = [["", "µs of CPU per pair", "script calls per pair"]];
  for (const inFlight of [1, 64]) {
    for (const reused of [false, true]) {
      const what = `${inFlight} in flight, ${reused ? "one Lock each" : "a new Lock each time"}`;
      rows.push(await measure(what, inFlight, reused, rounds));
    }
  }
  progress("");
  console.log(`\nCPU on a mock transport (median, middle half; aim ${AIM} µs)`);
  table(rows);
}

async function measure(what, inFlight, reused, rounds) {
  const client = mockClient();
  const locker = Locker.from(client);
  const locks = Array.from({ length: inFlight }, (_, index) => locker.lock(`mock-${index}`));
  const caller = async (kept, index) => {
    for (let count = 0; count < PAIRS / inFlight; count += 1) {
      const lock = reused ? kept : locker.lock(`mock-${index}`);
      const lease = await lock.acquire();
      await lease.release();
    }
  };
  const used = [];
  for (let round = 0; round <= rounds; round += 1) {
    progress(`cpu: ${what}, round ${round} of ${rounds}`);
    client.calls = 0;
    const begin = processorTime();
    await Promise.all(locks.map(caller));
    // The first round warms up.
    if (round > 0) {
      used.push((processorTime() - begin) / PAIRS);
    }
  }
  await locker.shutdown();
  return [what, spread(used, 1), (client.calls / PAIRS).toFixed(2)];
}
