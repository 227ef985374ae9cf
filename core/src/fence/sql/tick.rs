//! Completes a job's tick in the transaction of its effect.

use leasehold_engine::Error;
use sqlx::Connection;

use super::failure::Failure;
use super::sealed::Sealed;
use super::{Database, check};
use crate::Turn;

/// Says whether a transaction is the one that completes a tick. Returned by [`Turn::done_in`].
///
/// ```
/// # #[cfg(not(feature = "sqlite"))] fn main() {}
/// # #[cfg(feature = "sqlite")]
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use leasehold::{Claimed, Locker, fence, fence::sql::TickRecord};
///
/// let pool = sqlx::SqlitePool::connect("sqlite::memory:").await?;
/// fence::sql::create_table(&pool).await?;
/// let job = Locker::in_memory().job("report")?;
/// let Claimed::Turn(turn) = job.claim(7).await? else { return Ok(()) };
///
/// let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
/// assert_eq!(turn.done_in(&mut *tx).await?, TickRecord::Written);
/// tx.commit().await?;
/// # Ok(()) }
/// ```
#[must_use = "the tick's work must be skipped if an earlier transaction has completed it"]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum TickRecord {
    /// The tick is recorded in this transaction: do its work here, and commit.
    Written,
    /// An earlier transaction has completed this tick or a later one: skip the work.
    AlreadyCompleted,
}

/// With a [SQL guard](crate::fence::sql).
impl Turn {
    /// Completes the tick in a transaction of the guarded database, together with the work that the transaction
    /// writes.
    ///
    /// It checks the turn's token, as [`check`](crate::fence::sql::check) does for the resource with the job's
    /// name. It then records the tick in the resource's fence row, which it holds until the transaction ends.
    /// Call it before the work, commit, and then call [`done`](Self::done) to tell the locks' store:
    ///
    /// ```
    /// # #[cfg(not(feature = "sqlite"))] fn main() {}
    /// # #[cfg(feature = "sqlite")]
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use leasehold::{Claimed, Locker, fence, fence::sql::TickRecord};
    ///
    /// # let pool = sqlx::SqlitePool::connect("sqlite::memory:").await?;
    /// # fence::sql::create_table(&pool).await?;
    /// # sqlx::query("CREATE TABLE report (day INTEGER)").execute(&pool).await?;
    /// let job = Locker::in_memory().job("report")?;
    /// let Claimed::Turn(turn) = job.claim(20_261_127).await? else { return Ok(()) };
    /// let mut tx = fence::sql::begin(&pool, "report", turn.token()).await?;
    /// if turn.done_in(&mut *tx).await? == TickRecord::Written {
    ///     let insert = sqlx::query("INSERT INTO report (day) VALUES (20261127)");
    ///     insert.execute(&mut *tx).await?;
    ///     tx.commit().await?;
    /// }
    /// turn.done().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// The writes of the transaction take effect exactly once per tick. If the runner dies after the commit and
    /// before `done`, the next runner of the tick gets [`AlreadyCompleted`](TickRecord::AlreadyCompleted), and only
    /// has to call `done`. Effects outside of the transaction are not covered.
    ///
    /// The database remembers the greatest tick forever, as it does the token. So each tick also takes effect
    /// once after the locks' store lost its data. A job whose ticks start again from small numbers needs another
    /// name, or its row deleted.
    ///
    /// # Errors
    ///
    /// The errors of [`check`](crate::fence::sql::check), after which the transaction must be rolled back.
    /// [`StaleToken`](crate::ErrorKind::StaleToken) means that a later runner was here.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: if the future is dropped, roll the transaction back.
    pub async fn done_in<C>(&self, transaction: &mut C) -> Result<TickRecord, Error>
    where
        C: Connection,
        C::Database: Database + sqlx::Database<Connection = C>,
    {
        let job = self.name().as_str();
        check(transaction, job, self.token()).await?;
        let tick = self.tick().cast_signed();
        match C::Database::complete_tick(transaction, job, tick).await {
            Ok(0) => Ok(TickRecord::AlreadyCompleted),
            Ok(_) => Ok(TickRecord::Written),
            Err(error) => Err(Failure::new::<C::Database>(error).error),
        }
    }
}
