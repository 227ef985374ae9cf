// Tests for every database with asynchronous calls: the same as tests/guards/tests/sql/checks.rs.
import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { startProgram } from "../support/program.mjs";
import { test } from "../support/test.mjs";
import { pause } from "../support/wait.mjs";
import { fence, file } from "./bundle.mjs";
import { conforms, dawdle, fails, noticed, refused } from "./conformance.mjs";
import { createTables, guarded, reading, write } from "./sql.mjs";

const { accepted, check, createFenceTable, doneIn, fencedTransaction, StaleTokenError } = fence;

let names = 0;
const unique = (what) => `${what} ${(names += 1)}`;

/** The milliseconds in which something must not happen. */
const STILL = 150;

/** Checks that a promise does not settle for a while. */
export async function waits(promise) {
  const still = Symbol("still");
  promise.catch(() => {});
  assert.equal(await Promise.race([promise, pause(STILL).then(() => still)]), still, "it did not wait");
}

/**
 * Runs all tests. `base()` gives: `db` of sql.mjs; `pool` and `other`, two pools of one database; `single()`,
 * which resolves to a new connection; and `options` for another process.
 */
export function checkAll(base) {
  test("the table is made once", () => tableIsMade(base()));
  test("the suite, with pools", async () => {
    const { db, pool, other } = base();
    await createTables(db, pool);
    for (const isolation of db.isolations) {
      const [one, two] = [pool, other].map((each) => guarded(db, each, isolation, pool));
      const store = { ...one, write: (r, t, v) => (Number(t) % 2 ? one : two).write(r, t, v) };
      await conforms(store, `fence table, ${isolation ?? "by default"}`, 4);
    }
  });
  test("the suite, with single connections", () => singleConnections(base()));
  test("the suite, with the token in a row of its own", () => conforms(ownRow(base()), "own row", 4));
  test("two first writers race", () => firstWritersRace(base()));
  test("holders wait for each other", () => holdersWait(base()));
  test("checks in a transaction of one's own", () => checksInside(base()));
  test("a job's tick takes effect once", () => tickOnce(base()));
  test("runners of one tick wait for each other", () => runnersWait(base()));
  test("a tick is recorded in an open transaction only", () => ticksInside(base()));
  test("a refusal ends the transaction", () => refusalEnds(base()));
  test("one transaction at a time on a connection", () => oneAtATime(base()));
  test("names are compared byte by byte", () => distinctNames(base()));
  test("bad arguments", () => badArguments(base()));
  test("a writer that is killed leaves nothing half done", () => killed(base()));
  test("the suite notices a check before the transaction", () => checkedBefore(base()));
}

/** Catches a missing table that causes a puzzling database error, and `IF NOT EXISTS` races. */
async function tableIsMade({ pool, other }) {
  await fails(fencedTransaction(pool, "a", 1, () => {}), "config", /createFenceTable/);
  await Promise.all(Array.from({ length: 8 }, (_, index) => createFenceTable(index % 2 ? pool : other)));
  await fencedTransaction(pool, "kept", 5, () => {});
  await createFenceTable(other);
  const mine = new Error("mine");
  const failing = fencedTransaction(pool, "kept", 6, () => Promise.reject(mine));
  await assert.rejects(failing, (error) => error === mine);
  await refused(fencedTransaction(pool, "kept", 4, () => {}), { highest: 5 });
  assert.equal(await fencedTransaction(pool, "kept", "5", async () => "done"), "done");
}

async function singleConnections({ db, pool, single }) {
  const connections = await Promise.all([single(), single()]);
  // On one connection, one after the other, as the documentation says.
  const queues = connections.map((connection) => ({ ...guarded(db, connection), last: Promise.resolve() }));
  const store = {
    ...reading(db, pool),
    write: (resource, token, value) => {
      const queue = queues[Number(token) % 2 ? 0 : 1];
      const done = queue.last.then(() => queue.write(resource, token, value));
      queue.last = done.catch(() => {});
      return done;
    },
  };
  await conforms(store, "single", 4);
}

