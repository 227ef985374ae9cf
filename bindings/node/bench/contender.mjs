/** A process of contenders for `handoff`. */
import { SIDES } from "./peers.mjs";

const NAME = "bench-handoff";

process.once("message", async ({ start }) => {
  const side = await SIDES[start.side](start.port);
  // Connected, and the script is loaded.
  await side.pair(`${NAME}/${process.pid}`);
  process.once("message", async () => {
    const turns = await contend(side, start);
    await side.end();
    process.send({ turns }, () => process.disconnect());
  });
  process.send({ ready: true });
});

async function contend(side, { count, milliseconds, alone }) {
  let yielding = [];
  const acquiredSomewhere = () => {
    const resolves = yielding;
    yielding = [];
    resolves.forEach((resolve) => resolve());
  };
  process.on("message", acquiredSomewhere);
  let over = false;
  setTimeout(() => {
    over = true;
    acquiredSomewhere();
  }, milliseconds);
  const turns = [];
  const contender = async () => {
    while (!over) {
      const release = await side.acquire(NAME);
      const acquired = now();
      acquiredSomewhere();
      if (!alone) {
        process.send({ acquired: true });
      }
      await new Promise((resolve) => setTimeout(resolve, 1));
      turns.push([acquired, now()]);
      const other = new Promise((resolve) => yielding.push(resolve));
      await release();
      if (!over) {
        await other;
      }
    }
  };
  await Promise.all(Array.from({ length: count }, contender));
  process.off("message", acquiredSomewhere);
  return turns;
}

/** Milliseconds of a clock that all processes share. */
function now() {
  return Number(process.hrtime.bigint()) / 1e6;
}
