mod options;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use leasehold_engine::engine::{Inspection, LockId, LockOptions, LockSpec, Wait};
use leasehold_engine::limits;
use leasehold_engine::protocol::{Counter, LeaseId, LockKey};
use leasehold_engine::{Error, ErrorKind, Name, Owner, Share as Part, Ticket};
use tracing::{Instrument, field::Empty};

use super::{Core, Lease, LeaseEvents, Tenures};
use crate::driver::{Driver, Pending, Share};

/// A handle on one name, with options. Making one does no I/O.
///
/// Setting an option makes a new handle. Clones, leases and event streams made before stay with the old
/// handle.
///
/// Every acquisition excludes every other one, even through the same handle or its clones. So keep one handle
/// and share it among tasks, as you would a mutex. A task that acquires a lock which it already holds waits
/// for itself. For shared tenures, use [`reentrant`](Self::reentrant).
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
/// use std::time::Duration;
///
/// let locker = leasehold::Locker::in_memory();
/// let lock = locker.lock("orders/42")?.ttl(Duration::from_secs(10));
/// match lock.acquire_within(Duration::from_secs(3)).await? {
///     Some(lease) => println!("held with token {}", lease.token()),
///     None => println!("somebody else holds it"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Lock {
    handle: Arc<Handle>,
}

/// The state that a lock's clones and leases share.
struct Handle {
    id: LockId,
    core: Arc<Core>,
    spec: Arc<LockSpec>,
    /// Set if an option was not valid. Acquiring returns it.
    error: Option<Error>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.core.driver.close_lock(self.id);
    }
}

impl Lock {
    /// The default [time to live](Self::ttl).
    pub const DEFAULT_TTL: Duration = limits::time("timeToLive");

    pub(super) fn new(core: Arc<Core>, name: Name, key: LockKey) -> Self {
        let options = core.options.clone();
        Self::of(core, Arc::new(LockSpec { name, key, options }), None)
    }

    pub(super) async fn inspect(&self) -> Result<Inspection, Error> {
        let Handle { core, spec, .. } = &*self.handle;
        core.driver.inspect(spec.key.clone()).await
    }

    /// Sleeps for a third of the time to live if leases are fixed, and otherwise forever.
    pub(super) async fn sleep_if_fixed(&self) {
        let Handle { core, spec, .. } = &*self.handle;
        if !spec.fixed {
            return std::future::pending().await;
        }
        core.driver.sleep(spec.ttl / 3).await;
    }

    /// Returns the options of locks with default options.
    pub(super) fn defaults(owner: Owner, token_retention: Duration) -> LockOptions {
        LockOptions {
            ttl: Self::DEFAULT_TTL,
            fixed: false,
            reentrant: false,
            owner,
            counter: Counter::ClockFloor {
                retention: token_retention,
            },
            durability: None,
            at_most: None,
            at_least: None,
            backlog: None,
            max_line: None,
            strict: false,
        }
    }

    pub(super) fn of(core: Arc<Core>, spec: Arc<LockSpec>, error: Option<Error>) -> Self {
        let handle = Handle {
            id: LockId(core.driver.next_id()),
            core,
            spec,
            error,
        };
        Self {
            handle: Arc::new(handle),
        }
    }

    /// Returns the name of the lock.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// assert_eq!(locker.lock("orders/42")?.name().as_str(), "orders/42");
    /// # Ok(()) }
    /// ```
    pub fn name(&self) -> &Name {
        &self.handle.spec.name
    }

    /// Returns true if an acquisition by this handle or its clones holds the lock, as far as this process can
    /// know.
    ///
    /// No I/O. The answer may be out of date by the time you act on it. To see who else holds the lock, use
    /// [`Locker::inspect`](super::Locker::inspect).
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let lock = locker.lock("orders/42")?;
    /// let lease = lock.acquire().await?;
    /// assert!(lock.is_held() && !locker.lock("orders/42")?.is_held());
    /// lease.release().await?;
    /// assert!(!lock.is_held());
    /// # Ok(()) }
    /// ```
    pub fn is_held(&self) -> bool {
        self.handle.core.driver.is_held(self.handle.id)
    }