/** A store with the token in the program's own row. */
function ownRow({ db, pool }) {
  const run = async (tx, sql, args) => {
    if (db.name === "postgres") {
      let index = 0;
      const text = sql.replace(/\?/g, () => `$${(index += 1)}`);
      return (await tx.query(text, args)).rowCount;
    }
    return (await tx.query(sql, args))[0].affectedRows;
  };
  const connect = async () => {
    const tx = await (pool.getConnection?.() ?? pool.connect());
    await tx.query(db.begin);
    return tx;
  };
  const attempt = async (resource, token, value) => {
    const tx = await connect();
    try {
      const update = "UPDATE own SET value = ?, fence = ? WHERE resource = ? AND fence <= ?";
      const written = await run(tx, update, [value, token, resource, token]);
      const read = `SELECT fence FROM own WHERE resource = ?${db.current}`;
      const [row] = await db.query(tx, read, [resource]);
      assert.equal(accepted(written, resource, token, row?.[0]), true, "there is a row");
      await write(db, tx, resource, token, value);
      await tx.query("COMMIT");
    } catch (error) {
      await tx.query("ROLLBACK");
      throw error;
    } finally {
      tx.release();
    }
  };
  return {
    ...reading(db, pool),
    write: async (resource, token, value) => {
      // `accepted` reports an invalid argument before it is bound.
      accepted(1, resource, token);
      const number = Number(token.token ?? token);
      const ignore = db.name === "mysql" ? ["IGNORE", ""] : ["", " ON CONFLICT DO NOTHING"];
      const insert = `INSERT ${ignore[0]} INTO own (resource, value, fence) VALUES (?, 0, 0)${ignore[1]}`;
      await db.query(pool, insert, [resource]);
      for (;;) {
        try {
          return await attempt(resource, number, value);
        } catch (error) {
          if (!db.isRace(error)) {
            throw error;
          }
        }
      }
    },
  };
}

/** Catches a check that finds no row and then writes one. */
async function firstWritersRace({ db, pool, other }) {
  for (let round = 0; round < 60; round += 1) {
    const isolation = db.isolations[round % db.isolations.length];
    const resource = unique("first");
    const [older, newer] = await Promise.allSettled([
      guarded(db, pool, isolation).write(resource, 33, 33),
      guarded(db, other, isolation).write(resource, 34, 34),
    ]);
    assert.equal(newer.status, "fulfilled", `${newer.reason}`);
    const both = older.status === "fulfilled";
    assert.ok(both || older.reason instanceof StaleTokenError, `${older.reason?.stack}`);
    const expected = both ? [[33, 33], [34, 34]] : [[34, 34]];
    assert.deepEqual(await reading(db, pool).history(resource), expected, `round ${round}`);
  }
}

/** Opens a transaction that stays open until it is told to end. */
function held(pool, resource, token, act = () => {}) {
  let end;
  const ended = new Promise((resolve, reject) => {
    end = (error) => (error ? reject(error) : resolve());
  });
  let opened;
  const open = new Promise((resolve) => {
    opened = resolve;
  });
  const done = fencedTransaction(pool, resource, token, async (tx) => {
    const result = await act(tx);
    opened();
    await ended;
    return result;
  });
  done.catch(opened);
  return { open, end, done };
}

/** Catches a check that does not hold the row until the end of the transaction. */
async function holdersWait({ db, pool, other }) {
  const resource = unique("wait");
  const old = held(pool, resource, 33, (tx) => write(db, tx, resource, 33, 1));
  await old.open;
  const count = (tx) => db.query(tx, "SELECT writes FROM register WHERE resource = ?", [resource]);
  const next = held(other, resource, 34, count);
  await waits(next.open);
  old.end();
  await old.done;
  await next.open;
  const late = fencedTransaction(pool, resource, 33, () => {});
  await waits(late);
  next.end();
  assert.deepEqual(await next.done, [[1]], "it sees what the older wrote");
  await refused(late, { resource, offered: 33, highest: 34 });
  // A token that is rolled back was never accepted.
  const newest = held(pool, resource, 36);
  await newest.open;
  const middle = fencedTransaction(other, resource, 35, () => {});
  newest.end(new Error("rolled back"));
  await assert.rejects(newest.done, /rolled back/);
  await middle;
}

