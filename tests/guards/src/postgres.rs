//! A real Postgres server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use leasehold_tests::eventually;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use tempfile::TempDir;

use crate::server;

const INSTALL: &str = "install it: apt-get install --no-install-recommends postgresql";
const LIMIT: Duration = Duration::from_secs(30);

/// A Postgres server in a temporary folder, with a Unix socket there and no port.
///
/// Dropping it kills the process.
pub struct PostgresServer {
    folder: TempDir,
    process: Child,
}

impl PostgresServer {
    /// The password of every user.
    pub const PASSWORD: &str = "a-secret-of-postgres";

    /// Starts a server that syncs nothing to the disk.
    pub async fn start() -> Self {
        let programs = programs();
        let folder = server::folder("postgres");
        let password = folder.path().join("password");
        fs::write(&password, Self::PASSWORD).expect("the temporary folder can be written to");
        server::give("postgres", folder.path());
        let data = folder.path().join("data");
        let mut init = server::command_as("postgres", &programs.join("initdb"));
        init.args([
            "--username=postgres",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
        ])
        .args(["--locale=C", "--no-sync"])
        .arg("--pgdata")
        .arg(&data)
        .arg("--pwfile")
        .arg(&password);
        server::run(&mut init, INSTALL);
        let mut command = server::command_as("postgres", &programs.join("postgres"));
        command
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(folder.path())
            .args(["-c", "listen_addresses=", "-c", "fsync=off"])
            .args(["-c", "max_connections=100", "-c", "log_min_messages=fatal"])
            .args(["-c", "shared_buffers=32MB"]);
        let process = server::spawn(&mut command, &folder.path().join("log"), INSTALL);
        let mut server = Self { folder, process };
        eventually(LIMIT, "postgres answers", async || {
            server::must_run(&mut server.process, &server.folder.path().join("log"));
            let pool = PgPool::connect_with(server.options());
            tokio::time::timeout(LIMIT / 10, pool)
                .await
                .is_ok_and(|pool| pool.is_ok())
        })
        .await;
        server
    }

    /// Returns its URL, with the password.
    pub fn url(&self) -> String {
        let folder = self.folder.path().display();
        let password = Self::PASSWORD;
        format!("postgres://postgres:{password}@localhost/postgres?host={folder}")
    }

    /// Returns the options to connect to it.
    pub fn options(&self) -> PgConnectOptions {
        self.url().parse().expect("the URL is valid")
    }

    /// Returns a pool of connections to it.
    pub async fn pool(&self) -> PgPool {
        let pool = PgPoolOptions::new().max_connections(20);
        let pool = pool.connect_with(self.options()).await;
        pool.expect("postgres takes connections")
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // The kill signal would leave its child processes and their shared memory behind.
        server::stop(&mut self.process, server::Stop::Interrupt);
    }
}

/// Returns the folder with the programs of the newest version.
fn programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let newest = versions
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .max();
    let Some(newest) = newest else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        return std::env::split_paths(&path)
            .find(|folder| folder.join("initdb").exists())
            .unwrap_or_else(|| panic!("Postgres is not installed; {INSTALL}"));
    };
    Path::new("/usr/lib/postgresql")
        .join(newest.to_string())
        .join("bin")
}
