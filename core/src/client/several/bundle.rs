use std::fmt;
use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures::future::{select_all, try_join_all};
use leasehold_engine::{Error, FencingToken, Name};

use crate::client::{Lease, Lost};

/// The leases of several names, acquired together: see [`Locker::all`](crate::Locker::all).
///
/// A bundle is valid for as long as all its leases are. Each name has a token of its own, which its storage
/// checks. Leases are renewed until the bundle is released or dropped, or until one is lost; the others stay held
/// after that, and are freed when the bundle is released or dropped.
///
/// Dropping a bundle releases its names in the background, as dropping a [`Lease`] does.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
/// let locker = leasehold::Locker::in_memory();
/// let bundle = locker.all(["accounts/3", "accounts/7"])?.acquire().await?;
/// assert!(bundle.token("accounts/3").is_some() && bundle.token("accounts/5").is_none());
/// assert_eq!(bundle.release().await?.len(), 2);
/// # Ok(()) }
/// ```
#[must_use = "a bundle that is dropped is released"]
pub struct Bundle {
    /// The leases in the order of their names. Never empty.
    leases: Vec<Lease>,
}

impl Bundle {
    pub(super) fn new(leases: Vec<Lease>) -> Self {
        Self { leases }
    }

    /// Returns the token of a name; `None` if the bundle does not have the name.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let bundle = locker.all(["a", "b"])?.acquire().await?;
    /// assert!(bundle.token("b").is_some());
    /// # Ok(()) }
    /// ```
    pub fn token(&self, name: impl AsRef<str>) -> Option<FencingToken> {
        let name = name.as_ref();
        let named = |lease: &&Lease| lease.name().as_str() == name;
        self.leases.iter().find(named).map(Lease::token)
    }

    /// Returns the names with their tokens, in the order of the names.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let bundle = locker.all(["b", "a"])?.acquire().await?;
    /// let (first, token) = bundle.tokens().next().expect("two names");
    /// assert_eq!((first.as_str(), Some(token)), ("a", bundle.token("a")));
    /// # Ok(()) }
    /// ```
    pub fn tokens(&self) -> impl Iterator<Item = (&Name, FencingToken)> {
        let leases = self.leases.iter();
        leases.map(|lease| (lease.name(), lease.token()))
    }

    /// Returns the time until the earliest deadline of the leases; zero once one is lost. No I/O.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let bundle = locker.all(["a", "b"])?.acquire().await?;
    /// println!("{:?} until the deadline", bundle.remaining());
    /// # Ok(()) }
    /// ```
    pub fn remaining(&self) -> Duration {
        let remaining = self.leases.iter().map(Lease::remaining);
        remaining.min().unwrap_or_default()
    }

    /// Returns true if all leases are held, as far as this process can know. No I/O.
    ///
    /// It is false from the earliest deadline on: see [`Lease::is_valid`].
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let bundle = locker.all(["a", "b"])?.acquire().await?;
    /// locker.force_release("b").await?;
    /// bundle.lost().await;
    /// assert!(!bundle.is_valid());
    /// # Ok(()) }
    /// ```
    pub fn is_valid(&self) -> bool {
        self.leases.iter().all(Lease::is_valid)
    }

    /// Resolves when the first lease is lost, with a [`Lost`] that names it and says why.
    ///
    /// Never resolves if none is lost. Dropping the future has no effect on the leases.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let bundle = locker.all(["a", "b"])?.acquire().await?;
    /// locker.force_release("b").await?;
    /// assert_eq!(bundle.lost().await.name.as_str(), "b");
    /// # Ok(()) }
    /// ```
    pub async fn lost(&self) -> Lost {
        Self::first_lost(&self.leases).await
    }

    /// Runs a future for as long as all leases are held.
    ///
    /// When one is lost, the future is dropped at its current await point, and the result is its [`Lost`]. If
    /// the future blocks its thread and finishes only after the deadline, the result is `Lost`, too.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let bundle = locker.all(["a", "b"])?.acquire().await?;
    /// assert_eq!(bundle.run(async { 6 * 7 }).await?, 42);
    ///
    /// let lost = bundle.run(async {
    ///     locker.force_release("b").await?;
    ///     std::future::pending::<Result<(), leasehold::Error>>().await
    /// });
    /// assert_eq!(lost.await.unwrap_err().name.as_str(), "b");
    /// # Ok(()) }
    /// ```
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        let (mut work, mut lost) = (pin!(work), pin!(self.lost()));
        let broken = || self.leases.iter().find_map(Lease::loss);
        poll_fn(|context| {
            // Checked at each poll, so the work takes no step after the deadline.
            if let Some(lost) = broken() {
                return Poll::Ready(Err(lost));
            }
            if let Poll::Ready(lost) = lost.as_mut().poll(context) {
                return Poll::Ready(Err(lost));
            }
            // A step may last until after the deadline.
            work.as_mut()
                .poll(context)
                .map(|output| broken().map_or(Ok(output), Err))
        })
        .await
    }

    /// Extends all leases by their time to live from now, together.
    ///
    /// They are renewed in the background, too. Renewing by hand gives the work its full time from here on, as after a
    /// long wait for the last name.
    ///
    /// # Errors
    ///
    /// The errors of [`Lease::renew`], of the first lease that cannot be renewed; the message names that lease.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the renewals.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// use std::time::Duration;
    ///
    /// let bundle = locker.all(["a", "b"])?.ttl(Duration::from_secs(30)).acquire().await?;
    /// tokio::time::sleep(Duration::from_millis(200)).await;
    /// bundle.renew().await?;
    /// assert!(bundle.remaining() > Duration::from_secs(20));
    /// # Ok(()) }
    /// ```
    pub async fn renew(&self) -> Result<(), Error> {
        try_join_all(self.leases.iter().map(Lease::renew)).await?;
        Ok(())
    }

    /// Releases all names together, and returns those that the store has freed, in their order.
    ///
    /// # Errors
    ///
    /// [`NotHeld`](crate::ErrorKind::NotHeld) if a lease was lost, with the [`Lost`] as its source. Another
    /// client may have held that name while you worked. After another error the store has not confirmed a
    /// release, and the locker retries it in the background. The message names the culprit and lists the names
    /// that were released.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the release.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let bundle = locker.all(["b", "a"])?.acquire().await?;
    /// let released = bundle.release().await?;
    /// assert!(released.iter().map(|name| name.as_str()).eq(["a", "b"]));
    /// # Ok(()) }
    /// ```
    pub async fn release(self) -> Result<Vec<Name>, Error> {
        let (mut released, mut failed) = (Vec::new(), None);
        for (name, outcome) in Lease::release_all(self.leases).await {
            match outcome {
                Ok(()) => released.push(name),
                // A loss says more than a release that the store has not confirmed.
                Err(error) if failed.is_none() || error.is_not_held() => failed = Some(error),
                Err(_) => {}
            }
        }
        match failed {
            None => Ok(released),
            Some(error) => Err(error.of(format_args!("the bundle released only {released:?}"))),
        }
    }

    /// Resolves when one of the leases is lost; never if there are none.
    pub(super) async fn first_lost<'a>(leases: impl IntoIterator<Item = &'a Lease>) -> Lost {
        let lost: Vec<_> = leases.into_iter().map(|it| Box::pin(it.lost())).collect();
        if lost.is_empty() {
            return pending().await;
        }
        select_all(lost).await.0
    }
}

impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bundle")
            .field("leases", &self.leases)
            .finish_non_exhaustive()
    }
}
