/** The time from the start of a process to its first lease, beside bare ioredis. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { median, progress, spread, table } from "./stats.mjs";

const HERE = fileURLToPath(new URL(".", import.meta.url));

/** Programs that print a line as soon as they have their lock. */
const SIDES = {
  "bare SET NX": `
    import Redis from "ioredis";
    const redis = new Redis(Number(process.argv[1]));
    await redis.set(process.argv[2], "id", "PX", 30_000, "NX");
    console.log("held");
    redis.disconnect();`,
  leasehold: `
    import Redis from "ioredis";
    import { Locker } from "../../../bindings/node/dist/index.js";
    const redis = new Redis(Number(process.argv[1]));
    const locker = Locker.from(redis);
    await locker.lock(process.argv[2]).acquire();
    console.log("held");
    await locker.shutdown();
    redis.disconnect();`,
};

export async function run(server, { rounds }) {
  const took = Object.fromEntries(Object.keys(SIDES).map((name) => [name, []]));
  for (let round = 0; round <= rounds; round += 1) {
    progress(`start: round ${round} of ${rounds}`);
    for (const [name, program] of Object.entries(SIDES)) {
      const time = await untilHeld(program, [server.port, `start-${name}-${round}`]);
      // The first round reads the files from the disk.
      if (round > 0) {
        took[name].push(time);
      }
    }
  }
  progress("");
  const more = took.leasehold.map((time, round) => time - took["bare SET NX"][round]);
  console.log("\nstart: milliseconds from the start of a process to its first lock, and how many more ours takes");
  const rows = Object.entries(took).map(([name, times]) => [name, median(times).toFixed(1), ""]);
  rows.at(-1)[2] = `+${spread(more, 1)}`;
  table([["", "ms", "more"], ...rows]);
}

async function untilHeld(program, args) {
  const begin = performance.now();
  const child = spawn(process.execPath, ["--input-type=module", "-e", program, ...args.map(String)], {
    cwd: HERE,
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [ended, [first]] = [once(child, "exit"), await once(child.stdout, "data")];
  const time = performance.now() - begin;
  const [code] = await ended;
  if (code !== 0 || !String(first).startsWith("held")) {
    throw new Error(`a process that was to take a lock ended with ${code}`);
  }
  return time;
}
