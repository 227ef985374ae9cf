//! Errors, and tables of another shape.

use std::error::Error as _;
use std::time::Duration;

use leasehold::{ErrorKind, fence};
use leasehold_guard_tests::conformance::token;
use leasehold_guard_tests::sql::{Db, run};
use sqlx::Pool;
use tokio::time::timeout;

/// There is a table of an older shape with the token 34 of "a". `create_table` migrates it, also for
/// connections that know its old shape; before that, if `strict`, `begin` refuses to work with it.
pub(crate) async fn migrates<DB: Db>(pool: &Pool<DB>, strict: bool) {
    // A token by the clock, in microseconds, as by default.
    let (most, long) = (1 << 52, "x".repeat(512));
    for (resource, number) in [("b", most), (long.as_str(), 1)] {
        if let Err(error) = fence::sql::begin(pool, resource, token(number)).await {
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
            assert!(error.to_string().contains("create_table"), "{error}");
        } else {
            assert!(!strict || resource != "b", "a large token was taken");
        }
    }
    let (one, two) = tokio::join!(
        fence::sql::create_table(pool),
        fence::sql::create_table(pool)
    );
    one.and(two).expect("it is migrated");
    let error = fence::sql::begin(pool, "a", token(33))
        .await
        .expect_err("34 is kept");
    assert_eq!(
        error.stale_token().map(|stale| stale.highest),
        Some(token(34))
    );
    for (resource, number) in [("A", 1), ("b", most), (&long, 2)] {
        let tx = fence::sql::begin(pool, resource, token(number)).await;
        let tx = tx.unwrap_or_else(|error| panic!("{resource} does not fit: {error}"));
        tx.commit().await.expect("it commits");
    }
}

/// A table or view of another kind: both calls refuse it and do not change it. Then it is dropped.
pub(crate) async fn refuses<DB: Db>(pool: &Pool<DB>, table: &str) {
    let kind = table.split(' ').next().unwrap_or_default();
    run(pool, "DROP TABLE IF EXISTS leasehold_fence").await;
    run(pool, &format!("CREATE {table}")).await;
    for _ in 0..2 {
        for number in [7, 1 << 52] {
            let error = fence::sql::begin(pool, "a", token(number)).await;
            let error = error.expect_err("it is not a fence table");
            assert_eq!(error.kind(), ErrorKind::Config, "{table}: {error}");
        }
        let error = fence::sql::create_table(pool)
            .await
            .expect_err("it is not a fence table");
        assert_eq!(error.kind(), ErrorKind::Config, "{table}: {error}");
        assert!(
            error.to_string().contains("not a fence table"),
            "{table}: {error}"
        );
    }
    run(pool, &format!("DROP {kind} leasehold_fence")).await;
}

/// A fence table to which somebody has added something is refused, and the error names that. Without the
/// addition it is accepted. Each case is a statement, what the error says, and a statement to undo it.
pub(crate) async fn suspects<DB: Db>(pool: &Pool<DB>, additions: &[(&str, &str, &str)]) {
    for (add, says, remove) in additions {
        run(pool, "DROP TABLE IF EXISTS leasehold_fence").await;
        let made = fence::sql::create_table(pool).await;
        made.expect("the name is free");
        run(pool, add).await;
        for _ in 0..2 {
            let looked = fence::sql::create_table(pool).await;
            let error = looked.expect_err("somebody has added to it");
            assert_eq!(error.kind(), ErrorKind::Config, "{add}: {error}");
            let said = error.to_string();
            for part in [says, "not a fence table", "find out who made it"] {
                assert!(said.contains(part), "{add}: {said}");
            }
        }
        run(pool, remove).await;
        let looked = fence::sql::create_table(pool).await;
        looked.unwrap_or_else(|error| panic!("{remove}: {error}"));
    }
}

/// Neither the right password nor a wrong one is in what an error says.
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
        .expect("it gives up");
    let error = error.expect_err("the server is gone");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

pub(crate) async fn closed<DB: Db>(pool: &Pool<DB>) {
    let error = fence::sql::begin(pool, "a", token(1))
        .await
        .expect_err("it is closed");
    assert_eq!(error.kind(), ErrorKind::Shutdown, "{error}");
}
