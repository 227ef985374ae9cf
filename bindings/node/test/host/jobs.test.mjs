// Jobs: each tick runs once, whatever runners do and however they end.
import assert from "node:assert/strict";
import { describe } from "node:test";
import { fileURLToPath } from "node:url";
import { inspect } from "node:util";
import { Locker, MemoryStore } from "../../dist/index.js";
import { startNode } from "../support/program.mjs";
import { startRedis } from "../support/redis.mjs";
import { aborted, collect, forEachStore } from "../support/stores.mjs";
import { test } from "../support/test.mjs";
import { pause, waitFor, within } from "../support/wait.mjs";

const child = fileURLToPath(new URL("child.mjs", import.meta.url));
const SECOND = 1_000;
/** The longest period. Its next tick is far away on nearly all days. */
const YEAR = 366 * 86_400_000;

/** Claims a tick that nobody has. */
async function turnOf(job, tick, options) {
  const claimed = await job.claim(tick, options);
  assert.equal(claimed.type, "turn", inspect(claimed));
  return claimed.turn;
}

/** Returns the warnings of this process about a job, which grow. */
function warnings(t, name) {
  const found = [];
  const warned = ({ name: kind, message }) => {
    if (kind === "LeaseholdWarning" && message.includes(JSON.stringify(name))) found.push(message);
  };
  process.on("warning", warned);
  t.after(() => process.off("warning", warned));
  return found;
}

