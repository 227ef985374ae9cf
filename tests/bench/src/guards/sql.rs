//! The cost of the guards of SQL databases: a transaction of one `UPDATE`, plain and guarded, on one
//! connection of a pool. No server syncs to the disk, which would only make the ratios smaller; SQLite is
//! measured both ways.

use std::cell::Cell;

use leasehold::fence;
use leasehold_guard_tests::conformance::token;
use leasehold_guard_tests::mariadb::MariaDbServer;
use leasehold_guard_tests::postgres::PostgresServer;
use leasehold_guard_tests::sql::{Db, create_tables, run};
use sqlx::pool::PoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{Connection, Pool};

use super::{Bench, micros};

const UPDATE: &str = "UPDATE register SET value = ? WHERE resource = 'a'";

type ConnectOptions<DB> = <<DB as sqlx::Database>::Connection as Connection>::Options;

/// Measures guarded writes as a ratio to unguarded ones.
pub(super) async fn postgres(bench: &Bench) {
    let server = PostgresServer::start().await;
    of::<sqlx::Postgres>(bench, "Postgres", server.options()).await;
}

/// Measures guarded writes as a ratio to unguarded ones.
pub(super) async fn mariadb(bench: &Bench) {
    let server = MariaDbServer::start().await;
    of::<sqlx::MySql>(bench, "MariaDB", server.options()).await;
}

/// Measures guarded writes as a ratio to unguarded ones, with and without syncs to the disk.
pub(super) async fn sqlite(bench: &Bench) {
    for (name, synchronous) in [
        ("SQLite", SqliteSynchronous::Off),
        ("SQLite, synced", SqliteSynchronous::Full),
    ] {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let options = SqliteConnectOptions::new()
            .filename(folder.path().join("fence.db"))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(synchronous);
        of::<sqlx::Sqlite>(bench, name, options).await;
    }
}

async fn of<DB: Db>(bench: &Bench, database: &str, options: ConnectOptions<DB>) {
    // One connection: with several, each would have to read again what another one has written.
    let pool = PoolOptions::<DB>::new().max_connections(1);
    let pool = pool.connect_with(options).await;
    let pool = &pool.expect("the database takes a connection");
    fence::sql::create_table(pool)
        .await
        .expect("the table is made");
    create_tables(pool).await;
    let insert = "INSERT INTO register (resource, value, writes) VALUES ('a', 0, 0)";
    run(pool, insert).await;

    let count = Cell::new(0);
    let plain = async || {
        settled(pool).await;
        micros(async {
            let mut tx = pool.begin_with(DB::BEGIN).await.expect("it opens");
            update::<DB>(&mut tx, &count).await;
            tx.commit().await.expect("it commits");
        })
        .await
    };
    let guarded = async || {
        settled(pool).await;
        micros(async {
            let tx = fence::sql::begin(pool, "a", token(34)).await;
            let mut tx = tx.expect("it passes");
            update::<DB>(&mut tx, &count).await;
            tx.commit().await.expect("it commits");
        })
        .await
    };
    let what = format!("{database}: UPDATE in a transaction");
    bench.compare(&what, plain, guarded).await;
    pool.close().await;
}

/// Waits until the connection is back in the pool. A task checks the connection and returns it. That is no
/// part of a write, and must not be measured with the next one.
async fn settled<DB: Db>(pool: &Pool<DB>) {
    while pool.num_idle() == 0 {
        tokio::task::yield_now().await;
    }
}

/// Writes a new value each time, since a database may skip a write that changes nothing.
async fn update<DB: Db>(tx: &mut DB::Connection, count: &Cell<u64>) {
    count.set(count.get() + 1);
    let updated = DB::run(tx, UPDATE, &[count.get().into()]).await;
    assert_eq!(updated.expect("the row can be written"), 1);
}
