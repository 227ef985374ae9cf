//! A real MariaDB server.

use std::path::Path;
use std::process::Child;
use std::time::Duration;

use leasehold_tests::eventually;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlPool, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, Connection};
use tempfile::TempDir;

use crate::server;

const INSTALL: &str = "install it: apt-get install --no-install-recommends mariadb-server";
const LIMIT: Duration = Duration::from_secs(60);

/// A MariaDB server in a temporary folder, with a Unix socket there and no port.
///
/// Dropping it kills the process.
pub struct MariaDbServer {
    folder: TempDir,
    process: Child,
}

impl MariaDbServer {
    /// The password of the tests' user.
    pub const PASSWORD: &str = "a-secret-of-mariadb";

    /// Starts a server that syncs nothing to the disk.
    pub async fn start() -> Self {
        let folder = server::folder("mariadb");
        server::give("mysql", folder.path());
        let data = format!("--datadir={}", folder.path().join("data").display());
        let mut init = server::command_as("mysql", Path::new("mariadb-install-db"));
        init.args(["--no-defaults", "--auth-root-authentication-method=normal"])
            .args([
                "--skip-test-db",
                "--innodb-log-file-size=8M",
                "--innodb-flush-method=nosync",
            ])
            .arg(&data);
        server::run(&mut init, INSTALL);
        let socket = folder.path().join("socket");
        let mut command = server::command_as("mysql", Path::new(&daemon()));
        command
            .args(["--no-defaults", "--skip-networking", "--skip-log-bin"])
            .args([
                "--innodb-flush-log-at-trx-commit=0",
                "--innodb-flush-method=nosync",
            ])
            .args(["--innodb-log-file-size=8M", "--innodb-buffer-pool-size=32M"])
            .arg(&data)
            .arg(format!("--socket={}", socket.display()))
            .arg(format!(
                "--pid-file={}",
                folder.path().join("pid").display()
            ));
        let process = server::spawn(&mut command, &folder.path().join("log"), INSTALL);
        let mut server = Self { folder, process };
        let root = MySqlConnectOptions::new().username("root").socket(&socket);
        let mut root = eventually(LIMIT, "mariadbd answers", async || {
            server::must_run(&mut server.process, &server.folder.path().join("log"));
            MySqlConnection::connect_with(&root).await.ok()
        })
        .await;
        let password = Self::PASSWORD;
        for statement in [
            "CREATE DATABASE fences".to_owned(),
            format!("CREATE USER fence@localhost IDENTIFIED BY '{password}'"),
            "GRANT ALL ON *.* TO fence@localhost".to_owned(),
        ] {
            let done = sqlx::query(AssertSqlSafe(statement))
                .execute(&mut root)
                .await;
            done.expect("root has the right");
        }
        server
    }

    /// Returns its URL, with the password.
    pub fn url(&self) -> String {
        let socket = self.folder.path().join("socket");
        let password = Self::PASSWORD;
        format!(
            "mysql://fence:{password}@localhost/fences?socket={}",
            socket.display()
        )
    }

    /// Returns the options to connect to it.
    pub fn options(&self) -> MySqlConnectOptions {
        self.url().parse().expect("the URL is valid")
    }

    /// Returns a pool of connections to it.
    pub async fn pool(&self) -> MySqlPool {
        let pool = MySqlPoolOptions::new().max_connections(20);
        let pool = pool.connect_with(self.options()).await;
        pool.expect("mariadbd takes connections")
    }
}

impl Drop for MariaDbServer {
    fn drop(&mut self) {
        server::stop(&mut self.process, server::Stop::Kill);
    }
}

/// Returns the program's path, which need not be in the user's `PATH`.
fn daemon() -> String {
    let usual = "/usr/sbin/mariadbd";
    let there = Path::new(usual).exists();
    (if there { usual } else { "mariadbd" }).to_owned()
}
