//! The checks for every database.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{ErrorKind, fence};
use leasehold_guard_tests::conformance::{Guarded, conforms, token};
use leasehold_guard_tests::sql::{self, Db};
use leasehold_tests::{Child, unique_name};
use sqlx::{Connection, Pool};
use tokio::sync::Barrier;
use tokio::time::timeout;

use crate::stores::{Bare, CheckedBefore, Fenced, OwnRow, history};
use crate::{ended, ticks};

/// Far longer than any check takes.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// A database of the tests.
pub(crate) struct Base<DB: Db> {
    pub(crate) pool: Pool<DB>,
    /// Other connections to the same database, like another process's.
    pub(crate) other: Pool<DB>,
    /// The URL, for another process.
    pub(crate) url: Option<String>,
    /// Statements that open a transaction at each isolation level except the default.
    pub(crate) levels: &'static [&'static str],
}

/// Runs every check in this file; the check of the table comes first.
pub(crate) async fn all<DB: Db>(base: &Base<DB>) {
    table_is_made(base).await;
    sql::create_tables(&base.pool).await;
    conformance(base).await;
    first_writers_race(base).await;
    holders_wait_for_each_other(base).await;
    checks_in_a_transaction(base).await;
    a_refusal_ends_the_transaction(base).await;
    bad_resources(base).await;
    ended::by_hand(base).await;
    ticks::all(base).await;
    if let Some(url) = &base.url {
        killed_before_the_commit(&base.pool, url).await;
    }
    a_check_before_the_transaction_does_not_conform(base).await;
}

/// Catches a puzzling error of the database where the table is missing, and races of `IF NOT EXISTS`.
async fn table_is_made<DB: Db>(base: &Base<DB>) {
    let error = fence::sql::begin(&base.pool, "a", token(1)).await;
    let error = error.expect_err("there is no table");
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.to_string().contains("create_table"), "{error}");
    let creators: Vec<_> = (0..8)
        .map(|number| {
            let pool = if number % 2 == 0 {
                &base.pool
            } else {
                &base.other
            };
            let pool = pool.clone();
            tokio::spawn(async move { fence::sql::create_table(&pool).await })
        })
        .collect();
    for creator in creators {
        let result = creator.await.expect("no creator panics");
        result.expect("one creator makes the table, and the others find it");
    }
    let mut tx = fence::sql::begin(&base.pool, "kept", token(5))
        .await
        .expect("an object");
    tx.commit().await.expect("the table can be written to");
    fence::sql::create_table(&base.other)
        .await
        .expect("the table exists already");
    tx = fence::sql::begin(&base.pool, "kept", token(6))
        .await
        .expect("an object");
    tx.rollback().await.expect("a rollback");
    let error = fence::sql::begin(&base.pool, "kept", token(4)).await;
    let error = error.expect_err("the tokens are kept");
    let stale = error.stale_token().expect("a stale token");
    assert_eq!(stale.highest, token(5), "the token 6 was rolled back");
}

async fn conformance<DB: Db>(base: &Base<DB>) {
    let levels = base.levels.iter().map(|level| Some(*level));
    for begin in std::iter::once(None).chain(levels) {
        let pool = base.pool.clone();
        let prefix = format!("fence table, {}", begin.unwrap_or("by default"));
        conforms(Arc::new(Fenced { pool, begin }), &prefix, 4).await;
    }
    let pool = base.pool.clone();
    let by_hand = Bare(Fenced { pool, begin: None });
    conforms(Arc::new(by_hand), "bare statements", 4).await;
    conforms(Arc::new(OwnRow(base.pool.clone())), "own row", 4).await;
}

