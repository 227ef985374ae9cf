import { existsSync } from "node:fs";
import { join } from "node:path";
import mysql from "mysql2/promise";
import { DatabaseServer } from "./server.mjs";

const INSTALL = "install it: apt-get install --no-install-recommends mariadb-server";
const PASSWORD = "a-secret-of-mariadb";

/** Starts a MariaDB server that does not sync to disk. */
export async function startMariaDb() {
  const server = new DatabaseServer("mariadb", "mysql");
  server.give();
  const data = `--datadir=${join(server.folder, "data")}`;
  const socketPath = join(server.folder, "socket");
  const small = ["--innodb-log-file-size=8M", "--innodb-flush-method=nosync"];
  const init = ["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"];
  server.run("mariadb-install-db", [...init, ...small, data], INSTALL);
  const args = ["--no-defaults", "--skip-networking", "--skip-log-bin", ...small, data];
  args.push("--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=32M");
  args.push(`--socket=${socketPath}`, `--pid-file=${join(server.folder, "pid")}`);
  const statements = [
    "CREATE DATABASE IF NOT EXISTS fences",
    `CREATE OR REPLACE USER fence@localhost IDENTIFIED BY '${PASSWORD}'`,
    "GRANT ALL ON *.* TO fence@localhost",
  ];
  const answers = async () => {
    let root;
    try {
      root = await mysql.createConnection({ user: "root", socketPath });
    } catch {
      return false;
    }
    for (const statement of statements) {
      await root.query(statement);
    }
    await root.end();
    return true;
  };
  await server.start(daemon(), args, answers, INSTALL);
  return {
    options: { user: "fence", password: PASSWORD, database: "fences", socketPath },
    password: PASSWORD,
    /** With the password, for Rust. */
    url: `mysql://fence:${PASSWORD}@localhost/fences?socket=${socketPath}`,
    stop: () => server.stop("SIGKILL"),
  };
}

/** Finds mariadbd, which is not in every user's PATH. */
function daemon() {
  return existsSync("/usr/sbin/mariadbd") ? "/usr/sbin/mariadbd" : "mariadbd";
}
