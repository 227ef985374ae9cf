use std::time::Duration;

use leasehold_engine::Owner;

use super::{RwLock, Semaphore};

/// Defines the options of a handle on a shared name, whose examples make it by this expression.
macro_rules! options {
    ($handle:ident, $make:literal, $take:literal) => {
        /// Options, as those of [`Lock`](crate::Lock). A bad one fails the acquisition.
        impl $handle {
            /// Sets the time to live of each permit: see [`Lock::ttl`](crate::Lock::ttl).
            ///
            /// ```
            /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
            /// # let locker = leasehold::Locker::in_memory();
            /// use std::time::Duration;
            ///
            #[doc = concat!("let handle = ", $make, "?.ttl(Duration::from_secs(5));")]
            #[doc = concat!("let permit = handle", $take, ".acquire().await?;")]
            /// assert!(permit.remaining() <= Duration::from_secs(5));
            /// # Ok(()) }
            /// ```
            #[must_use]
            pub fn ttl(mut self, ttl: Duration) -> Self {
                self.lock = self.lock.ttl(ttl);
                self
            }

            /// Turns off background renewal: see [`Lock::fixed`](crate::Lock::fixed).
            ///
            /// ```
            /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
            /// # let locker = leasehold::Locker::in_memory();
            #[doc = concat!("let handle = ", $make, "?.fixed();")]
            #[doc = concat!("let permit = handle", $take, ".acquire().await?;")]
            /// permit.renew().await?;
            /// # Ok(()) }
            /// ```
            #[must_use]
            pub fn fixed(mut self) -> Self {
                self.lock = self.lock.fixed();
                self
            }

            /// Limits how long each permit may be held: see [`Lock::at_most`](crate::Lock::at_most).
            ///
            /// ```
            /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
            /// # let locker = leasehold::Locker::in_memory();
            /// use std::time::Duration;
            ///
            #[doc = concat!("let handle = ", $make, "?.at_most(Duration::from_secs(600));")]
            #[doc = concat!("assert!(handle", $take, ".acquire().await?.is_valid());")]
            /// # Ok(()) }
            /// ```
            #[must_use]
            pub fn at_most(mut self, age: Duration) -> Self {
                self.lock = self.lock.at_most(age);
                self
            }

            /// Sets the label that others see. It reclaims nothing: an owner may hold several permits.
            ///
            /// 1 to 128 bytes.
            ///
            /// ```
            /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
            /// # let locker = leasehold::Locker::in_memory();
            #[doc = concat!("let handle = ", $make, "?.owner(\"job-7\");")]
            #[doc = concat!("assert!(handle", $take, ".acquire().await?.is_valid());")]
            /// # Ok(()) }
            /// ```
            #[must_use]
            pub fn owner(mut self, owner: impl AsRef<str>) -> Self {
                self.lock = self.lock.with(|spec| {
                    let label = Owner::labelled(owner.as_ref())?;
                    spec.owner = spec
                        .owner
                        .share()
                        .map_or(label.clone(), |share| label.with_share(share));
                    Ok(())
                });
                self
            }

            /// Bounds the line: an acquisition that finds this many waiters ahead of it fails at once with
            /// [`Overloaded`](crate::ErrorKind::Overloaded).
            ///
            /// ```
            /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
            /// # let locker = leasehold::Locker::in_memory();
            #[doc = concat!("let handle = ", $make, "?.max_line(100);")]
            #[doc = concat!("assert!(handle", $take, ".acquire().await?.is_valid());")]
            /// # Ok(()) }
            /// ```
            #[must_use]
            pub fn max_line(mut self, waiters: u32) -> Self {
                self.lock = self.lock.with(|spec| {
                    spec.max_line = Some(waiters);
                    Ok(())
                });
                self
            }
        }
    };
}

options!(Semaphore, "locker.semaphore(\"licenses\", 3)", "");
options!(RwLock, "locker.rw_lock(\"prices\")", ".write()");

impl Semaphore {
    /// Makes it an error if the capacity of the name at the store is not this handle's.
    ///
    /// Without it, acquisitions continue with the store's capacity. The event
    /// [`CapacityDiffers`](crate::LeaseEvent::CapacityDiffers) and a [finding](crate::Finding::Capacity) say so. With it they fail with
    /// [`Config`](crate::ErrorKind::Config), as soon as they would get a permit.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let first = locker.semaphore("licenses", 3)?.acquire().await?;
    /// let other = locker.semaphore("licenses", 5)?.strict();
    /// assert!(other.acquire().await.unwrap_err().is_config());
    /// # drop(first);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.lock = self.lock.with(|spec| {
            spec.strict = true;
            Ok(())
        });
        self
    }
}
