mod wanted;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use futures::future::join_all;
use leasehold_engine::protocol::Admission;
use leasehold_engine::{Error, ErrorKind, FencingToken, LossReason, Name, Ticket};
use pin_project::pin_project;

use super::Lock;
use crate::driver::Share;

/// The time-limited right to a name, with a fencing token.
///
/// A lease that is not [fixed](Lock::fixed) is renewed in the background until it is released, dropped or
/// lost. It can be lost at any time, so let the storage that you write to check its [`token`](Self::token): a
/// paused program cannot know that its lease is over.
///
/// Dropping a lease releases it in the background, if the tokio runtime goes on. Later requests of the same
/// task are sent after that release, unless an [`Adapter`](crate::adapter::Adapter) spreads calls over
/// connections. To be sure of the release, await [`release`](Self::release).
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
/// let locker = leasehold::Locker::in_memory();
/// let lease = locker.lock("orders/42")?.acquire().await?;
/// assert!(lease.is_valid());
/// assert!(lease.remaining() > std::time::Duration::from_secs(29));
/// lease.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "a lease that is dropped is released"]
pub struct Lease {
    share: Share,
    /// Keeps the lock's event streams open.
    lock: Lock,
}

impl Lease {
    pub(super) fn new(share: Share, lock: Lock) -> Self {
        Self { share, lock }
    }

    /// Returns the slots and the state of a shared name.
    pub(super) fn admission(&self) -> Option<&Admission> {
        self.share.admission.as_deref()
    }

    /// Returns the name of the lock.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let lease = locker.lock("orders/42")?.acquire().await?;
    /// assert_eq!(lease.name().as_str(), "orders/42");
    /// # Ok(()) }
    /// ```
    pub fn name(&self) -> &Name {
        self.lock.name()
    }

    /// Returns the tenure's token, which is greater than that of every earlier tenure of the name.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let lock = locker.lock("orders/42")?;
    /// let first = lock.acquire().await?.token();
    /// let second = lock.acquire().await?.token();
    /// assert!(second > first);
    /// # Ok(()) }
    /// ```
    pub fn token(&self) -> FencingToken {
        self.share.tenure.token
    }

    /// Returns how long the acquiring call took: the store's round trips and the time in line.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let lease = locker.lock("orders/42")?.acquire().await?;
    /// println!("waited {:?}", lease.waited());
    /// # Ok(()) }
    /// ```
    pub fn waited(&self) -> Duration {
        self.share.waited()
    }

    /// Returns when the tenure began, or a little earlier, by this machine's wall clock.
    ///
    /// `began().elapsed()` is how long the lock has been held. Leases that share a tenure began together.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let lease = locker.lock("orders/42")?.acquire().await?;
    /// assert!(lease.began().elapsed()? < std::time::Duration::from_secs(5));
    /// # Ok(()) }
    /// ```
    pub fn began(&self) -> SystemTime {
        let ago = self.share.age();
        SystemTime::now()
            .checked_sub(ago)
            .unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Returns how many leases share the tenure, including this one.
    ///
    /// The count is 1 unless the lock is [re-entrant](Lock::reentrant). Released and dropped leases do not count.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let lock = locker.lock("orders/42")?.reentrant();
    /// let (lease, more) = (lock.acquire().await?, lock.acquire().await?);
    /// assert_eq!(lease.hold_count(), 2);
    /// drop(more);
    /// assert_eq!(lease.hold_count(), 1);
    /// # Ok(()) }
    /// ```
    pub fn hold_count(&self) -> u32 {
        self.share.tenure.leases()
    }

    /// Returns the time until the deadline; zero once the lease is lost. No I/O.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let lease = locker.lock("orders/42")?.acquire().await?;
    /// println!("{:?} until the deadline", lease.remaining());
    /// # Ok(()) }
    /// ```
    pub fn remaining(&self) -> Duration {
        self.share.remaining()
    }

    /// Returns true if the lease is held, as far as this process can know. No I/O.
    ///
    /// It is false from the deadline on, whatever the network does. `true` may be out of date by the time you
    /// act on it; only a guard at the storage protects against that.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let lease = locker.lock("orders/42")?.acquire().await?;
    /// assert!(lease.is_valid());
    /// locker.shutdown().await;
    /// assert!(!lease.is_valid());
    /// # Ok(()) }
    /// ```
    pub fn is_valid(&self) -> bool {
        self.share.lost().is_none()
    }

    /// Returns the loss if the lease is lost, as [`lost`](Self::lost) does.
    pub(super) fn loss(&self) -> Option<Lost> {
        let reason = self.share.lost()?;
        Some(Lost::of(self.name(), &self.share, reason))
    }

    /// Resolves when the tenure has ended in any way.
    pub(super) fn until_over(&self) -> impl Future<Output = ()> + Send + 'static {
        self.share.until_over()
    }

