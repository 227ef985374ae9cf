use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use leasehold_engine::{Error, ErrorKind, FencingToken};

use crate::client::Lease;

/// A part of a shared name that is held: slots of a semaphore, units of a quota, or the name for reading or writing.
///
/// It has all methods of [`Lease`] except `pass`. Renewal and loss concern only this permit: no other one keeps it
/// alive. Dropping it releases it in the background.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
/// let locker = leasehold::Locker::in_memory();
/// let permit = locker.semaphore("licenses", 3)?.acquire().await?;
/// assert!(permit.is_valid() && permit.capacity() == 3);
/// permit.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "a permit that is dropped is released"]
pub struct Permit {
    lease: Lease,
}

impl Permit {
    pub(super) fn new(lease: Lease) -> Self {
        Self { lease }
    }

    /// Returns the lowest slot of the permit; `None` if the name has no slots.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// assert_eq!(locker.semaphore("gpus", 2)?.acquire().await?.slot(), Some(0));
    /// assert_eq!(locker.quota("rows", 500)?.acquire().await?.slot(), None);
    /// # Ok(()) }
    /// ```
    pub fn slot(&self) -> Option<u16> {
        self.slots().first().copied()
    }

    /// Returns the slots of the permit. They are the lowest that were free, and nobody else has them.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let gpus = locker.semaphore("gpus", 4)?;
    /// let (one, two) = (gpus.acquire().await?, gpus.acquire_many(2).await?);
    /// assert_eq!((one.slots(), two.slots()), (&[0][..], &[1, 2][..]));
    /// # Ok(()) }
    /// ```
    pub fn slots(&self) -> &[u16] {
        self.lease
            .admission()
            .map_or(&[], |admission| &admission.slots)
    }

    /// Returns the name of the fenced resource: `name#slot`, with the permit's lowest slot, or the name if it has no
    /// slots.
    ///
    /// Every holder of the slot has a greater [token](Lease::token) than those before it. So let the guard of the storage
    /// check the token under this name.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let permit = locker.semaphore("licenses", 3)?.acquire().await?;
    /// assert_eq!(permit.resource(), "licenses#0");
    /// # Ok(()) }
    /// ```
    pub fn resource(&self) -> Cow<'_, str> {
        let name = self.lease.name().as_str();
        match self.slot() {
            Some(slot) => Cow::Owned(format!("{name}#{slot}")),
            None => Cow::Borrowed(name),
        }
    }

    /// Returns the capacity that the name had when the locker heard of the permit.
    ///
    /// After a `resize` meanwhile it may be smaller than the one under which the permit was given, and than the slot's number.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let first = locker.semaphore("licenses", 3)?.acquire().await?;
    /// let other = locker.semaphore("licenses", 5)?.acquire().await?;
    /// assert_eq!(other.capacity(), 3);
    /// # drop(first);
    /// # Ok(()) }
    /// ```
    pub fn capacity(&self) -> u32 {
        let admission = self.lease.admission();
        admission.map_or(0, |admission| admission.capacity)
    }

    /// Returns how often the capacity was set, from 1.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// assert_eq!(locker.semaphore("licenses", 3)?.acquire().await?.epoch(), 1);
    /// # Ok(()) }
    /// ```
    pub fn epoch(&self) -> u32 {
        self.lease
            .admission()
            .map_or(0, |admission| admission.epoch)
    }

    /// Returns the token of the last writer, if the name is for readers and writers and had one.
    ///
    /// A reader can reject data that has an older token. For a writer it is its own token.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let prices = locker.rw_lock("prices")?;
    /// assert_eq!(prices.read().acquire().await?.generation(), None);
    /// # Ok(()) }
    /// ```
    pub fn generation(&self) -> Option<FencingToken> {
        self.lease.admission()?.generation
    }

    /// Makes a writer's permit a reader's without letting go of the name, so no other writer comes between.
    ///
    /// This takes one round trip, which also renews the permit. Readers at the head of the line are admitted. The permit
    /// keeps its token, which is the [`generation`](Self::generation) that readers see. A second call only renews.
    ///
    /// A reader's permit cannot become a writer's: two readers that both asked for that would wait for each other
    /// forever, because neither lets go. Release the permit, acquire the name for writing, and read again.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config) if the permit is not a writer's, and the errors of [`Lease::renew`]. After
    /// such an error, a later renewal may still make the permit a reader's: stop writing before the call.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the permit becomes a reader's now or with a later renewal.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let prices = locker.rw_lock("prices")?;
    /// let permit = prices.write().acquire().await?;
    /// permit.downgrade().await?;
    /// let other = prices.read().try_acquire().await?.expect("readers share the name");
    /// assert_eq!(other.generation(), Some(permit.token()));
    /// # Ok(()) }
    /// ```
    pub async fn downgrade(&self) -> Result<(), Error> {
        if self.generation() != Some(self.token()) {
            let message = "only a writer's permit can become a reader's: release this one instead";
            return Err(Error::new(ErrorKind::Config, message).about(self.name()));
        }
        self.lease.downgrade().await
    }

    /// Releases the permit and waits until the store has freed it, which takes one round trip.
    ///
    /// Errors and cancel safety are as for [`Lease::release`]: a permit that expired is
    /// [`NotHeld`](crate::ErrorKind::NotHeld).
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let permit = locker.semaphore("licenses", 3)?.acquire().await?;
    /// permit.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn release(self) -> Result<(), Error> {
        self.lease.release().await
    }
}

impl Deref for Permit {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("resource", &self.resource())
            .field("token", &self.token())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
