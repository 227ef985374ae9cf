//! SQLite, in this process.

use std::time::Duration;

use leasehold::{ErrorKind, fence};
use leasehold_guard_tests::conformance::token;
use leasehold_guard_tests::sql::run;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};

use crate::checks::{self, Base};
use crate::ended::{self, End};
use crate::errors;

async fn pool(options: &SqliteConnectOptions, connections: u32) -> SqlitePool {
    let pool = SqlitePoolOptions::new().max_connections(connections);
    pool.connect_with(options.clone())
        .await
        .expect("SQLite opens it")
}

/// A file, with both kinds of journal, because they lock differently.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file() {
    // With the log the busy time-out is shorter than writers have to wait, so that they try again.
    // Without it a commit waits for readers too, and a commit is not tried again.
    for (journal, busy) in [
        (SqliteJournalMode::Wal, Duration::from_millis(20)),
        (SqliteJournalMode::Delete, Duration::from_secs(2)),
    ] {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let file = folder.path().join("fence.db");
        let options = SqliteConnectOptions::new()
            .filename(&file)
            .create_if_missing(true)
            .journal_mode(journal)
            .synchronous(SqliteSynchronous::Off)
            .busy_timeout(busy);
        let base = Base {
            pool: pool(&options, 8).await,
            other: pool(&options, 8).await,
            url: Some(format!("sqlite:{}", file.display())),
            levels: &["BEGIN EXCLUSIVE"],
        };
        checks::all(&base).await;
        an_error_that_rolls_back(&base).await;
        shapes(&base.pool).await;
        let reader = pool(&options.read_only(true), 1).await;
        let error = fence::sql::begin(&reader, "a", token(1)).await;
        let error = error.expect_err("it cannot write");
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
        base.pool.close().await;
        errors::closed(&base.pool).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory() {
    let options: SqliteConnectOptions = "sqlite::memory:".parse().expect("it is a URL");
    // All connections give the same name, and so have one database.
    let base = Base {
        pool: pool(&options, 4).await,
        other: pool(&options, 4).await,
        url: None,
        levels: &[],
    };
    checks::all(&base).await;
    shapes(&base.pool).await;
}

async fn an_error_that_rolls_back(base: &Base<sqlx::Sqlite>) {
    run(&base.pool, "CREATE TABLE once (id INTEGER PRIMARY KEY)").await;
    let twice = "INSERT OR ROLLBACK INTO once (id) VALUES (1), (1)";
    for (statements, keeps) in [(&[twice][..], &[2][..]), (&[twice, "BEGIN IMMEDIATE"], &[])] {
        ended::is_refused(base, &End { statements, keeps }).await;
    }
}

async fn shapes(pool: &SqlitePool) {
    // SQLite ignores the sizes of columns, so there is nothing to migrate.
    run(pool, "DROP TABLE leasehold_fence").await;
    run(
        pool,
        "CREATE TABLE leasehold_fence (resource VARCHAR(9) PRIMARY KEY, token INT)",
    )
    .await;
    run(
        pool,
        "INSERT INTO leasehold_fence (resource, token) VALUES ('a', 34)",
    )
    .await;
    errors::migrates(pool, false).await;
    for table in [
        "TABLE leasehold_fence (resource TEXT PRIMARY KEY, token TEXT NOT NULL)",
        "TABLE leasehold_fence (resource TEXT PRIMARY KEY)",
        "TABLE leasehold_fence (id INTEGER)",
        "TABLE leasehold_fence (resource TEXT, token INTEGER NOT NULL)",
        "TABLE leasehold_fence (resource TEXT, token INTEGER, PRIMARY KEY (resource, token))",
        "VIEW leasehold_fence AS SELECT 'a' AS resource, 34 AS token",
    ] {
        errors::refuses(pool, table).await;
    }
    // These columns take different names for the same. That refuses too much, not too little, and only
    // create_table notices it.
    for table in [
        "leasehold_fence (resource TEXT COLLATE NOCASE PRIMARY KEY, token INTEGER NOT NULL)",
        "leasehold_fence (resource NUMERIC PRIMARY KEY, token INTEGER NOT NULL)",
    ] {
        run(pool, &format!("CREATE TABLE {table}")).await;
        let error = fence::sql::create_table(pool)
            .await
            .expect_err("it is not a fence table");
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        run(pool, "DROP TABLE leasehold_fence").await;
    }
    errors::suspects(pool, ADDITIONS).await;
}

/// Catches a table that does more than is written to it, by a trigger or a computed column.
const ADDITIONS: &[(&str, &str, &str)] = &[
    (
        "CREATE TRIGGER listens AFTER UPDATE ON LEASEHOLD_FENCE BEGIN SELECT 1; END",
        "has the trigger listens",
        "DROP TRIGGER listens",
    ),
    (
        "ALTER TABLE leasehold_fence ADD COLUMN twice AS (token * 2)",
        "an expression for the column twice",
        "ALTER TABLE leasehold_fence DROP COLUMN twice",
    ),
];
