// A uniform view of the databases: statements with `?` for their arguments, and rows of numbers.
import { fence } from "./bundle.mjs";

/**
 * The differences between databases. `one(pool)` resolves to a new connection with `end()`.
 * `query(connection, sql, args)` resolves to rows of arrays. `serial` is the type of a column that counts by
 * itself. `begin` opens a transaction. `isolations` are the levels besides the default.
 */
export const postgres = {
  name: "postgres",
  serial: "BIGSERIAL PRIMARY KEY",
  begin: "BEGIN",
  current: "",
  isolations: [undefined, "read committed", "repeatable read", "serializable"],
  isRace: (error) => ["40001", "40P01"].includes(error.code),
  query: async (connection, sql, args = []) => {
    let index = 0;
    const text = sql.replace(/\?/g, () => `$${(index += 1)}`);
    const { rows } = await connection.query({ text, values: args, rowMode: "array" });
    return rows.map((row) => row.map(Number));
  },
};

export const mysql = {
  name: "mysql",
  serial: "BIGINT AUTO_INCREMENT PRIMARY KEY",
  begin: "START TRANSACTION",
  current: " FOR UPDATE",
  isolations: [undefined, "read committed", "serializable"],
  isRace: (error) => [1213, 1205, 1020].includes(error.errno),
  query: async (connection, sql, args = []) => {
    const [rows] = await connection.query({ sql, rowsAsArray: true }, args);
    return Array.isArray(rows) ? rows.map((row) => row.map(Number)) : [];
  },
};

export const sqlite = {
  name: "sqlite",
  serial: "INTEGER PRIMARY KEY AUTOINCREMENT",
  begin: "BEGIN IMMEDIATE",
  current: "",
  isolations: [undefined],
  isRace: (error) => /locked|busy/i.test(error.message),
  query: (connection, sql, args = []) => {
    const statement = connection.prepare(sql);
    // One way for both kinds of database.
    if (/^\s*SELECT/.test(sql)) {
      return statement.all(...args).map((row) => Object.values(row).map(Number));
    }
    statement.run(...args);
    return [];
  },
};

/** Creates the tables of the registers, of their history, and of rows with their own token. */
export async function createTables(db, connection) {
  const key = "VARCHAR(600) NOT NULL PRIMARY KEY";
  const tables = [
    `register (resource ${key}, value BIGINT NOT NULL, writes BIGINT NOT NULL)`,
    `own (resource ${key}, value BIGINT NOT NULL, fence BIGINT NOT NULL)`,
    `history (id ${db.serial}, resource VARCHAR(600) NOT NULL, token BIGINT NOT NULL, value BIGINT NOT NULL)`,
  ];
  for (const table of tables) {
    await db.query(connection, `CREATE TABLE ${table}`);
  }
  await db.query(connection, "CREATE INDEX history_of ON history (resource, id)");
}

/**
 * Writes a value to a register and to the history, and counts the writes. It reads the count and writes it
 * back, which is only right if nobody else does so at the same time. It works in steps, for synchronous and
 * asynchronous databases.
 */
function* writing(resource, token, value) {
  const [row] = yield ["SELECT writes FROM register WHERE resource = ?", [resource]];
  if (row) {
    yield ["UPDATE register SET value = ?, writes = ? WHERE resource = ?", [value, row[0] + 1, resource]];
  } else {
    yield ["INSERT INTO register (resource, value, writes) VALUES (?, ?, 1)", [resource, value]];
  }
  yield ["INSERT INTO history (resource, token, value) VALUES (?, ?, ?)", [resource, token, value]];
}

/** Does {@link writing} on a connection. Returns a promise if the database is asynchronous. */
export function write(db, connection, resource, token, value) {
  const steps = writing(resource, token?.token ?? Number(token), value);
  if (db === sqlite) {
    for (let next = steps.next(); !next.done; ) {
      next = steps.next(db.query(connection, ...next.value));
    }
    return undefined;
  }
  return (async () => {
    for (let next = steps.next(); !next.done; ) {
      next = steps.next(await db.query(connection, ...next.value));
    }
  })();
}

/** The read functions of a store of the conformance suite. */
export function reading(db, connection) {
  return {
    history: async (resource) =>
      db.query(connection, "SELECT token, value FROM history WHERE resource = ? ORDER BY id", [resource]),
    read: async (resource) =>
      (await db.query(connection, "SELECT value FROM register WHERE resource = ?", [resource]))[0]?.[0],
  };
}

/**
 * Makes a guarded store. The program must repeat a transaction that lost a race after the fence was taken.
 */
export function guarded(db, connection, isolation, reader = connection) {
  const transaction = (resource, token, value) =>
    fence.fencedTransaction(
      connection,
      resource,
      token,
      (tx) => write(db, tx, resource, token, value),
      isolation && { isolation },
    );
  return {
    ...reading(db, reader),
    write: async (resource, token, value) => {
      for (;;) {
        try {
          return await transaction(resource, token, value);
        } catch (error) {
          if (!db.isRace(error) && !db.isRace(error.cause ?? error)) {
            throw error;
          }
        }
      }
    },
  };
}
