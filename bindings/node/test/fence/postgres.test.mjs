// The guard for Postgres, with pg.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import pg from "pg";
import { startPostgres } from "../support/postgres.mjs";
import { test } from "../support/test.mjs";
import { fence } from "./bundle.mjs";
import { checkAll } from "./checks.mjs";
import { fails, refused } from "./conformance.mjs";
import { byHand, endsAreRefused, savepointsAreFine } from "./ended.mjs";
import { mixed } from "./mixed.mjs";
import { checkShapes } from "./shapes.mjs";
import { postgres as db } from "./sql.mjs";

const { check, createFenceTable, fencedTransaction } = fence;

let server;
let pool;
let other;
const ends = [];

function poolOf(options) {
  const made = new pg.Pool({ max: 20, ...server.options, ...options });
  made.on("error", () => {});
  ends.push(() => made.end().catch(() => {}));
  return made;
}

async function single(options) {
  const client = new pg.Client({ ...server.options, ...options });
  client.on("error", () => {});
  ends.push(() => client.end().catch(() => {}));
  await client.connect();
  return client;
}

before(async () => {
  server = await startPostgres();
  pool = poolOf();
  other = poolOf();
});
after(async () => {
  // Not awaited, because they also end when the server is gone.
  ends.forEach((end) => void end());
  await server?.stop();
});

checkAll(() => ({
  db,
  pool,
  other,
  single,
  open: async ({ totalCount, idleCount }) => totalCount - idleCount,
  options: server.options,
}));

test("Rust and Node fence one another", (t) => mixed(t, { db, pool, url: server.url }));

// Catches a commit that succeeds although its writes were rolled back, or were written without the fence.
test("a transaction that was ended is not committed", async () => {
  const failed = (tx) => tx.query("SELECT 1 / 0").catch(() => {});
  await endsAreRefused({ db, pool }, [
    ...byHand("BEGIN"),
    { does: ["COMMIT AND CHAIN"], keeps: [1] },
    { does: failed, keeps: [], how: "store", says: /nothing was written/ },
  ]);
  await savepointsAreFine({ db, pool });
  // Statements that commit in MySQL are part of the transaction in Postgres.
  await fencedTransaction(pool, "ddl", 7, (tx) => tx.query("CREATE TABLE made_inside (id INT)"));
});

test("other tables are refused", () => checkShapes("postgres", pool, (sql) => pool.query(sql)));

// Catches a table of a user's own role, or of the database's owner, that is taken for a stranger's.
test("a table may belong to a role of this user's", async () => {
  const run = (sql) => pool.query(sql);
  await run("CREATE ROLE fence_group");
  await run("CREATE ROLE fence_member IN ROLE fence_group");
  const member = await single();
  await run("ALTER TABLE leasehold_fence OWNER TO fence_group");
  await member.query("SET ROLE fence_member");
  await createFenceTable(member);
  await run("ALTER TABLE leasehold_fence OWNER TO CURRENT_USER");
  await createFenceTable(member);
});

test("work that goes on after an error is told that nothing was written", async () => {
  const work = async (tx) => {
    await tx.query("INSERT INTO history (resource, token, value) VALUES ('swallowed', 1, 1)");
    await tx.query("SELECT nonsense").catch(() => {});
  };
  await fails(fencedTransaction(pool, "swallowed", 7, work), "store", /nothing was written/);
  await fencedTransaction(pool, "swallowed", 6, () => {});
  const { rows } = await pool.query("SELECT * FROM history WHERE resource = 'swallowed'");
  assert.equal(rows.length, 0);
});

// Catches a connection that breaks while the program does something else, and ends the process.
test("a connection that is lost inside of the work is an error and no more", async () => {
  const lose = async (tx) => {
    // Listens before the cause, because the connection may end before the reply arrives.
    const ended = new Promise((resolve) => tx.once("end", resolve));
    const { rows } = await tx.query("SELECT pg_backend_pid() AS pid");
    await other.query("SELECT pg_terminate_backend($1)", [rows[0].pid]);
    await ended;
  };
  const work = async (tx) => {
    await lose(tx);
    await tx.query("SELECT 1");
  };
  await assert.rejects(fencedTransaction(pool, "lost", 9, work), /terminat|closed|queryable/i);
  await fails(fencedTransaction(pool, "lost", 8, lose), "unavailable", /unknown/);
  await fencedTransaction(pool, "lost", 7, () => {});
});

// As the documentation advises: a holder that stalls does not block the next one forever.
test("limits of the database end a wait", async () => {
  const impatient = poolOf({ options: "-c lock_timeout=50ms" });
  await fencedTransaction(pool, "limits", 33, async () => {
    await fails(fencedTransaction(impatient, "limits", 34, () => {}), "unavailable");
  });
});

test("a refused commit is reported as such", async () => {
  await pool.query("CREATE TABLE late (id INT UNIQUE DEFERRABLE INITIALLY DEFERRED)");
  const twice = (tx) => tx.query("INSERT INTO late VALUES (1), (1)");
  await fails(fencedTransaction(pool, "late", 5, twice), "store", /refused the commit, and nothing/);
  await fencedTransaction(pool, "late", 4, () => {});
});

// Catches type parsers that the program set up for its own numbers.
test("parsers of the program's own do not matter", async () => {
  const parser = { getTypeParser: (oid) => (oid === 20 ? (text) => BigInt(text) : pg.types.getTypeParser(oid)) };
  const own = poolOf({ types: parser });
  await createFenceTable(own);
  await fencedTransaction(own, "types", Number.MAX_SAFE_INTEGER, () => {});
  await refused(fencedTransaction(own, "types", 5, () => {}), { highest: Number.MAX_SAFE_INTEGER });
});

test("rights, passwords and databases that are gone", async () => {
  const client = await single();
  await client.query("BEGIN READ ONLY");
  await fails(check(client, "a", 1), "readOnly");
  await client.query("ROLLBACK");
  await pool.query("CREATE ROLE clerk LOGIN PASSWORD 'x'");
  await pool.query("GRANT SELECT, INSERT, UPDATE ON leasehold_fence TO clerk");
  const clerk = poolOf({ user: "clerk", password: "x" });
  await createFenceTable(clerk);
  await fencedTransaction(clerk, "clerk", 1, () => {});
  await pool.query("REVOKE INSERT ON leasehold_fence FROM clerk");
  await fails(fencedTransaction(clerk, "clerk", 2, () => {}), "auth");
  const wrong = poolOf({ password: "a-wrong-secret" });
  for (const call of [() => fencedTransaction(wrong, "a", 1, () => {}), () => createFenceTable(wrong)]) {
    const error = await call().catch((error) => error);
    assert.equal(error.code, "auth");
    assert.doesNotMatch(`${error.stack} ${JSON.stringify(error)} ${error.cause?.stack}`, /secret/);
  }
  await other.end();
  await fails(fencedTransaction(other, "a", 1, () => {}), "shutdown");
  const gone = poolOf({ host: "/nowhere" });
  await fails(fencedTransaction(gone, "a", 1, () => {}), "unavailable");
});
