//! A transaction that holds a fence row.

use std::fmt;
use std::ops::{Deref, DerefMut};

use leasehold_engine::{Error, ErrorKind};
use sqlx::Transaction;

use super::failure::{self, Failure};
use super::{Database, detached};

/// A transaction that holds the resource's fence row. Returned by [`begin`](super::begin).
///
/// Use it like [`sqlx::Transaction`]: run statements on `&mut *tx`; dropping it rolls it back.
/// [`commit`](Self::commit) fails if the transaction that checked the token [has
/// ended](super#statements-that-end-a-transaction).
#[must_use = "a transaction that is dropped is rolled back"]
pub struct FencedTransaction<DB: Database> {
    transaction: Transaction<'static, DB>,
    /// The server's number for the transaction when it took the row.
    name: i64,
}

impl<DB: Database> FencedTransaction<DB> {
    pub(super) fn new(transaction: Transaction<'static, DB>, name: i64) -> Self {
        Self { transaction, name }
    }

    /// Commits, if this is still the transaction that checked the token.
    ///
    /// Errors, after which the connection is in no transaction:
    ///
    /// - [`ErrorKind::Config`] if the transaction had already ended, by a [statement in
    ///   it](super#statements-that-end-a-transaction) or by an error that was ignored. Writes before a
    ///   statement that committed *took effect*; so did writes after the end, *without the fence*. Writes
    ///   before a rollback did not
    /// - [`ErrorKind::Unavailable`] if the connection broke, or if another transaction conflicted; the
    ///   message says whether it is certain that nothing was written
    /// - [`ErrorKind::Store`] and others according to the database's error, also if Postgres rolls back
    ///   because a statement had failed before; nothing was written
    ///
    /// Dropping the future does not stop the commit.
    pub async fn commit(self) -> Result<(), Error> {
        let committed = detached::<DB, _>(async move { Ok(self.end().await?) }).await;
        committed.map_err(|failure| failure.error)
    }

    /// Rolls back: the transaction has no effect, and its token does not count.
    ///
    /// Errors: [`ErrorKind::Unavailable`] if the connection broke, which rolls back too; others according to
    /// the database's error.
    pub async fn rollback(self) -> Result<(), Error> {
        let done = self.transaction.rollback().await;
        done.map_err(|error| Failure::new::<DB>(error).error)
    }

    async fn end(mut self) -> Result<(), Error> {
        let same = DB::fence_is_marked(&mut self.transaction, self.name).await;
        let refusal = match same {
            Ok(true) => {
                return self
                    .transaction
                    .commit()
                    .await
                    .map_err(failure::of_commit::<DB>);
            }
            Ok(false) => {
                if let Some(open) = DB::OPEN_AFTER_FENCE {
                    // This fails if the program has opened another transaction.
                    DB::run_for_fence(&mut self.transaction, open).await.ok();
                }
                Error::new(ErrorKind::Config, ENDED)
            }
            Err(error) => failure::of_commit::<DB>(error),
        };
        // If this fails the connection is broken, and the transaction is gone with it.
        self.transaction.rollback().await.ok();
        Err(refusal)
    }
}

const ENDED: &str = "the commit is refused: the transaction that checked the token had ended before, by a \
     statement that commits (COMMIT; on MySQL also DDL, TRUNCATE, LOCK TABLES, START TRANSACTION) or by a \
     rollback whose error was ignored (such as a deadlock); what was written before such a commit, or after \
     the end, took effect";

impl<DB: Database> Deref for FencedTransaction<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        &self.transaction
    }
}

impl<DB: Database> DerefMut for FencedTransaction<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        &mut self.transaction
    }
}

/// For functions that take a transaction of sqlx.
impl<DB: Database> AsMut<Transaction<'static, DB>> for FencedTransaction<DB> {
    fn as_mut(&mut self) -> &mut Transaction<'static, DB> {
        &mut self.transaction
    }
}

impl<DB: Database> fmt::Debug for FencedTransaction<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FencedTransaction").finish_non_exhaustive()
    }
}
