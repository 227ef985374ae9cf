import { attempt, can, config } from "../../common/check.js";
import type { MysqlPool, PgPool } from "./clients.js";
import type { Dialect } from "./dialect.js";
import { mysql } from "./mysql.js";
import { postgres } from "./postgres.js";
import { sqlite } from "./sqlite.js";
import type { Answer, Cell, Statement } from "./steps.js";

/** A connection while it is in use. */
export interface Session {
  readonly connection: object;
  query(statement: Statement): Promise<Answer>;
  /** Returns the connection to its pool. A broken connection is not used again. */
  release(broken: boolean): void;
}

export interface AsyncDriver {
  readonly sync: false;
  readonly dialect: Dialect;
  /** True if the database has many connections. */
  readonly pool: boolean;
  open(): Promise<Session>;
  /** Returns true if a transaction is known to be open on a single connection. */
  isOpen(session: Session): Promise<boolean>;
}

export interface SyncDriver {
  readonly sync: true;
  readonly dialect: Dialect;
  readonly connection: object;
  query(statement: Statement): Answer;
  release(): void;
}

export type Driver = AsyncDriver | SyncDriver;

/**
 * Returns the driver of a database, recognized by its methods. Throws a `LeaseholdError` with the code
 * `config` if there is none.
 */
export function driverOf(database: unknown): Driver {
  return attempt("the database cannot be read", () => recognized(database));
}

function recognized(database: unknown): Driver {
  const is = (...methods: string[]) => typeof database === "object" && database !== null && can(database, ...methods);
  if (is("promise", "query")) {
    throw config("this mysql2 client uses callbacks; give its promise(), or a client of mysql2/promise");
  }
  if (is("connect", "query") && typeof (database as PgPool).totalCount === "number") {
    return pgPool(database as PgPool);
  }
  if (is("query", "escapeLiteral")) {
    return pgClient(database as RawPgClient);
  }
  if (is("getConnection", "query")) {
    return mysqlPool(database as MysqlPool);
  }
  if (is("beginTransaction", "query")) {
    return mysqlConnection(database as RawMysqlConnection);
  }
  if (is("prepare", "exec")) {
    return sqliteDatabase(database as Sqlite);
  }
  const what = typeof database === "object" ? "it is another object" : `it is ${typeof database}`;
  throw config(
    "the database must be a Pool or Client of pg, a Pool or Connection of mysql2/promise, or a database of " +
      `better-sqlite3 or node:sqlite; ${database === null ? "it is null" : what}`,
  );
}

function poolDriver(dialect: Dialect, open: () => Promise<Session>): AsyncDriver {
  return { sync: false, dialect, pool: true, open, isOpen: async () => false };
}

interface RawPgClient {
  query(config: { text: string; values?: unknown[]; rowMode: "array" }): Promise<PgResult | PgResult[]>;
  getTransactionStatus?(): string | null;
  on?(event: "error", listener: () => void): unknown;
  removeListener?(event: "error", listener: () => void): unknown;
  release?(broken?: boolean): void;
}

interface PgResult {
  readonly rows: Cell[][];
  readonly fields?: readonly { readonly dataTypeID: number }[];
}

/** The type numbers of `int8`, `int2` and `int4`. */
const PG_WHOLE: readonly unknown[] = [20, 21, 23];

function pgPool(pool: PgPool): AsyncDriver {
  return poolDriver(postgres, async () => {
    const client = (await pool.connect()) as RawPgClient;
    return pgSession(client, (broken) => client.release?.(broken));
  });
}

function pgClient(client: RawPgClient): AsyncDriver {
  const isOpen = async () => ["T", "E"].includes(client.getTransactionStatus?.() ?? "I");
  return { sync: false, dialect: postgres, pool: false, open: async () => pgSession(client, () => {}), isOpen };
}

