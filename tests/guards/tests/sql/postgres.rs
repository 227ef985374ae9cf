//! Postgres.

use std::time::Duration;

use leasehold::{ErrorKind, fence};
use leasehold_guard_tests::conformance::token;
use leasehold_guard_tests::postgres::PostgresServer;
use leasehold_guard_tests::sql::run;
use sqlx::postgres::{PgPool, PgPoolOptions};

use crate::checks::{self, Base};
use crate::ended::{self, End};
use crate::{errors, shapes};

const LEVELS: &[&str] = &[
    "BEGIN ISOLATION LEVEL READ COMMITTED",
    "BEGIN ISOLATION LEVEL REPEATABLE READ",
    "BEGIN ISOLATION LEVEL SERIALIZABLE",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres() {
    let server = PostgresServer::start().await;
    let base = Base {
        pool: server.pool().await,
        other: server.pool().await,
        url: Some(server.url()),
        levels: LEVELS,
    };
    checks::all(&base).await;
    a_paused_holder_loses_its_transaction(&base).await;
    statements_that_end_a_transaction(&base).await;
    shapes::check(&base.pool, "postgres").await;
    errors::secrets(
        |password| PgPoolOptions::new().connect_lazy_with(server.options().password(password)),
        PostgresServer::PASSWORD,
    )
    .await;
    read_only(&base.pool).await;
    let pool = PgPoolOptions::new().acquire_timeout(Duration::from_millis(300));
    let pool = pool.connect_lazy_with(server.options());
    base.pool.close().await;
    errors::closed(&base.pool).await;
    drop(server);
    errors::unreachable(&pool).await;
}

/// Documents the advised timeout, by which a holder that is paused in its transaction does not delay the next
/// one for ever.
async fn a_paused_holder_loses_its_transaction(base: &Base<sqlx::Postgres>) {
    let mut old = fence::sql::begin(&base.pool, "paused", token(33))
        .await
        .expect("the first token");
    sqlx::query("SET LOCAL idle_in_transaction_session_timeout = '200ms'")
        .execute(&mut *old)
        .await
        .expect("the timeout is set");
    let new = fence::sql::begin(&base.other, "paused", token(34)).await;
    new.expect("the row is free in the end")
        .commit()
        .await
        .expect("it commits");
    old.commit().await.expect_err("its transaction has ended");
    // A program that does not want to wait sets a timeout at the database.
    let old = fence::sql::begin(&base.pool, "paused", token(35))
        .await
        .expect("35 is greater");
    let impatient = "BEGIN; SET LOCAL lock_timeout = '50ms'";
    let error = fence::sql::begin_with(&base.other, impatient, "paused", token(36)).await;
    let error = error.expect_err("the row is held");
    assert!(error.is_transient(), "{error}");
    old.rollback().await.expect("a rollback");
}

/// Catches a commit that succeeds though Postgres rolled back.
async fn statements_that_end_a_transaction(base: &Base<sqlx::Postgres>) {
    let statements = &["COMMIT AND CHAIN"];
    let keeps = &[1];
    ended::is_refused(base, &End { statements, keeps }).await;
    let mut tx = fence::sql::begin(&base.pool, "failed", token(7))
        .await
        .expect("the first token");
    let failed = sqlx::query("SELECT 1 / 0").execute(&mut *tx).await;
    failed.expect_err("a division by zero fails");
    let error = tx
        .commit()
        .await
        .expect_err("the transaction was rolled back");
    assert_eq!(error.kind(), ErrorKind::Store, "{error}");
    assert!(error.to_string().contains("nothing was written"), "{error}");
    // Statements by which MySQL commits are a part of the transaction here.
    let mut tx = fence::sql::begin(&base.pool, "failed", token(6))
        .await
        .expect("7 was rolled back");
    let made = sqlx::query("CREATE TABLE made_inside (id INT)");
    made.execute(&mut *tx).await.expect("the table is made");
    tx.commit().await.expect("still open");
}

/// A user who may write to the tables and may not make any.
async fn read_only(pool: &PgPool) {
    let mut tx = pool
        .begin_with("BEGIN READ ONLY")
        .await
        .expect("a transaction");
    let error = fence::sql::check(&mut *tx, "a", token(1))
        .await
        .expect_err("a failed write");
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    drop(tx);
    run(pool, "CREATE ROLE clerk").await;
    run(
        pool,
        "GRANT SELECT, INSERT, UPDATE ON leasehold_fence TO clerk",
    )
    .await;
    let clerk = PgPoolOptions::new().after_connect(|connection, _| {
        Box::pin(async move {
            sqlx::query("SET ROLE clerk").execute(connection).await?;
            Ok(())
        })
    });
    let clerk = clerk.connect_with((*pool.connect_options()).clone()).await;
    let clerk = clerk.expect("the client connects");
    fence::sql::create_table(&clerk)
        .await
        .expect("the table exists already");
    let tx = fence::sql::begin(&clerk, "clerk", token(1))
        .await
        .expect("a right to write");
    tx.commit().await.expect("it commits");
    run(pool, "REVOKE INSERT ON leasehold_fence FROM clerk").await;
    let error = fence::sql::begin(&clerk, "clerk", token(2))
        .await
        .expect_err("no right to write");
    assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
}