    /// Resolves when the lease is lost, with a [`Lost`] that says why.
    ///
    /// It is the error that [`run`](Self::run) fails with. Never resolves if the lease is not lost.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the lease.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    ///
    /// let locker = leasehold::Locker::in_memory();
    /// let lock = locker.lock("orders/42")?.ttl(Duration::from_millis(50)).fixed();
    /// let lease = lock.acquire().await?;
    /// assert_eq!(lease.lost().await.reason, leasehold::LossReason::Expired);
    /// assert!(!lease.is_valid());
    /// # Ok(()) }
    /// ```
    pub async fn lost(&self) -> Lost {
        let reason = self.share.until_lost().await;
        Lost::of(self.name(), &self.share, reason)
    }

    /// Runs a future for as long as the lease is held.
    ///
    /// When the lease is lost, the future is dropped at its current await point, and the result is [`Lost`].
    /// If the future finishes in time, the lease is still held. If it blocks its thread and finishes only
    /// after the deadline, the result is `Lost`, too, and the future's output is dropped.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// let locker = leasehold::Locker::in_memory();
    /// let lease = locker.lock("orders/42")?.acquire().await?;
    /// assert_eq!(lease.run(async { 6 * 7 }).await?, 42);
    ///
    /// let short = locker.lock("short")?.ttl(Duration::from_millis(50)).fixed().acquire().await?;
    /// let lost = short.run(std::future::pending::<()>()).await.unwrap_err();
    /// assert_eq!(lost.reason, leasehold::LossReason::Expired);
    /// # Ok(()) }
    /// ```
    pub fn run<F: Future>(&self, work: F) -> Run<'_, F> {
        Run {
            work,
            lost: Box::pin(self.share.until_lost()),
            lease: self,
        }
    }

    /// Extends the lease by its time to live from now.
    ///
    /// This is for [fixed](Lock::fixed) leases; others are renewed in the background. If a renewal is
    /// pending, this waits for that one.
    ///
    /// # Errors
    ///
    /// - [`NotHeld`](crate::ErrorKind::NotHeld) if the lease was lost, with the reason, and a [`Lost`] as the
    ///   error's source;
    /// - [`Overheld`](crate::ErrorKind::Overheld) if the lease already lasts until the age that
    ///   [`at_most`](Lock::at_most) allows;
    /// - [`Shutdown`](crate::ErrorKind::Shutdown) if the locker was shut down.
    ///
    /// After another error the lease may or may not have been extended, and you may renew it again.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the renewal.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// use std::time::Duration;
    ///
    /// let lock = locker.lock("orders/42")?.ttl(Duration::from_secs(30)).fixed();
    /// let lease = lock.acquire().await?;
    /// tokio::time::sleep(Duration::from_millis(200)).await;
    /// lease.renew().await?;
    /// assert!(lease.remaining() > Duration::from_secs(20));
    /// # Ok(()) }
    /// ```
    pub async fn renew(&self) -> Result<(), Error> {
        self.renew_with(None).await
    }

    /// Extends the lease as [`renew`](Self::renew) does, with another time to live.
    ///
    /// 10 ms to a year (366 days). Later renewals of the tenure, by hand and in the background, use that
    /// time, too. Later acquisitions use the lock's own.
    ///
    /// A renewal never shortens the remaining time, and the lease never lasts longer than the longest time
    /// that you asked for. A time below [`remaining`](Self::remaining) changes nothing at first: the next
    /// renewal in the background comes when less than that time remains, and extends the lease by it.
    ///
    /// # Errors
    ///
    /// The errors of [`renew`](Self::renew), and [`Config`](crate::ErrorKind::Config) if the time is out of bounds.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// use std::time::Duration;
    ///
    /// let lock = locker.lock("orders/42")?.ttl(Duration::from_secs(5)).fixed();
    /// let lease = lock.acquire().await?;
    /// lease.renew_for(Duration::from_secs(60)).await?;
    /// assert!(lease.remaining() > Duration::from_secs(50));
    /// # Ok(()) }
    /// ```
    pub async fn renew_for(&self, ttl: Duration) -> Result<(), Error> {
        self.renew_with(Some(ttl)).await
    }

    async fn renew_with(&self, ttl: Option<Duration>) -> Result<(), Error> {
        let renewed = self.share.renew(ttl).await;
        renewed.map_err(|error| told(&error, self.name(), &self.share))
    }

    pub(super) async fn downgrade(&self) -> Result<(), Error> {
        let downgraded = self.share.downgrade().await;
        downgraded.map_err(|error| told(&error, self.name(), &self.share))
    }

    /// Releases the lease and waits until the store has freed the lock, which takes one round trip.
    ///
    /// Returns at once if other leases of a [re-entrant](Lock::reentrant) handle still share the tenure.
    ///
    /// # Errors
    ///
    /// [`NotHeld`](crate::ErrorKind::NotHeld) if the lease was lost, with the reason, and a [`Lost`] as the
    /// error's source. Then another client may have held the lock while you worked.
    ///
    /// After another error the store has not confirmed the release. The locker retries it in the background,
    /// and the lock expires by its time to live at the latest.
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
    /// let lease = locker.lock("orders/42")?.acquire().await?;
    /// lease.release().await?;
    /// assert!(locker.inspect("orders/42").await?.holder.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn release(self) -> Result<(), Error> {
        let Self { mut share, lock } = self;
        let released = share.release().await;
        released.map_err(|error| told(&error, lock.name(), &share))
    }

    /// Releases several leases of one locker together, and returns each name with what came of it.
    pub(super) async fn release_all(leases: Vec<Self>) -> Vec<(Name, Result<(), Error>)> {
        let leases = leases.into_iter().map(|Self { share, lock }| (share, lock));
        let (mut shares, locks): (Vec<_>, Vec<_>) = leases.unzip();
        let released = join_all(Share::release_all(&mut shares)).await;
        let leases = locks.iter().zip(&shares);
        let told = released.into_iter().zip(leases).map(|(released, of)| {
            let (name, share) = (of.0.name(), of.1);
            let released = released.map_err(|error| told(&error, name, share));
            (name.clone(), released)
        });
        told.collect()
    }

    /// Passes the lock on to another process, and returns a ticket for it.
    ///
    /// The lease ends at once: it is not renewed any more, [`Passed`](crate::LeaseEvent::Passed) comes, and nothing that
    /// this process still sends changes the lock. The lock stays held at the store until a locker
    /// [accepts](crate::Locker::accept) the ticket, or until the deadline that the lease had there: up to its time to
    /// live, less if it was just handed over. Then the next waiter gets it.
    ///
    /// No I/O. A ticket is a secret: see [`Ticket`]. [`at_least`](Lock::at_least) ends with the lease, while the age
    /// that [`at_most`](Lock::at_most) allows goes on with the ticket.
    ///
    /// # Errors
    ///
    /// After an error the lease is dropped, and so released.
    ///
    /// - [`NotHeld`](crate::ErrorKind::NotHeld) if the lease was lost, with the reason;
    /// - [`Config`](crate::ErrorKind::Config) if other leases of a [re-entrant](Lock::reentrant) handle share the tenure;
    /// - [`Unsupported`](crate::ErrorKind::Unsupported) on a [quorum](crate::Builder::quorum);
    /// - [`Unavailable`](crate::ErrorKind::Unavailable) for a lock with [`at_most`](Lock::at_most) while there is no
    ///   connection: the ticket needs the store's clock.
    ///
    /// # Cancel safety
    ///
    /// The future completes when it is first polled. If it is dropped before, the lease is released.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let lease = locker.lock("orders/42")?.acquire().await?;
    /// let text = lease.pass().await?.to_string(); // to another process, by a safe way
    ///
    /// let accepted = locker.accept(&text.parse()?).await?;
    /// assert!(accepted.is_valid());
    /// assert!(locker.accept(&text.parse()?).await.unwrap_err().is_not_held());
    /// # Ok(()) }
    /// ```
    pub async fn pass(self) -> Result<Ticket, Error> {
        let Self { mut share, lock } = self;
        let passed = share.pass().await;
        let passed = passed.map_err(|error| told(&error, lock.name(), &share))?;
        Ok(Ticket::new(lock.namespace(), passed))
    }

    /// Releases a turn's lease and completes its tick.
    pub(super) async fn complete(self) -> Result<(), Error> {
        let Self { mut share, lock } = self;
        let completed = share.complete().await;
        completed.map_err(|error| told(&error, lock.name(), &share))
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("name", self.name())
            .field("token", &self.token())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

/// Adds the lock's name to an error, and the reason if the lease was lost.
fn told(error: &Error, name: &Name, share: &Share) -> Error {
    match share.lost() {
        Some(reason) if error.is_not_held() => Lost::of(name, share, reason).into(),
        _ => error.about(name),
    }
}

/// A lease was lost before the work under it finished.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the lease on {name:?} with token {token} was lost: {reason}")]
#[non_exhaustive]
pub struct Lost {
    /// The name of the lock.
    pub name: Name,
    /// The tenure's token.
    pub token: FencingToken,
    /// Why the lease was lost.
    pub reason: LossReason,
}

impl Lost {
    fn of(name: &Name, share: &Share, reason: LossReason) -> Self {
        Self {
            name: name.clone(),
            token: share.tenure.token,
            reason,
        }
    }
}

/// Converts to [`NotHeld`](crate::ErrorKind::NotHeld), with the loss as its source.
impl From<Lost> for Error {
    fn from(lost: Lost) -> Self {
        let Lost { name, reason, .. } = &lost;
        let message = format!("lock {name:?}: the lease is not held: {reason}");
        Self::with_source(ErrorKind::NotHeld, message, lost)
    }
}

/// The future of [`Lease::run`]. It borrows the lease, so the lease cannot be released meanwhile.
#[pin_project]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Run<'a, F> {
    #[pin]
    work: F,
    /// Wakes the task when the lease is lost.
    lost: Pin<Box<dyn Future<Output = LossReason> + Send + 'a>>,
    lease: &'a Lease,
}

impl<F: Future> Future for Run<'_, F> {
    type Output = Result<F::Output, Lost>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let share = &this.lease.share;
        let lost = |reason| Err(Lost::of(this.lease.name(), share, reason));
        // Checked at each poll, so the work takes no step after the deadline.
        if let Some(reason) = share.lost() {
            return Poll::Ready(lost(reason));
        }
        if let Poll::Ready(reason) = this.lost.as_mut().poll(context) {
            return Poll::Ready(lost(reason));
        }
        let output = ready!(this.work.poll(context));
        // That step may have lasted until after the deadline.
        Poll::Ready(share.lost().map_or(Ok(output), lost))
    }
}
