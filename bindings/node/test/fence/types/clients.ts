// Checks that foreign clients have the right types, and that wrong ones do not. It is compiled and never run.
import type { DatabaseSync } from "node:sqlite";
import type Database from "better-sqlite3";
import type express from "express";
import type { FastifyInstance } from "fastify";
import type { Hono } from "hono";
import type { Cluster, Redis } from "ioredis";
import type { Connection, Pool as MysqlPool, PoolConnection } from "mysql2/promise";
import type { Client, Pool as PgPool, PoolClient } from "pg";
import type { createClient, createCluster } from "redis";
import * as fence from "../../../src/fence/index.js";

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
function same<A, B>(_: Same<A, B>): void {}

declare const lease: { readonly token: number; readonly name: string };
declare const pgPool: PgPool;
declare const pgClient: Client;
declare const pgPoolClient: PoolClient;
declare const mysqlPool: MysqlPool;
declare const mysqlConnection: Connection;
declare const better: Database.Database;
declare const own: DatabaseSync;

export async function sql(): Promise<void> {
  const count = await fence.fencedTransaction(pgPool, "a", lease, async (tx) => {
    same<typeof tx, PoolClient>(true);
    const { rowCount } = await tx.query("SELECT 1");
    return rowCount ?? 0;
  });
  same<typeof count, number>(true);
  await fence.fencedTransaction(pgClient, "a", 34, (tx) => same<typeof tx, Client>(true));
  await fence.fencedTransaction(mysqlPool, "a", "34", async (tx) => {
    same<typeof tx, PoolConnection>(true);
    await tx.query("SELECT 1");
  });
  await fence.fencedTransaction(mysqlConnection, "a", lease, (tx) => same<typeof tx, Connection>(true));
  const changes = await fence.fencedTransaction(better, "a", lease, (tx) => {
    same<typeof tx, Database.Database>(true);
    return tx.prepare("DELETE FROM a").run().changes;
  });
  same<typeof changes, number>(true);
  const text = await fence.fencedTransaction(own, "a", lease, (tx) => {
    same<typeof tx, DatabaseSync>(true);
    tx.exec("DELETE FROM a");
    return "done";
  });
  same<typeof text, string>(true);
  // @ts-expect-error the work on SQLite must not be async
  await fence.fencedTransaction(better, "a", lease, async (tx) => tx.exec("DELETE FROM a"));
  // @ts-expect-error no database
  await fence.fencedTransaction({}, "a", lease, () => {});
  // @ts-expect-error no token
  await fence.fencedTransaction(pgPool, "a", {}, () => {});
  // @ts-expect-error no level of isolation
  await fence.fencedTransaction(pgPool, "a", lease, () => {}, { isolation: "chaos" });

  const later = fence.check(pgPoolClient, "a", lease);
  same<typeof later, Promise<void>>(true);
  await fence.check(mysqlConnection, "a", lease);
  const now = fence.check(better, "a", lease);
  same<typeof now, void>(true);
  fence.check(own, "a", lease);
  // @ts-expect-error a pool is no connection
  await fence.check(pgPool, "a", lease);
  const turn = { name: "a", tick: 7, token: 34 };
  const recorded = fence.doneIn(pgPoolClient, turn);
  same<typeof recorded, Promise<boolean>>(true);
  const recordedNow = fence.doneIn(own, turn);
  same<typeof recordedNow, boolean>(true);
  // @ts-expect-error a lease has no tick
  await fence.doneIn(mysqlConnection, lease);
  for (const database of [pgPool, pgClient, mysqlPool, mysqlConnection, better, own]) {
    await fence.createFenceTable(database);
  }
  const { rowCount } = await pgPool.query("UPDATE a");
  const written: boolean = fence.accepted(rowCount, "a", lease, 34n);
  void written;
}

export async function redis(
  clients: [Redis, Cluster, ReturnType<typeof createClient>, ReturnType<typeof createCluster>],
): Promise<void> {
  for (const client of clients) {
    const redis = new fence.FencedRedis(client, { timeout: 1_000 });
    const order = redis.resource("orders/42", lease);
    await order.set("orders/42", new Uint8Array(1), { ttl: 1 });
    const left = await order.script<number | null>("return 1", ["k"], [1, "2"]);
    same<typeof left, number | null>(true);
  }
}

export function http(app: express.Express, server: FastifyInstance, hono: Hono): void {
  app.use(fence.fenceExpress());
  app.put("/account/:id", fence.fenceExpress({ resource: (req: express.Request) => `account/${req.params["id"]}` }));
  server.addHook("preHandler", fence.fenceFastify());
  hono.use("*", fence.fenceHono());
  const handler: (request: Request) => Promise<Response> = fence.fenceFetch(() => new Response("ok"));
  void handler;
  void fetch("http://service", fence.withToken(lease, { method: "PUT" }));
  const request: Request = fence.withToken(lease, new Request("http://service"));
  void request;
}

export function errors(error: unknown): number | undefined {
  if (error instanceof fence.StaleTokenError) {
    same<typeof error.code, "staleToken">(true);
    const is: fence.LeaseholdError = error;
    void is;
    return error.highest;
  }
  return undefined;
}
