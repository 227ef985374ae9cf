use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use leasehold_engine::{Error, ErrorKind, FencingToken, LossReason, Name};
use pin_project::pin_project;

use super::Lock;
use crate::driver::Share;

/// The time-limited right to a name, with a fencing token.
///
/// A lease that is not [fixed](Lock::fixed) is renewed in the background until it is released,
/// dropped or lost. It can be lost at any time, so let the storage that you write to check its
/// [`token`](Self::token): a program that was paused cannot know that its lease is over.
///
/// Dropping a lease releases it in the background, if the tokio runtime goes on. What the same task asks for next comes
/// after that, unless an [`Adapter`](crate::adapter::Adapter) spreads calls over connections. To be sure that it is
/// released, call [`release`](Self::release).
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
    /// As long as it is here the lock's event streams do not end.
    lock: Lock,
}

impl Lease {
    pub(super) fn new(share: Share, lock: Lock) -> Self {
        Self { share, lock }
    }

    /// What is locked.
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

    /// The tenure's token, greater than that of every earlier tenure of the name.
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

    /// How long the call that acquired it took: for the store's reply, and in line.
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

    /// When the tenure began, or a little earlier, by this machine's wall clock. `began().elapsed()` is
    /// how long the lock has been held. Leases that share a tenure began together.
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

    /// How many leases share the tenure, with this one: one, unless the lock is
    /// [re-entrant](Lock::reentrant). Those that were released or dropped do not count.
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

    /// The time until the deadline; zero once the lease is lost. No I/O.
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

    /// Whether the lease is held, as far as can be known here. No I/O: it is false from the deadline
    /// on, whatever the network does. `true` may be out of date by the time you act on it; only a guard
    /// at the storage helps against that.
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

    /// Resolves when the tenure has ended in whatever way.
    pub(super) fn until_over(&self) -> impl Future<Output = ()> + Send + 'static {
        self.share.until_over()
    }

    /// Resolves when the lease is lost, with a [`Lost`] that says why: the same error as
    /// [`run`](Self::run) fails with. Never resolves if the lease is not lost. Cancel-safe.
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

    /// Does work for as long as the lease is held. At the moment of the loss the work is dropped, at the
    /// await point where it is, and the result is [`Lost`]. If the work comes to its end in time, the
    /// lease is still held. Work that blocked its thread, and so came to its end only after the deadline,
    /// has failed too, and its output is dropped.
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

    /// Extends the lease by its time to live from now. This is for [fixed](Lock::fixed) leases; others
    /// are renewed in the background. If a renewal is under way, it waits for that one.
    ///
    /// Fails with [`NotHeld`](crate::ErrorKind::NotHeld) if the lease was lost, with the reason, and a
    /// [`Lost`] as the error's source; or with [`Shutdown`](crate::ErrorKind::Shutdown) if the locker was
    /// shut down. After another error the lease may or may not have been extended, and may be renewed
    /// again. Dropping the future does not stop the renewal.
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

    /// As [`renew`](Self::renew), with another time to live: 10 ms to a year (366 days), else
    /// [`Config`](crate::ErrorKind::Config). Later renewals take that time too, by hand and in the
    /// background, until the tenure ends; later acquisitions have the lock's own.
    ///
    /// A renewal never cuts short the time that is left, and the lease never lasts longer than the longest time that you
    /// asked for. A time that is less than [`remaining`](Self::remaining) changes nothing at first: the next
    /// renewal in the background comes when less than that time is left, and extends the lease by it.
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
        let told = |error| told(&error, self.name(), &self.share);
        renewed.map_err(told)
    }

    /// Gives the lease up and waits until the store has freed the lock, which is one round trip. It
    /// returns at once if other leases of a [re-entrant](Lock::reentrant) handle still share the tenure.
    ///
    /// Fails with [`NotHeld`](crate::ErrorKind::NotHeld) if the lease had been lost, with the reason, and
    /// a [`Lost`] as the error's source: then somebody else may have held the lock while you worked.
    /// After another error the store has not confirmed the release; it is tried again in the background,
    /// and the lock ends by its time to live at the latest. Dropping the future does not stop the
    /// release.
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

/// The error with the lock's name; and with the reason, if the lease was lost before.
fn told(error: &Error, name: &Name, share: &Share) -> Error {
    match share.lost() {
        Some(reason) if error.is_not_held() => Lost::of(name, share, reason).into(),
        _ => error.about(name),
    }
}

/// A lease was lost before the work under it came to its end.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the lease on {name:?} with token {token} was lost: {reason}")]
#[non_exhaustive]
pub struct Lost {
    /// What was locked.
    pub name: Name,
    /// The tenure's token.
    pub token: FencingToken,
    /// Why.
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

/// [`NotHeld`](crate::ErrorKind::NotHeld), with the loss as its source.
impl From<Lost> for Error {
    fn from(lost: Lost) -> Self {
        let Lost { name, reason, .. } = &lost;
        let message = format!("lock {name:?}: the lease is not held: {reason}");
        Self::with_source(ErrorKind::NotHeld, message, lost)
    }
}

/// The future of [`Lease::run`]. It borrows the lease, so that nobody can release it meanwhile.
#[pin_project]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Run<'a, F> {
    #[pin]
    work: F,
    /// Wakes the task at the loss.
    lost: Pin<Box<dyn Future<Output = LossReason> + Send + 'a>>,
    lease: &'a Lease,
}

impl<F: Future> Future for Run<'_, F> {
    type Output = Result<F::Output, Lost>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let share = &this.lease.share;
        let lost = |reason| Err(Lost::of(this.lease.name(), share, reason));
        // Looked up at each poll: past the deadline the work takes no further step.
        if let Some(reason) = share.lost() {
            return Poll::Ready(lost(reason));
        }
        if let Poll::Ready(reason) = this.lost.as_mut().poll(context) {
            return Poll::Ready(lost(reason));
        }
        let output = ready!(this.work.poll(context));
        // That step may have taken until after the deadline.
        Poll::Ready(share.lost().map_or(Ok(output), lost))
    }
}
