use std::sync::Arc;
use std::time::Duration;

use leasehold_engine::engine::{LockOptions, LockSpec};
use leasehold_engine::protocol::{Counter, Durability};
use leasehold_engine::{Error, Owner};

use super::{Handle, Lock};

/// Options.
impl Lock {
    /// Sets the time to live: how long a lease lasts unless it is renewed.
    ///
    /// 10 ms to a year (366 days); 30 s by default. The store counts whole milliseconds. With a shorter time,
    /// others wait less for a crashed holder. With a longer one, the holder survives longer outages of the
    /// store.
    ///
    /// If the time is out of bounds, [`acquire`](Self::acquire) fails with
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

    /// Turns off background renewal: a lease expires unless you call [`Lease::renew`](crate::Lease::renew).
    ///
    /// `Lost` comes before the time to live is over: by a tenth of that time, at least 3 ms and at most 50
    /// ms.
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

    /// Limits how long a lease may be held, however often it is renewed.
    ///
    /// The age counts from the request, or the handover, that got the lock. When the deadline has reached it,
    /// renewals end, and [`AtRisk`](crate::LeaseEvent::AtRisk) says so with
    /// [`Overheld`](crate::ErrorKind::Overheld), at least a third of the time to live ahead as a rule. Then the
    /// lease is lost as [`Overheld`](crate::LossReason::Overheld), and the next waiter has the lock at once.
    /// The store ends the lease at about that age even if the holder was cut off meanwhile.
    ///
    /// From the time to live to a year (366 days); otherwise [`acquire`](Self::acquire) fails with
    /// [`Config`](crate::ErrorKind::Config).
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// use std::time::Duration;
    ///
    /// let lock = locker.lock("orders/42")?.ttl(Duration::from_millis(50));
    /// let lease = lock.at_most(Duration::from_millis(100)).acquire().await?;
    /// assert_eq!(lease.lost().await.reason, leasehold::LossReason::Overheld);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn at_most(self, age: Duration) -> Self {
        self.with(|spec| {
            spec.at_most = Some(age);
            Ok(())
        })
    }

    /// Keeps the name taken after a release until the lease would have this age.
    ///
    /// A machine whose clock is a little behind then does not run a short job again. The
    /// age counts from the request, or the handover, that got the lock. Dropping the last lease is a release, too. The lease
    /// itself ends at once and emits [`Released`](crate::LeaseEvent::Released). Until the name is free, nobody
    /// gets it, not even its owner, except after a [forced release](crate::Locker::force_release). If less
    /// than 5 s were left at the release, a waiter may notice up to that much later that the name is free.
    ///
    /// Only a release keeps the name: after a loss, a crash or a shutdown it is free at the latest when the
    /// time to live is over.
    ///
    /// At a quorum a release is confirmed once a majority keeps the name. Otherwise it fails, and the lease is lost
    /// as [`Expired`](crate::LossReason::Expired). Until a waiter notices that the name is free, a later caller may
    /// come first there.
    ///
    /// At most a year (366 days), and not more than [`at_most`](Self::at_most); otherwise
    /// [`acquire`](Self::acquire) fails with [`Config`](crate::ErrorKind::Config).
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// use std::time::Duration;
    ///
    /// let report = locker.lock("report")?.at_least(Duration::from_secs(60));
    /// report.acquire().await?.release().await?;
    /// assert!(report.try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn at_least(self, age: Duration) -> Self {
        self.with(|spec| {
            spec.at_least = Some(age);
            Ok(())
        })
    }

    /// Sets an owner: an identity that outlives the process.
    ///
    /// A process that restarts and asks for the lock under the same owner takes it over at once, with a new
    /// token. 1 to 128 bytes; otherwise [`acquire`](Self::acquire) fails with
    /// [`Config`](crate::ErrorKind::Config).
    ///
    /// The earlier lease is lost as `Superseded`: at once if its locker is connected, otherwise at its next
    /// renewal. Until then its holder believes that it holds the lock, so check tokens. Never give one owner
    /// to two running lockers: each would take the lock from the other.
    ///
    /// An acquisition takes over only the tenure that it finds at its first attempt. If that is another
    /// owner's, the acquisition joins the line. Within one locker, acquisitions with the same owner still
    /// exclude each other.
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

    /// Lets acquisitions by this handle and its clones share one tenure.
    ///
    /// While the tenure lasts, acquiring again returns another [`Lease`](crate::Lease) with the same token,
    /// at once and without a round trip. Dropping or releasing the last of these leases frees the lock. The
    /// handle decides who shares the tenure, not the task: give it only to code that may work side by side.
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

    /// Makes tokens count 1, 2, 3, … instead of following the server's clock.
    ///
    /// Dense tokens restart if the store loses its data. Use them only with stores that do not lose it, and
    /// use them for a name always or never.
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

    /// Makes the lock count only once `n` replicas of the server have it, so that a failover to one of them
    /// keeps it.
    ///
    /// The lock asks with `WAIT`, in the same round trip. If fewer replicas acknowledge within the timeout,
    /// the lock is given back, and the call fails with [`NotReplicated`](crate::ErrorKind::NotReplicated).
    /// The error says how many of how many acknowledged. A lock handed over by its last holder counts after
    /// one more round trip.
    ///
    /// Each renewal needs the copies, too. A renewal that too few replicas acknowledge does not extend the
    /// lease: an [`AtRisk`](crate::LeaseEvent::AtRisk) event says so, the renewal is retried, and the lease
    /// ends at its former deadline. So let `n` be less than the number of replicas; otherwise none of them
    /// may fail.
    ///
    /// The timeout is 1 ms to 1 min; at most a third of the time to live is used. Meanwhile the server serves
    /// nothing else on this locker's connection, so renewals of other leases may come late. Give locks with a
    /// long timeout a locker of their own. Requests with copies are sent together, one script call at a time.
    ///
    /// A replica that did not acknowledge in time may still be promoted. Let the failover choose the replica
    /// with the most data, as Sentinel does, and check tokens where a stale holder does harm.
    ///
    /// # Errors
    ///
    /// Acquiring fails with
    ///
    /// - [`Config`](crate::ErrorKind::Config) for zero replicas, a timeout out of bounds, or on a quorum;
    /// - [`Unsupported`](crate::ErrorKind::Unsupported) on an in-memory store, or through an adapter that does
    ///   not send [pairs](crate::adapter::Adapter::pair), as `RedisRs` does not on a cluster.
    ///
    /// # Example
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
                return Err(Error::bad_option("replicas", "must be at least 1; got 0"));
            }
            durability.check()
        })
    }

    /// Makes the lock count only once it is on the server's disk, in the append-only file. So a server that
    /// is killed and restarts with its disk still has it.
    ///
    /// With [`replicas`](Self::replicas), the lock must be on the disks of that many replicas, too. The rules
    /// there about timeouts and renewals apply; without `replicas` the timeout is a second.
    ///
    /// The lock asks with `WAITAOF`. With `appendfsync everysec` an acquisition takes up to a second, and may
    /// take longer than the timeout. With `always` it takes as long as a write to the disk.
    ///
    /// # Errors
    ///
    /// Acquiring fails with [`Unsupported`](crate::ErrorKind::Unsupported) if the server is older than Redis
    /// 7.2 or runs without `appendonly yes`; otherwise as for [`replicas`](Self::replicas).
    ///
    /// # Example
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

    /// Returns another handle on the same name, with an option changed.
    pub(in crate::client) fn with(
        self,
        change: impl FnOnce(&mut LockOptions) -> Result<(), Error>,
    ) -> Self {
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
