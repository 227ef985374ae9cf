//! Transactions that end within the work. Later writes are in no transaction, so the commit is refused.

use leasehold::fence::sql::FencedTransaction;
use leasehold::{ErrorKind, fence};
use leasehold_guard_tests::conformance::token;
use leasehold_guard_tests::sql::Db;
use leasehold_tests::unique_name;

use crate::checks::Base;
use crate::stores::history;

const INSERT: &str = "INSERT INTO history (resource, token, value) VALUES (?, 1, ?)";

/// The statements that end the transaction, between a write of 1 and one of 2.
pub(crate) struct End<'a> {
    pub(crate) statements: &'a [&'a str],
    /// The writes that stay.
    pub(crate) keeps: &'a [u64],
}

async fn write<DB: Db>(tx: &mut FencedTransaction<DB>, resource: &str, value: u64) {
    let written = DB::run(tx, INSERT, &[resource.into(), value.into()]).await;
    written.expect("a write");
}

/// Checks that the commit is refused and the documented writes stay. Catches a commit that succeeds though
/// writes were rolled back, or were made without the fence.
pub(crate) async fn is_refused<DB: Db>(base: &Base<DB>, end: &End<'_>) {
    let resource = unique_name("ended");
    let begun = fence::sql::begin(&base.pool, &resource, token(7)).await;
    let mut tx = begun.expect("the first token");
    write(&mut tx, &resource, 1).await;
    for statement in end.statements {
        // Some of the statements fail, which is ignored.
        DB::run(&mut tx, statement, &[]).await.ok();
    }
    write(&mut tx, &resource, 2).await;
    refuses_to_commit(base, tx, &resource, end.keeps, end.statements).await;
}

pub(crate) async fn refuses_to_commit<DB: Db>(
    base: &Base<DB>,
    tx: FencedTransaction<DB>,
    resource: &str,
    keeps: &[u64],
    why: &[&str],
) {
    let error = tx.commit().await.expect_err("the transaction has ended");
    assert_eq!(error.kind(), ErrorKind::Config, "{why:?}: {error}");
    assert!(error.to_string().contains("ended before"), "{error}");
    let values = history(&base.other, resource).await.into_iter();
    let values: Vec<_> = values.map(|(_, value)| value).collect();
    assert_eq!(values, keeps, "{why:?}");
    // The token is kept if the write before the end is.
    let older = fence::sql::begin(&base.pool, resource, token(6)).await;
    assert_eq!(older.is_err(), keeps.first() == Some(&1), "{why:?}");
    if let Ok(older) = older {
        older
            .commit()
            .await
            .expect("the connection is in a clean state");
    }
}

/// Ways to end a transaction that every database has. Catches a check that only asks whether any transaction
/// is open, and one that takes the program's own savepoints for an end.
pub(crate) async fn by_hand<DB: Db>(base: &Base<DB>) {
    for (statements, keeps) in [
        (&["COMMIT"][..], &[1, 2][..]),
        (&["ROLLBACK"], &[2]),
        (&["COMMIT", DB::BEGIN], &[1]),
        (&["ROLLBACK", DB::BEGIN], &[]),
    ] {
        is_refused(base, &End { statements, keeps }).await;
    }
    let resource = unique_name("savepoints");
    let begun = fence::sql::begin(&base.pool, &resource, token(7)).await;
    let mut tx = begun.expect("the first token");
    let run = async |tx: &mut FencedTransaction<DB>, statement: &str| {
        let done = DB::run(tx, statement, &[]).await;
        done.expect("the statement is part of a transaction");
    };
    run(&mut tx, "SAVEPOINT own").await;
    write(&mut tx, &resource, 1).await;
    run(&mut tx, "ROLLBACK TO SAVEPOINT own").await;
    run(&mut tx, "RELEASE SAVEPOINT own").await;
    run(&mut tx, "SAVEPOINT own").await;
    write(&mut tx, &resource, 2).await;
    tx.commit().await.expect("still open");
    assert_eq!(history(&base.pool, &resource).await, [(1, 2)]);
}
