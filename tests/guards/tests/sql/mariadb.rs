//! MariaDB.

use std::time::Duration;

use leasehold::{ErrorKind, fence};
use leasehold_guard_tests::conformance::token;
use leasehold_guard_tests::mariadb::MariaDbServer;
use leasehold_guard_tests::sql::run;
use sqlx::mysql::{MySqlConnection, MySqlPool, MySqlPoolOptions};

use crate::checks::{self, Base};
use crate::ended::{self, End};
use crate::{errors, shapes};

/// The levels except the default, which is `REPEATABLE READ`.
const LEVELS: &[&str] = &[
    "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION",
    "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; START TRANSACTION",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb() {
    let server = MariaDbServer::start().await;
    let base = Base {
        pool: server.pool().await,
        other: server.pool().await,
        url: Some(server.url()),
        levels: LEVELS,
    };
    checks::all(&base).await;
    the_level_is_the_one_asked_for(&base.pool).await;
    statements_that_end_a_transaction(&base).await;
    an_ignored_deadlock(&base).await;
    shapes::check(&base.pool, "mysql").await;
    errors::secrets(
        |password| MySqlPoolOptions::new().connect_lazy_with(server.options().password(password)),
        MariaDbServer::PASSWORD,
    )
    .await;
    read_only(&base.pool).await;
    let pool = MySqlPoolOptions::new().acquire_timeout(Duration::from_millis(300));
    let pool = pool.connect_lazy_with(server.options());
    base.pool.close().await;
    errors::closed(&base.pool).await;
    drop(server);
    errors::unreachable(&pool).await;
}

/// Catches a second statement in one text that is not run.
async fn the_level_is_the_one_asked_for(pool: &MySqlPool) {
    let mut tx = fence::sql::begin_with(pool, LEVELS[1], "level", token(1))
        .await
        .expect("first");
    let level = "SELECT trx_isolation_level FROM information_schema.innodb_trx \
         WHERE trx_mysql_thread_id = CONNECTION_ID()";
    let level: String = sqlx::query_scalar(level)
        .fetch_one(&mut *tx)
        .await
        .expect("an object");
    assert_eq!(level, "SERIALIZABLE");
}

async fn statements_that_end_a_transaction(base: &Base<sqlx::MySql>) {
    let columns = "(id INT PRIMARY KEY, n INT NOT NULL)";
    run(&base.pool, &format!("CREATE TABLE other_table {columns}")).await;
    for statements in [
        &["CREATE TABLE made_inside (id INT)"][..],
        &["DROP TABLE made_inside"],
        &["ALTER TABLE other_table ADD COLUMN more INT NOT NULL DEFAULT 0"],
        &["TRUNCATE TABLE other_table"],
        &["LOCK TABLES history WRITE", "UNLOCK TABLES"],
        &["START TRANSACTION", "COMMIT"],
        &["SET autocommit = 0", "SET autocommit = 1"],
    ] {
        let keeps = &[1, 2];
        ended::is_refused(base, &End { statements, keeps }).await;
    }
    let statements = &["START TRANSACTION"];
    let keeps = &[1];
    ended::is_refused(base, &End { statements, keeps }).await;
}

/// Catches a deadlock that the program ignores, whose victim is the guarded transaction.
async fn an_ignored_deadlock(base: &Base<sqlx::MySql>) {
    run(
        &base.pool,
        "INSERT INTO other_table (id, n) VALUES (1, 0), (2, 0)",
    )
    .await;
    let resource = "deadlock";
    let mut tx = fence::sql::begin(&base.pool, resource, token(7))
        .await
        .expect("the first token");
    let insert = "INSERT INTO history (resource, token, value) VALUES ('deadlock', 1, ?)";
    for value in [1, 2] {
        if value == 2 {
            deadlock(&mut tx, &base.other).await;
        }
        let written = sqlx::query(insert).bind(value).execute(&mut *tx).await;
        written.expect("writing works inside and outside a transaction");
    }
    ended::refuses_to_commit(base, tx, resource, &[2], &["a deadlock"]).await;
}

async fn deadlock(tx: &mut MySqlConnection, other: &MySqlPool) {
    let update = "UPDATE other_table SET n = 1 WHERE id = ?";
    let mut heavier = other.begin().await.expect("a transaction");
    for id in 100..200 {
        let insert = sqlx::query("INSERT INTO other_table (id, n) VALUES (?, 0)").bind(id);
        insert.execute(&mut *heavier).await.expect("a write");
    }
    let second = sqlx::query(update).bind(2).execute(&mut *heavier).await;
    second.expect("the row is free");
    let first = sqlx::query(update).bind(1).execute(&mut *tx).await;
    first.expect("the row is free");
    let circle = async {
        // This completes the cycle. The victim is the transaction that has written less.
        let error = sqlx::query(update).bind(2).execute(&mut *tx).await;
        error.expect_err("the guarded transaction is the victim")
    };
    let wait = sqlx::query(update).bind(1).execute(&mut *heavier);
    let (waited, error) = tokio::join!(wait, circle);
    waited.expect("the victim has released its row");
    assert!(error.to_string().contains("1213"), "{error}");
    heavier.rollback().await.expect("a rollback");
}

async fn read_only(pool: &MySqlPool) {
    let mut tx = pool
        .begin_with("START TRANSACTION READ ONLY")
        .await
        .expect("a transaction");
    let error = fence::sql::check(&mut *tx, "a", token(1))
        .await
        .expect_err("a failed write");
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
}
