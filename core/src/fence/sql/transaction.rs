//! The transaction that holds a fence's row.

use std::fmt;
use std::ops::{Deref, DerefMut};

use leasehold_engine::{Error, ErrorKind};
use sqlx::Transaction;

use super::failure::{self, Failure};
use super::{Database, detached};

/// A transaction that holds the resource's fence row, from [`begin`](super::begin).
///
/// It is used like [`sqlx::Transaction`]: `&mut *tx` runs statements, dropping it rolls it back.
/// [`commit`](Self::commit) refuses if the transaction is no longer the one that checked the token:
/// [why that can be](super#statements-that-end-a-transaction).
#[must_use = "a transaction that is dropped is rolled back"]
pub struct FencedTransaction<DB: Database> {
    transaction: Transaction<'static, DB>,
    /// What the server called it when it took the row.
    name: i64,
}

impl<DB: Database> FencedTransaction<DB> {
    pub(super) fn new(transaction: Transaction<'static, DB>, name: i64) -> Self {
        Self { transaction, name }
    }

    /// Commits, if it is still the transaction that checked the token. All that was done in it takes
    /// effect at once.
    ///
    /// Errors, after which the connection is in no transaction:
    ///
    /// - [`ErrorKind::Config`] if the transaction was ended before, by a statement that ran in it or
    ///   by an error that was passed over. What was done before such a commit *is written*, and so is
    ///   what was done afterwards, *without the fence*; what was done before a rollback is not.
    ///   [Which statements do that](super#statements-that-end-a-transaction).
    /// - [`ErrorKind::Unavailable`] if the connection broke, or if another transaction was in the
    ///   way; the message says whether it is known that nothing was written
    /// - [`ErrorKind::Store`] and others as the database says, also if a statement had failed before
    ///   and Postgres therefore rolls back: nothing was written
    ///
    /// If the future is dropped the commit goes on.
    pub async fn commit(self) -> Result<(), Error> {
        let committed = detached::<DB, _>(async move { Ok(self.end().await?) }).await;
        committed.map_err(|failure| failure.error)
    }

    /// Rolls back: nothing of it was done, and the token was not seen.
    ///
    /// Errors: [`ErrorKind::Unavailable`] if the connection broke, which rolls back too; others as
    /// the database says.
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
                    // If it fails, the program has opened a transaction.
                    DB::run_for_fence(&mut self.transaction, open).await.ok();
                }
                Error::new(ErrorKind::Config, ENDED)
            }
            Err(error) => failure::of_commit::<DB>(error),
        };
        // If it fails the connection is broken, and with it the transaction is gone.
        self.transaction.rollback().await.ok();
        Err(refusal)
    }
}

const ENDED: &str = "the commit is refused: the transaction that checked the token was ended before, by a \
     statement in it that commits (such as COMMIT; on MySQL also DDL, TRUNCATE, LOCK TABLES, START \
     TRANSACTION) or by one that was rolled back and whose error was passed over (such as a \
     deadlock); what was done before such a commit, and after its end, is written";

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

/// For what takes a transaction of sqlx.
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
