mod connect;

use std::time::Duration;

use leasehold_engine::engine::Settings;
use leasehold_engine::limits;
use leasehold_engine::protocol::{ClientId, Counter, LockKey};
use leasehold_engine::{Error, ErrorKind, Name, Owner};

use crate::adapter::fred::Dial;
use crate::rt;
use crate::tls::Tls;

/// Settings of a [`Locker`](super::Locker), with defaults that suit most programs.
///
/// A setting that is out of bounds fails the call that makes the locker, with
/// [`Config`](crate::ErrorKind::Config).
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
/// use std::time::Duration;
///
/// let locker = leasehold::Locker::builder()
///     .namespace("shop")
///     .command_timeout(Duration::from_millis(500))
///     .connect("memory://")
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    namespace: String,
    owner: Option<String>,
    connect_timeout: Duration,
    command_timeout: Duration,
    patience: Duration,
    drift_margin: u32,
    longest_ttl: Duration,
    tracking: bool,
    token_retention: Duration,
    tls: Option<Tls>,
}

impl Builder {
    pub(super) fn new() -> Self {
        let settings = Settings::new(ClientId(0));
        Self {
            namespace: "leasehold".to_owned(),
            owner: None,
            connect_timeout: const { limits::time("connectTimeout") },
            command_timeout: settings.command_timeout,
            patience: settings.patience,
            drift_margin: settings.drift_margin,
            longest_ttl: settings.longest_ttl,
            tracking: true,
            token_retention: const { limits::time("tokenRetention") },
            tls: None,
        }
    }

