use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_engine::engine::{LockId, LockOptions, LockSpec, Wait};
use leasehold_engine::limits;
use leasehold_engine::protocol::{Counter, Durability, LockKey};
use leasehold_engine::{Error, Name, Owner};
use tracing::{Instrument, field::Empty};

use super::{Core, Lease, LeaseEvents, Tenures};

/// A handle on one name with its options. Making one does no I/O. Setting an option makes a new
/// handle: clones, leases and event streams that were made before stay with the old one.
///
/// Every acquisition excludes every other one, also by the same handle or its clones: keep one handle
/// and share it among tasks, as you would a mutex. So a task that acquires a lock which it has already
/// waits for itself. Where a tenure is to be shared instead, ask for [`reentrant`](Self::reentrant).
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

/// Driver by the clones of a lock, and by its leases.
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
    /// The time to live without [`ttl`](Self::ttl).
    pub const DEFAULT_TTL: Duration = limits::time("timeToLive");

    pub(super) fn new(core: Arc<Core>, name: Name, key: LockKey) -> Self {
        let options = core.options.clone();
        Self::of(core, Arc::new(LockSpec { name, key, options }), None)
    }

    /// What all locks have whose options nobody has set.
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
        }
    }

    fn of(core: Arc<Core>, spec: Arc<LockSpec>, error: Option<Error>) -> Self {
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

    /// How long the lease lives unless it is renewed: 10 ms to a year (366 days), 30 s by default. The
    /// store counts whole milliseconds. With a shorter time others wait less for a holder that died;
    /// with a longer one the holder survives longer outages of the store.
    ///
    /// With a time out of bounds [`acquire`](Self::acquire) fails with
    /// [`Config`](crate::ErrorKind::Config).
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// use std::time::Duration;
    ///
    /// let lock = locker.lock("orders/42")?.ttl(Duration::from_secs(5));
    /// let lease = lock.acquire().await?;
    /// assert!(lease.remaining() <= Duration::from_secs(5));
    ///
    /// let error = lock.ttl(Duration::ZERO).acquire().await.unwrap_err();
    /// assert!(error.is_config());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        self.with(|spec| {
            spec.ttl = ttl;
            LockSpec::check_ttl(ttl)
        })
    }

    /// Leases are not renewed in the background: they end by themselves unless [`Lease::renew`] is
    /// called. `Lost` comes a little before the time to live is over, by a tenth of it, which is 3 ms at
    /// the least and 50 ms at the most.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// use std::time::Duration;
    ///
    /// let lock = locker.lock("orders/42")?.ttl(Duration::from_millis(50)).fixed();
    /// let lease = lock.acquire().await?;
    /// assert_eq!(lease.lost().await.reason, leasehold::LossReason::Expired);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn fixed(self) -> Self {
        self.with(|spec| {
            spec.fixed = true;
            Ok(())
        })
    }

    /// An identity that outlives the process: a process that restarts, and asks for the lock under the
    /// same owner, takes it over at once, with a new token. 1 to 128 bytes, else
    /// [`acquire`](Self::acquire) fails with [`Config`](crate::ErrorKind::Config).
    ///
    /// The lease of its former self is lost as `Superseded`: at once if that is connected, else at its
    /// next renewal. Until then it believes that it holds the lock, so check tokens. Never give one owner
    /// to two lockers that run at the same time: each would take the lock from the other.
    ///
    /// Only the tenure that it finds at its first attempt is taken over: if that is somebody else's, it
    /// waits in line. Within one locker acquisitions with the same owner still exclude each other.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// use leasehold::Locker;
    ///
    /// let crashed = Locker::connect("memory://docs-owner").await?;
    /// let lease = crashed.lock("job")?.owner("job-7").acquire().await?;
    ///
    /// let restarted = Locker::connect("memory://docs-owner").await?;
    /// let again = restarted.lock("job")?.owner("job-7").try_acquire().await?;
    /// assert!(again.unwrap().token() > lease.token());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn owner(self, owner: impl AsRef<str>) -> Self {
        self.with(|spec| {
            spec.owner = Owner::reclaimable(owner.as_ref())?;
            Ok(())
        })
    }

    /// Acquisitions by this handle and its clones share one tenure: while it lasts, acquiring once more
    /// returns at once, without a round trip, with a further [`Lease`] of the same token. The lock is
    /// freed when the last of these leases goes. Who shares it is decided by the handle, not by the task:
    /// give it only to those who may work side by side.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let lock = locker.lock("orders/42")?.reentrant();
    /// let outer = lock.acquire().await?;
    /// let inner = lock.clone().acquire().await?;
    /// assert_eq!(inner.token(), outer.token());
    /// assert_eq!(outer.hold_count(), 2);
    ///
    /// let another = locker.lock("orders/42")?.reentrant();
    /// assert!(another.try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn reentrant(self) -> Self {
        self.with(|spec| {
            spec.reentrant = true;
            Ok(())
        })
    }

    /// Tokens count 1, 2, 3, … instead of following the server's clock. They begin anew if the store
    /// loses its data, so this is for stores that do not, and for names that always use it.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let lock = locker.lock("orders/42")?.dense_tokens();
    /// assert_eq!(lock.acquire().await?.token().get(), 1);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn dense_tokens(self) -> Self {
        self.with(|spec| {
            spec.counter = Counter::Dense;
            Ok(())
        })
    }

    /// The lock counts only once so many replicas of the server have it, which is asked with `WAIT` in
    /// the same round trip: a failover to one of them does not lose it. With fewer within the time-out
    /// the lock is given back and the call fails with
    /// [`NotReplicated`](crate::ErrorKind::NotReplicated), which says how many of how many there were.
    ///
    /// The same holds for each renewal. One that too few acknowledge does not extend the lease: an
    /// [`AtRisk`](crate::LeaseEvent::AtRisk) event says so, it is tried again, and the lease ends at its
    /// former deadline. So let `n` be less than the replicas there are, or none of them may fail. A lock
    /// that comes from the one before in line counts after one more round trip.
    ///
    /// The time-out is 1 ms to 1 min, of which no more is used than a third of the time to live. While
    /// it runs, the server serves nothing else of this locker's connection, so renewals of other
    /// leases may come late: give locks with a long time-out a locker of their own. What is to be
    /// waited for leaves together, one call of the script at a time.
    ///
    /// Acquiring fails with [`Config`](crate::ErrorKind::Config) for zero replicas, a time-out out of
    /// bounds, or on a quorum, and with [`Unsupported`](crate::ErrorKind::Unsupported) on a store in
    /// memory, on a cluster, and through an adapter that does not send
    /// [pairs](crate::adapter::Adapter::pair). A replica that did not acknowledge in time may be promoted all the same: let the failover
    /// choose the one that has most, as Sentinel does, and check tokens where a stale holder does harm.
    ///
    /// ```no_run
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    ///
    /// let locker = leasehold::Locker::connect("redis://127.0.0.1").await?;
    /// let lock = locker.lock("orders/42")?.replicas(1, Duration::from_millis(200));
    /// let lease = lock.acquire().await?;
    /// println!("a replica has it, too: {}", lease.token());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn replicas(self, n: u32, timeout: Duration) -> Self {
        self.with(|spec| {
            let durability = Durability {
                replicas: n,
                timeout: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
                ..spec.durability.unwrap_or(Durability::NONE)
            };
            spec.durability = Some(durability);
            if n == 0 {
                return Err(Error::bad_option("replicas", "is 1 at the least"));
            }
            durability.check()
        })
    }

    /// The lock counts only once the server has it on its disk, in its append-only file, and so do the
    /// [`replicas`](Self::replicas) if they are asked for too: a server that is killed and comes back
    /// with its disk still has it. All of what is said there of time and of renewals holds here; the
    /// time-out is that of `replicas`, or a second.
    ///
    /// It is asked with `WAITAOF`, which Redis has since 7.2, and needs `appendonly yes`; without either
    /// acquiring fails with [`Unsupported`](crate::ErrorKind::Unsupported). With `appendfsync everysec` an
    /// acquisition takes up to a second and may take longer than the time-out; with `always` it takes the
    /// time of the disk.
    ///
    /// ```no_run
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// let locker = leasehold::Locker::connect("redis://127.0.0.1").await?;
    /// let lease = locker.lock("orders/42")?.fsynced().acquire().await?;
    /// println!("it is on the disk: {}", lease.token());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn fsynced(self) -> Self {
        self.with(|spec| {
            let durability = spec.durability.unwrap_or(Durability::NONE);
            spec.durability = Some(Durability {
                fsynced: true,
                ..durability
            });
            Ok(())
        })
    }

    /// What is locked.
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

    /// Whether an acquisition by this handle or its clones has the lock, as far as can be known here.
    /// No I/O; it may be out of date by the time you act on it. To see who else has the lock, use
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

    /// Waits in line until the lock is held. Those who are alive get it in the order in which they
    /// asked, each as soon as the one before releases it. One who died in line delays the others by 6 s
    /// if its connection was closed, else by 12 s (less for a time to live below 10 s: 1.2 s and 2.4 s
    /// from 2 s down).
    ///
    /// That somebody else holds the lock is not an error, however long it takes. Fails with
    ///
    /// - [`Config`](crate::ErrorKind::Config) for a bad option;
    /// - the store's error, if it refuses;
    /// - the last error, mostly [`Timeout`](crate::ErrorKind::Timeout) or
    ///   [`Unavailable`](crate::ErrorKind::Unavailable), if the store has not replied for the locker's
    ///   [patience](super::Builder::patience);
    /// - [`Overloaded`](crate::ErrorKind::Overloaded) if 65,536 wait for this name already, or as many
    ///   calls wait by this [re-entrant](Self::reentrant) handle;
    /// - [`Shutdown`](crate::ErrorKind::Shutdown) if the locker was shut down, or its tokio runtime has
    ///   ended.
    ///
    /// Cancel-safe: a dropped call leaves the line, and leaves no lock behind. If the store cannot be
    /// reached, its place lasts for the delay above, and its lock for the time to live.
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

    /// Takes the lock if it is free and nobody waits for it; else `None`. One round trip. Errors and
    /// cancel safety as of [`acquire`](Self::acquire), but there is one attempt only.
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

    /// Waits in line for this time at the most; `None` if somebody else held the lock all the while.
    /// Fails as [`acquire`](Self::acquire) does, also if the store does not reply until the end of that
    /// time. Cancel-safe.
    ///
    /// With a time of zero it tries once, as [`try_acquire`](Self::try_acquire). A time that is shorter
    /// than a round trip may end before the store replies: that is
    /// [`Timeout`](crate::ErrorKind::Timeout), even if the lock is free.
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
        self.ask(Wait::Until(self.handle.core.driver.now() + time))
            .await
    }

    /// Acquires the lock, does the work under its lease, and releases it. The work gets the lease, with its
    /// [`token`](Lease::token) for the storage.
    ///
    /// Fails as [`acquire`](Self::acquire) does, and then no work is done. At the moment of a loss the work is
    /// dropped, at the await point where it is, and the error is [`NotHeld`](crate::ErrorKind::NotHeld) with a
    /// [`Lost`](super::Lost) as its source; see [`Lease::run`]. Fails as [`Lease::release`] does if the work
    /// ended in time and its release did not succeed; its output is dropped then. An error of the work itself
    /// is part of its output.
    ///
    /// Dropping the future drops the work and releases the lock in the background.
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

    /// Keeps the lock for as long as the program runs, and takes it again after a loss: see [`Tenures`].
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
        Tenures::new(self.clone())
    }

    /// What happens to the acquisitions by this handle and its clones, beginning with the current state:
    /// see [`LeaseEvents`]. One stream shows one tenure after the other, each with a token of its own. It
    /// ends when the last clone and lease are gone.
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

    async fn ask(&self, wait: Wait) -> Result<Option<Lease>, Error> {
        if let Some(error) = &self.handle.error {
            return Err(error.clone());
        }
        let spec = self.handle.spec.clone();
        let lock = self.handle.id;
        let driver = &self.handle.core.driver;
        let lease = driver.new_lease()?;
        let span = tracing::debug_span!(
            target: "leasehold",
            "acquire",
            name = %self.name(),
            token = Empty,
            waited = Empty
        );
        // The call begins at once: what is traced then belongs to the span too.
        let call = span.in_scope(|| driver.acquire(lock, spec, lease, wait));
        let answer = call.instrument(span.clone()).await;
        let share = answer.map_err(|error| error.about(self.name()))?;
        Ok(share.map(|share| {
            span.record("token", share.tenure.token.get());
            span.record("waited", tracing::field::debug(share.waited()));
            Lease::new(share, self.clone())
        }))
    }

    /// Another handle on the same name, with an option changed.
    fn with(self, change: impl FnOnce(&mut LockOptions) -> Result<(), Error>) -> Self {
        let Handle {
            core, spec, error, ..
        } = &*self.handle;
        let mut options = LockOptions::clone(spec);
        let changed = change(&mut options).err();
        let error = error.clone().or(changed);
        let spec = LockSpec {
            options: core.shared(options),
            ..LockSpec::clone(spec)
        };
        Self::of(core.clone(), Arc::new(spec), error)
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
