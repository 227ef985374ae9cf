//! What the guards of SQL databases cost: a transaction of one `UPDATE`, plain and guarded.

use std::time::Instant;

use leasehold::fence;
use leasehold_guard_tests::conformance::token;
use leasehold_guard_tests::mariadb::MariaDbServer;
use leasehold_guard_tests::postgres::PostgresServer;
use leasehold_guard_tests::sql::{Db, create_tables, run};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool};
use sqlx::{Pool, Transaction};

use crate::{Row, Rows};

const ROUNDS: u64 = 1_000;
const WARM_UP: u64 = 50;
const UPDATE: &str = "UPDATE register SET value = ? WHERE resource = 'a'";

/// Guarded writes as a ratio to unguarded ones.
pub(crate) async fn measure(rows: &mut Rows) {
    let server = PostgresServer::start().await;
    of("Postgres", &server.pool().await, rows).await;
    drop(server);
    let server = MariaDbServer::start().await;
    of("MariaDB", &server.pool().await, rows).await;
    drop(server);
    let folder = tempfile::tempdir().expect("a folder can be made");
    let options = SqliteConnectOptions::new()
        .filename(folder.path().join("fence.db"))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal);
    let pool = SqlitePool::connect_with(options)
        .await
        .expect("SQLite opens it");
    of("SQLite", &pool, rows).await;
}

async fn of<DB: Db>(database: &str, pool: &Pool<DB>, rows: &mut Rows) {
    fence::sql::create_table(pool)
        .await
        .expect("the table is made");
    create_tables(pool).await;
    run(
        pool,
        "INSERT INTO register (resource, value, writes) VALUES ('a', 0, 0)",
    )
    .await;
    let (mut plain, mut guarded) = (Vec::new(), Vec::new());
    for round in 0..WARM_UP + ROUNDS {
        let began = Instant::now();
        let tx = pool.begin_with(DB::BEGIN).await.expect("it opens");
        update(tx, round).await;
        let between = Instant::now();
        let tx = fence::sql::begin(pool, "a", token(34))
            .await
            .expect("it passes");
        update(tx, round).await;
        let end = Instant::now();
        if round >= WARM_UP {
            plain.push(between - began);
            guarded.push(end - between);
        }
    }
    let [plain, guarded] = [plain, guarded].map(|mut times| {
        times.sort();
        times[times.len() / 2].as_secs_f64() * 1e6
    });
    rows.push(Row {
        what: format!("{database}: UPDATE in a transaction"),
        plain,
        guarded,
    });
}

async fn update<DB: Db>(mut tx: Transaction<'static, DB>, value: u64) {
    let updated = DB::run(&mut tx, UPDATE, &[value.into()]).await;
    assert_eq!(updated.expect("the row can be written"), 1);
    tx.commit().await.expect("it commits");
}
