//! Tables that are no fence tables.

use leasehold::{ErrorKind, fence};
use leasehold_guard_tests::conformance::token;
use leasehold_guard_tests::sql::{Db, run};
use serde_json::Value;
use sqlx::Pool;

/// Checks each table that `tests/vectors/sql_shapes.json` has for a database, and leaves a fence table
/// behind.
pub(crate) async fn check<DB: Db>(pool: &Pool<DB>, database: &str) {
    let vectors = include_str!("../../../vectors/sql_shapes.json");
    let vectors: Value = serde_json::from_str(vectors).expect("the vectors are JSON");
    for shape in vectors[database].as_array().expect("a list") {
        let says = shape["says"].as_str().expect("a part of the error");
        run_all(pool, &["DROP TABLE IF EXISTS leasehold_fence".into()]).await;
        if shape["add"].is_array() {
            created(pool).await;
        }
        for statements in ["make", "add"] {
            run_all(pool, shape[statements].as_array().unwrap_or(&Vec::new())).await;
        }
        for newer in [34, 1 << 52] {
            never_goes_back(pool, newer, shape, says).await;
        }
        // Twice, since the first call must not have changed the table.
        for _ in 0..2 {
            let error = fence::sql::create_table(pool).await;
            let error = error.expect_err(says);
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
            let create = DB::STATEMENTS.create.replace('\n', " ");
            for part in [says, "leasehold_fence is not a fence table: ", &create] {
                assert!(error.to_string().contains(part), "{part}: {error}");
            }
        }
        let drop = &vec!["DROP TABLE leasehold_fence".into()];
        run_all(pool, shape["drop"].as_array().unwrap_or(drop)).await;
        // This also covers connections that know the other table.
        created(pool).await;
        let tx = fence::sql::begin(pool, "made anew", token(1 << 52)).await;
        let tx = tx.unwrap_or_else(|error| panic!("{says}: {error}"));
        tx.commit().await.expect("it commits");
    }
}

async fn run_all<DB: Db>(pool: &Pool<DB>, statements: &[Value]) {
    for statement in statements {
        run(pool, statement.as_str().expect("a statement")).await;
    }
}

async fn created<DB: Db>(pool: &Pool<DB>) {
    let created = fence::sql::create_table(pool).await;
    created.expect("the table is created or exists already");
}

/// Checks that a write is refused because of the table's shape, or that after it an older token is refused.
async fn never_goes_back<DB: Db>(pool: &Pool<DB>, newer: u64, shape: &Value, says: &str) {
    match fence::sql::begin(pool, "a", token(newer)).await {
        Ok(tx) => {
            assert_ne!(shape["writes"], false, "{says}: {newer} was accepted");
            tx.commit().await.expect("it commits");
            let older = fence::sql::begin(pool, "a", token(newer - 1)).await;
            let error = older.expect_err(says);
            let refused = [ErrorKind::StaleToken, ErrorKind::Config].contains(&error.kind());
            assert!(refused, "{says}: {error}");
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::Config, "{says}: {error}"),
    }
}
