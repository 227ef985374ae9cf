// The guard for SQLite, with better-sqlite3 and with node:sqlite, which Node has from 22.5 on. If an older
// Node runs the tests, they look for a newer one.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe } from "node:test";
import { fileURLToPath } from "node:url";
import { startNode } from "../support/program.mjs";
import { test } from "../support/test.mjs";
import { atExit } from "../support/wait.mjs";
import { fence, file as bundle } from "./bundle.mjs";
import { kill, startWriter, waits } from "./checks.mjs";
import { conforms, dawdle, fails, noticed, refused, sound } from "./conformance.mjs";
import { byHand, endsAreRefused, savepointsAreFine } from "./ended.mjs";
import { mixed } from "./mixed.mjs";
import { checkShapes } from "./shapes.mjs";
import { createTables, guarded, reading, sqlite as db, write } from "./sql.mjs";

const { accepted, check, createFenceTable, doneIn, fencedTransaction } = fence;

const hasOwn = (await import("node:sqlite").catch(() => undefined)) !== undefined;
const only = process.env.LEASEHOLD_TEST_SQLITE;

const kinds = {
  "better-sqlite3": async () => {
    const { default: Database } = await import("better-sqlite3");
    return (path, busy) => new Database(path, { timeout: busy });
  },
  "node:sqlite": async () => {
    const { DatabaseSync } = await import("node:sqlite");
    return (path, busy) => {
      const database = new DatabaseSync(path);
      database.exec(`PRAGMA busy_timeout = ${busy}`);
      return database;
    };
  },
};

for (const [kind, load] of Object.entries(kinds)) {
  if (only ? only === kind : kind !== "node:sqlite" || hasOwn) {
    // Both journal modes, which lock differently.
    for (const journal of ["WAL", "DELETE"]) {
      describe(`${kind}, ${journal}`, () => checkAll(kind, load, journal));
    }
  }
}

if (!hasOwn && !only) {
  test("node:sqlite, in a newer Node", { timeout: 400_000 }, (t) => {
    const path = fileURLToPath(new URL("../package/node_modules/node/bin/node", import.meta.url));
    const newer = process.env.LEASEHOLD_NEWER_NODE ?? path;
    if (!existsSync(newer)) {
      t.skip(`Node ${process.version} has no node:sqlite, and there is no newer one: npm ci in test/package`);
      return;
    }
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    const args = ["--test", "--test-reporter=spec", fileURLToPath(import.meta.url)];
    const options = { env: { ...env, LEASEHOLD_TEST_SQLITE: "node:sqlite" }, encoding: "utf8", timeout: 300_000 };
    const { status, signal, stdout, stderr } = spawnSync(newer, args, options);
    assert.equal(status, 0, `${signal} ${stdout}${stderr}`);
    assert.match(stdout, /pass [1-9]/);
  });
}

function close(database) {
  try {
    database.close();
  } catch {
    // A test has closed the database already.
  }
}

