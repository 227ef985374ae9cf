//! MariaDB.

use std::time::Duration;

use leasehold::{ErrorKind, fence};
use leasehold_guard_tests::conformance::token;
use leasehold_guard_tests::mariadb::MariaDbServer;
use leasehold_guard_tests::sql::run;
use sqlx::mysql::{MySqlPool, MySqlPoolOptions};

use crate::checks::{self, Base};
use crate::errors;

/// The default is `REPEATABLE READ`.
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
    older_tables_are_migrated(&base.pool).await;
    alien_tables_are_refused(&base.pool).await;
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

/// Catches two statements of which only one is run.
async fn the_level_is_the_one_asked_for(pool: &MySqlPool) {
    let mut tx = fence::sql::begin_with(pool, LEVELS[1], "level", token(1))
        .await
        .expect("first");
    let level = "SELECT trx_isolation_level FROM information_schema.innodb_trx \
         WHERE trx_mysql_thread_id = CONNECTION_ID()";
    let level: String = sqlx::query_scalar(level)
        .fetch_one(&mut *tx)
        .await
        .expect("it is there");
    assert_eq!(level, "SERIALIZABLE");
}

async fn older_tables_are_migrated(pool: &MySqlPool) {
    for columns in [
        "resource VARCHAR(100) CHARACTER SET utf8mb4 PRIMARY KEY, token INT NOT NULL",
        "resource VARBINARY(100) PRIMARY KEY, token BIGINT UNSIGNED, note TEXT",
        "resource VARBINARY(512) NOT NULL PRIMARY KEY, token INT NOT NULL",
    ] {
        run(pool, "DROP TABLE leasehold_fence").await;
        run(pool, &format!("CREATE TABLE leasehold_fence ({columns})")).await;
        run(
            pool,
            "INSERT INTO leasehold_fence (resource, token) VALUES ('a', 34)",
        )
        .await;
        errors::migrates(pool, true).await;
    }
    run(pool, "DROP TABLE leasehold_fence").await;
    let columns = "resource VARBINARY(512) NOT NULL PRIMARY KEY, token BIGINT NOT NULL";
    run(
        pool,
        &format!("CREATE TABLE leasehold_fence ({columns}) ENGINE=MyISAM"),
    )
    .await;
    run(
        pool,
        "INSERT INTO leasehold_fence (resource, token) VALUES ('a', 34)",
    )
    .await;
    errors::migrates(pool, false).await;
    // Without transactions the token would be kept.
    let tx = fence::sql::begin(pool, "a", token(99))
        .await
        .expect("99 is greater");
    tx.rollback().await.expect("it can be rolled back");
    let tx = fence::sql::begin(pool, "a", token(98))
        .await
        .expect("99 was rolled back");
    tx.rollback().await.expect("it can be rolled back");
}

async fn alien_tables_are_refused(pool: &MySqlPool) {
    for table in [
        "TABLE leasehold_fence (resource VARBINARY(512) PRIMARY KEY, token DOUBLE NOT NULL)",
        "TABLE leasehold_fence (resource VARBINARY(512) PRIMARY KEY, token VARCHAR(20) NOT NULL)",
        "TABLE leasehold_fence (resource VARBINARY(512) PRIMARY KEY)",
        "TABLE leasehold_fence (id INT)",
        "TABLE leasehold_fence (resource BIGINT PRIMARY KEY, token BIGINT NOT NULL)",
        "VIEW leasehold_fence AS SELECT 'a' AS resource, 34 AS token",
    ] {
        errors::refuses(pool, table).await;
    }
    // Rows that have the same key or none: a second writer shows it, and create_table.
    for table in [
        "leasehold_fence (resource VARBINARY(512), token BIGINT NOT NULL)",
        "leasehold_fence (resource VARBINARY(512), token BIGINT, PRIMARY KEY (resource, token))",
    ] {
        run(pool, &format!("CREATE TABLE {table}")).await;
        let first = fence::sql::begin(pool, "a", token(34)).await;
        first
            .expect("one row looks right")
            .commit()
            .await
            .expect("it commits");
        let error = fence::sql::begin(pool, "a", token(33))
            .await
            .expect_err("there are two");
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        let error = fence::sql::create_table(pool)
            .await
            .expect_err("it is not a fence table");
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        run(pool, "DROP TABLE leasehold_fence").await;
    }
    fence::sql::create_table(pool)
        .await
        .expect("the name is free");
}

async fn read_only(pool: &MySqlPool) {
    let mut tx = pool
        .begin_with("START TRANSACTION READ ONLY")
        .await
        .expect("it opens");
    let error = fence::sql::check(&mut *tx, "a", token(1))
        .await
        .expect_err("it cannot write");
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
}
