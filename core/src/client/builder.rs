mod connect;

use std::time::Duration;

use leasehold_engine::engine::Settings;
use leasehold_engine::limits;
use leasehold_engine::protocol::{ClientId, Counter, LockKey};
use leasehold_engine::{Error, Name, Owner};

use crate::adapter::fred::Dial;
use crate::rt;
use crate::tls::Tls;

/// Settings of a [`Locker`](super::Locker), all with defaults that suit most. One that is out of bounds is an error
/// of the call that makes the locker, of the kind [`Config`](crate::ErrorKind::Config).
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

    /// Keeps the locker's names apart from the same names in other namespaces on the server: 1 to 128
    /// bytes; `leasehold` by default.
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

    /// The owner of all locks that do not set [their own](super::Lock::owner): an identity that outlives
    /// the process, so that it gets its locks back after a restart. 1 to 128 bytes. No two lockers that
    /// run at the same time should share it. By default a lock shows the machine and the process that
    /// hold it, and nobody can take it over.
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

    /// How long a connection may take to be made, with TLS, and then the reply to each of the requests that it
    /// begins with: 1 ms to 1 min; 3 s by default. [`connect`](Self::connect) gives up after twice that, and each
    /// attempt to get a lost connection back after once. It is of connections that this crate makes: one that the
    /// program [has](Self::with_fred) keeps its own settings.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    /// use leasehold::Locker;
    ///
    /// let impatient = Locker::builder().connect_timeout(Duration::from_millis(300));
    /// // Nobody is there.
    /// let error = impatient.connect("redis://127.0.0.1:1").await.unwrap_err();
    /// assert!(error.is_transient());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long one attempt waits for the store's reply: 1 ms to 1 min; 2 s by default. For a short
    /// lease it is less: an acquisition waits for no longer than the lease's time to live, and a renewal
    /// for no longer than a third of it.
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

    /// How long a call keeps trying while the store does not reply, before it fails with the last
    /// error: up to 1 h, and at least one [`command_timeout`](Self::command_timeout); 10 s by default.
    /// Waiting for a lock that somebody else holds does not count, because the store does reply then.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    /// use leasehold::Locker;
    ///
    /// // Sits out a restart of the server.
    /// let locker = Locker::builder().patience(Duration::from_secs(60)).in_memory()?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// By how much the store's clock and this machine's may run faster or slower than one another, in
    /// parts per million: 1,000 to 250,000; 2,000 by default, which is 1 in 500. By this share of its
    /// time a lease ends here before it ends at the store. Exclusion rests on it: as long as the rates
    /// of the clocks differ by less, no two leases on a name are valid at once.
    ///
    /// The default covers two clocks that are steered by up to 500 ppm each, as ntpd, the kernel and
    /// systemd-timesyncd do. chrony slews by up to 83,333 ppm unless `maxslewrate` says less: set that
    /// to 500 on the store's machine and on this one. Or set 90,000 here if one of them is steered like
    /// that, and 170,000 if both are.
    ///
    /// Rates that differ by more are noticed within a second or two where there is much traffic, else
    /// after three renewals or so. Then the margin is widened, and the event
    /// [`ClockDrift`](crate::LeaseEvent::ClockDrift) says so. A deadline from before that may have been
    /// too late.
    ///
    /// No margin covers a clock that is *set*. If the store's is set forward, its keys expire that much
    /// too early; if it is set back, a dead holder's lock stays that much longer. Nor does one cover a
    /// virtual machine whose clock stands still while its hypervisor holds it up.
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

    /// The longest time to live that a lease may have on a [quorum](Self::quorum), also by
    /// [`renew_for`](crate::Lease::renew_for): 10 ms to a day; 60 s by default. On one server it means nothing.
    ///
    /// For so long a server does not vote on new leases after it came back from a restart, or was flushed:
    /// it may have forgotten to whom it gave a lock. Meanwhile it counts as missing, which the events
    /// [`Quarantined`](crate::LeaseEvent::Quarantined) and [`Readmitted`](crate::LeaseEvent::Readmitted)
    /// say. Restart servers one at a time, and the next one only when all lockers with leases have emitted
    /// `Readmitted` for the last; without the events, twice this time and 5 s later.
    ///
    /// All lockers of a quorum must set the same. Servers that vote keep it: with another value every call that
    /// acquires fails with [`ErrorKind::Config`](crate::ErrorKind::Config), and the error says both. To change it,
    /// stop all lockers, wait for the old time, delete the key `{NAMESPACE:}` at every server, and start the lockers
    /// with the new one.
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
    /// // A lease lives for 30 s by default.
    /// let error = locker.lock("orders/42")?.acquire().await.unwrap_err();
    /// assert_eq!(error.option(), Some("longest_ttl"));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn longest_ttl(mut self, longest: Duration) -> Self {
        self.longest_ttl = longest;
        self
    }

    /// Whether a holder hears at once, and not at its next renewal, that somebody else has deleted or
    /// overwritten its lock, flushed the database, or let the server evict keys: `true` by default. It
    /// costs one read of each lock that lives for a second or more, after it was held for some
    /// milliseconds and after each renewal, by [`CLIENT TRACKING`](https://redis.io/commands/client-tracking/)
    /// on the connection for commands. A fred client of the program's whose connection speaks RESP3 or
    /// tracks keys already is left alone. What is in the way is
    /// [found](crate::Finding::Untracked), and no error.
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

    /// How long the store remembers the last token of a name that nobody acquires, at the least: 1 s to a
    /// year (366 days); 24 hours by default. It matters only if the server's clock is set back by more
    /// than the name was unused: else tokens grow anyway, because they follow that clock.
    ///
    /// Less than an hour is kept to exactly, which makes renewals somewhat dearer; from an hour on a name
    /// may be remembered for up to 2,000 s longer.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    /// use leasehold::Locker;
    ///
    /// // For names that are used once, so that they do not fill the server.
    /// let locker = Locker::builder().token_retention(Duration::from_secs(60)).in_memory()?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn token_retention(mut self, retention: Duration) -> Self {
        self.token_retention = retention;
        self
    }

    /// How the server of a `rediss://` URL is checked, and who this client is to it; without it the
    /// system's CAs are trusted, and no certificate is shown. With another URL it is an error, so that
    /// nothing goes over the network in the clear by mistake.
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
        // The name and the client are stand-ins: what is checked is all the rest.
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

    /// How connections are made.
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