function checkAll(kind, load, journal) {
  const folder = mkdtempSync(join(tmpdir(), "leasehold-sqlite-"));
  atExit(() => rmSync(folder, { recursive: true, force: true }));
  const path = join(folder, "fence.db");
  const handles = [];
  let open;
  let database;
  let others;

  before(async () => {
    const make = await load();
    open = (where = path, busy = 2_000) => {
      const made = make(where, busy);
      made.exec(`PRAGMA journal_mode = ${journal}`);
      made.exec("PRAGMA synchronous = OFF");
      handles.push(made);
      return made;
    };
    database = open();
    others = [open(), open(), open()];
  });
  after(() => handles.forEach(close));

  test("the table is made once", async () => {
    await fails(fencedTransaction(database, "a", 1, () => {}), "config", /createFenceTable/);
    await Promise.all([database, ...others].map((each) => createFenceTable(each)));
    await createFenceTable(database);
    await fencedTransaction(database, "kept", 5, () => {});
    const mine = new Error("mine");
    const failing = fencedTransaction(database, "kept", 6, () => {
      throw mine;
    });
    await assert.rejects(failing, (error) => error === mine);
    await refused(fencedTransaction(database, "kept", 4, () => {}), { highest: 5 });
    assert.equal(await fencedTransaction(database, "kept", "5", () => "done"), "done");
  });

  test("the suite", async () => {
    await createTables(db, database);
    const stores = [database, ...others].map((each) => guarded(db, each));
    const write = (resource, token, value) =>
      (stores[Number(token) % 4] ?? stores[0]).write(resource, token, value);
    await conforms({ ...stores[0], write }, "fence table", 10);
  });

  test("the suite, with the token in a row of its own", async () => {
    await conforms(ownRow(database), "own row", 4);
  });

  // Only other processes can interfere here.
  test("writers of several processes", async () => {
    const tokens = [1, 2, 3, 4].map((first) => [first, first + 4, first + 8, first + 12]);
    const program = fileURLToPath(new URL("racer.mjs", import.meta.url));
    for (let round = 0; round < 2; round += 1) {
      const resource = `processes ${round}`;
      const children = tokens.map((own) => spawnRacer(program, [bundle, kind, path, resource, own.join()]));
      const told = (await Promise.all(children)).flat();
      sound(await reading(db, database).history(resource), new Map(told));
      const writes = await db.query(database, "SELECT writes FROM register WHERE resource = ?", [resource]);
      const total = told.reduce((sum, [, count]) => sum + count, 0);
      assert.deepEqual(writes, [[total]], "writes were lost");
    }
  });

  test("checks in a transaction of one's own", async () => {
    database.exec("BEGIN IMMEDIATE");
    assert.equal(check(database, "one", 7), undefined);
    check(database, "two", { token: 8 });
    check(database, "two", "8");
    assert.throws(() => check(database, "two", 6), { code: "staleToken", highest: 8 });
    await fails(fencedTransaction(database, "three", 1, () => {}), "config", /open on this connection/);
    database.exec("COMMIT");
    await refused(fencedTransaction(database, "one", 6, () => {}), { highest: 7 });
    // Such a check would protect nothing, because the later statements are not in its transaction.
    assert.throws(() => check(database, "one", 9), { code: "config" });
    assert.throws(() => check(database, "", 9), { code: "config" });
    await fencedTransaction(database, "one", 8, () => {});
    if (kind === "better-sqlite3") {
      database.transaction(() => check(database, "one", 9)).immediate();
      await refused(fencedTransaction(database, "one", 8, () => {}), { highest: 9 });
    }
  });

  // Catches a record that is missing, is left by a rollback, or does not count for the next runner.
  test("a job's tick takes effect once", async () => {
    const name = "job";
    const turn = (token, tick) => ({ name, tick, token });
    const work = (turn, act = () => {}) =>
      fencedTransaction(database, name, turn, (tx) => {
        const written = doneIn(tx, turn);
        if (written) write(db, tx, name, turn, turn.tick);
        act();
        return written;
      });
    const mine = new Error("mine");
    const failing = work(turn(1, 7), () => {
      throw mine;
    });
    await assert.rejects(failing, (error) => error === mine);
    assert.equal(await work(turn(2, 7)), true, "a rollback leaves no record");
    assert.equal(await work(turn(3, 7)), false);
    assert.equal(await work(turn(4, 6)), false);
    assert.equal(await work(turn(5, Number.MAX_SAFE_INTEGER)), true);
    await refused(work(turn(4, 8)), { resource: name, offered: 4, highest: 5 });
    const seen = await reading(db, database).history(name);
    assert.deepEqual(seen.map(([token]) => token), [2, 5]);
    assert.throws(() => doneIn(database, turn(5, 8)), { code: "config" });
    assert.throws(() => doneIn(database, turn(5, 0)), { code: "config" });
  });

  // Catches work that continues after the commit, outside of any transaction.
  test("the work must not be async", async () => {
    let ran = false;
    const late = async () => {
      ran = true;
    };
    await fails(fencedTransaction(database, "late", 5, late), "config", /async/);
    assert.equal(ran, false);
    const hidden = () => Promise.reject(new Error("nobody hears of it"));
    await fails(fencedTransaction(database, "late", 5, hidden), "config", /async/);
    await fencedTransaction(database, "late", 4, () => {});
  });

  test("names are compared byte by byte, and arguments are checked", async () => {
    const names = ["Wort", "wort", "wörtchen", "w ", "w", "7", "07", "é".repeat(256)];
    for (const [index, name] of names.entries()) {
      await fencedTransaction(database, name, 10 - index, () => {});
    }
    await fails(fencedTransaction(database, "a\0b", 1, () => {}), "config", /NUL/);
    await fails(fencedTransaction(database, "a", 1, undefined), "config", /work/);
    await fails(fencedTransaction(database, "a", 1, () => {}, { isolation: 1 }), "config", /isolation/);
  });

  // Catches a commit that succeeds although its writes were rolled back, or were written without the fence.
  test("a transaction that was ended is not committed", async () => {
    database.exec("CREATE TABLE once (id INTEGER PRIMARY KEY)");
    const twice = "INSERT OR ROLLBACK INTO once (id) VALUES (1), (1)";
    const passedOver = (...then) => (tx) => {
      assert.throws(() => tx.exec(twice), /UNIQUE/);
      then.forEach((sql) => tx.exec(sql));
    };
    await endsAreRefused({ db, pool: database }, [
      ...byHand("BEGIN IMMEDIATE"),
      { does: passedOver(), keeps: [2] },
      { does: passedOver("BEGIN IMMEDIATE"), keeps: [] },
    ]);
    await savepointsAreFine({ db, pool: database });
  });

  test("a writer that is killed leaves nothing half done", async () => {
    const child = await startWriter(kind, JSON.stringify(path), "killed", "40");
    const impatient = open(path, 10);
    const next = fencedTransaction(impatient, "killed", 39, (tx) => write(db, tx, "killed", 39, 2));
    await waits(next);
    await kill(child);
    await next;
    assert.deepEqual(await reading(db, database).history("killed"), [[39, 2]]);
  });

  test("Rust and Node fence one another", (t) => mixed(t, { db, pool: database, url: `sqlite:${path}` }));

  // The negative control of the suite: the check in one transaction, the write in another.
  test("the suite notices a check before the transaction", async () => {
    const store = {
      history: reading(db, database).history,
      read: async () => 162,
      write: async (resource, token, value) => {
        await fencedTransaction(database, resource, token, () => {});
        await dawdle(token);
        write(db, database, resource, token, value);
      },
    };
    await noticed(store, "checked before", 40, /accepted out of order/);
  });

  test("other tables are refused", async () => {
    const own = open(join(folder, "shapes.db"));
    await checkShapes("sqlite", own, (sql) => own.exec(sql));
    own.exec("PRAGMA query_only = ON");
    await fails(fencedTransaction(own, "a", 1, () => {}), "readOnly");
    own.close();
    await fails(fencedTransaction(own, "a", 1, () => {}), "shutdown");
  });
}

/** A store with the token in the program's own row. */
function ownRow(database) {
  return {
    ...reading(db, database),
    write: async (resource, token, value) => {
      accepted(1, resource, token);
      const number = Number(token.token ?? token);
      database.exec("BEGIN IMMEDIATE");
      try {
        const insert = "INSERT INTO own (resource, value, fence) VALUES (?, 0, 0) ON CONFLICT DO NOTHING";
        database.prepare(insert).run(resource);
        const update = "UPDATE own SET value = ?, fence = ? WHERE resource = ? AND fence <= ?";
        const { changes } = database.prepare(update).run(value, number, resource, number);
        const [row] = db.query(database, "SELECT fence FROM own WHERE resource = ?", [resource]);
        assert.equal(accepted(changes, resource, token, row[0]), true);
        write(db, database, resource, number, value);
        database.exec("COMMIT");
      } catch (error) {
        database.exec("ROLLBACK");
        throw error;
      }
    },
  };
}

/**
 * Runs writers in a process of their own. Resolves to their results: pairs of a token and how often it
 * passed.
 */
async function spawnRacer(program, args) {
  const child = startNode(program, ...args);
  assert.equal(await child.end(60_000), 0, child.output());
  return JSON.parse(child.lines[0]);
}
