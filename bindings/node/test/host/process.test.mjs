// The tests of what keeps a process alive, what it leaves behind, and how it copes with a blocked event loop.
import assert from "node:assert/strict";
import { after, before, describe } from "node:test";
import { fileURLToPath } from "node:url";
import { startNode } from "../support/program.mjs";
import { startRedis } from "../support/redis.mjs";
import { aborted, clients, collect, forEachStore, inThread, isHeld, key } from "../support/stores.mjs";
import { test } from "../support/test.mjs";
import { awake, block, pause, waitFor } from "../support/wait.mjs";

const child = fileURLToPath(new URL("child.mjs", import.meta.url));
const ours = [...clients, "thread"].map((kind) => `connect:${kind}`);

describe("a process", { concurrency: 3 }, () => {
  let server;
  let names = 0;
  before(async () => {
    server = await startRedis();
  });
  after(() => server.stop());

  const start = (how, what, { url = server.url, name = `name ${(names += 1)}` } = {}) =>
    Object.assign(startNode(child, how, url, what, name), { name });
  const held = (name) => isHeld(server, key(name));
  const free = (name, limit) => waitFor(async () => !(await held(name)), limit, `${name} is free`);

  for (const how of ["memory", ...clients, ...ours]) {
    for (const what of ["idle", "released"]) {
      test(`${how}: ends by itself, ${what}`, async () => {
        // Catches: a timer or socket of this package that keeps a script from ending.
        const program = start(how, what);
        await program.says("done");
        const begin = awake();
        assert.equal(await program.end(), 0, program.output());
        assert.ok(awake() - begin < 3_000, "at once");
        assert.equal(program.lines.at(-1), "exit 0");
        if (what === "idle") {
          assert.equal(program.lines.filter((line) => line === "event acquired").length, 2, program.output());
        }
      });
    }
  }

  for (const how of ["memory", ...ours]) {
    test(`${how}: ends after a shutdown`, async () => {
      const program = start(how, "shutdown");
      assert.equal(await program.end(), 0, program.output());
      if (how !== "memory") {
        assert.equal(await held(program.name), false, "it was freed before");
      }
    });
  }

  for (const how of ["memory", ...ours]) {
    test(`${how}: is warned of a lease that alone keeps it alive`, async () => {
      // Catches a holder whose process ends too early, and a script that hangs at its end and does not say why.
      const [program, busy] = [start(how, "hold"), start(how, "busy")];
      const token = await program.says("held");
      await busy.says("held");
      const warned = () => program.output().match(/LeaseholdWarning: .*/g) ?? [];
      await waitFor(() => warned().length > 0, 20_000, "the warning");
      // Until the lease was renewed again.
      await pause(2_000);
      assert.equal(warned().length, 1, program.output());
      const words = `only the lease on ${JSON.stringify(program.name)} with token ${token} seems to keep this process alive; `;
      assert.ok(warned()[0].includes(words), program.output());
      assert.ok(program.running && busy.running);
      assert.doesNotMatch(busy.output(), /Warning/);
      for (const each of [program, busy]) {
        each.kill();
        await each.end();
      }
    });
  }

  for (const how of ours) {
    test(`${how}: stays for a waiter, and also while the server is away`, async (t) => {
      const lone = await startRedis();
      t.after(() => lone.stop());
      const holder = start(how, "hold", { url: lone.url, name: "x" });
      await holder.says("held");
      const program = start(how, "wait", { url: lone.url, name: "x" });
      await program.says("waiting");
      await pause(1_200);
      assert.ok(program.running, program.output());
      holder.kill();
      await program.says("held");
      await pause(200);
      await lone.kill();
      await pause(500);
      assert.ok(program.running, program.output());
      program.kill();
      await Promise.all([program.end(), holder.end()]);
    });

    test(`${how}: ends once its lease is lost and nobody waits`, async (t) => {
      const lone = await startRedis();
      t.after(() => lone.stop());
      const program = start(how, "hold", { url: lone.url, name: "x" });
      await program.says("held");
      await lone.kill();
      assert.equal(await program.says("lost"), "expired");
      assert.equal(await program.end(), 0, program.output());
    });
  }

  for (const how of [...clients, ...ours]) {
    test(`${how}: ends after a shutdown whose release was not confirmed`, async (t) => {
      // Catches a process that lives until its lease would have expired.
      const lone = await startRedis();
      t.after(() => lone.stop());
      const program = start(how, "unconfirmed", { url: lone.url, name: "x" });
      await program.says("held");
      await lone.kill();
      await program.says("refused", 30_000);
      await program.says("done", 30_000);
      assert.equal(await program.end(), 0, program.output());
    });
  }

  for (const how of clients) {
    test(`${how}: leaves its lease to its time to live if it exits`, async () => {
      const program = start(how, "exit");
      await program.says("held");
      assert.equal(await program.end(), 3);
      assert.ok(await held(program.name));
      await free(program.name, 8_000);
    });

    test(`${how}: frees its lease at once if it shuts down at SIGTERM`, async () => {
      const program = start(how, "sigterm");
      await program.says("held");
      program.kill("SIGTERM");
      assert.equal(await program.says("lost"), "shutdown");
      assert.equal(await program.end(), 0, program.output());
      assert.equal(await held(program.name), false);
    });

    test(`${how}: no rejection is unhandled in any failure`, async (t) => {
      // Such a rejection would end the process with an exit code.
      const lone = await startRedis();
      t.after(() => lone.stop());
      const program = start(how, "failures", { url: lone.url, name: "x" });
      await program.says("held");
      await pause(300);
      for (const act of ["DEL", "SCRIPT", "CLIENT", "kill"]) {
        const acts = {
          DEL: () => lone.command("DEL", key("x")),
          SCRIPT: () => lone.command("SCRIPT", "FLUSH"),
          CLIENT: () => lone.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"),
          kill: () => lone.kill(),
        };
        await acts[act]();
        await pause(300);
      }
      assert.equal(await program.end(), 0, program.output());
      assert.equal(program.lines.at(-1), "exit 0");
      assert.equal(program.lines.filter((line) => line.startsWith("failed")).length, 2, program.output());
    });
  }
});