function pgSession(client: RawPgClient, release: (broken: boolean) => void): Session {
  // Without a listener, a connection that breaks between two queries would end the process: a pool does not
  // listen to a connection that it has lent.
  const broke = () => {};
  client.on?.("error", broke);
  return {
    connection: client,
    query: async ({ sql, args }) => {
      const asked = { text: sql, rowMode: "array" as const };
      const answer = await client.query(args ? { ...asked, values: [...args] } : asked);
      const last = Array.isArray(answer) ? answer[answer.length - 1] : answer;
      const whole = PG_WHOLE.includes(last?.fields?.[0]?.dataTypeID);
      return { rows: last?.rows ?? [], whole };
    },
    release: (broken) => {
      client.removeListener?.("error", broke);
      release(broken);
    },
  };
}

interface RawMysqlConnection {
  query(options: object, values?: unknown[]): Promise<MysqlResult>;
  release?(): void;
  destroy?(): void;
}

type MysqlResult = [
  result: Cell[][] | { readonly serverStatus?: number; readonly affectedRows?: number },
  fields?: readonly { readonly columnType?: number }[],
];

function mysqlPool(pool: MysqlPool): AsyncDriver {
  return poolDriver(mysql, async () => {
    const connection = (await pool.getConnection()) as RawMysqlConnection;
    const release = (broken: boolean) => (broken ? connection.destroy?.() : connection.release?.());
    return mysqlSession(connection, release);
  });
}

function mysqlConnection(connection: RawMysqlConnection): AsyncDriver {
  const isOpen = async (session: Session) => (await session.query({ sql: "DO 0" })).inTransaction === true;
  return { sync: false, dialect: mysql, pool: false, open: async () => mysqlSession(connection, () => {}), isOpen };
}

/** The type numbers of `TINYINT`, `SMALLINT`, `INT`, `BIGINT` and `MEDIUMINT`. */
const MYSQL_WHOLE: readonly unknown[] = [1, 2, 3, 8, 9];

/** Bits of the server's status. */
const IN_TRANSACTION = 1;
const AUTOCOMMIT = 2;

function mysqlSession(connection: RawMysqlConnection, release: (broken: boolean) => void): Session {
  return {
    connection,
    query: async ({ sql, args }) => {
      // Texts are sent as bytes, because most collations treat some different names as equal.
      const values = args?.map((arg) => (typeof arg === "string" ? Buffer.from(arg) : arg));
      const options = { sql, rowsAsArray: true, nestTables: false, typeCast: plain };
      const [result, fields] = await connection.query(options, values);
      if (Array.isArray(result)) {
        return { rows: result, whole: MYSQL_WHOLE.includes(fields?.[0]?.columnType) };
      }
      const status = result.serverStatus ?? AUTOCOMMIT;
      const has = (bit: number) => (status & bit) > 0;
      const state = { inTransaction: has(IN_TRANSACTION), autocommit: has(AUTOCOMMIT) };
      return { rows: [], changed: result.affectedRows ?? 0, ...state };
    },
    release,
  };
}

/** Replaces a `typeCast` of the program. */
const plain = (_field: unknown, next: () => unknown) => next();

interface Sqlite {
  prepare(sql: string): SqliteStatement;
}

interface SqliteStatement {
  all(...args: unknown[]): Record<string, Cell>[];
  run(...args: unknown[]): unknown;
  /** True if the statement returns rows. Only better-sqlite3 has it. */
  readonly reader?: boolean;
  /** Makes better-sqlite3 return whole numbers as `bigint`. */
  safeIntegers?(on: boolean): unknown;
  /** Makes node:sqlite return whole numbers as `bigint`. */
  setReadBigInts?(on: boolean): unknown;
}

function sqliteDatabase(database: Sqlite): SyncDriver {
  return {
    sync: true,
    dialect: sqlite,
    connection: database,
    query: ({ sql, args = [] }) => {
      const statement = database.prepare(sql);
      // A number would be bound as a float, and a large one could not be read back.
      const values = args.map((arg) => (typeof arg === "number" ? BigInt(arg) : arg));
      if (statement.reader === false) {
        statement.run(...values);
        return { rows: [] };
      }
      statement.safeIntegers?.(true);
      statement.setReadBigInts?.(true);
      return { rows: statement.all(...values).map((row) => Object.values(row)) };
    },
    release: () => {},
  };
}
