use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;

use super::{Core, Locker};
use crate::driver::{Shared, Store};
use crate::engine::Settings;
use crate::error::Error;
use crate::name::{Name, Owner};
use crate::protocol::{ClientId, Counter, LockKey, channel};
use crate::rt;

/// Settings of a [`Locker`], all with defaults that suit most.
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
    command_timeout: Duration,
    patience: Duration,
    drift_margin: u32,
    token_retention: Duration,
}

impl Builder {
    pub(super) fn new() -> Self {
        let settings = Settings::new(ClientId(0));
        Self {
            namespace: "leasehold".to_owned(),
            owner: None,
            command_timeout: settings.command_timeout,
            patience: settings.patience,
            drift_margin: settings.drift_margin,
            token_retention: Duration::from_secs(7 * 24 * 60 * 60),
        }
    }

    /// What the names of this locker are apart by from those of others on the same server: 1 to
    /// 128 bytes; `leasehold` by default.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// The owner of all locks that do not set [their own](super::Lock::owner): a reclaimable
    /// identity, 1 to 128 bytes, which no two lockers that run at the same time should share. By
    /// default a lock shows the machine and the process, and nobody
    /// reclaims it.
    #[must_use]
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// How long one attempt waits for the store's answer at the most: 1 ms to 1 min; 2 s by
    /// default. An acquisition waits its lease's time to live, and a renewal a third of it, if that is
    /// less.
    #[must_use]
    pub fn command_timeout(mut self, timeout: Duration) -> Self {
        self.command_timeout = timeout;
        self
    }

    /// How long a call keeps trying while the store gives no answer, before it fails with the
    /// last error: up to 1 h, and at least one [`command_timeout`](Self::command_timeout); 10 s by
    /// default. Waiting for a lock that somebody else holds does
    /// not count: there the store does answer.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// How far the rates of the store's clock and of this machine's may differ, in parts per million:
    /// 1,000 to 250,000; 2,000 by default, which is 1 in 500. Deadlines come so much earlier than the
    /// store's expiry. Exclusion rests on it: as long as the clocks differ by less, no two leases on a
    /// name are valid at once.
    ///
    /// The default covers two clocks that are steered by up to 500 ppm each, as ntpd, the kernel and
    /// systemd-timesyncd do. chrony slews by up to 83,333 ppm unless `maxslewrate` says less: set that
    /// to 500 on the store's machine and on this one, or set 90,000 here if one of them is steered so,
    /// and 170,000 if both are. Rates that differ by more are noticed within a second or two where
    /// there is much traffic, else after three renewals or so; then the margin is widened, and
    /// [`ClockDrift`](crate::LeaseEvent::ClockDrift) says so. What was promised before that may be
    /// too long.
    ///
    /// No margin covers a clock that is *set*: if the store's is set forward, its keys expire so much
    /// early, and if it is set back, a dead holder's lock stays so much longer; nor a virtual machine
    /// that its hypervisor holds up, if its clock stands still meanwhile.
    #[must_use]
    pub fn drift_margin(mut self, parts_per_million: u32) -> Self {
        self.drift_margin = parts_per_million;
        self
    }

    /// How long the store remembers the last token of a name that is not acquired: 1 s to a year;
    /// 7 days by default. Tokens grow even past it, as long as the server's clock does.
    #[must_use]
    pub fn token_retention(mut self, retention: Duration) -> Self {
        self.token_retention = retention;
        self
    }

    /// Connects to the store that a URL names: `redis://[user:password@]host[:port][/database]`,
    /// `unix:///path/to/socket[?db=database]`, or `memory://[name]` for a store in this process
    /// that all lockers share that name it.
    ///
    /// Fails with [`ErrorKind::Config`](crate::ErrorKind::Config) if a setting, the URL or its database is not valid,
    /// [`Unavailable`](crate::ErrorKind::Unavailable) or [`Timeout`](crate::ErrorKind::Timeout) if the server
    /// cannot be reached, [`Auth`](crate::ErrorKind::Auth) if it refuses the user,
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if it is older than 7.0, and
    /// [`ReadOnly`](crate::ErrorKind::ReadOnly) if it is a replica. Gives up after about 6 s without a
    /// connection, and 3 s for each of two first questions.
    ///
    /// Must be called on a tokio runtime with time and I/O enabled. The locker's connections and its
    /// background task run on it, so it may be used from other runtimes, but lives only as long as
    /// that one. When that one ends, leases are lost as by
    /// [`shutdown`](Locker::shutdown), but stay at the store until their time to live, and calls
    /// under way and later ones fail with [`Shutdown`](crate::ErrorKind::Shutdown). So do not keep a
    /// locker in a `static` that several `#[tokio::test]`s use: each has a runtime of its own.
    pub async fn connect(self, url: impl AsRef<str>) -> Result<Locker, Error> {
        let owner = self.checked()?;
        let store = Store::connect(url.as_ref()).await?;
        self.start_on(owner, store).await
    }

    /// Uses a fred client that the program has and that is connected (`init` was awaited). Its
    /// settings and its connection stay the program's: give it a reconnection policy, and an
    /// `UnresponsiveConfig`, since this crate does not replace a connection of the program's that
    /// has gone silent. For pushes a second connection is made with the same configuration after the
    /// first acquisition; it ends with the locker. Errors and the runtime as of
    /// [`connect`](Self::connect);
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the client is of a cluster.
    pub async fn with_fred(self, client: fred::clients::Client) -> Result<Locker, Error> {
        let owner = self.checked()?;
        let store = Store::with_fred(client).await?;
        self.start_on(owner, store).await
    }

    /// A locker on a store of its own in this process. Nothing else sees its locks.
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if a setting is not valid. Panics outside of a tokio runtime with
    /// time enabled; the locker lives as long as that, as of [`connect`](Self::connect).
    pub fn in_memory(self) -> Result<Locker, Error> {
        let owner = self.checked()?;
        let (locker, clock) = self.start(owner, Store::in_memory())?;
        clock
            .now_or_never()
            .expect("a store in memory answers at once");
        Ok(locker)
    }

    async fn start_on(self, owner: Owner, store: Store) -> Result<Locker, Error> {
        let (locker, clock) = self.start(owner, store)?;
        clock.await;
        Ok(locker)
    }

    fn start(
        self,
        owner: Owner,
        store: Store,
    ) -> Result<(Locker, impl Future<Output = ()> + Send), Error> {
        // 64 of the bits tell this locker from every other.
        let client = ClientId(u64::try_from(rt::random_bits()? >> 64).unwrap_or(0));
        let settings = self.settings(client)?;
        let channel = channel(&self.namespace, client);
        let (shared, clock) = Shared::start(store, settings, channel);
        let Self {
            namespace,
            token_retention,
            ..
        } = self;
        let core = Core {
            shared,
            namespace,
            owner,
            token_retention,
        };
        Ok((
            Locker {
                core: Arc::new(core),
            },
            clock,
        ))
    }

    fn checked(&self) -> Result<Owner, Error> {
        // Any name and any client will do: this is for the rest.
        LockKey::new(&self.namespace, &Name::new("n")?)?;
        self.settings(ClientId(0))?;
        let retention = self.token_retention;
        Counter::ClockFloor { retention }.check()?;
        self.owner
            .as_ref()
            .map_or_else(|| Ok(rt::default_owner()), Owner::reclaimable)
    }

    fn settings(&self, client: ClientId) -> Result<Settings, Error> {
        let settings = Settings {
            command_timeout: self.command_timeout,
            patience: self.patience,
            drift_margin: self.drift_margin,
            ..Settings::new(client)
        };
        settings.checked()
    }
}