/// Catches a check that finds no row and then writes one: two holders begin at once on a resource without a
/// row.
async fn first_writers_race<DB: Db>(base: &Base<DB>) {
    let mut levels = base
        .levels
        .iter()
        .map(|level| Some(*level))
        .collect::<Vec<_>>();
    levels.push(None);
    for round in 0..60 {
        let begin = levels[round % levels.len()];
        let resource = unique_name("first");
        let start = Arc::new(Barrier::new(2));
        let writers = [33, 34].map(|number| {
            let pool = if number == 33 {
                &base.pool
            } else {
                &base.other
            };
            let store = Fenced {
                pool: pool.clone(),
                begin,
            };
            let (resource, start) = (resource.clone(), start.clone());
            tokio::spawn(async move {
                start.wait().await;
                store.write(&resource, token(number), number).await
            })
        });
        let [older, newer] = writers;
        let older = older.await.expect("no panic");
        newer
            .await
            .expect("no panic")
            .expect("nothing is greater than 34");
        let expected: &[_] = match older {
            Ok(()) => &[(33, 33), (34, 34)],
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::StaleToken, "{error}");
                &[(34, 34)]
            }
        };
        assert_eq!(
            history(&base.pool, &resource).await,
            expected,
            "round {round}"
        );
    }
}

/// Catches a check that does not hold the row until the end of the transaction.
async fn holders_wait_for_each_other<DB: Db>(base: &Base<DB>) {
    let resource = unique_name("wait");
    let begin = |number| {
        let (pool, resource) = (base.other.clone(), resource.clone());
        tokio::spawn(async move { fence::sql::begin(&pool, &resource, token(number)).await })
    };
    let mut old = fence::sql::begin(&base.pool, &resource, token(33))
        .await
        .expect("the first token");
    sql::write::<DB>(&mut old, &resource, 33, 1)
        .await
        .expect("a write");
    let mut new = begin(34);
    timeout(Duration::from_millis(150), &mut new)
        .await
        .expect_err("the newer one waits for the older one");
    old.commit()
        .await
        .expect("no greater token was accepted yet");
    let new = timeout(LIMIT, new)
        .await
        .expect("it goes on then")
        .expect("no panic");
    let mut new = new.expect("34 is greater");
    let count = "SELECT writes FROM register WHERE resource = ?";
    let count = DB::rows(&mut new, count, &[resource.as_str().into()]).await;
    assert_eq!(
        count.expect("the read succeeds"),
        [[1]],
        "the newer one sees the older one's write"
    );
    let mut late = begin(33);
    timeout(Duration::from_millis(150), &mut late)
        .await
        .expect_err("the stale one waits for the newer one");
    new.commit().await.expect("the newest token");
    let late = timeout(LIMIT, late)
        .await
        .expect("it goes on then")
        .expect("no panic");
    let error = late.expect_err("34 was accepted");
    let stale = error.stale_token().expect("a stale token");
    assert_eq!((stale.offered, stale.highest), (token(33), token(34)));
    // A token of a transaction that is rolled back was never accepted.
    let newest = fence::sql::begin(&base.pool, &resource, token(36))
        .await
        .expect("36 is greater");
    let middle = begin(35);
    newest.rollback().await.expect("a rollback");
    let middle = timeout(LIMIT, middle)
        .await
        .expect("it goes on then")
        .expect("no panic");
    middle
        .expect("36 was not accepted")
        .commit()
        .await
        .expect("35 is the newest");
}

async fn checks_in_a_transaction<DB: Db>(base: &Base<DB>) {
    let (one, two) = (unique_name("one"), unique_name("two"));
    let mut tx = base
        .pool
        .begin_with(DB::BEGIN)
        .await
        .expect("a transaction");
    fence::sql::check(&mut *tx, &one, token(7))
        .await
        .expect("the first token");
    fence::sql::check(&mut *tx, &two, token(8))
        .await
        .expect("the first token");
    fence::sql::check(&mut *tx, &two, token(8))
        .await
        .expect("the token is its own");
    let error = fence::sql::check(&mut *tx, &two, token(6))
        .await
        .expect_err("8 is greater");
    assert_eq!(error.kind(), ErrorKind::StaleToken, "{error}");
    tx.commit().await.expect("it commits");
    for (resource, seen) in [(&one, 7), (&two, 8)] {
        let error = fence::sql::begin(&base.pool, resource, token(1)).await;
        let error = error.expect_err("the token is smaller");
        assert_eq!(
            error.stale_token().map(|stale| stale.highest),
            Some(token(seen))
        );
    }
    let mut connection = base
        .pool
        .acquire()
        .await
        .expect("the pool has a connection");
    // Such a check would protect nothing: the writes after it are not in its transaction.
    let error = fence::sql::check(&mut *connection, &one, token(9)).await;
    let error = error.expect_err("no transaction is open");
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
}

