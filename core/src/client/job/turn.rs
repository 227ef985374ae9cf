use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use leasehold_engine::{Error, FencingToken, Name};

use crate::client::Lease;

/// One runner's right to run one tick of a [`Job`](super::Job).
///
/// It has a [`Lease`], which is renewed in the background. [`done`](Self::done) completes the tick, which then
/// is given to nobody again. Dropping the turn gives the same tick to the next runner that waits for it, and so
/// does its loss; that runner gets a greater token. So a tick runs at least once while any runner lives, and
/// the storage it writes to can refuse a former runner by the [`token`](Self::token).
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
/// use leasehold::Claimed;
///
/// let locker = leasehold::Locker::in_memory();
/// if let Claimed::Turn(turn) = locker.job("report")?.claim(20_261_127).await? {
///     println!("running tick {} with token {}", turn.tick(), turn.token());
///     turn.done().await?;
/// }
/// # Ok(()) }
/// ```
#[must_use = "a turn that is dropped gives its tick to the next runner"]
pub struct Turn {
    /// `None` once the turn is over.
    lease: Option<Lease>,
    tick: u64,
    /// True if the tick is the time at which it was due.
    is_time: bool,
    missed: u64,
    /// Set if the turn ended and its tick may not be completed, although its runner did not give it back.
    unfinished: Arc<AtomicBool>,
}

impl Turn {
    pub(super) fn new(lease: Lease, tick: u64) -> Self {
        Self {
            lease: Some(lease),
            tick,
            is_time: false,
            missed: 0,
            unfinished: Arc::default(),
        }
    }

    /// Makes the turn of a schedule's tick, which knows how many ticks before it were missed.
    pub(super) fn of_schedule(mut self, missed: u64) -> Self {
        (self.is_time, self.missed) = (true, missed);
        self
    }

    /// Returns a flag that is set when the turn ends without anyone knowing that its tick is completed.
    pub(super) fn unfinished(&self) -> Arc<AtomicBool> {
        self.unfinished.clone()
    }

    /// Returns the name of the job.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// # use leasehold::Claimed;
    /// # let Claimed::Turn(turn) = locker.job("import")?.claim(7).await? else { return Ok(()) };
    /// assert_eq!(turn.name().as_str(), "import");
    /// # Ok(()) }
    /// ```
    pub fn name(&self) -> &Name {
        self.lease().name()
    }

    /// Returns the tick. For a job with a schedule it is the due time in milliseconds since 1970, by the
    /// server's clock.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// # use leasehold::Claimed;
    /// # let Claimed::Turn(turn) = locker.job("import")?.claim(7).await? else { return Ok(()) };
    /// assert_eq!(turn.tick(), 7);
    /// # Ok(()) }
    /// ```
    pub fn tick(&self) -> u64 {
        self.tick
    }

    /// Returns when the tick was due, by the server's clock; `None` if it was claimed by its number.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// # use leasehold::Claimed;
    /// # let Claimed::Turn(turn) = locker.job("import")?.claim(7).await? else { return Ok(()) };
    /// assert_eq!(turn.scheduled_for(), None); // it was claimed by its number
    /// # Ok(()) }
    /// ```
    pub fn scheduled_for(&self) -> Option<SystemTime> {
        let due = || SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(self.tick));
        self.is_time.then(due).flatten()
    }

    /// Returns how many ticks of the schedule nobody completed between the last completed one and this one; at
    /// most 10,000 for a cron text. 0 if the tick was claimed by its number.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// # use leasehold::Claimed;
    /// # let Claimed::Turn(turn) = locker.job("import")?.claim(7).await? else { return Ok(()) };
    /// assert_eq!(turn.missed(), 0);
    /// # Ok(()) }
    /// ```
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Returns the fencing token: greater than that of every earlier turn of the job.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// # use leasehold::Claimed;
    /// # let Claimed::Turn(turn) = locker.job("import")?.claim(7).await? else { return Ok(()) };
    /// println!("send {} with every write", turn.token());
    /// # Ok(()) }
    /// ```
    pub fn token(&self) -> FencingToken {
        self.lease().token()
    }

    /// Returns the lease, which tells of a loss.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// # use leasehold::Claimed;
    /// # let Claimed::Turn(turn) = locker.job("import")?.claim(7).await? else { return Ok(()) };
    /// turn.lease().run(async { println!("working") }).await?;
    /// # Ok(()) }
    /// ```
    pub fn lease(&self) -> &Lease {
        self.lease
            .as_ref()
            .expect("the lease stays until the turn is over")
    }

    /// Completes the tick and ends the turn. Resolves once the store has confirmed it, after one round trip.
    ///
    /// # Errors
    ///
    /// [`NotHeld`](crate::ErrorKind::NotHeld) if the lease was lost: another runner may have run the tick, or
    /// may run it now. After another error it is unknown whether the tick is completed. The locker repeats the
    /// request until the lease would have expired.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the request.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// # use leasehold::Claimed;
    /// # let Claimed::Turn(turn) = locker.job("import")?.claim(7).await? else { return Ok(()) };
    /// turn.done().await?;
    /// let seen = locker.inspect("import").await?.job.expect("it is a job's name");
    /// assert_eq!(seen.completed.map(|done| done.tick), Some(7));
    /// # Ok(()) }
    /// ```
    pub async fn done(mut self) -> Result<(), Error> {
        let lease = self
            .lease
            .take()
            .expect("the lease stays until the turn is over");
        let done = lease.complete().await;
        self.unfinished.store(done.is_err(), Ordering::Release);
        done
    }

    /// Ends the turn without completing its tick, which the next waiting runner gets. Resolves once the store
    /// has confirmed it; dropping the turn does the same in the background.
    ///
    /// # Errors
    ///
    /// The errors of [`Lease::release`].
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// # use leasehold::Claimed;
    /// # let Claimed::Turn(turn) = locker.job("import")?.claim(7).await? else { return Ok(()) };
    /// turn.give_back().await?;
    /// assert!(matches!(locker.job("import")?.try_claim(7).await?, Claimed::Turn(_)));
    /// # Ok(()) }
    /// ```
    pub async fn give_back(mut self) -> Result<(), Error> {
        let lease = self
            .lease
            .take()
            .expect("the lease stays until the turn is over");
        lease.release().await
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(lease) = &self.lease {
            self.unfinished.store(!lease.is_valid(), Ordering::Release);
        }
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn")
            .field("tick", &self.tick)
            .field("missed", &self.missed)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}
