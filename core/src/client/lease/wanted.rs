//! Waiting until somebody wants the lock of a lease.

use std::pin::pin;

use futures::StreamExt;
use futures::future::{Either, select};
use leasehold_engine::{Error, LeaseEvent};

use super::{Lease, Lost};

impl Lease {
    /// Resolves once somebody wants the lock: a waiter stands in line, or a
    /// [request to yield](crate::Locker::request_yield) is pending.
    ///
    /// A leader that awaits it works on for as long as nobody waits, and then stops at a good point. The store
    /// is asked at once and after each renewal, every third of the time to live. A request resolves it as soon as
    /// [`Wanted`](LeaseEvent::Wanted) is emitted. Attempts that do not wait, such as
    /// [`try_acquire`](crate::Lock::try_acquire), do not count.
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
