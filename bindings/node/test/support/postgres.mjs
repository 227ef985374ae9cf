import { existsSync, readdirSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import pg from "pg";
import { DatabaseServer } from "./server.mjs";

const INSTALL = "install it: apt-get install --no-install-recommends postgresql";
const PASSWORD = "a-secret-of-postgres";

/** Starts a Postgres server that does not sync to disk. */
export async function startPostgres() {
  const server = new DatabaseServer("postgres", "postgres");
  const { folder } = server;
  writeFileSync(join(folder, "password"), PASSWORD);
  server.give();
  const data = join(folder, "data");
  const init = ["--username=postgres", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"];
  server.run(
    join(programs(), "initdb"),
    [...init, "--pgdata", data, "--pwfile", join(folder, "password")],
    INSTALL,
  );
  const settings = ["listen_addresses=", "fsync=off", "max_connections=100", "shared_buffers=32MB"];
  const options = { host: folder, user: "postgres", password: PASSWORD, database: "postgres" };
  const answers = async () => {
    const client = new pg.Client({ ...options, connectionTimeoutMillis: 5_000 });
    client.on("error", () => {});
    try {
      await client.connect();
      await client.end();
      return true;
    } catch {
      return false;
    }
  };
  const args = ["-D", data, "-k", folder, ...settings.flatMap((setting) => ["-c", setting])];
  await server.start(join(programs(), "postgres"), args, answers, INSTALL);
  return {
    options,
    password: PASSWORD,
    /** With the password, for Rust. */
    url: `postgres://postgres:${PASSWORD}@localhost/postgres?host=${folder}`,
    // SIGKILL would leave its child processes and their shared memory behind.
    stop: () => server.stop("SIGINT"),
  };
}

/** Returns the folder with the newest version's programs. */
function programs() {
  const root = "/usr/lib/postgresql";
  const versions = existsSync(root) ? readdirSync(root).map(Number).filter(Boolean) : [];
  if (versions.length > 0) {
    return join(root, String(Math.max(...versions)), "bin");
  }
  const found = process.env.PATH?.split(delimiter).find((folder) => existsSync(join(folder, "initdb")));
  if (!found) {
    throw new Error(`there is no Postgres here; ${INSTALL}`);
  }
  return found;
}
