/*
 * The parts of the database clients that the guards need. They are declared here so that none of the packages
 * must be installed for the types.
 */

/** A pool of `pg`. */
export interface PgPool {
  readonly totalCount: number;
  connect(): Promise<unknown>;
}

/** A connection of `pg`: a `Client`, or a client from a pool. */
export interface PgClient {
  query(text: string, values?: unknown[]): Promise<unknown>;
  escapeLiteral(text: string): string;
}

/** A pool of `mysql2/promise`. */
export interface MysqlPool {
  getConnection(): Promise<unknown>;
}

/** A connection of `mysql2/promise`. */
export interface MysqlConnection {
  beginTransaction(): Promise<void>;
  query(sql: string, values?: unknown[]): Promise<unknown>;
}

/** A database of `better-sqlite3` or `node:sqlite`, whose calls are synchronous. */
export interface SqliteDatabase {
  prepare(sql: string): object;
  exec(sql: string): unknown;
}

/** A database whose calls return promises. */
export type AsyncDatabase = PgPool | PgClient | MysqlPool | MysqlConnection;

/** The connection that the work of a transaction gets: one from the pool, or the given one. */
export type TransactionOf<D> = D extends PgPool
  ? // `connect` has two signatures, and inference needs both.
    D["connect"] extends { (): Promise<infer C>; (callback: never): void }
    ? C
    : Awaited<ReturnType<D["connect"]>>
  : D extends MysqlPool
    ? Awaited<ReturnType<D["getConnection"]>>
    : D;