forEachStore((store) => {
  test("each tick runs once on two lockers, and none is left out", async () => {
    // Catches: a tick that both run; one that is skipped and not counted; turns that overlap.
    const [name, every] = [store.name(), 100];
    const lockers = [await store.hearing(), await store.hearing()];
    const turns = [];
    let inside = 0;
    const stop = new AbortController();
    const runs = lockers.map((locker) =>
      locker.job(name, { every }).run(
        async (turn) => {
          inside += 1;
          assert.equal(inside, 1);
          turns.push(turn);
          await pause(5);
          assert.ok(turn.lease.valid);
          inside -= 1;
          if (turns.length === 12) stop.abort();
        },
        { signal: stop.signal },
      ),
    );
    await within(Promise.all(runs), 60_000, "12 turns");
    for (const [at, { tick, token, missed, scheduledFor, lease }] of turns.entries()) {
      assert.equal(tick % every, 0);
      assert.equal(scheduledFor.getTime(), tick);
      assert.ok(!lease.valid);
      const before = turns[at - 1];
      if (before !== undefined) {
        assert.ok(token > before.token);
        assert.equal(tick - before.tick, every * (missed + 1), inspect(turns));
      }
    }
    const { job, holder } = await store.admin.inspect(name);
    const last = turns.at(-1);
    assert.deepEqual([job.completed.tick, job.completed.token, job.begun, holder], [last.tick, last.token, null, null]);
  });

  test("a claim gets the turn, learns that another runner has it, or who completed it", async () => {
    const name = store.name();
    const job = (await store.locker({ owner: "first runner" })).job(name);
    const other = (await store.locker({ owner: "second runner" })).job(name);
    const turn = await turnOf(job, 7);
    assert.deepEqual([turn.name, turn.tick, turn.missed, turn.scheduledFor], [name, 7, 0, undefined]);
    assert.equal(turn.token, turn.lease.token);
    const seen = await store.admin.inspect(name);
    assert.deepEqual(seen.job, { completed: null, begun: 7 });
    assert.deepEqual(seen.holder.owner, { label: "first runner", reclaimable: false, tick: 7 });
    assert.deepEqual(await other.claim(7, { timeout: 0 }), { type: "inProgress" });
    assert.deepEqual(await other.claim(7, { timeout: 50 }), { type: "inProgress" });
    const waiting = other.claim(7);
    await store.inLine(name, 1);
    await turn.done();
    // It was told so, and did not get the tick.
    for (const claimed of [await within(waiting, 10_000, "the waiter"), await other.claim(7), await other.claim(3)]) {
      assert.equal(claimed.type, "completed");
      const { ago, ...completed } = claimed.completed;
      assert.deepEqual(completed, { tick: 7, token: turn.token, by: "first runner" });
      assert.ok(ago >= 0 && ago < 60_000, String(ago));
    }
    const next = await turnOf(other, 8);
    assert.ok(next.token > turn.token);
    await next.done();
  });

  test("done and giveBack end a turn once", async () => {
    const job = (await store.locker()).job(store.name());
    const done = await turnOf(job, 1);
    await Promise.all([done.done(), done.done()]);
    await done.done();
    await done.giveBack();
    assert.equal((await job.claim(1)).type, "completed");
    const back = await turnOf(job, 2);
    await back.giveBack();
    await back.giveBack();
    await assert.rejects(back.done(), { code: "notHeld" });
    // As `await using` does.
    const open = await turnOf(job, 2);
    assert.ok(open.token > back.token);
    await open[Symbol.asyncDispose]();
    assert.equal(open.lease.valid, false);
    const last = await turnOf(job, 2);
    await last.done();
    await last[Symbol.asyncDispose]();
    assert.equal((await job.claim(2)).type, "completed");
  });

  test("a turn that is given back, or lost, goes to the next runner with a greater token", async () => {
    const name = store.name();
    const [first, second, third] = [await store.hearing(), await store.hearing(), await store.hearing()];
    const begun = await turnOf(first.job(name), 5);
    const waiting = second.job(name).claim(5);
    await store.inLine(name, 1);
    await begun.giveBack();
    const { turn } = await within(waiting, 10_000, "the second runner");
    assert.deepEqual([turn.tick, turn.token > begun.token], [5, true]);
    const last = third.job(name).claim(5);
    await store.inLine(name, 1);
    await store.admin.forceRelease(name);
    const taken = await within(last, 10_000, "the third runner");
    assert.ok(taken.turn.token > turn.token);
    assert.equal((await aborted(turn.lease.signal)).reason, "revoked");
    await assert.rejects(turn.done(), ({ code, cause }) => code === "notHeld" && cause.code === "lost");
    await taken.turn.done();
    assert.equal((await store.admin.inspect(name)).job.completed.tick, 5);
  });

  test("a run tries a lost tick again, and leaves one whose work fails to others", async (t) => {
    // Catches a loss that counts as a run, and a runner that takes its own failing tick again and again.
    const name = store.name();
    const told = warnings(t, name);
    const locker = await store.hearing();
    const ticks = [];
    const stop = new AbortController();
    const run = locker.job(name, { every: 300 }).run(
      async (turn, signal) => {
        ticks.push(turn.tick);
        if (ticks.length === 1) {
          await store.admin.forceRelease(name);
          await aborted(signal);
          throw signal.reason;
        }
        if (ticks.length === 2) throw new Error("no disk");
        stop.abort();
      },
      { signal: stop.signal },
    );
    await within(run, 30_000, "the run");
    assert.equal(ticks[1], ticks[0]);
    assert.ok(ticks[2] > ticks[1]);
    await waitFor(() => told.length === 2, 10_000, "the warnings");
    assert.match(told[0], new RegExp(`the turn of tick ${ticks[0]} with token \\d+ ended without completing`));
    assert.match(told[1], /ended without completing the tick: no disk$/);
    // The last one was completed, although its work was asked to stop.
    assert.equal((await store.admin.inspect(name)).job.completed.tick, ticks[2]);
  });

  test("a run stops at once when it sleeps, by a signal and with the locker", async () => {
    const locker = await store.locker();
    const job = locker.job(store.name(), { every: YEAR });
    const stop = new AbortController();
    const runs = [job.run(() => assert.fail(), { signal: stop.signal }), job.run(() => assert.fail())];
    await pause(100);
    stop.abort();
    await within(runs[0], 3_000, "the end by the signal");
    await locker.shutdown();
    await within(runs[1], 3_000, "the end by the shutdown");
    await within(job.run(() => assert.fail()), 3_000, "the end at the start");
    await within(job.run(() => assert.fail(), { signal: AbortSignal.abort() }), 3_000, "the end at the start");
    await assert.rejects(job.claim(1), { code: "shutdown" });
  });

  test("a run that waits for another runner's tick stops, too, and leaves the line", async () => {
    const name = store.name();
    const [first, second] = [await store.hearing(), await store.hearing()];
    const turns = first.job(name, { every: SECOND }).turns();
    const { value: turn } = await turns.next();
    const stop = new AbortController();
    const run = second.job(name, { every: SECOND }).run(() => assert.fail(), { signal: stop.signal });
    await store.inLine(name, 1);
    stop.abort();
    await within(run, 3_000, "the end");
    await store.inLine(name, 0);
    await turn.done();
    await turns.return();
  });

  test("a shutdown hands the tick over, and aborts the work", async () => {
    const name = store.name();
    const [first, second] = [await store.hearing(), await store.hearing()];
    let begun;
    const run = first.job(name, { every: SECOND }).run(async (turn, signal) => {
      begun = turn;
      await aborted(signal);
      throw signal.reason;
    });
    await waitFor(() => begun, 10_000, "the first turn");
    const waiting = second.job(name, { every: SECOND }).claim(begun.tick);
    await store.inLine(name, 1);
    await first.shutdown();
    await within(run, 10_000, "the end");
    const { turn } = await within(waiting, 10_000, "the next runner");
    assert.ok(turn.token > begun.token);
    await turn.done();
  });

  test("an open turn is given back by the next step, and by leaving the loop", async () => {
    const name = store.name();
    const job = (await store.locker()).job(name, { every: 200 });
    const seen = [];
    for await (const turn of job.turns()) {
      if (seen.length > 0) assert.equal(seen.at(-1).lease.valid, false);
      seen.push(turn);
      if (seen.length === 3) break;
    }
    assert.ok(seen[0].tick < seen[1].tick && seen[1].tick < seen[2].tick);
    assert.equal(seen[2].lease.valid, false);
    const { holder, job: ticks } = await store.admin.inspect(name);
    assert.deepEqual([holder, ticks?.completed], [null, null]);
    const thrown = new Error("of the loop");
    const loop = async () => {
      for await (const turn of job.turns()) {
        seen.push(turn);
        throw thrown;
      }
    };
    await assert.rejects(loop(), thrown);
    assert.equal(seen[3].lease.valid, false);
  });

  for (const [missed, ticks] of [
    [{ all: 3 }, [[2, 7], [1, 0], [0, 0]]],
    [{ all: 10_000 }, Array.from({ length: 10 }, (_, at) => [9 - at, 0])],
    ["latest", [[0, 9]]],
  ]) {
    test(`after a long downtime ${inspect(missed)} runs ${ticks.length} of 10 missed ticks`, async () => {
      const name = store.name();
      const locker = await store.locker();
      const job = locker.job(name, { every: YEAR, missed });
      const due = await job.due();
      assert.equal(due % YEAR, 0);
      await (await turnOf(job, due - 10 * YEAR)).done();
      const turns = job.turns();
      for (const [back, skipped] of ticks) {
        const { value: turn } = await within(turns.next(), 10_000, `${back} before the last`);
        assert.deepEqual([turn.tick, turn.missed], [due - back * YEAR, skipped]);
        await turn.done();
      }
      await turns.return();
    });
  }

  test("a runner that skips waits for the next tick", async () => {
    const locker = await store.locker();
    const job = locker.job(store.name(), { every: SECOND });
    const due = await job.due();
    await (await turnOf(job, due - 10 * SECOND)).done();
    const turns = job.turns();
    const { value: turn } = await within(turns.next(), 10_000, "the next tick");
    assert.ok(turn.tick > due, `${turn.tick} > ${due}`);
    assert.equal(turn.missed, (turn.tick - due) / SECOND + 9);
    await turn.done();
    await turns.return();
  });

  test("events of turns join the stream", async () => {
    const name = store.name();
    const locker = await store.locker();
    const told = collect(locker.events());
    const turn = await turnOf(locker.job(name), 3);
    await turn.done();
    await (await turnOf(locker.job(name), 4)).giveBack();
    await waitFor(() => told.length >= 7, 10_000, () => inspect(told));
    const { token } = turn;
    assert.deepEqual(
      told.map(({ type }) => type),
      ["acquired", "begun", "completed", "released", "acquired", "begun", "released"],
    );
    assert.deepEqual(told[1], { type: "begun", name, token, tick: 3 });
    assert.deepEqual(told[2], { type: "completed", name, token, tick: 3 });
  });

  test("missed and repeated ticks are told and counted", async () => {
    // Catches missed ticks that nobody is told of, and a failed tick that counts for nobody.
    const [name, every] = [store.name(), 3_600_000];
    const lockers = [await store.hearing(), await store.hearing()];
    const [first, second] = lockers.map((locker) => locker.job(name, { every, missed: { all: 3 } }));
    const before = lockers.map((locker) => locker.stats());
    const due = await first.due();
    await (await turnOf(first, due - 24 * every)).done();
    const told = lockers.map((locker) => collect(locker.events()));
    const [one, two] = [first.turns(), second.turns()];
    const { value: fails } = await two.next();
    const next = one.next();
    await store.inLine(name, 1);
    await fails.giveBack();
    const { value: again } = await within(next, 10_000, "the failed tick");
    assert.deepEqual([again.tick, again.missed], [due - 2 * every, 21]);
    await again.done();
    // A runner that did not see the failed turn knows by its token.
    const { value: failsToo } = await one.next();
    await failsToo.giveBack();
    const three = second.turns();
    const { value: last } = await three.next();
    assert.deepEqual([last.tick, last.missed], [due - every, 0]);
    await last.done();
    await Promise.all([one.return(), two.return(), three.return()]);
    const counted = lockers.map((locker, at) => {
      const names = ["ticksCompleted", "ticksRepeated", "ticksMissed"];
      return names.map((name) => locker.stats()[name] - before[at][name]);
    });
    assert.deepEqual(counted, [[2, 1, 21], [1, 1, 21]]);
    for (const [at, { token }] of [again, fails].entries()) {
      const missed = () => told[at].filter(({ type }) => type === "missed");
      await waitFor(() => missed().length > 0, 10_000, () => inspect(told[at]));
      assert.deepEqual(missed(), [{ type: "missed", name, token, first: due - 23 * every, ticks: 21 }]);
    }
  });

  test("a canceled claim leaves neither a turn nor a place in line", async () => {
    const name = store.name();
    const locker = await store.locker();
    const turn = await turnOf(locker.job(name), 1);
    const stop = new AbortController();
    const waiting = locker.job(name).claim(1, { signal: stop.signal });
    await store.inLine(name, 1);
    stop.abort(new Error("enough"));
    await assert.rejects(waiting, { message: "enough" });
    await store.inLine(name, 0);
    await assert.rejects(locker.job(name).claim(1, { signal: stop.signal }), { message: "enough" });
    await turn.giveBack();
    await store.nothingLeft(name);
  });

  test("a name is a lock's or a job's", async () => {
    const locker = await store.locker();
    const [job, lock] = [store.name(), store.name()];
    await (await turnOf(locker.job(job), 1)).done();
    await locker.lock(lock).using(() => {});
    await assert.rejects(locker.lock(job).acquire(), { code: "wrongType" });
    await assert.rejects(locker.job(lock).claim(1), { code: "wrongType" });
    const run = locker.job(lock, { every: 50 }).run(() => assert.fail());
    await assert.rejects(within(run, 10_000, "the refusal"), { code: "wrongType" });
  });

  test("a tick that is not due by the server's clock is refused", async () => {
    const locker = await store.locker();
    const job = locker.job(store.name(), { every: SECOND });
    const due = await job.due();
    await assert.rejects(job.claim(due + 60 * SECOND), ({ code, message }) => {
      assert.match(message, new RegExp(`the tick ${due + 60 * SECOND} is not due yet`));
      return code === "config";
    });
    await (await turnOf(job, due)).done();
  });
});