    /// Sets the namespace, which keeps the locker's names apart from the same names in other namespaces.
    ///
    /// 1 to 128 bytes; `leasehold` by default.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::Locker;
    ///
    /// let shop = Locker::builder().namespace("shop").connect("memory://docs-namespace").await?;
    /// let bank = Locker::builder().namespace("bank").connect("memory://docs-namespace").await?;
    /// let held = shop.lock("door")?.acquire().await?;
    /// assert!(bank.lock("door")?.try_acquire().await?.is_some());
    /// # drop(held); Ok(()) }
    /// ```
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Sets the owner of all locks that do not set [their own](super::Lock::owner).
    ///
    /// An owner is an identity that outlives the process: after a restart, the process gets its locks back. 1
    /// to 128 bytes. No two running lockers should have the same owner. By default a lock shows its holder's
    /// machine and process, and nobody can take it over.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::Locker;
    ///
    /// let worker = || Locker::builder().owner("worker-3").connect("memory://docs-worker");
    /// let crashed = worker().await?.lock("job")?.acquire().await?;
    /// let restarted = worker().await?.lock("job")?.acquire().await?;
    /// assert!(restarted.token() > crashed.token());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// Sets the timeout of a connection attempt, with TLS, and of the reply to each of the connection's first
    /// requests.
    ///
    /// 1 ms to 1 min; 3 s by default. [`connect`](Self::connect) gives up after twice this time, and each
    /// attempt to reconnect after this time. It applies to connections that this crate makes. A client that
    /// you [bring](Self::with_fred) keeps its own settings.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    /// use leasehold::Locker;
    ///
    /// let impatient = Locker::builder().connect_timeout(Duration::from_millis(300));
    /// // No server listens there.
    /// let error = impatient.connect("redis://127.0.0.1:1").await.unwrap_err();
    /// assert!(error.is_transient());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets how long one attempt waits for the store's reply.
    ///
    /// 1 ms to 1 min; 2 s by default. Short leases shorten it: an acquisition waits at most the lease's time
    /// to live, a renewal at most a third of it.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    /// use leasehold::Locker;
    ///
    /// let half_a_second = Duration::from_millis(500);
    /// let locker = Locker::builder().command_timeout(half_a_second).in_memory()?;
    ///
    /// let error = Locker::builder().command_timeout(Duration::ZERO).in_memory().unwrap_err();
    /// assert!(error.is_config());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn command_timeout(mut self, timeout: Duration) -> Self {
        self.command_timeout = timeout;
        self
    }

    /// Sets how long a call retries while the store does not reply. Then the call fails with the last error.
    ///
    /// Up to 1 h, and at least one [`command_timeout`](Self::command_timeout); 10 s by default. Time spent
    /// waiting for a lock that another client holds does not count, because the store does reply then.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    /// use leasehold::Locker;
    ///
    /// // Waits through a restart of the server.
    /// let locker = Locker::builder().patience(Duration::from_secs(60)).in_memory()?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sets the drift margin: how much faster the store's clock or this machine's may run than the other, in
    /// parts per million.
    ///
    /// 1,000 to 250,000; 2,000 by default, which is 1 in 500. A lease ends here before it expires at the
    /// store, by this share of its time to live. Exclusion depends on it: while the clocks' rates differ by
    /// less, no two leases on a name are valid at once.
    ///
    /// The default covers two clocks that are each slewed by up to 500 ppm, as ntpd, the kernel and
    /// systemd-timesyncd do. chrony slews by up to 83,333 ppm unless `maxslewrate` says less. Set
    /// `maxslewrate` to 500 on the store's machine and on this one. Otherwise set the margin to 90,000 if
    /// chrony steers one of them, and to 170,000 if it steers both.
    ///
    /// The locker detects rates that differ by more: within a second or two under heavy traffic, otherwise
    /// after about three renewals. It then widens the margin and emits
    /// [`ClockDrift`](crate::LeaseEvent::ClockDrift). A deadline from before that may have been too late.
    ///
    /// No margin covers a clock that is *set*. If the store's clock is set forward, its keys expire early by
    /// that much. If it is set back, a crashed client's lock stays longer by that much. Nor does a margin
    /// cover a virtual machine whose clock stops while its hypervisor suspends it.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::Locker;
    ///
    /// let one_chrony = Locker::builder().drift_margin(90_000).in_memory()?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn drift_margin(mut self, parts_per_million: u32) -> Self {
        self.drift_margin = parts_per_million;
        self
    }

    /// Sets the longest time to live of a lease on a [quorum](Self::quorum), including one set by
    /// [`renew_for`](crate::Lease::renew_for).
    ///
    /// 10 ms to a day; 60 s by default. It has no effect on a single server.
    ///
    /// It is also the quarantine period. A server that restarted or was flushed may have forgotten to whom it
    /// gave a lock, so it does not vote on new leases for this long. Meanwhile it counts as missing. The
    /// events [`Quarantined`](crate::LeaseEvent::Quarantined) and
    /// [`Readmitted`](crate::LeaseEvent::Readmitted) report this. Restart servers one at a time. Restart the
    /// next one only after every locker with leases has emitted `Readmitted` for the last one. Without the
    /// events, wait for twice this time plus 5 s.
    ///
    /// All lockers of a quorum must set the same value, which the voting servers store. With another value,
    /// every acquisition fails with [`ErrorKind::Config`](crate::ErrorKind::Config), and the error names both
    /// values. To change it, stop all lockers, wait for the old time, delete the key `{NAMESPACE:}` on every
    /// server, and start the lockers with the new value.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    /// use leasehold::Locker;
    ///
    /// let servers = ["memory://docs-1", "memory://docs-2", "memory://docs-3"];
    /// let builder = Locker::builder().longest_ttl(Duration::from_secs(15));
    /// let locker = builder.quorum(servers).await?;
    ///
    /// // The default time to live is 30 s.
    /// let error = locker.lock("orders/42")?.acquire().await.unwrap_err();
    /// assert_eq!(error.option(), Some("longest_ttl"));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn longest_ttl(mut self, longest: Duration) -> Self {
        self.longest_ttl = longest;
        self
    }

    /// Sets whether a holder learns at once that another client has deleted or overwritten its lock, flushed
    /// the database, or made the server evict keys.
    ///
    /// `true` by default. Otherwise the holder learns of it at its next renewal. The lock uses [`CLIENT
    /// TRACKING`](https://redis.io/commands/client-tracking/) on the connection for commands. It costs one
    /// read of each lock that lives for a second or more, some milliseconds after the acquisition and after
    /// each renewal.
    ///
    /// A fred client that you bring is left alone if its connection speaks RESP3 or tracks keys already. If
    /// tracking cannot be turned on, that is a [finding](crate::Finding::Untracked), not an error.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::Locker;
    ///
    /// let locker = Locker::builder().tracking(false).connect("memory://").await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn tracking(mut self, tracking: bool) -> Self {
        self.tracking = tracking;
        self
    }

    /// Sets how long the store remembers the last token of a name after its last use, at least.
    ///
    /// 1 s to a year (366 days); 24 hours by default. It matters only if the server's clock is set back by
    /// more than the time that the name was unused. Otherwise tokens grow anyway, because they follow that
    /// clock.
    ///
    /// A time below an hour is kept exactly, which makes renewals somewhat more expensive. From an hour on,
    /// the store may remember a name for up to 2,000 s longer.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    /// use leasehold::Locker;
    ///
    /// // For names that are used once, so that they do not fill up the server.
    /// let locker = Locker::builder().token_retention(Duration::from_secs(60)).in_memory()?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn token_retention(mut self, retention: Duration) -> Self {
        self.token_retention = retention;
        self
    }

    /// Sets whom to trust and which certificate to show, for the server of a `rediss://` URL.
    ///
    /// By default the locker trusts the system's CAs and shows no certificate. With a URL that does not use
    /// TLS this setting is an error, so that nothing crosses the network unencrypted by mistake.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), leasehold::Error> {
    /// use leasehold::{Locker, Tls};
    ///
    /// let tls = Tls::new().ca_file("/etc/redis/ca.pem");
    /// let locker = Locker::builder().tls(tls).connect("rediss://redis.internal").await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    fn checked(&self) -> Result<Owner, Error> {
        if tokio::runtime::Handle::try_current().is_err() {
            let message = "a locker is made on a tokio runtime: call this in an async function that tokio runs";
            return Err(Error::new(ErrorKind::Config, message));
        }
        // The name and the client are placeholders; everything else is checked.
        LockKey::new(&self.namespace, &Name::new("n")?)?;
        self.settings(ClientId(0))?;
        let (least, most) = (Duration::from_millis(1), Duration::from_secs(60));
        Error::check_range("connect_timeout", self.connect_timeout, least, most)?;
        let retention = self.token_retention;
        Counter::ClockFloor { retention }.check()?;
        self.owner
            .as_ref()
            .map_or_else(|| Ok(rt::default_owner()), Owner::reclaimable)
    }

    /// Returns how to make connections.
    fn dial(&self) -> Dial<'_> {
        Dial {
            tls: self.tls.as_ref(),
            timeout: self.connect_timeout,
        }
    }

    fn settings(&self, client: ClientId) -> Result<Settings, Error> {
        let settings = Settings {
            command_timeout: self.command_timeout,
            patience: self.patience,
            drift_margin: self.drift_margin,
            longest_ttl: self.longest_ttl,
            ..Settings::new(client)
        };
        settings.checked()
    }
}
