// The due times of schedules, which are the same in Rust: otherwise two runners would run two ticks.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe } from "node:test";
import { pathToFileURL } from "node:url";
import { Locker } from "../../dist/index.js";
import { bundleParts } from "../support/bundle.mjs";
import { test } from "../support/test.mjs";
import { steady } from "../support/wait.mjs";

const vectors = JSON.parse(readFileSync(new URL("../../../../tests/vectors/schedules.json", import.meta.url), "utf8"));
const PARTS = 'export * from "./src/api/schedule.ts"; export * from "./src/api/turns.ts";';
const file = await bundleParts("schedules", PARTS, { external: ["croner", "node:*"] });
const { scheduleOf, withSpread } = await import(pathToFileURL(file));

/** Runs a function, and returns the longest time in milliseconds for which it kept the event loop from running. */
async function longestTurn(run) {
  let [longest, last, over] = [0, performance.now(), false];
  const look = () => {
    const now = performance.now();
    [longest, last] = [Math.max(longest, now - last), now];
    if (!over) setImmediate(look);
  };
  setImmediate(look);
  await run();
  // Until it has seen the last turn, too.
  await new Promise((resolve) => setImmediate(resolve));
  over = true;
  return longest;
}

describe("schedules", () => {
  for (const { shows, next, latest, between, ...options } of vectors.schedules) {
    test(shows, async () => {
      const schedule = await scheduleOf(options)();
      const tick = (time) => (time === null ? undefined : Date.parse(time));
      for (const [after, expected] of next) {
        assert.equal(schedule.next(Date.parse(after)), tick(expected), `after ${after}`);
      }
      for (const [until, expected] of latest) {
        assert.equal(schedule.latest(Date.parse(until)), tick(expected), `until ${until}`);
      }
      for (const [from, to, expected] of between) {
        assert.equal(await schedule.between(Date.parse(from), Date.parse(to)), expected, `${from} to ${to}`);
      }
    });
  }

  test("the time before the last ticks is that of as many steps back", async () => {
    for (const options of [{ every: 60_000 }, { cron: "* * * * *", timeZone: "Europe/Berlin" }]) {
      const schedule = await scheduleOf(options)();
      const now = Date.parse("2026-10-25T05:15:30Z");
      for (const count of [1, 2, 100, 101, 250]) {
        const before = await schedule.before(now, count);
        assert.equal(await schedule.between(before, now), count, `${count} of ${JSON.stringify(options)}`);
        assert.equal(schedule.next(before), before + 1);
      }
      assert.equal(await schedule.before(60_000, 5), 0);
    }
  });

  test("a tick is remembered for two of the longest pauses", async () => {
    const hour = 3_600_000;
    for (const [options, least, most] of [
      [{ every: hour }, 2 * hour, 2 * hour],
      [{ cron: "0 * * * *", timeZone: "UTC" }, 2 * hour, 2 * hour],
      [{ cron: "0 9 * * MON-FRI", timeZone: "UTC" }, 144 * hour, 144 * hour],
      [{ cron: "0 0 29 2 *", timeZone: "UTC" }, 2 * 1_461 * 24 * hour, 2 * 2_922 * 24 * hour],
    ]) {
      const { retention } = await scheduleOf(options)();
      assert.ok(retention >= least && retention <= most, `${JSON.stringify(options)}: ${retention}`);
    }
  });

  test("counting many ticks leaves the event loop free", (t) =>
    steady(t, async () => {
      // Catches a job after a long downtime whose process is late for its renewals.
      const schedule = await scheduleOf({ cron: "* * * * * *", timeZone: "Europe/Berlin" })();
      const now = Date.parse("2026-11-27T05:15:30Z");
      let counted;
      const longest = await longestTurn(async () => {
        counted = await schedule.between(now - 5_000_000, now);
      });
      assert.equal(counted, 4_999);
      assert.ok(longest < 400, `${longest} ms`);
    }));

  test("runners wake at different times, a twentieth of their sleep or 100 ms late at most", () => {
    // Catches a fleet in which the same machine wins every tick.
    for (const [sleep, most] of [[20, 1], [1_000, 50], [60_000, 100]]) {
      const late = Array.from({ length: 1_000 }, () => withSpread(sleep) - sleep);
      assert.ok(Math.min(...late) >= 0 && Math.max(...late) <= most, String(Math.max(...late)));
      for (const tenth of Array.from({ length: 10 }, (_, at) => (at * most) / 10)) {
        assert.ok(late.some((time) => time >= tenth && time < tenth + most / 10), `${tenth} of ${most}`);
      }
    }
  });

  test("what is no schedule is refused", async () => {
    const locker = Locker.inMemory();
    const refused = async (options) => locker.job("report", options).due();
    for (const options of vectors.refused) {
      const culprit = JSON.stringify(options.timeZone === "UTC" ? options.cron : options.timeZone ?? options.every);
      await assert.rejects(refused(options), ({ code, message }) => {
        assert.ok(message.includes(culprit), message);
        return code === "config";
      });
    }
    await locker.shutdown();
  });
});
