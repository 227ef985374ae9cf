// A process whose writers race with those of others on a SQLite file. node racer.mjs <bundle> <kind> <file>
// <resource> <tokens>
import { pathToFileURL } from "node:url";

const [, , bundle, kind, file, resource, tokens] = process.argv;
const { fencedTransaction } = await import(pathToFileURL(bundle));
const { sqlite, write } = await import("./sql.mjs");

async function open() {
  // Less than writers may wait, so the lock is requested again.
  if (kind === "node:sqlite") {
    const { DatabaseSync } = await import("node:sqlite");
    const database = new DatabaseSync(file);
    database.exec("PRAGMA busy_timeout = 20");
    return database;
  }
  const { default: Database } = await import("better-sqlite3");
  return new Database(file, { timeout: 20 });
}

const database = await open();
const told = [];
for (const token of tokens.split(",").map(Number)) {
  let accepted = 0;
  while (accepted < 3) {
    try {
      const value = token * 10 + accepted;
      await fencedTransaction(database, resource, token, () => write(sqlite, database, resource, token, value));
      accepted += 1;
    } catch (error) {
      if (error.code === "staleToken") {
        break;
      }
      // Readers were in the way of the commit.
      if (error.code !== "unavailable") {
        throw error;
      }
    }
  }
  told.push([token, accepted]);
}
console.log(JSON.stringify(told));
