mod bundle;
mod options;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use leasehold_engine::engine::Wait;
use leasehold_engine::protocol::LockKey;
use leasehold_engine::{Error, ErrorKind, Name, limits};

pub use bundle::Bundle;

use super::{Core, Lease, Lock};
use crate::driver::Driver;

/// The longest first pause of callers that want all at once, and the longest pause of all.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// A handle on several names, with options. Making one does no I/O.
///
/// [`Locker::all`](super::Locker::all) and [`Locker::all_at_once`](super::Locker::all_at_once) make it. Each
/// name is an ordinary lock: other callers may acquire it alone. It works at every store, also at a quorum and
/// on clusters.
///
/// Options are those of [`Lock`], and hold for every name, with three exceptions. A fixed lease would expire while
/// another name is awaited. `at_least` would keep names taken that were acquired in vain. Re-entrant handles share
/// single tenures.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
/// use std::time::Duration;
///
/// let locker = leasehold::Locker::in_memory();
/// let both = locker.all(["accounts/3", "accounts/7"])?.ttl(Duration::from_secs(10));
/// match both.acquire_within(Duration::from_secs(3)).await? {
///     Some(bundle) => println!("held for {:?}", bundle.remaining()),
///     None => println!("somebody else holds one of them"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct LockSet {
    /// The locks in the order of their names. Never empty.
    locks: Vec<Lock>,
    at_once: bool,
}

impl LockSet {
    /// The most names in one set.
    pub const MAX_NAMES: usize = limits::count("bundleNames") as usize;

    pub(super) fn new<N: AsRef<str>>(
        core: &Arc<Core>,
        names: impl IntoIterator<Item = N>,
        at_once: bool,
    ) -> Result<Self, Error> {
        let config = |message: String| Err(Error::new(ErrorKind::Config, message));
        let most = Self::MAX_NAMES;
        let mut locks = Vec::new();
        for name in names {
            let (name, key) = LockKey::with_name(&core.namespace, name.as_ref())?;
            if locks.len() == most {
                return config(format!(
                    "a bundle has at most {most} names; the next one is {name:?}"
                ));
            }
            locks.push(Lock::new(core.clone(), name, key));
        }
        if locks.is_empty() {
            return config("a bundle needs at least one name; the list is empty".to_owned());
        }
        locks.sort_by(|a, b| a.name().as_str().cmp(b.name().as_str()));
        let twice = locks.windows(2).find(|two| two[0].name() == two[1].name());
        if let Some(name) = twice.map(|two| two[0].name()) {
            return config(format!(
                "a bundle has each name once; {name:?} is in the list twice"
            ));
        }
        Ok(Self { locks, at_once })
    }