describe("jobs", () => {
  for (const isWaiting of [true, false]) {
    test(`a crashed runner's tick goes on to a runner that ${isWaiting ? "waits" : "starts later"}`, async (t) => {
      const server = await startRedis();
      t.after(() => server.stop());
      const program = startNode(child, "ioredis", server.url, "turn", "report");
      const [tick, token] = (await program.says("turn")).split(" ").map(Number);
      const locker = await Locker.connect(server.url);
      t.after(() => locker.shutdown());
      const seen = () => locker.inspect("report");
      const waiting = isWaiting && locker.job("report").claim(tick);
      await waitFor(async () => !isWaiting || (await seen()).waiting === 1, 10_000, "the waiter");
      program.kill();
      await program.end();
      // It does not count as missed, which a runner would skip.
      const turns = locker.job("report", { every: YEAR }).turns();
      if (!isWaiting) {
        await waitFor(async () => (await seen()).holder === null, 30_000, "the end of its time to live");
        assert.deepEqual((await seen()).job, { completed: null, begun: tick });
      }
      const next = isWaiting ? waiting.then(({ turn }) => turn) : turns.next().then(({ value }) => value);
      const turn = await within(next, 30_000, "the tick");
      assert.deepEqual([turn.tick, turn.token > token], [tick, true]);
      await turn.done();
      await turns.return();
    });
  }

  for (const how of ["memory", "ioredis", "connect:thread"]) {
    test(`${how}: a run keeps its process alive until it stops`, async (t) => {
      // Catches: a program that ends between two ticks; a timer that keeps it alive for the rest of a sleep.
      const server = await startRedis();
      t.after(() => server.stop());
      const [stopped, asleep] = ["job", "sleep"].map((what) => startNode(child, how, server.url, what, "report"));
      await asleep.says("sleeping");
      assert.equal(await stopped.says("runs"), "3");
      assert.equal(await stopped.end(), 0, stopped.output());
      await pause(500);
      assert.ok(asleep.running, asleep.output());
      asleep.kill("SIGTERM");
      await asleep.says("over");
      assert.equal(await asleep.end(10_000), 0, asleep.output());
    });
  }

  test("the store's clock decides what is due, and not the machine's", async (t) => {
    const [locker, day] = [Locker.inMemory(), 86_400_000];
    t.after(() => locker.shutdown());
    const { serverTime } = await locker.inspect("report");
    t.mock.method(Date, "now", () => serverTime + 10 * day);
    const job = locker.job("report", { every: day });
    assert.equal(await job.due(), Math.floor(serverTime / day) * day);
    await assert.rejects(job.claim(serverTime + 5 * day), { code: "config" });
  });

  test("a cron text runs a job", async (t) => {
    const locker = Locker.inMemory();
    t.after(() => locker.shutdown());
    const job = locker.job("report", { cron: "* * * * * *", timeZone: "Asia/Kathmandu" });
    const stop = new AbortController();
    const ticks = [];
    await job.run((turn) => (ticks.push(turn.tick) === 2 ? stop.abort() : undefined), { signal: stop.signal });
    assert.ok(ticks.every((tick) => tick % SECOND === 0) && ticks[0] < ticks[1], inspect(ticks));
  });

  test("bad options and ticks are refused, by name", async (t) => {
    const locker = Locker.inMemory();
    t.after(() => locker.shutdown());
    for (const [options, said] of [
      [{ every: 9 }, /every must be from 10 ms to 366 days; got 9 ms/],
      [{ every: YEAR + 1 }, /every must be/],
      [{ every: "1s" }, /every must be a number/],
      [{ every: Infinity }, /every must be a number/],
      [{ cron: "* * * * *" }, /`cron` and `timeZone`/],
      [{ timeZone: "UTC" }, /`cron` and `timeZone`/],
      [{ every: 1_000, cron: "* * * * *", timeZone: "UTC" }, /`every` or `cron`/],
      [{ cron: 5, timeZone: "UTC" }, /cron must be a string/],
      [{ missed: "all" }, /missed must be .*; got "all"/],
      [{ missed: { all: 0 } }, /missed must be .*; got \{ all: 0 \}/],
      [{ missed: { all: 10_001 } }, /missed must be .* 10,000/],
      [{ missed: { all: 1.5 } }, /missed must be/],
      [{ missed: null }, /missed must be .*; got null/],
      [{ ttl: 9 }, /time to live must be from 10 ms/],
      [{ evry: 1_000 }, /no "evry"; known options: every, cron, timeZone, missed, ttl/],
    ]) {
      assert.throws(() => locker.job("report", options), ({ code, message }) => code === "config" && said.test(message), said);
    }
    for (const name of ["", "x".repeat(513), 5]) assert.throws(() => locker.job(name), { code: "config" });
    const job = locker.job("report");
    for (const tick of [0, -1, 1.5, 2 ** 53, NaN, "7", 7n, undefined]) {
      await assert.rejects(job.claim(tick), ({ code, message }) => code === "config" && /the tick must be/.test(message));
    }
    await assert.rejects(job.claim(1, { timeout: -1 }), { code: "config" });
    for (const call of [() => job.run(() => {}), () => job.turns().next(), () => job.due()]) {
      await assert.rejects(call(), ({ code, message }) => code === "config" && /lock "report": the job has no schedule/.test(message));
    }
    await assert.rejects(job.run("work"), { code: "config" });
    await assert.rejects(job.run(() => {}, { signal: 5 }), { code: "config" });
    assert.throws(() => job.turns({ sinal: 5 }), { code: "config" });
    const { claim } = job;
    await assert.rejects(claim(1), { code: "config", message: /job\.claim was called without its job/ });
  });

  test("a quorum runs no jobs, and says why", async (t) => {
    const locker = await Locker.quorum(["memory://job-1", "memory://job-2", "memory://job-3"]);
    t.after(() => locker.shutdown());
    await assert.rejects(locker.job("report").claim(1), ({ code, message }) => {
      assert.match(message, /a quorum cannot run jobs: servers that restart/);
      return code === "unsupported";
    });
    const run = locker.job("report", { every: 50 }).run(() => assert.fail());
    await assert.rejects(within(run, 10_000, "the refusal"), { code: "unsupported" });
  });

  test("a run retries while the store is away", async (t) => {
    const store = MemoryStore.named("job-away");
    const locker = await Locker.connect("memory://job-away", { patience: 300, commandTimeout: 100 });
    t.after(() => locker.shutdown());
    const stop = new AbortController();
    const ticks = [];
    const run = locker.job("report", { every: 50 }).run((turn) => void ticks.push(turn.tick), { signal: stop.signal });
    await waitFor(() => ticks.length > 0, 10_000, "a turn");
    store.cutOff();
    await pause(1_000);
    const before = ticks.length;
    store.reconnect();
    await waitFor(() => ticks.length > before, 10_000, "another turn");
    stop.abort();
    await run;
    assert.equal(new Set(ticks).size, ticks.length);
  });

  test("a claim and a run stop at once while the store is away", async (t) => {
    // Catches a signal that has to wait for an answer.
    const locker = await Locker.connect("memory://job-stops", { patience: 60_000 });
    t.after(() => locker.shutdown());
    const job = locker.job("report", { every: 50 });
    const due = await job.due();
    const store = MemoryStore.named("job-stops");
    store.cutOff();
    const stop = new AbortController();
    const claim = job.claim(due, { signal: stop.signal });
    const run = job.run(() => assert.fail(), { signal: stop.signal });
    await pause(100);
    stop.abort(new Error("enough"));
    await assert.rejects(within(claim, 3_000, "the claim's end"), { message: "enough" });
    await within(run, 3_000, "the run's end");
    store.reconnect();
  });

  test("consoles and JSON show a job, its turns and a turn", async (t) => {
    const locker = Locker.inMemory();
    t.after(() => locker.shutdown());
    const job = locker.job("report", { every: 50, missed: { all: 3 } });
    assert.equal(inspect(job), "Job { name: 'report', every: 50, missed: { all: 3 } }");
    const turns = job.turns();
    assert.equal(inspect(turns), "Turns { name: 'report', ended: false }");
    const { value: turn } = await turns.next();
    const shown = { name: "report", tick: turn.tick, token: turn.token, missed: 0, valid: true };
    assert.deepEqual(JSON.parse(JSON.stringify(turn)), shown);
    assert.match(inspect(turn), /^Turn \{[^]*tick: \d+/);
    await turns.return();
    assert.equal(inspect(turns), `Turns { name: 'report', tick: ${turn.tick}, ended: true }`);
  });
});
