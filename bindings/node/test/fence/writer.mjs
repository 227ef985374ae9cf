// A process that writes under a fence and does not commit, or does not end, until the test kills it. node
// writer.mjs <bundle> <database> <options> <resource> <token>
import { writeSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { block } from "../support/wait.mjs";

const [, , file, kind, text, resource, number] = process.argv;
const { fencedTransaction } = await import(pathToFileURL(file));
const { write, postgres, mysql, sqlite } = await import("./sql.mjs");

const options = JSON.parse(text);
const token = Number(number);

if (kind === "redis") {
  await writeOnAndOn();
}

/** Runs one script after another, under one token. */
async function writeOnAndOn() {
  const { FencedRedis } = await import(pathToFileURL(file));
  const { Redis } = await import("ioredis");
  const redis = new FencedRedis(new Redis(options)).resource(resource, token);
  const script = `redis.call("SET", KEYS[1], ARGV[1])
    for step = 1, 2000 do redis.call("SET", KEYS[2], step) end
    return redis.call("SET", KEYS[3], ARGV[1])`;
  const keys = ["first", "steps", "last"].map((key) => `{${resource}}:${key}`);
  for (let value = 1; ; value += 1) {
    await redis.script(script, keys, [value]);
    if (value === 20) {
      writeSync(1, "written\n");
    }
  }
}

async function open() {
  if (kind === "postgres") {
    const { default: pg } = await import("pg");
    return new pg.Pool(options);
  }
  if (kind === "mysql") {
    const { default: mysql } = await import("mysql2/promise");
    return mysql.createPool(options);
  }
  if (kind === "node:sqlite") {
    const { DatabaseSync } = await import("node:sqlite");
    return new DatabaseSync(options);
  }
  const { default: Database } = await import("better-sqlite3");
  return new Database(options);
}

const database = await open();
const db = { postgres, mysql }[kind] ?? sqlite;
await fencedTransaction(database, resource, token, (tx) => {
  const written = write(db, tx, resource, token, 1);
  if (db === sqlite) {
    writeSync(1, "written\n");
    block(Infinity);
  }
  return written?.then(() => {
    writeSync(1, "written\n");
    return new Promise(() => setInterval(() => {}, 1000));
  });
});
