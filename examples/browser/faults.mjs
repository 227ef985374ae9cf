// Runs a schedule of faults against clients that take turns by themselves.
import { SERVER } from "./schedule.mjs";

/** Milliseconds between two looks at the schedule and the clients. */
const STEP = 50;
/** The number of a client's writes in a turn: together they take longer than the time to live, so it must renew. */
const WRITES = 4;
/** Milliseconds after the last fault: a dead waiter delays the others by up to 12 s. */
const REST = 15_000;
const SECOND = 1_000;

/**
 * Runs the schedule, which begins when the first client has the lock. `signal` is aborted when the visitor takes over.
 * Resolves to true if the schedule came to its end.
 */
export async function run(faults, peers, service, signal) {
  const written = new Map();
  while (peers[0].tenure !== "held") {
    if (signal.aborted) return false;
    work(peers[0], written);
    await pause();
  }
  const begin = performance.now();
  const steps = faults.flatMap(stepsOf).sort((a, b) => a.at - b.at);
  const end = Math.max(0, ...steps.map(({ at }) => at)) + REST;
  for (let now = 0; now < end; now = performance.now() - begin) {
    if (signal.aborted) return false;
    while (steps[0]?.at <= now) {
      const { who, what, on } = steps.shift();
      if (who === SERVER) service.flush();
      else apply(peers.find(({ name }) => name === who), what, on);
    }
    for (const peer of peers) work(peer, written);
    await pause();
  }
  return true;
}

const pause = () => new Promise((resolve) => setTimeout(resolve, STEP));

function stepsOf({ who, what, from, until }) {
  const begins = { who, what, on: true, at: from * SECOND };
  return until === undefined ? [begins] : [begins, { who, what, on: false, at: until * SECOND }];
}

/** Begins or ends a fault, unless a crash or the visitor did. */
function apply(peer, what, on) {
  if (what === "crash") peer.crash();
  else if (what === "slow" && peer.slowed !== on) peer.slow(on);
  else if (what === "pause" && peer.paused !== on) peer.do("pause");
  else if (what === "cut" && peer.cutOff !== on) peer.do("cut");
}

/** Lets a client acquire, write and release, one after the other. */
function work(peer, written) {
  if (peer.can("acquire")) {
    written.set(peer, 0);
    peer.do("acquire");
  } else if (peer.can("write") && written.get(peer) < WRITES) {
    written.set(peer, written.get(peer) + 1);
    peer.do("write");
  } else if (peer.tenure === "held") {
    peer.do("release");
  }
}