forEachStore((store) => {
  test("an event loop that stands still for longer than the lease", async () => {
    // Catches: a holder that continues after the pause as if nothing had happened.
    const lock = (await store.hearing()).lock(store.name(), { ttl: 2_000 });
    const lease = await lock.acquire();
    const { signal } = lease;
    const events = collect(lock.events());
    await pause(150);
    block(lease.remaining + 200);
    assert.equal(lease.valid, false, "at the first look, whatever ran or did not run since");
    assert.equal(lease.remaining, 0);
    assert.equal(signal.aborted, false, "nothing had a chance to run");
    await new Promise((resolve) => setImmediate(resolve));
    if (!signal.aborted) {
      await new Promise((resolve) => setTimeout(resolve, 0));
    }
    assert.ok(signal.aborted, "by the next turn");
    assert.equal((await aborted(signal)).reason, "expired");
    await waitFor(() => events.at(-1)?.type === "lost");
    await assert.rejects(lease.release(), { code: "notHeld" });
    const next = await lock.acquire();
    assert.ok(next.token > lease.token);
    await next.release();
  });

  test("an event loop that stands still for less than the lease", async () => {
    const lock = (await store.hearing()).lock(store.name(), { ttl: 4_000 });
    const lease = await lock.acquire();
    for (let i = 0; i < 3; i++) {
      block(1_500);
      assert.ok(lease.valid, `after ${i + 1}`);
      await waitFor(() => lease.remaining > 3_000, 1_000, "it is renewed in between");
    }
    await lease.release();
  });

  test("a waiter whose event loop stands still is passed over or served, and nothing is left", async () => {
    const name = store.name();
    const holder = await store.admin.lock(name, { ttl: 5_000 }).acquire();
    const waiting = (await store.hearing()).lock(name, { ttl: 1_500 }).acquire();
    await store.inLine(name, 1);
    const released = holder.release();
    block(2_000);
    await released;
    const lease = await waiting;
    assert.ok(lease.valid, "what is handed out is not over already");
    await lease.release();
    await store.nothingLeft(name);
  });
}, { only: inThread });
