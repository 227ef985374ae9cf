/** Acquire and release of distinct names, with many in flight: pairs per second beside other locks. */
import { SIDES } from "./peers.mjs";
import { median, processorTime, progress, ratios, spread, table } from "./stats.mjs";

const IN_FLIGHT = [1, 16, 64, 256];
const OTHERS = ["redlock 5 beta", "redis-semaphore", "bare SET NX"];
/** The milliseconds of each side in each round. */
const TURN = 150;
/** The milliseconds before the first round, until most of the code is compiled. */
const WARM_UP = 1_000;

export async function run(server, { rounds }) {
  const sides = {};
  for (const [name, make] of Object.entries(SIDES)) {
    sides[name] = await make(server.port);
  }
  for (const inFlight of IN_FLIGHT) {
    const measured = Object.fromEntries(Object.keys(sides).map((name) => [name, []]));
    for (let round = 0; round <= rounds; round += 1) {
      progress(`pairs: ${inFlight} in flight, round ${round} of ${rounds}`);
      for (const [name, side] of Object.entries(sides)) {
        const turn = await takeTurn(server, side, name, inFlight, round === 0 ? WARM_UP : TURN);
        if (round > 0) {
          measured[name].push(turn);
        }
      }
    }
    progress("");
    show(inFlight, measured);
  }
  for (const side of Object.values(sides)) {
    await side.end();
  }
}

async function takeTurn(server, side, prefix, inFlight, milliseconds) {
  const scripts = await scriptCalls(server);
  const [begin, processor] = [performance.now(), processorTime()];
  const end = begin + milliseconds;
  let count = 0;
  const caller = async (_, index) => {
    const name = `${prefix}-${index}`;
    do {
      await side.pair(name);
      count += 1;
    } while (performance.now() < end);
  };
  await Promise.all(Array.from({ length: inFlight }, caller));
  const [took, used] = [performance.now() - begin, processorTime() - processor];
  return {
    perSecond: (1_000 * count) / took,
    processor: used / count,
    scripts: ((await scriptCalls(server)) - scripts) / count,
  };
}

async function scriptCalls(server) {
  const { evalsha = 0, eval: byText = 0 } = await server.commandStats();
  return evalsha + byText;
}

function show(inFlight, measured) {
  const of = (name, field) => measured[name].map((turn) => turn[field]);
  const speed = (name) => of(name, "perSecond");
  console.log(`\npairs, ${inFlight} in flight (ratios of each round: median, middle half)`);
  table([
    ["", "thousand/s", "CPU µs", "scripts", ...OTHERS.map((name) => `to ${name}`)],
    ...Object.keys(measured).map((name) => [
      name,
      (median(speed(name)) / 1_000).toFixed(1),
      median(of(name, "processor")).toFixed(1),
      median(of(name, "scripts")).toFixed(2),
      ...OTHERS.map((other) => (name === other ? "" : spread(ratios(speed(name), speed(other))))),
    ]),
  ]);
}