    /// Waits until the lock is held.
    ///
    /// Live waiters get the lock in the order in which they asked, each as soon as the one before releases
    /// it. A waiter that died delays the others by 6 s if its connection was closed, otherwise by 12 s. For a
    /// time to live below 10 s the delay is shorter, down to 1.2 s and 2.4 s for 2 s and less.
    ///
    /// # Errors
    ///
    /// Waiting for another holder is not an error, however long it takes. Fails with
    ///
    /// - [`Config`](crate::ErrorKind::Config) if an option is not valid;
    /// - the store's error, if it refuses;
    /// - the last error, mostly [`Timeout`](crate::ErrorKind::Timeout) or
    ///   [`Unavailable`](crate::ErrorKind::Unavailable), if the store has not replied for the locker's
    ///   [patience](super::Builder::patience);
    /// - [`Overloaded`](crate::ErrorKind::Overloaded) if the name has 65,536 waiters already, or if as many
    ///   calls wait through this [re-entrant](Self::reentrant) handle;
    /// - [`Shutdown`](crate::ErrorKind::Shutdown) if the locker was shut down or its tokio runtime has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves neither a lock nor a place in line behind. If the store cannot be reached,
    /// the place lasts for the delay above, and the lock for its time to live.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let lease = locker.lock("orders/42")?.acquire().await?;
    /// assert!(lease.is_valid());
    /// # Ok(()) }
    /// ```
    pub async fn acquire(&self) -> Result<Lease, Error> {
        loop {
            if let Some(lease) = self.ask(Wait::Forever).await? {
                return Ok(lease);
            }
        }
    }

