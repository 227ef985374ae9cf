/**
 * One name and N contenders, in one process and in several: each holds for a millisecond, releases,
 * and stands in line again once another one has the lock. Without that a loop that takes back at once
 * what it releases would look fast, and starve the others.
 */
import { fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { SIDES } from "./peers.mjs";
import { median, percentile, progress, ratios, spread, table } from "./stats.mjs";

const COMPARED = ["leasehold", "redlock 5 beta", "redis-semaphore"];
const CONFIGURATIONS = [
  { contenders: 2, processes: 1 },
  { contenders: 16, processes: 1 },
  { contenders: 2, processes: 2 },
  { contenders: 16, processes: 4 },
];
const PINGS = 300;
const CONTENDER = fileURLToPath(new URL("contender.mjs", import.meta.url));
/** Milliseconds after which a contender that has not reported is ended. */
const LIMIT = 30_000;

export async function run(server, { turns: rounds, turn }) {
  const bare = await SIDES["bare SET NX"](server.port);
  for (const configuration of CONFIGURATIONS) {
    const { contenders, processes } = configuration;
    const measured = Object.fromEntries(COMPARED.map((name) => [name, []]));
    for (let round = 1; round <= rounds; round += 1) {
      for (const name of COMPARED) {
        progress(`handoff: ${contenders} in ${processes}, ${name}, round ${round} of ${rounds}`);
        const ping = await pings(bare);
        measured[name].push({ ping, ...(await takeTurn(server, name, configuration, turn)) });
      }
    }
    progress("");
    console.log(`\nhandoff, ${contenders} contenders in ${processes} process(es), 1 ms hold`);
    show(measured);
  }
  await bare.end();
}

async function pings(bare) {
  const times = [];
  for (let count = 0; count < PINGS; count += 1) {
    const begin = performance.now();
    await bare.ping();
    times.push(performance.now() - begin);
  }
  return median(times);
}

async function takeTurn(server, side, { contenders, processes }, milliseconds) {
  const children = Array.from({ length: processes }, () => fork(CONTENDER));
  try {
    const count = contenders / processes;
    const start = { side, port: server.port, count, milliseconds, alone: processes === 1 };
    await all(children, "ready", () => children.forEach((child) => child.send({ start })));
    const before = await server.commandStats();
    const reports = await all(children, "turns", (child) => child.send({ begin: true }), (child) => {
      // Whoever yields in another process goes on, unless it is at its end.
      for (const other of children.filter((other) => other !== child && other.connected)) {
        other.send({ acquired: true }, () => {});
      }
    });
    const after = await server.commandStats();
    return summary(reports.flat(), counted(before, after));
  } finally {
    children.forEach((child) => child.kill());
  }
}

/** Waits until each child has sent this, and returns what. */
function all(children, field, start, onAcquired = () => {}) {
  const reports = children.map(
    (child) =>
      new Promise((resolve, reject) => {
        const late = () => reject(new Error(`a contender did not report within ${LIMIT} ms`));
        const timer = setTimeout(late, LIMIT);
        const hear = (message) => {
          if (message.acquired) {
            onAcquired(child);
          } else if (message[field] !== undefined) {
            clearTimeout(timer);
            child.off("message", hear);
            resolve(message[field]);
          }
        };
        child.on("message", hear);
        child.once("exit", (code) => {
          clearTimeout(timer);
          reject(new Error(`a contender ended with ${code}`));
        });
      }),
  );
  children.forEach(start);
  return Promise.all(reports);
}

function counted(before, after) {
  const calls = (name) => (after[name] ?? 0) - (before[name] ?? 0);
  const all = Object.keys(after).filter((name) => name !== "info");
  return {
    commands: all.reduce((sum, name) => sum + calls(name), 0),
    scripts: calls("evalsha") + calls("eval"),
  };
}

/** Of turns `[acquired, called]` in milliseconds on the machine's clock. */
function summary(turns, { commands, scripts }) {
  turns.sort(([one], [other]) => one - other);
  const gaps = turns.slice(1).map(([acquired], index) => acquired - turns[index][1]);
  const took = turns[turns.length - 1][0] - turns[0][0];
  return {
    perSecond: (1_000 * gaps.length) / took,
    p50: percentile(gaps, 50),
    p95: percentile(gaps, 95),
    commands: commands / turns.length,
    scripts: scripts / turns.length,
  };
}

function show(measured) {
  const head = ["acquisitions/s", "release to acquire ms p50", "p95", "to one PING", "commands", "scripts", "leasehold's speed to it"];
  const own = measured.leasehold.map((turn) => turn.perSecond);
  const rows = Object.entries(measured).map(([name, turns]) => {
    const of = (field) => turns.map((turn) => turn[field]);
    return [
      name,
      median(of("perSecond")).toFixed(0),
      median(of("p50")).toFixed(2),
      median(of("p95")).toFixed(2),
      median(ratios(of("p50"), of("ping"))).toFixed(1),
      median(of("commands")).toFixed(1),
      median(of("scripts")).toFixed(2),
      name === "leasehold" ? "" : spread(ratios(own, of("perSecond")), 1),
    ];
  });
  table([["", ...head], ...rows]);
}
