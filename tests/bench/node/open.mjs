/** Pairs that are begun when they are due, however many are under way. */
import { once } from "node:events";
import { connect } from "node:net";
import { processorTime } from "./stats.mjs";

/** The most pairs under way; more are refused. */
const MOST = 4_096;
/** The bytes of the time of an arrival. */
const BYTES = 8;

/** Reads from the socket at this path when each pair is due, and makes them on the side. */
export async function open(side, path) {
  const [acquired, released] = [[], []];
  let [count, refused, underWay, failure] = [0, 0, 0, undefined];
  let allDone = () => {};
  // Arrivals are due by the clock that `performance.now` counts from its own origin.
  const origin = Number(process.hrtime.bigint()) / 1e3 - performance.now() * 1e3;
  const now = () => origin + performance.now() * 1e3;
  const pair = async (name, due) => {
    try {
      const release = await side.acquire(name);
      acquired.push(Math.round(now() - due));
      await release();
      released.push(Math.round(now() - due));
    } catch (error) {
      failure ??= error;
    }
    underWay -= 1;
    if (underWay === 0) {
      allDone();
    }
  };
  const before = processorTime();
  const arrivals = connect(path);
  let rest = Buffer.alloc(0);
  arrivals.on("data", (chunk) => {
    const bytes = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
    let at = 0;
    for (; at + BYTES <= bytes.length; at += BYTES) {
      if (underWay === MOST) {
        refused += 1;
        continue;
      }
      underWay += 1;
      count += 1;
      void pair(`open/${count}`, bytes.readDoubleLE(at));
    }
    rest = bytes.subarray(at);
  });
  await once(arrivals, "close");
  while (underWay > 0) {
    await new Promise((resolve) => (allDone = resolve));
  }
  if (failure !== undefined) {
    throw failure;
  }
  return { refused, processor: processorTime() - before, acquired, released };
}