    /// Returns the names, in the order in which they are acquired.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let both = locker.all(["b", "a"])?;
    /// assert!(both.names().map(|name| name.as_str()).eq(["a", "b"]));
    /// # Ok(()) }
    /// ```
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.locks.iter().map(Lock::name)
    }

    /// Waits until all names are held.
    ///
    /// If a name is lost while another one is awaited, it is acquired once more. So the bundle has only names
    /// that were held at the same time, without a gap.
    ///
    /// # Errors
    ///
    /// The errors of [`Lock::acquire`], with the name in the message. No name is held after one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no lock and no place in line behind, as for [`Lock::acquire`].
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let bundle = locker.all(["accounts/3", "accounts/7"])?.acquire().await?;
    /// assert!(bundle.is_valid());
    /// # Ok(()) }
    /// ```
    pub async fn acquire(&self) -> Result<Bundle, Error> {
        loop {
            if let Some(bundle) = self.take(Wait::Forever).await? {
                return Ok(bundle);
            }
        }
    }

    /// Takes all names if they are free and have no waiters; otherwise returns `None` and holds none.
    ///
    /// One attempt in one round trip, and another one that gives back what it got in vain. Errors and cancel
    /// safety are as for [`acquire`](Self::acquire).
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let held = locker.lock("b")?.acquire().await?;
    /// assert!(locker.all(["a", "b"])?.try_acquire().await?.is_none());
    /// drop(held);
    /// assert!(locker.all(["a", "b"])?.try_acquire().await?.is_some());
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<Bundle>, Error> {
        self.take(Wait::Never).await
    }

    /// Waits for all names for at most this time; returns `None`, and holds none, if that was not enough.
    ///
    /// With a time of zero it tries once, as [`try_acquire`](Self::try_acquire) does. Errors and cancel safety
    /// are as for [`Lock::acquire_within`].
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// use std::time::Duration;
    ///
    /// let held = locker.lock("b")?.acquire().await?;
    /// let both = locker.all(["a", "b"])?;
    /// assert!(both.acquire_within(Duration::from_millis(100)).await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn acquire_within(&self, time: Duration) -> Result<Option<Bundle>, Error> {
        if time.is_zero() {
            return self.try_acquire().await;
        }
        self.take(Wait::Until(self.driver().now() + time)).await
    }

    /// Acquires all names, runs the work under their bundle, and releases them.
    ///
    /// Errors and cancel safety are as for [`Lock::using`].
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let both = locker.all(["accounts/3", "accounts/7"])?;
    /// let tokens = both.using(async |bundle| bundle.tokens().count()).await?;
    /// assert_eq!(tokens, 2);
    /// assert!(locker.lock("accounts/3")?.try_acquire().await?.is_some());
    /// # Ok(()) }
    /// ```
    pub async fn using<T>(&self, work: impl AsyncFnOnce(&Bundle) -> T) -> Result<T, Error> {
        let bundle = self.acquire().await?;
        let output = bundle.run(work(&bundle)).await?;
        bundle.release().await?;
        Ok(output)
    }

    /// Acquires all names, or none.
    ///
    /// Why no two callers wait for each other in a circle:
    ///
    /// 1. Only `ask` below waits for others. A round of tries does not wait.
    /// 2. While `ask` waits for a name, only names before it in the global order are held; if they are wanted
    ///    all at once, none is.
    /// 3. So in a circle of waiting callers each would wait for a name after all that it holds, and the names
    ///    would grow without end around the circle.
    async fn take(&self, wait: Wait) -> Result<Option<Bundle>, Error> {
        let mut held: Vec<Option<Lease>> = self.locks.iter().map(|_| None).collect();
        let mut pause = None;
        loop {
            self.round(&mut held, wait).await?;
            let missing = |lease: &Option<Lease>| lease.as_ref().is_none_or(|it| !it.is_valid());
            let Some(busy) = held.iter().position(missing) else {
                return Ok(Some(Bundle::new(held.into_iter().flatten().collect())));
            };
            let keep = if self.at_once { 0 } else { busy };
            held[keep..].fill_with(|| None);
            if self.at_once && wait != Wait::Never {
                self.pause(&mut pause, wait).await?;
            }
            if self.left(wait).is_zero() {
                return Ok(None);
            }
            let lost = async {
                Bundle::first_lost(held.iter().flatten()).await;
            };
            let asked = match select(pin!(lost), pin!(self.locks[busy].ask(wait))).await {
                // It is asked for again in the next round.
                Either::Left(_) => continue,
                Either::Right((asked, _)) => asked?,
            };
            if asked.is_none() && wait != Wait::Forever {
                return Ok(None);
            }
            held[busy] = asked;
        }
    }

    /// Tries to acquire all names that are not held, together. Fails if the store refuses. If the store cannot
    /// be reached, a caller that waits asks again, by a call that has patience.
    async fn round(&self, held: &mut [Option<Lease>], wait: Wait) -> Result<(), Error> {
        let missing = held.iter_mut().enumerate().filter_map(|(place, lease)| {
            let lost = lease.take_if(|lease| !lease.is_valid());
            (lost.is_some() || lease.is_none()).then_some(place)
        });
        let missing: Vec<_> = missing.collect();
        let locks: Vec<_> = missing.iter().map(|place| &self.locks[*place]).collect();
        let tried = pin!(Lock::try_all(&locks));
        let answers = match wait {
            Wait::Until(_) => {
                let late = pin!(self.driver().sleep(self.left(wait)));
                match select(tried, late).await {
                    Either::Left((answers, _)) => answers?,
                    Either::Right(_) => return Err(Error::no_answer().about(locks[0].name())),
                }
            }
            Wait::Never | Wait::Forever => tried.await?,
        };
        for (place, answer) in missing.into_iter().zip(answers) {
            match answer {
                Ok(lease) => held[place] = lease,
                Err(error) if error.is_transient() && wait != Wait::Never => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sleeps for a random time, with nothing held: two callers that each got what the other one wants would
    /// otherwise go on to swap. The first round needs no pause.
    async fn pause(&self, longest: &mut Option<Duration>, wait: Wait) -> Result<(), Error> {
        let Some(most) = *longest else {
            *longest = Some(FIRST_PAUSE);
            return Ok(());
        };
        *longest = Some((most * 2).min(LONGEST_PAUSE));
        let random = self.driver().new_lease()?.0 % most.as_nanos();
        let pause = Duration::from_nanos(u64::try_from(random).unwrap_or(0));
        self.driver().sleep(pause.min(self.left(wait))).await;
        Ok(())
    }

    /// Returns how long a caller may still wait.
    fn left(&self, wait: Wait) -> Duration {
        match wait {
            Wait::Never => Duration::ZERO,
            Wait::Until(by) => by.since(self.driver().now()),
            Wait::Forever => Duration::MAX,
        }
    }

    fn driver(&self) -> &Arc<Driver> {
        self.locks[0].driver()
    }
}

impl fmt::Debug for LockSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockSet")
            .field("locks", &self.locks)
            .field("at_once", &self.at_once)
            .finish_non_exhaustive()
    }
}