async function checksInside({ db, pool, single }) {
  const [one, two] = [unique("one"), unique("two")];
  const connection = await single();
  await connection.query(db.begin);
  await check(connection, one, 7);
  await check(connection, two, 8);
  await check(connection, two, { token: 8 });
  await refused(check(connection, two, 6), { resource: two, offered: 6, highest: 8 });
  await connection.query("COMMIT");
  for (const [resource, highest] of [[one, 7], [two, 8]]) {
    await refused(fencedTransaction(pool, resource, 1, () => {}), { highest });
  }
  // Such a check would protect nothing, because the later statements are not in its transaction.
  await fails(check(connection, one, 9), "config", /none is open/);
  await refused(fencedTransaction(pool, one, 6, () => {}), { highest: 7 });
  await fails(check(pool, one, 9), "config", /pool/);
  await fails(check(connection, one, 0), "config", /fencing token/);
}

/** Does a tick's work, up to the commit, in a database with asynchronous calls. */
const work = (db, pool, turn, act = () => {}) =>
  fencedTransaction(pool, turn.name, turn, async (tx) => {
    const written = await doneIn(tx, turn);
    if (written) await write(db, tx, turn.name, turn, turn.tick);
    await act(tx);
    return written;
  });

/** Catches a record that is missing, is left by a rollback, or does not count for the next runner. */
async function tickOnce({ db, pool }) {
  const name = unique("job");
  const turn = (token, tick) => ({ name, tick, token });
  const mine = new Error("mine");
  const failing = work(db, pool, turn(1, 7), () => Promise.reject(mine));
  await assert.rejects(failing, (error) => error === mine);
  assert.equal(await work(db, pool, turn(2, 7)), true, "a rollback leaves no record");
  assert.equal(await work(db, pool, turn(2, 7)), false);
  // The next runner, after the first one died before the locks' store knew of its work.
  assert.equal(await work(db, pool, turn(3, 7)), false);
  assert.equal(await work(db, pool, turn(4, 6)), false, "an earlier tick counts as completed");
  assert.equal(await work(db, pool, turn("5", Number.MAX_SAFE_INTEGER)), true);
  await refused(work(db, pool, turn(4, 8)), { resource: name, offered: 4, highest: 5 });
  const seen = await reading(db, pool).history(name);
  assert.deepEqual(seen.map(([token]) => token), [2, 5]);
  // The negative control: the token alone lets the next runner repeat the work.
  const bare = unique("job");
  for (const token of [1, 2]) {
    await fencedTransaction(pool, bare, token, (tx) => write(db, tx, bare, token, 7));
  }
  assert.deepEqual(await reading(db, pool).history(bare), [[1, 7], [2, 7]]);
}

/** Catches two transactions of one tick that both see no record. */
async function runnersWait({ db, pool, other }) {
  const name = unique("job");
  const old = held(pool, name, 1, (tx) => doneIn(tx, { name, tick: 7, token: 1 }));
  await old.open;
  const next = work(db, other, { name, tick: 7, token: 2 });
  await waits(next);
  old.end();
  assert.deepEqual([await old.done, await next], [true, false]);
}

async function ticksInside({ db, pool, single }) {
  const connection = await single();
  const turn = { name: unique("job"), tick: 7, token: 1 };
  await fails(doneIn(connection, turn), "config", /none is open/);
  await fails(doneIn(pool, turn), "config", /doneIn\(\) needs .* a pool/);
  await connection.query(db.begin);
  assert.equal(await doneIn(connection, turn), true);
  await connection.query("ROLLBACK");
  await connection.query(db.begin);
  assert.equal(await doneIn(connection, turn), true);
  await connection.query("COMMIT");
  assert.equal(await work(db, pool, turn), false);
  for (const tick of [0, -1, 1.5, 2 ** 53, "7", undefined, null, 7n]) {
    await fails(doneIn(connection, { ...turn, tick }), "config", /tick/);
  }
  for (const wrong of [undefined, null, 7, {}, { ...turn, name: "a\0b" }, { ...turn, token: 0 }]) {
    await fails(doneIn(connection, wrong), "config");
  }
}