    /// Takes the lock if it is free and has no waiters; otherwise returns `None`.
    ///
    /// One attempt in one round trip. Errors and cancel safety are as for [`acquire`](Self::acquire).
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let held = locker.lock("orders/42")?.try_acquire().await?;
    /// assert!(held.is_some());
    /// assert!(locker.lock("orders/42")?.try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<Lease>, Error> {
        self.ask(Wait::Never).await
    }

    /// Waits for the lock for at most this time; returns `None` if it was held by others all the while.
    ///
    /// With a time of zero it tries once, as [`try_acquire`](Self::try_acquire) does.
    ///
    /// # Errors
    ///
    /// The errors of [`acquire`](Self::acquire), and one if the store does not reply before the time is over. A
    /// time shorter than a round trip may end before the reply: that is
    /// [`Timeout`](crate::ErrorKind::Timeout), even if the lock is free.
    ///
    /// # Cancel safety
    ///
    /// The errors of [`acquire`](Self::acquire).
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// use std::time::Duration;
    ///
    /// let held = locker.lock("orders/42")?.acquire().await?;
    /// let other = locker.lock("orders/42")?;
    /// assert!(other.acquire_within(Duration::from_millis(100)).await?.is_none());
    /// drop(held);
    /// assert!(other.acquire_within(Duration::from_secs(3)).await?.is_some());
    /// # Ok(()) }
    /// ```
    pub async fn acquire_within(&self, time: Duration) -> Result<Option<Lease>, Error> {
        if time.is_zero() {
            return self.try_acquire().await;
        }
        self.ask(Wait::Until(self.driver().now() + time)).await
    }

    /// Accepts a lease of this lock that another locker [passed on](Lease::pass), with the options of this handle.
    ///
    /// The lock moves in one step, ahead of all waiters: the new lease has the next token, and storage that checks
    /// tokens refuses the sender's writes from then on. A ticket is used once. If a reply is lost, the call asks again
    /// and gets the same lease.
    ///
    /// Calls that acquire through a [re-entrant](Self::reentrant) handle meanwhile share the outcome.
    ///
    /// If this handle has no [`at_most`](Self::at_most), the lease ends at the age that the sender's lock allowed, or a
    /// little earlier. [`Locker::accept`](super::Locker::accept) uses the ticket's name and time to live.
    ///
    /// # Errors
    ///
    /// - [`NotHeld`](crate::ErrorKind::NotHeld) if the ticket no longer has the lock: it was accepted, it expired, the
    ///   lock was freed, or it is at another server;
    /// - [`Config`](crate::ErrorKind::Config) if the ticket is for another name or namespace, or if this is a
    ///   [re-entrant](Self::reentrant) handle in use;
    /// - [`Overheld`](crate::ErrorKind::Overheld) if the lease has reached its age; the lock is freed;
    /// - [`Unsupported`](crate::ErrorKind::Unsupported) on a [quorum](super::Builder::quorum);
    /// - otherwise as for [`acquire`](Self::acquire). The ticket may have been used then, and the lock is freed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future frees the lock if the store may have given it already. Otherwise the ticket stays good.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// use std::time::Duration;
    ///
    /// let lease = locker.lock("orders/42")?.acquire().await?;
    /// let (token, ticket) = (lease.token(), lease.pass().await?);
    /// let lock = locker.lock("orders/42")?.ttl(Duration::from_secs(5));
    /// let accepted = lock.accept(&ticket).await?;
    /// assert!(accepted.token() > token && accepted.remaining() < Duration::from_secs(6));
    /// # Ok(()) }
    /// ```
    pub async fn accept(&self, ticket: &Ticket) -> Result<Lease, Error> {
        let passed = ticket.passed(self.namespace(), Some(self.name()))?;
        let begin = |driver: &Arc<Driver>, lock, spec, lease| {
            driver.accept(lock, spec, lease, passed.clone())
        };
        let lease = self.ask_by(begin).await?;
        lease.ok_or_else(|| Error::new(ErrorKind::Store, "a ticket was accepted without a lease"))
    }

    /// Acquires the lock, runs the work under its lease, and releases it.
    ///
    /// The work gets the lease, whose [`token`](Lease::token) is for the storage. An error of the work itself
    /// is part of its output.
    ///
    /// # Errors
    ///
    /// - As for [`acquire`](Self::acquire); then the work is not run.
    /// - [`NotHeld`](crate::ErrorKind::NotHeld) if the lease is lost, with a [`Lost`](super::Lost) as its
    ///   source. The work is dropped at its current await point: see [`Lease::run`].
    /// - As for [`Lease::release`] if the work finished in time and the release failed. The work's output is
    ///   dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work and releases the lock in the background.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// let locker = leasehold::Locker::in_memory();
    /// let lock = locker.lock("orders/42")?;
    /// let token = lock.using(async |lease| lease.token()).await?;
    /// assert!(!lock.is_held());
    ///
    /// let shut_down = lock.using(async |_| locker.shutdown().await).await;
    /// assert!(shut_down.unwrap_err().is_not_held());
    /// # let _ = token;
    /// # Ok(()) }
    /// ```
    pub async fn using<T>(&self, work: impl AsyncFnOnce(&Lease) -> T) -> Result<T, Error> {
        let lease = self.acquire().await?;
        let output = lease.run(work(&lease)).await?;
        lease.release().await?;
        Ok(output)
    }

    /// Holds the lock for as long as the program runs, and reacquires it after a loss: see [`Tenures`].
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// use futures::TryStreamExt;
    ///
    /// let mut tenures = locker.lock("leader")?.hold();
    /// let lease = tenures.try_next().await?.expect("the locker was not shut down");
    /// println!("leading with token {}", lease.token());
    /// # Ok(()) }
    /// ```
    pub fn hold(&self) -> Tenures {
        Tenures::new(self.clone(), None)
    }

    /// Returns the events of the acquisitions by this handle and its clones, starting with the current state.
    ///
    /// One stream covers successive tenures, each with a token of its own. It ends when the last clone and
    /// lease are dropped: see [`LeaseEvents`].
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// use futures::StreamExt;
    /// use leasehold::LeaseEvent;
    ///
    /// let locker = leasehold::Locker::in_memory();
    /// let lock = locker.lock("orders/42")?;
    /// let mut events = lock.events();
    /// lock.acquire().await?.release().await?;
    /// assert!(matches!(events.next().await, Some(LeaseEvent::Acquired { .. })));
    /// assert!(matches!(events.next().await, Some(LeaseEvent::Released { .. })));
    /// # Ok(()) }
    /// ```
    pub fn events(&self) -> LeaseEvents {
        LeaseEvents::new(self.handle.core.driver.clone(), Some(self.handle.id))
    }

    pub(super) fn namespace(&self) -> &str {
        &self.handle.core.namespace
    }

    pub(super) fn driver(&self) -> &Arc<Driver> {
        &self.handle.core.driver
    }

    /// Tries to acquire locks of one locker, each as [`try_acquire`](Self::try_acquire) does. All requests leave
    /// together.
    pub(super) async fn try_all(
        locks: &[&Self],
    ) -> Result<Vec<Result<Option<Lease>, Error>>, Error> {
        let Some(first) = locks.first() else {
            return Ok(Vec::new());
        };
        let asked: Vec<_> = locks
            .iter()
            .map(|lock| lock.request())
            .collect::<Result<_, _>>()?;
        let answers = join_all(first.driver().try_acquire_all(asked)).await;
        let answered = answers.into_iter().zip(locks).map(|(share, lock)| {
            let share = share.map_err(|error| error.about(lock.name()))?;
            Ok(share.map(|share| Lease::new(share, (*lock).clone())))
        });
        Ok(answered.collect())
    }

    /// Returns what an acquisition asks for, with a new lease ID.
    fn request(&self) -> Result<(LockId, Arc<LockSpec>, LeaseId), Error> {
        if let Some(error) = &self.handle.error {
            return Err(error.clone());
        }
        let spec = self.handle.spec.clone();
        // Each option alone was checked when it was set.
        spec.check_ages()?;
        Ok((self.handle.id, spec, self.driver().new_lease()?))
    }

    pub(super) async fn ask(&self, wait: Wait) -> Result<Option<Lease>, Error> {
        self.ask_by(|driver, lock, spec, lease| driver.acquire(lock, spec, lease, wait))
            .await
    }

    /// Returns the part of a shared name that acquisitions get.
    pub(super) fn part(&self) -> Option<Part> {
        self.handle.spec.owner.share()
    }

    /// Returns a handle that acquires this part of a shared name.
    pub(super) fn sharing(self, part: Part) -> Self {
        self.with(|spec| {
            spec.owner = spec.owner.with_share(part);
            Ok(())
        })
    }

    /// Acquires this part of a shared name.
    pub(super) async fn ask_part(&self, part: Part, wait: Wait) -> Result<Option<Lease>, Error> {
        self.ask_by(|driver, lock, mut spec, lease| {
            if spec.owner.share() != Some(part) {
                let options = &mut Arc::make_mut(&mut spec).options;
                let owner = options.owner.with_share(part);
                Arc::make_mut(options).owner = owner;
            }
            driver.acquire(lock, spec, lease, wait)
        })
        .await
    }

    /// Waits for a part of a shared name.
    pub(super) async fn acquire_part(&self, part: Part) -> Result<Lease, Error> {
        loop {
            if let Some(lease) = self.ask_part(part, Wait::Forever).await? {
                return Ok(lease);
            }
        }
    }

    /// Changes the capacity of a shared name.
    pub(super) async fn resize(&self, capacity: u32) -> Result<u32, Error> {
        let Handle {
            core, spec, error, ..
        } = &*self.handle;
        let part = spec.owner.share();
        if let Some(error) = error {
            return Err(error.clone());
        }
        let part = part.ok_or_else(|| Error::new(ErrorKind::Config, "the name is not shared"))?;
        let resized =
            core.driver
                .resize(spec.key.clone(), (part.sharing(), capacity), spec.counter);
        resized.await.map_err(|error| error.about(self.name()))
    }

    /// Gets the lock by a call that `begin` starts.
    async fn ask_by(
        &self,
        begin: impl FnOnce(&Arc<Driver>, LockId, Arc<LockSpec>, LeaseId) -> Pending<Option<Share>>,
    ) -> Result<Option<Lease>, Error> {
        let (lock, spec, lease) = self.request()?;
        let driver = self.driver();
        let span = tracing::debug_span!(
            target: "leasehold",
            "acquire",
            name = %self.name(),
            token = Empty,
            waited = Empty
        );
        // The call starts inside the span, so its traces belong to it.
        let call = span.in_scope(|| begin(driver, lock, spec, lease));
        let answer = call.instrument(span.clone()).await;
        let share = answer.map_err(|error| error.about(self.name()))?;
        Ok(share.map(|share| {
            span.record("token", share.tenure.token.get());
            span.record("waited", tracing::field::debug(share.waited()));
            Lease::new(share, self.clone())
        }))
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Lock");
        let Handle { spec, error, .. } = &*self.handle;
        debug.field("name", &spec.name);
        match error {
            None => debug
                .field("ttl", &spec.ttl)
                .field("fixed", &spec.fixed)
                .field("reentrant", &spec.reentrant),
            Some(error) => debug.field("error", error),
        };
        debug.finish_non_exhaustive()
    }
}
