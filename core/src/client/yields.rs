use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use leasehold_engine::Error;
use leasehold_engine::engine::HolderInfo;
use leasehold_engine::protocol::LockKey;

use super::Core;

/// The pauses between two looks at a lock whose holder was asked to yield.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How much later a request may end at the store, which counts whole milliseconds, and for the whole of the last one.
const ROUNDED_OFF: Duration = Duration::from_millis(2);

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
        let by = core.options.owner.clone();
        let Some(mut holder) = driver.request_yield(key.clone(), by, within).await? else {
            return Ok(true);
        };
        // By then the request has ended at the store, so that another one is not taken for this one.
        let end = driver.now() + within + ROUNDED_OFF;
        let mut pause = FIRST_PAUSE;
        loop {
            let left = end.since(driver.now());
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
