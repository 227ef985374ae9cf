/** The cost of the npm package beside other locks: `cargo xtask bench node -- --help`. */
import { parseArgs } from "node:util";
import { startRedis } from "../../../bindings/node/test/support/redis.mjs";

const USAGE = `What the npm package costs, on a redis-server of its own. Figures are medians over rounds in which all
sides take turns; ratios are of one round each, so that what else the machine does cancels out.

usage: cargo xtask bench node [pairs] [cpu] [start] [sizes] [thread] [options]      all by default

  pairs    acquire and release of distinct names, 1, 16, 64 and 256 in flight, beside redlock 5 beta,
           redis-semaphore, and SET NX PX with a compare-and-delete, all on ioredis
  cpu      processor time of a pair on a client that answers from memory
  start    from the start of a process to its first lock, beside bare ioredis
  sizes    of bundles, beside redlock and redis-semaphore; and of a locker in WebAssembly's memory
  thread   a locker in a worker thread beside one in the program's: pairs, memory, start

\`cargo xtask bench report --only node\` measures handoffs of one name, and losses.

options:
  --rounds N   rounds of pairs, cpu, start and thread after one that warms up; 7
  --help
`;

const BENCHMARKS = ["pairs", "cpu", "start", "sizes", "thread"];

let parsed;
try {
  parsed = options();
} catch (error) {
  console.error(`error: ${error.message}\n\n${USAGE}`);
  process.exit(2);
}
if (parsed === undefined) {
  console.log(USAGE);
} else {
  await main(parsed);
}

function options() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      rounds: { type: "string", default: "7" },
      help: { type: "boolean", short: "h" },
    },
  });
  const unknown = positionals.find((name) => !BENCHMARKS.includes(name));
  if (unknown !== undefined) {
    throw new Error(`there is no benchmark ${JSON.stringify(unknown)}`);
  }
  const rounds = Number(values.rounds);
  if (!Number.isSafeInteger(rounds) || rounds < 1) {
    throw new Error(`--rounds: ${JSON.stringify(values.rounds)} is not a whole number from 1 up`);
  }
  const names = positionals.length === 0 ? BENCHMARKS : positionals;
  return values.help ? undefined : { names, rounds };
}

async function main({ names, ...options }) {
  const server = await startRedis();
  try {
    for (const name of names) {
      // Imported here, so that the help needs nothing that has to be built or installed.
      const { run } = await import(`./${name}.mjs`);
      await run(server, options);
    }
  } finally {
    await server.stop();
  }
}
