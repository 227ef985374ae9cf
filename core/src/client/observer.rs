use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use leasehold_engine::engine::HolderInfo;
use leasehold_engine::protocol::LockKey;
use leasehold_engine::{Error, ErrorKind, FencingToken, Name, Owner, limits};

use super::Core;
use super::persist::persist;

const DEFAULT: Duration = limits::time("observePeriod");
const LEAST: Duration = limits::time("shortestPeriod");
const YEAR: Duration = limits::time("longestPeriod");

/// A stream of the holders of one lock, for programs that follow a leader and do not stand in line.
///
/// - It begins with the current holder, or `None` if the lock is free.
/// - It yields each change that it finds: the holder of another tenure, or `None`. A renewal is no change.
/// - It asks the store [every second](Self::every), and only while it is polled. So it learns of a change after at
///   most that time and a reply, and never learns of a tenure that began and ended in between. Holders and waiters
///   pay nothing for being observed: a push would cost each acquisition a command.
/// - While the store cannot be reached it retries, and yields nothing. The holder may change meanwhile.
/// - It ends after an error that a retry does not fix, such as [`Unsupported`](ErrorKind::Unsupported) for a shared
///   name, which has no single holder. It also ends with the first look after the locker is shut down.
///
/// An observer learns of a change late. Let the storage check tokens if the old and the new holder must not both
/// write.
///
/// At a [quorum](super::Builder::quorum) the token depends on the servers that answer. A tenure may be yielded again
/// with another one.
///
/// # Cancel safety
///
/// Waiting for an item is cancel-safe: no change is lost.
///
/// # Example
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
/// use std::time::Duration;
///
/// use futures::TryStreamExt;
///
/// let locker = leasehold::Locker::in_memory();
/// let mut leaders = locker.observe("leader").every(Duration::from_millis(50));
/// assert_eq!(leaders.try_next().await?, Some(None));
///
/// let lease = locker.lock("leader")?.owner("node-7").acquire().await?;
/// let leader = leaders.try_next().await?.flatten().expect("it is held");
/// assert_eq!((leader.token, leader.owner.label()), (lease.token(), "node-7"));
/// # Ok(()) }
/// ```
#[must_use = "streams do nothing unless they are polled"]
pub struct Observer {
    core: Arc<Core>,
    of: Result<(Name, LockKey), Error>,
    every: Duration,
    last: Option<Seen>,
    look: Option<Pin<Box<dyn Future<Output = Found> + Send>>>,
    is_over: bool,
}

type Found = Result<Option<HolderInfo>, Error>;

/// The tenure that was yielded last, if the lock was held.
#[derive(PartialEq)]
struct Seen(Option<(FencingToken, Owner)>);

impl Observer {
    pub(super) fn new(core: Arc<Core>, of: Result<(Name, LockKey), Error>) -> Self {
        Self {
            core,
            of,
            every: DEFAULT,
            last: None,
            look: None,
            is_over: false,
        }
    }

    /// Sets the pause between two looks: 10 ms to 366 days; a second by default. With another value the stream fails
    /// with [`Config`](crate::ErrorKind::Config).
    ///
    /// Each look is one script call. A thousand observers with the default make a thousand per second.
    ///
    /// ```
    /// # #[tokio::main] async fn main() {
    /// use std::time::Duration;
    ///
    /// use futures::TryStreamExt;
    ///
    /// let locker = leasehold::Locker::in_memory();
    /// let mut leaders = locker.observe("leader").every(Duration::ZERO);
    /// assert!(leaders.try_next().await.unwrap_err().is_config());
    /// # }
    /// ```
    pub fn every(mut self, pause: Duration) -> Self {
        self.every = pause;
        self
    }

    /// Returns the next look at the lock. The first one is at once.
    fn look(&self) -> impl Future<Output = Found> + Send + use<> {
        let (core, of, every) = (self.core.clone(), self.of.clone(), self.every);
        let is_first = self.last.is_none();
        async move {
            let (name, key) = of?;
            Error::check_range("the pause of an observer", every, LEAST, YEAR)?;
            if !is_first {
                core.driver.sleep(every).await;
            }
            let inspect = || core.driver.inspect(key.clone());
            let seen = persist("cannot observe the lock", inspect).await?;
            if seen.shared.is_some() {
                let message = "a shared name has no single holder to observe; inspect it";
                return Err(Error::new(ErrorKind::Unsupported, message).about(&name));
            }
            Ok(seen.holder)
        }
    }
}

impl Stream for Observer {
    type Item = Result<Option<HolderInfo>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        while !self.is_over {
            let mut look = match self.look.take() {
                Some(look) => look,
                None => Box::pin(self.look()),
            };
            let Poll::Ready(found) = look.as_mut().poll(context) else {
                self.look = Some(look);
                return Poll::Pending;
            };
            match found {
                Ok(holder) => {
                    let tenure = |holder: &HolderInfo| (holder.token, holder.owner.clone());
                    let seen = Some(Seen(holder.as_ref().map(tenure)));
                    if self.last != seen {
                        self.last = seen;
                        return Poll::Ready(Some(Ok(holder)));
                    }
                }
                Err(error) => {
                    self.is_over = true;
                    if error.kind() != ErrorKind::Shutdown {
                        return Poll::Ready(Some(Err(error)));
                    }
                }
            }
        }
        Poll::Ready(None)
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer")
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}
