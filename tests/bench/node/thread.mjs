/** The cost of a locker in a worker thread, beside one in the program's thread: both by `Locker.connect`. */
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { Locker } from "../../../bindings/node/dist/index.js";
import { median, percentile, processorTime, progress, spread, table } from "./stats.mjs";

const SIDES = { "in the program's thread": false, "in a worker thread": true };
const IN_FLIGHT = [1, 64];
/** The milliseconds of each side in each round, and before the first round, until most code is compiled. */
const [TURN, WARM_UP] = [250, 1_000];
/** Reads of `lease.valid` whose mean is one figure. */
const READS = 2_000_000;
/** A process that makes a locker or, without a URL, only loads the package, and prints what that took. */
const PROGRAM = fileURLToPath(new URL("thread-start.mjs", import.meta.url));

export async function run(server, { rounds }) {
  await pairs(server, rounds);
  await starts(server, rounds);
}

async function pairs(server, rounds) {
  const lockers = [];
  for (const [name, thread] of Object.entries(SIDES)) {
    lockers.push([name, await Locker.connect(server.url, { thread })]);
  }
  for (const inFlight of IN_FLIGHT) {
    const measured = new Map(lockers.map(([name]) => [name, []]));
    for (let round = 0; round <= rounds; round += 1) {
      progress(`thread: ${inFlight} in flight, round ${round} of ${rounds}`);
      for (const [name, locker] of lockers) {
        const turn = await takeTurn(locker, inFlight, round === 0 ? WARM_UP : TURN);
        if (round > 0) {
          measured.get(name).push(turn);
        }
      }
    }
    progress("");
    console.log(`\nthread: pairs, ${inFlight} in flight (medians of the rounds; CPU of all threads)`);
    const shown = (field, digits) => ([, turns]) => median(turns.map((turn) => turn[field])).toFixed(digits);
    const [perSecond, p50, p99, cpu] = [shown("perSecond", 1), shown("p50", 0), shown("p99", 0), shown("cpu", 1)];
    table([
      ["", "thousand/s", "p50 µs", "p99 µs", "CPU µs"],
      ...[...measured].map((side) => [side[0], perSecond(side), p50(side), p99(side), cpu(side)]),
    ]);
  }
  const reads = [];
  for (const [name, locker] of lockers) {
    reads.push([name, await readTime(locker)]);
    await locker.shutdown();
  }
  console.log("\nthread: nanoseconds of a read of `lease.valid`");
  table([["", "ns"], ...reads.map(([name, nanos]) => [name, nanos.toFixed(0)])]);
}

async function takeTurn(locker, inFlight, milliseconds) {
  const times = [];
  const [begin, processor] = [performance.now(), processorTime()];
  const end = begin + milliseconds;
  const caller = async (_, index) => {
    const lock = locker.lock(`pair-${index}`);
    for (let now = begin; now < end; ) {
      const lease = await lock.acquire();
      await lease.release();
      const after = performance.now();
      times.push((after - now) * 1_000);
      now = after;
    }
  };
  await Promise.all(Array.from({ length: inFlight }, caller));
  return {
    perSecond: times.length / (performance.now() - begin),
    p50: median(times),
    p99: percentile(times, 99),
    cpu: (processorTime() - processor) / times.length,
  };
}

async function readTime(locker) {
  const lease = await locker.lock("read").acquire();
  const pass = () => {
    const begin = performance.now();
    let valid = 0;
    for (let reads = 0; reads < READS; reads += 1) {
      valid += lease.valid ? 1 : 0;
    }
    if (valid !== READS) {
      throw new Error("the lease was lost");
    }
    return ((performance.now() - begin) * 1e6) / READS;
  };
  const times = Array.from({ length: 5 }, pass);
  await lease.release();
  return median(times);
}

async function starts(server, rounds) {
  const sides = { "only the package": [], ...Object.fromEntries(Object.keys(SIDES).map((name) => [name, []])) };
  for (let round = 0; round <= rounds; round += 1) {
    progress(`thread: start, round ${round} of ${rounds}`);
    for (const [name, figures] of Object.entries(sides)) {
      const figure = await started(name in SIDES ? [server.url, SIDES[name]] : []);
      // The first round reads the files from the disk.
      if (round > 0) {
        figures.push(figure);
      }
    }
  }
  progress("");
  const loaded = sides["only the package"].map(({ rss }) => rss);
  console.log("\nthread: a new process: milliseconds of `Locker.connect`, then of its first lock; resident memory in MiB, and of each further locker");
  const rows = Object.entries(sides).map(([name, figures]) => [
    name,
    ...["connect", "lock"].map((field) => (name in SIDES ? median(figures.map((figure) => figure[field])).toFixed(1) : "")),
    median(figures.map(({ rss }) => rss)).toFixed(1),
    name in SIDES ? `+${spread(figures.map(({ rss }, round) => rss - loaded[round]), 1)}` : "",
    name in SIDES ? median(figures.map(({ each }) => each)).toFixed(1) : "",
  ]);
  table([["", "connect", "lock", "memory", "more", "each"], ...rows]);
}

async function started(args) {
  const child = spawn(process.execPath, ["--expose-gc", PROGRAM, ...args.map(String)], { stdio: ["ignore", "pipe", "inherit"] });
  let printed = "";
  for await (const part of child.stdout) {
    printed += part;
  }
  return JSON.parse(printed);
}
