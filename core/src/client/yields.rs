use std::fmt;
use std::future::IntoFuture;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{Either, select};
use leasehold_engine::engine::HolderInfo;
use leasehold_engine::protocol::LockKey;
use leasehold_engine::{Error, LeaseEvent};

use super::{Core, Lease, Lost};

/// The pauses between two looks at a lock whose holder was asked to yield.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A request to the holder of a lock to release it: see [`Locker::request_yield`](super::Locker::request_yield).
///
/// Awaiting it sends the request and follows the lock. Nothing happens before.
#[must_use = "the holder is asked once this is awaited"]
pub struct YieldRequest {
    core: Arc<Core>,
    key: Result<LockKey, Error>,
    within: Duration,
    force: bool,
}

impl YieldRequest {
    pub(super) fn new(core: Arc<Core>, key: Result<LockKey, Error>, within: Duration) -> Self {
        Self {
            core,
            key,
            within,
            force: false,
        }
    }

    /// Takes the lock away from a holder that still has it when the time is over.
    ///
    /// Works as [`force_release_token`](super::Locker::force_release_token): it ends only the tenure that was
    /// asked.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    ///
    /// let locker = leasehold::Locker::in_memory();
    /// let stuck = locker.lock("leader")?.acquire().await?;
    /// assert!(locker.request_yield("leader", Duration::from_millis(50)).force().await?);
    /// assert_eq!(stuck.lost().await.reason, leasehold::LossReason::Revoked);
    /// # Ok(()) }
    /// ```
    pub fn force(mut self) -> Self {
        self.force = true;
        self
    }

    async fn run(self) -> Result<bool, Error> {
        let Self {
            core,
            key,
            within,
            force,
        } = self;
        let (driver, key) = (&core.driver, key?);
        let (began, by) = (driver.now(), core.options.owner.clone());
        let Some(mut holder) = driver.request_yield(key.clone(), by, within).await? else {
            return Ok(true);
        };
        let mut pause = FIRST_PAUSE;
        loop {
            let left = within.saturating_sub(driver.now().since(began));
            if left.is_zero() {
                break;
            }
            driver.sleep(pause.min(left)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            match core.still_holds(&key, &holder).await? {
                Some(seen) => holder = seen,
                None => return Ok(true),
            }
        }
        if !force {
            return Ok(false);
        }
        let token = Some(holder.token);
        let freed = driver.force_release(key.clone(), token).await?;
        Ok(freed.is_some() || core.still_holds(&key, &holder).await?.is_none())
    }
}

impl Core {
    /// Returns what the store says of this holder now, or `None` if its tenure is over. The request shows that
    /// it goes on at a quorum, where the token depends on the servers that answer.
    async fn still_holds(
        &self,
        key: &LockKey,
        holder: &HolderInfo,
    ) -> Result<Option<HolderInfo>, Error> {
        let seen = self.driver.inspect(key.clone()).await?;
        let wanted = seen.wanted.is_some();
        let same = |now: &HolderInfo| now.token == holder.token || wanted;
        Ok(seen.holder.filter(same))
    }
}

impl IntoFuture for YieldRequest {
    type Output = Result<bool, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl fmt::Debug for YieldRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("YieldRequest")
            .field("within", &self.within)
            .field("force", &self.force)
            .finish_non_exhaustive()
    }
}

impl Lease {
    /// Resolves once somebody wants the lock: a waiter stands in line, or a
    /// [request to yield](super::Locker::request_yield) is pending.
    ///
    /// So a leader can go on for as long as nobody waits, and then stop at a good point. The store is asked at
    /// once and after each renewal, every third of the time to live. A request resolves it as soon as
    /// [`Wanted`](LeaseEvent::Wanted) is emitted. Attempts that do not wait, such as
    /// [`try_acquire`](super::Lock::try_acquire), do not count.
    ///
    /// # Errors
    ///
    /// - [`NotHeld`](crate::ErrorKind::NotHeld) once the lease is lost, with a [`Lost`] as the error's source;
    /// - the store's error, if it refuses. While the store cannot be reached, this keeps waiting.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the lease.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// let locker = leasehold::Locker::in_memory();
    /// let lease = locker.lock("leader")?.acquire().await?;
    /// let next = locker.clone();
    /// let next = tokio::spawn(async move { next.lock("leader")?.acquire().await });
    /// # while locker.inspect("leader").await?.waiting == 0 {
    /// #     tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    /// # }
    /// lease.wanted().await?;
    /// lease.release().await?;
    /// assert!(next.await.unwrap()?.is_valid());
    /// # Ok(()) }
    /// ```
    pub async fn wanted(&self) -> Result<(), Error> {
        let (wanted, lost) = (pin!(self.until_wanted()), pin!(self.share.until_lost()));
        match select(lost, wanted).await {
            Either::Left((reason, _)) => Err(Lost::of(self.name(), &self.share, reason).into()),
            Either::Right((result, _)) => result.map_err(|error| error.about(self.name())),
        }
    }

    async fn until_wanted(&self) -> Result<(), Error> {
        let mut events = self.lock.events();
        loop {
            match self.lock.inspect().await {
                Ok(seen) if seen.waiting > 0 || seen.wanted.is_some() => return Ok(()),
                Err(error) if !error.is_transient() => return Err(error),
                Ok(_) | Err(_) => {}
            }
            // Fixed leases have no renewals to look after.
            let next = pin!(self.lock.sleep_if_fixed());
            let told = pin!(async {
                loop {
                    match events.next().await {
                        Some(LeaseEvent::Wanted { token, .. }) if token == self.token() => {
                            return true;
                        }
                        Some(LeaseEvent::Renewed { .. } | LeaseEvent::Lagged { .. }) => {
                            return false;
                        }
                        Some(_) => {}
                        // The locker was shut down, so the lease is lost.
                        None => std::future::pending().await,
                    }
                }
            });
            if let Either::Left((true, _)) = select(told, next).await {
                return Ok(());
            }
        }
    }
}
