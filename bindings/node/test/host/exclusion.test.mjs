// The checks of mutual exclusion can fail: they notice locks that do not work.
import assert from "node:assert/strict";
import { forEachStore, key } from "../support/stores.mjs";
import { test } from "../support/test.mjs";
import { pause, steady } from "../support/wait.mjs";

/** A room for one visitor at a time. */
class Room {
  /** The visitors inside: for each, a function that says if the lock is theirs, as far as they know. */
  #inside = new Set();
  /** How often a visitor came in while another was inside. */
  overlaps = 0;
  /** How often several visitors believed at once that they had the lock. */
  conflicts = 0;
  tokens = [];
  /** How many leases were over at the end of the visit. */
  lost = 0;

  async visit({ token, valid }, stay) {
    this.#inside.add(valid);
    this.overlaps += this.#inside.size > 1 ? 1 : 0;
    const until = performance.now() + stay;
    while (performance.now() < until) {
      const believe = [...this.#inside].filter((valid) => valid());
      this.conflicts += believe.length > 1 ? 1 : 0;
      await pause(5);
    }
    this.tokens.push(token);
    this.#inside.delete(valid);
  }
}

const TTL = 800;

/** Tries up to five times until the check notices, because a machine that stalls may prevent it. */
async function until(isSo, attempt) {
  for (let tries = 1; ; tries++) {
    const room = await attempt();
    if (isSo(room) || tries === 5) {
      return room;
    }
  }
}

/** Several visitors enter in turn, by `acquire`. Two of them once stay longer than the time to live. */
async function contend(acquire, long = 2.25 * TTL) {
  const room = new Room();
  const visitor = async (i) => {
    for (let round = 0; round < 3; round++) {
      const lease = await acquire(i);
      await room.visit(lease, round === 1 && i < 2 ? long : 10);
      await lease.release().catch((error) => {
        assert.equal(error.code, "notHeld");
        room.lost += 1;
      });
    }
  };
  await Promise.all(Array.from({ length: 4 }, (_, i) => visitor(i)));
  return room;
}

const ofLease = (lease) => ({
  token: lease.token,
  valid: () => lease.valid,
  release: () => lease.release(),
});

const bothSeen = ({ overlaps, conflicts }) => overlaps > 0 && conflicts > 0;

forEachStore((store) => {
  test("a lock keeps them apart, also beyond its time to live", async (t) => {
    const name = store.name();
    const lockers = await Promise.all(Array.from({ length: 4 }, () => store.hearing()));
    const acquire = async (i) => ofLease(await lockers[i].lock(name, { ttl: 3_000 }).acquire());
    const rooms = [];
    await steady(t, async () => {
      const room = await contend(acquire, 3_750);
      rooms.push(room);
      assert.equal(room.lost, 0, "they are renewed");
    });
    // Over all attempts. A visitor may outstay a lease that was lost because the machine stalled.
    for (const { conflicts, lost, overlaps } of rooms) {
      assert.equal(conflicts, 0, "only one at a time believes to have it");
      assert.ok(lost > 0 || overlaps === 0, `${overlaps} came in while another was there`);
    }
    const { tokens } = rooms.at(-1);
    assert.deepEqual(tokens, [...tokens].sort((a, b) => a - b));
  });

  test("a fixed lease that is outstayed is not valid any more when another is in", async () => {
    // A visitor cannot be prevented from staying too long, but it can know.
    const name = store.name();
    const lockers = await Promise.all(Array.from({ length: 4 }, () => store.hearing()));
    const room = await contend(async (i) => {
      return ofLease(await lockers[i].lock(name, { ttl: TTL, fixed: true }).acquire());
    });
    assert.ok(room.overlaps > 0, "the check notices");
    assert.equal(room.conflicts, 0, "only one at a time believes to have it");
  });

  test("the negative control: a re-entrant handle for all of them is no lock", async () => {
    const lock = (await store.locker()).lock(store.name(), { ttl: TTL, reentrant: true });
    const room = await contend(async () => ofLease(await lock.acquire()));
    assert.ok(room.overlaps > 0, "the check notices");
  });

  if (store.isMemory) {
    return;
  }

  test("the negative control: SET NX with a time to live and no renewal is no lock", async () => {
    const name = key(store.name());
    const enter = async () => {
      const mine = Math.random();
      while ((await store.server.command("SET", name, mine, "NX", "PX", TTL)) === null) {
        await pause(5);
      }
      return { token: mine, valid: () => true, release: () => store.server.command("DEL", name) };
    };
    const room = await until(bothSeen, () => contend(enter));
    assert.ok(room.overlaps > 0, "two are in at once");
    assert.ok(room.conflicts > 0, "and none of them knows");
  });

  test("the negative control: a holder that does not look believes too long", async () => {
    const name = store.name();
    const [one, two] = [await store.locker(), await store.locker()];
    const room = await until(bothSeen, async () => {
      const lease = await one.lock(name, { ttl: TTL, fixed: true }).acquire();
      const both = new Room();
      const late = both.visit({ token: lease.token, valid: () => true }, 2 * TTL);
      const next = await two.lock(name).acquire();
      await both.visit(ofLease(next), 50);
      await Promise.all([late, next.release()]);
      assert.equal(lease.valid, false, "the lease itself knew");
      return both;
    });
    assert.ok(bothSeen(room), "the check notices");
  });
});
