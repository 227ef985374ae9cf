//! Errors that every database has.

use std::error::Error as _;
use std::time::Duration;

use leasehold::{ErrorKind, fence};
use leasehold_guard_tests::conformance::token;
use leasehold_guard_tests::sql::Db;
use sqlx::Pool;
use tokio::time::timeout;

/// Checks that an error reveals neither the correct password nor a wrong one.
pub(crate) async fn secrets<DB: Db>(connect: impl Fn(&str) -> Pool<DB>, right: &str) {
    let wrong = "a-wrong-secret";
    let pool = connect(wrong);
    let error = fence::sql::begin(&pool, "a", token(1))
        .await
        .expect_err("the password is wrong");
    assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
    let mut said = format!("{error} {error:?}");
    let mut source = error.source();
    assert!(source.is_some(), "the source is kept");
    while let Some(cause) = source {
        said = format!("{said} {cause} {cause:?}");
        source = cause.source();
    }
    assert!(!said.contains(wrong) && !said.contains(right), "{said}");
    let error = fence::sql::create_table(&pool)
        .await
        .expect_err("the password is wrong");
    assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
}

pub(crate) async fn unreachable<DB: Db>(pool: &Pool<DB>) {
    let begin = fence::sql::begin(pool, "a", token(1));
    let error = timeout(Duration::from_secs(30), begin)
        .await
        .expect("the call gives up");
    let error = error.expect_err("the server is gone");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

pub(crate) async fn closed<DB: Db>(pool: &Pool<DB>) {
    let error = fence::sql::begin(pool, "a", token(1))
        .await
        .expect_err("the pool is closed");
    assert_eq!(error.kind(), ErrorKind::Shutdown, "{error}");
}
