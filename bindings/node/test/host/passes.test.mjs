// Passing a lease on, and accepting its ticket.
import assert from "node:assert/strict";
import { inspect } from "node:util";
import { LeaseholdError } from "../../dist/index.js";
import { forEachStore } from "../support/stores.mjs";
import { test } from "../support/test.mjs";
import { pause, within } from "../support/wait.mjs";

const config = { code: "config" };

forEachStore((store) => {
  test("a lease that was passed on is over, and its ticket gives the lock once", async () => {
    // Catches: a lease that still counts as held, or that a release, a renewal or a disposal ends at the store.
    const name = store.name();
    const [sender, receiver] = [await store.locker(), await store.locker()];
    const lock = sender.lock(name, { ttl: 5_000 });
    const events = lock.events();
    const lease = await lock.acquire();
    const ticket = await lease.pass();
    assert.deepEqual([lease.valid, lease.remaining, lock.held, lease.holdCount], [false, 0, false, 0]);
    for (const call of [() => lease.pass(), () => lease.renew(), () => lease.wanted()]) {
      await assert.rejects(call(), { code: "notHeld" });
    }
    await lease.release();
    await lease[Symbol.asyncDispose]();
    assert.equal((await store.admin.inspect(name)).holder?.token, lease.token);
    assert.deepEqual([ticket.name, ticket.token, ticket.ttl], [name, lease.token, 5_000]);
    assert.equal((await events.next()).value.type, "acquired");
    assert.deepEqual((await events.next()).value, { type: "passed", name, token: lease.token });
    await events.return();

    const next = await receiver.accept(ticket);
    assert.ok(next.token > lease.token && next.valid);
    await assert.rejects(sender.accept(String(ticket)), { code: "notHeld" });
    await next.release();
    await store.nothingLeft(name);
  });

  test("tickets hide their text from consoles, and are their text in JSON", async () => {
    const lease = await (await store.locker()).lock(store.name()).acquire();
    const ticket = await lease.pass();
    const text = String(ticket);
    const secret = text.split(":").at(-1);
    assert.equal(JSON.parse(JSON.stringify({ ticket })).ticket, text);
    assert.match(text, /^leasehold-ticket:1:[!-~]+$/);
    assert.match(inspect(ticket), /Ticket \{ name: 'name \d+', token: \d+ \}/);
    assert.ok(!inspect({ ticket }, { depth: 5, showHidden: true }).includes(secret));
    assert.throws(() => Object.create(ticket).toString(), config);
    await (await store.admin.accept(text)).release();
  });

  test("a ticket with a damaged text is refused, and the error does not tell it", async () => {
    // Catches: a crash, another kind of error, or a secret in a log.
    const lease = await (await store.locker()).lock(store.name()).acquire();
    const text = String(await lease.pass());
    const secret = text.split(":").at(-1);
    const bad = [
      undefined, null, 7, {}, [], Symbol("ticket"), "", "x", " " + text, text + "\n", text.slice(0, -1), text.slice(0, 40),
      text.replace(":1:", ":2:"), text.replace(secret, "0".repeat(32)), text.replace(secret, secret.toUpperCase() + "G"),
      text + "x".repeat(100_000), text.replace("name", "\ud800"), { toString() { throw new Error(text); } },
    ];
    for (const given of bad) {
      const error = await store.admin.accept(given).catch((reason) => reason);
      assert.ok(error instanceof LeaseholdError && error.code === "config", inspect(error));
      assert.ok(typeof given === "object" || !error.message.includes(secret.slice(0, 12)), error.message);
    }
    await assert.rejects(store.admin.accept(text, { signall: 1 }), config);
    await (await store.admin.accept(text)).release();
  });

  test("an accept can be aborted, and leaves no lock behind", async () => {
    const name = store.name();
    const ticket = await (await (await store.locker()).lock(name).acquire()).pass();
    const controller = new AbortController();
    const accepted = store.admin.accept(ticket, { signal: controller.signal });
    const ended = assert.rejects(accepted, /given up/);
    controller.abort(new Error("given up"));
    await within(ended, 5_000, "the end of the call");
    await assert.rejects(store.admin.accept(ticket, { signal: controller.signal }), /given up/);
    // Either the store never got the request, and the ticket is good, or the lock was freed.
    await pause(50);
    await store.admin.accept(ticket).then((lease) => lease.release(), (error) => assert.equal(error.code, "notHeld"));
    await store.nothingLeft(name);
  });

  test("a lock accepts with its own options", async () => {
    const name = store.name();
    const ticket = await (await (await store.locker()).lock(name, { ttl: 60_000 }).acquire()).pass();
    const other = await store.locker();
    await assert.rejects(other.lock(store.name()).accept(ticket), config);
    const lock = other.lock(name, { ttl: 2_000, reentrant: true });
    const lease = await lock.accept(ticket);
    assert.ok(lock.held && lease.remaining <= 2_000);
    const shared = await lock.acquire();
    assert.equal(shared.token, lease.token);
    await assert.rejects(shared.pass(), config);
    assert.ok(shared.valid && lease.valid, "the lease goes on after a refusal");
    await shared.release();
    await (await lock.accept(await lease.pass())).release();
    await store.nothingLeft(name);
  });

  test("a turn of a job is not passed on", async () => {
    const job = (await store.locker()).job(store.name());
    const { turn } = await job.claim(7);
    await assert.rejects(turn.lease.pass(), config);
    await turn.done();
  });

  test("a process that passed its last lease on may end", async () => {
    // Catches: a lease that keeps the locker busy, so that shutdown waits or releases.
    const name = store.name();
    const sender = await store.locker();
    const lease = await sender.lock(name).acquire();
    const ticket = await lease.pass();
    await within(sender.shutdown(), 5_000, "the shutdown");
    const { holder } = await store.admin.inspect(name);
    assert.equal(holder?.token, lease.token);
    await (await store.admin.accept(ticket)).release();
  });
});