/** Catches a refusal that leaves the row locked, or a connection that does not return to its pool. */
async function refusalEnds({ pool, other, open }) {
  const resource = unique("refused");
  await fencedTransaction(pool, resource, 34, () => {});
  for (let round = 0; round < 50; round += 1) {
    let ran = false;
    const stale = fencedTransaction(pool, resource, 33, () => (ran = true));
    await refused(stale, { highest: 34 });
    assert.equal(ran, false, "the work was run");
    await fencedTransaction(other, resource, 34, () => {});
  }
  assert.equal(await open(pool), 0, "connections in use");
}

/** Catches two transactions that become one, and one that MySQL commits because another begins. */
async function oneAtATime({ db, pool, single }) {
  const connection = await single();
  const resource = unique("single");
  const first = held(connection, resource, 5, (tx) => write(db, tx, resource, 5, 1));
  await fails(fencedTransaction(connection, resource, 6, () => {}), "config", /open on this connection/);
  await first.open;
  await fails(fencedTransaction(connection, resource, 6, () => {}), "config", /open on this connection/);
  first.end(new Error("rolled back"));
  await assert.rejects(first.done, /rolled back/);
  await connection.query(db.begin);
  await write(db, connection, resource, 4, 2);
  await fails(fencedTransaction(connection, resource, 6, () => {}), "config", /open on this connection/);
  await connection.query("ROLLBACK");
  await fencedTransaction(connection, resource, 4, (tx) => write(db, tx, resource, 4, 3));
  assert.deepEqual(await reading(db, pool).history(resource), [[4, 3]]);
}

/** Names that a database may take for equal, and the longest name. */
async function distinctNames({ pool }) {
  const long = "é".repeat(256);
  const names = ["Wort", "wort", "wörtchen", "wortchen", "w ", "w", "7", "07", long, `${long.slice(0, 255)}x`];
  for (const [index, name] of names.entries()) {
    await fencedTransaction(pool, name, 10 - index, () => {});
  }
}

async function badArguments({ pool }) {
  await fails(fencedTransaction(pool, "a\0b", 1, () => {}), "config", /NUL/);
  for (const work of [undefined, null, 7, {}]) {
    await fails(fencedTransaction(pool, "a", 1, work), "config", /work/);
  }
  for (const isolation of ["", "SERIALIZABLE", "x; DROP TABLE register", null, 7]) {
    await fails(fencedTransaction(pool, "a", 1, () => {}, { isolation }), "config", /isolation/);
  }
  for (const database of [undefined, null, 7, "postgres://localhost", {}, () => {}, new Map()]) {
    await fails(fencedTransaction(database, "a", 1, () => {}), "config", /database/);
    await fails(createFenceTable(database), "config", /database/);
    await fails((async () => check(database, "a", 1))(), "config", /database/);
  }
}

/** Starts writer.mjs, and resolves when it has written. */
export async function startWriter(...args) {
  const path = fileURLToPath(new URL("writer.mjs", import.meta.url));
  const child = startProgram(process.execPath, [path, file, ...args]);
  await child.says("written", 60_000);
  return child;
}

/** Sends SIGKILL, and waits until the process is gone. */
export async function kill(child) {
  child.kill("SIGKILL");
  await child.end();
}

/**
 * Kills a process after its check and its write: nothing of them is there, not even its token, and the row is
 * free.
 */
async function killed({ db, pool, options }) {
  const resource = unique("killed");
  const child = await startWriter(db.name, JSON.stringify(options), resource, "40");
  await kill(child);
  await fencedTransaction(pool, resource, 39, (tx) => write(db, tx, resource, 39, 2));
  assert.deepEqual(await reading(db, pool).history(resource), [[39, 2]]);
}

/** The negative control of the suite: the check in one transaction, the write in another. */
async function checkedBefore({ db, pool }) {
  const store = {
    history: reading(db, pool).history,
    read: async () => 162,
    write: async (resource, token, value) => {
      await fencedTransaction(pool, resource, token, () => {});
      await dawdle(token);
      await db.query(pool, "INSERT INTO history (resource, token, value) VALUES (?, ?, ?)", [resource, token, value]);
    },
  };
  await noticed(store, unique("checked before"), 40, /accepted out of order/);
}
