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
use crate::{errors, shapes};

async fn pool(options: &SqliteConnectOptions, connections: u32) -> SqlitePool {
    let pool = SqlitePoolOptions::new().max_connections(connections);
    pool.connect_with(options.clone())
        .await
        .expect("SQLite opens it")
}

/// A file, with both kinds of journal, since they lock differently.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file() {
    // With WAL the busy timeout is shorter than writers have to wait, so they retry. Without it a commit
    // waits for readers too, and a commit is not retried.
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
        // Another connection remembers the old table until it reads the schema again.
        shapes::check(&pool(&options, 1).await, "sqlite").await;
        let reader = pool(&options.read_only(true), 1).await;
        let error = fence::sql::begin(&reader, "a", token(1)).await;
        let error = error.expect_err("a failed write");
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
        base.pool.close().await;
        errors::closed(&base.pool).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory() {
    let options: SqliteConnectOptions = "sqlite::memory:".parse().expect("the URL is valid");
    // All connections use the same name, and so share one database.
    let base = Base {
        pool: pool(&options, 4).await,
        other: pool(&options, 4).await,
        url: None,
        levels: &[],
    };
    checks::all(&base).await;
    shapes::check(&pool(&options, 1).await, "sqlite").await;
}

async fn an_error_that_rolls_back(base: &Base<sqlx::Sqlite>) {
    run(&base.pool, "CREATE TABLE once (id INTEGER PRIMARY KEY)").await;
    let twice = "INSERT OR ROLLBACK INTO once (id) VALUES (1), (1)";
    for (statements, keeps) in [(&[twice][..], &[2][..]), (&[twice, "BEGIN IMMEDIATE"], &[])] {
        ended::is_refused(base, &End { statements, keeps }).await;
    }
}