/// Catches a refusal that leaves the row locked or the connection in a transaction.
async fn a_refusal_ends_the_transaction<DB: Db>(base: &Base<DB>) {
    let resource = unique_name("refused");
    let tx = fence::sql::begin(&base.pool, &resource, token(34))
        .await
        .expect("the first token");
    tx.commit().await.expect("it commits");
    let mut kept = Vec::new();
    for _ in 0..3 {
        let error = fence::sql::begin(&base.pool, &resource, token(33)).await;
        kept.push(error.expect_err("34 is greater"));
        let next = fence::sql::begin(&base.other, &resource, token(34));
        let next = timeout(LIMIT, next)
            .await
            .expect("the row is free")
            .expect("34 passes");
        next.commit().await.expect("it commits");
        let connection = base
            .pool
            .acquire()
            .await
            .expect("the pool has a connection");
        assert!(!connection.is_in_transaction());
    }
    // The caller may also drop the future or the transaction.
    drop(
        fence::sql::begin(&base.pool, &resource, token(99))
            .await
            .expect("99 is greater"),
    );
    let begin = fence::sql::begin(&base.pool, &resource, token(99));
    drop(timeout(Duration::ZERO, begin).await);
    let next = fence::sql::begin(&base.other, &resource, token(34));
    let next = timeout(LIMIT, next)
        .await
        .expect("the row is free")
        .expect("34 passes");
    next.commit().await.expect("it commits");
}

async fn bad_resources<DB: Db>(base: &Base<DB>) {
    let nul = fence::sql::begin(&base.pool, "a\0b", token(1)).await;
    let error = nul.expect_err("Postgres cannot store a zero byte");
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    // Different names that a database may take for the same one, and the longest.
    let long = "é".repeat(256);
    let other = format!("{}x", &long[..510]);
    let names = [
        "Wort",
        "wort",
        "wörtchen",
        "wortchen",
        "w ",
        "w",
        "7",
        "07",
        &long,
        &other,
    ];
    for (number, name) in (1..=10).rev().zip(names) {
        let tx = fence::sql::begin(&base.pool, name, token(number)).await;
        let tx = tx.unwrap_or_else(|error| panic!("{name:?} was taken for another: {error}"));
        tx.commit().await.expect("it commits");
    }
    let statement = fence::sql::begin_with(&base.pool, "SELECT 1", "a", token(1)).await;
    let error = statement.expect_err("no transaction was opened");
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
}

/// Catches a token, a write or a lock that remains of a process that is killed after its check and its write.
async fn killed_before_the_commit<DB: Db>(pool: &Pool<DB>, url: &str) {
    let resource = unique_name("killed");
    let program = env!("CARGO_BIN_EXE_sql_writer");
    let mut child = Child::spawn(program.as_ref(), [url, &resource, "40"]);
    child.wait_line("written", LIMIT).await;
    child.kill9();
    let tx = timeout(LIMIT, fence::sql::begin(pool, &resource, token(39))).await;
    let mut tx = tx.expect("the row is free").expect("40 was not accepted");
    sql::write::<DB>(&mut tx, &resource, 39, 2)
        .await
        .expect("a write");
    tx.commit().await.expect("it commits");
    assert_eq!(history(pool, &resource).await, [(39, 2)]);
}

/// The negative control of the suite: the check in one transaction, the write in another.
async fn a_check_before_the_transaction_does_not_conform<DB: Db>(base: &Base<DB>) {
    let store = Arc::new(CheckedBefore(base.pool.clone()));
    let found = tokio::spawn(async move { conforms(store, "checked before", 40).await });
    let panic = found
        .await
        .expect_err("the suite finds stale writes")
        .into_panic();
    let message = panic.downcast_ref::<String>().map_or("", String::as_str);
    assert!(message.contains("accepted out of order"), "{message}");
}
