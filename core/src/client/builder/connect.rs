use std::sync::{Arc, Mutex};

use futures::FutureExt;
use leasehold_engine::protocol::ClientId;
use leasehold_engine::{Error, Owner};

use super::Builder;
use crate::adapter::Adapter;
use crate::client::{Core, Lock, Locker};
use crate::driver::{Driver, Store, Stores};
use crate::rt;

/// Constructors of lockers.
impl Builder {
    /// Connects to the store at a URL.
    ///
    /// | URL | store |
    /// |---|---|
    /// | `redis://[user:password@]host[:port][/database]` | a server; by default port 6379 and database 0. An IPv6 address must be in brackets |
    /// | `rediss://…` | the same over TLS 1.2 or 1.3 |
    /// | `redis-cluster://[user:password@]host[:port],…` | a cluster, by some of its nodes; the locker asks them for the others |
    /// | `rediss-cluster://…` | the same over TLS. Nodes that announce addresses need certificates for these, or `?serverName=…` |
    /// | `redis-sentinel://[user:password@]host[:port],…/service[/database]` | the primary of a service, found by its sentinels, also after a failover; by default port 26379. `?sentinelUsername=…&sentinelPassword=…` are the credentials for the sentinels |
    /// | `rediss-sentinel://…` | the same over TLS, also to the sentinels |
    /// | `unix:///path/to/socket[?db=database]` | the server at a socket |
    /// | `memory://[name]` | an in-memory store of this process; lockers that give the same name share it |
    ///
    /// Percent-encode `/`, `?`, `#`, `@` and `%` in a user or password. A TLS URL takes the parameters of
    /// [`Tls`](crate::Tls): `?ca=FILE`, `&cert=FILE&key=FILE`, `&serverName=NAME`. TLS needs the feature
    /// `tls-rustls`, which is on by default.
    ///
    /// # Errors
    ///
    /// - [`Config`](crate::ErrorKind::Config) if a setting, the URL, its database or a TLS file is not valid;
    ///   if only one side speaks TLS; if only one of URL and server is for a cluster; or outside of a tokio runtime;
    /// - [`Tls`](crate::ErrorKind::Tls) if the server's certificate is expired, mismatched or untrusted, or
    ///   if the server refuses the client's; the message says which;
    /// - [`Unavailable`](crate::ErrorKind::Unavailable) or [`Timeout`](crate::ErrorKind::Timeout) if the
    ///   server cannot be reached. That takes about twice the [`connect_timeout`](Self::connect_timeout) if
    ///   no connection is made, and once that time if the server does not reply to one of the first two
    ///   requests;
    /// - [`Auth`](crate::ErrorKind::Auth) if the server refuses the user;
    /// - [`Unsupported`](crate::ErrorKind::Unsupported) if the server is older than 7.0, or if the URL is for
    ///   TLS and this build has none;
    /// - [`ReadOnly`](crate::ErrorKind::ReadOnly) if the server is a replica.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no connection behind.
    ///
    /// # Runtime
    ///
    /// Call this on a tokio runtime with time and I/O enabled. The locker's connections and its background
    /// task run there. Other runtimes may use the locker, but it lives only as long as that one.
    ///
    /// When that runtime ends, leases are lost as by [`shutdown`](Locker::shutdown), except that they stay at
    /// the store until they expire there. Pending and later calls fail with
    /// [`Shutdown`](crate::ErrorKind::Shutdown). So do not keep a locker in a `static` that several
    /// `#[tokio::test]`s use: each test has a runtime of its own.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::Locker;
    ///
    /// let locker = Locker::builder().namespace("shop").connect("memory://").await?;
    ///
    /// let error = Locker::builder().connect("http://127.0.0.1").await.unwrap_err();
    /// assert!(error.is_config());
    /// # Ok(()) }
    /// ```
    pub async fn connect(self, url: impl AsRef<str>) -> Result<Locker, Error> {
        let owner = self.checked()?;
        // The future is large, and each locker needs it only once.
        let store = Box::pin(Store::connect(url.as_ref(), self.dial())).await;
        let store = store.map_err(|error| error.in_namespace(&self.namespace))?;
        self.start_on(owner, Stores::one(store)).await
    }

    /// Connects in the background, so that a program can start while its Redis is down.
    ///
    /// The locker retries with pauses of up to 2 s. A call made meanwhile waits for the server, for as long
    /// as its own timeout and [`patience`](Self::patience) allow, and then fails with the reason. Problems
    /// that [`connect`](Self::connect) would report fail the calls instead. If waiting does not help, as with
    /// a wrong password, calls fail at once until the server accepts the locker.
    /// [`findings`](Locker::findings) are known once it has connected.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config) if a setting, the URL or a TLS file is not valid;
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the URL is for TLS and this build has none.
    ///
    /// # Panics
    ///
    /// Panics on a tokio runtime without time enabled. The locker lives as long as that runtime: see
    /// [`connect`](Self::connect).
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::Locker;
    ///
    /// let locker = Locker::builder().connect_lazily("redis://127.0.0.1:1")?;
    /// // No server listens there.
    /// let error = locker.lock("orders/42")?.try_acquire().await.unwrap_err();
    /// assert!(error.is_transient());
    /// # Ok(()) }
    /// ```
    pub fn connect_lazily(self, url: impl AsRef<str>) -> Result<Locker, Error> {
        let owner = self.checked()?;
        let store = Store::connect_lazily(url.as_ref(), self.dial())?;
        let (locker, clock) = self.start(owner, Stores::one(store))?;
        // An in-memory store answers at once; any other is not asked yet.
        let _ = clock.now_or_never();
        Ok(locker)
    }

    /// Uses a fred client of yours that is connected (you awaited `init`).
    ///
    /// Give the client a reconnection policy and an `UnresponsiveConfig`, because this crate does not replace
    /// a connection of yours that has gone silent. The client keeps its settings and its connection. After
    /// the first acquisition the locker opens a second connection with the same configuration, for pushes.
    /// The locker closes the second connection when it ends.
    ///
    /// A cluster's client lends only its configuration. The locker opens connections of its own to each
    /// master, because it must know which master answered.
    ///
    /// Errors and runtime are as for [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the client unchanged.
    ///
    /// # Example
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use fred::prelude::*;
    ///
    /// let client = fred::types::Builder::default_centralized()
    ///     .set_policy(ReconnectPolicy::new_exponential(0, 50, 2_000, 2))
    ///     .build()?;
    /// client.init().await?;
    /// let locker = leasehold::Locker::builder().namespace("shop").with_fred(client).await?;
    /// # Ok(()) }
    /// ```
    pub async fn with_fred(self, client: fred::clients::Client) -> Result<Locker, Error> {
        let owner = self.checked()?;
        let store = Store::with_fred(client, self.dial()).await;
        let store = store.map_err(|error| error.in_namespace(&self.namespace))?;
        self.start_on(owner, Stores::one(store)).await
    }

    /// Uses any Redis client by an [`Adapter`]. The module [`adapter`](crate::adapter) has one for redis-rs.
    ///
    /// The client's connection stays yours. Errors and runtime are as for [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the client unchanged.
    ///
    /// # Example
    ///
    /// ```no_run
    /// # async fn example(adapter: impl leasehold::adapter::Adapter) -> Result<(), leasehold::Error> {
    /// let locker = leasehold::Locker::builder().namespace("shop").with_adapter(adapter).await?;
    /// # Ok(()) }
    /// ```
    pub async fn with_adapter(self, adapter: impl Adapter) -> Result<Locker, Error> {
        let owner = self.checked()?;
        let store = Store::with_adapter(Arc::new(adapter)).await;
        let store = store.map_err(|error| error.in_namespace(&self.namespace))?;
        self.start_on(owner, Stores::one(store)).await
    }

    /// Returns a fred client for the server at a URL, for a program's commands that are not about locks.
    ///
    /// The client has the URL's user, database, sentinels and TLS, and [`tls`](Self::tls), like the client
    /// that [`connect`](Self::connect) makes. It ignores the other settings of this builder. This does no
    /// I/O: await the client's `init` to connect it. It reconnects by itself. Its configuration contains the
    /// password.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config) if the URL or a TLS file is not valid, or if the URL is
    /// `memory://`; [`Unsupported`](crate::ErrorKind::Unsupported) if the URL is for TLS and this build has
    /// none.
    ///
    /// # Example
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use fred::prelude::*;
    /// use leasehold::Locker;
    ///
    /// let url = "rediss://10.0.0.1?ca=/etc/redis/ca.pem";
    /// let client = Locker::builder().fred_client(url)?;
    /// client.init().await?;
    /// let locker = Locker::with_fred(client.clone()).await?;
    /// # Ok(()) }
    /// ```
    pub fn fred_client(&self, url: impl AsRef<str>) -> Result<fred::clients::Client, Error> {
        Store::client(url.as_ref(), self.dial())
    }

    /// Makes a locker on an in-memory store of its own. Nothing else sees its locks.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config) if a setting is not valid.
    ///
    /// # Panics
    ///
    /// Panics on a tokio runtime without time enabled. The locker lives as long as that runtime: see
    /// [`connect`](Self::connect).
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// let locker = leasehold::Locker::builder().owner("worker-3").in_memory()?;
    /// let lease = locker.lock("orders/42")?.acquire().await?;
    /// let holder = locker.inspect("orders/42").await?.holder.expect("it is held");
    /// assert_eq!(holder.owner.label(), "worker-3");
    /// # Ok(()) }
    /// ```
    pub fn in_memory(self) -> Result<Locker, Error> {
        let owner = self.checked()?;
        let (locker, clock) = self.start(owner, Stores::one(Store::in_memory()))?;
        clock
            .now_or_never()
            .expect("an in-memory store answers at once");
        Ok(locker)
    }

    /// Connects to 3, 5 or 7 independent servers. A majority of them holds each lock, so locks survive the
    /// loss of the others.
    ///
    /// Each URL is one for [`connect`](Self::connect). No server may replicate to another one of the list. A
    /// majority must be up now; the locker adds the others when they come up.
    ///
    /// A lease is held while a majority has it, and ends with the deadline of that majority. Its token is
    /// greater than those of all earlier leases.
    ///
    /// # Servers that are down
    ///
    /// While a minority is down, slow or read-only, a call takes at most one
    /// [`command_timeout`](Self::command_timeout) longer. While a majority is down, `try_acquire` fails after
    /// one `command_timeout`, and `acquire` after the [`patience`](Self::patience). What they took is given
    /// back, also on servers that come back later.
    ///
    /// A server that comes back supports a held lease again in two steps. The locker asks it for the lease as
    /// soon as the server votes, otherwise with the next renewals, a third of the time to live apart. Then
    /// the majority that has the lease must confirm it once more. Until then a lease that only a bare
    /// majority has stays [at risk](crate::LeaseEvent::AtRisk): losing one more server ends it. So no lease
    /// outlives the start of a later one, even after a forced release or a takeover by its owner. A
    /// [fixed](crate::Lock::fixed) lease rests only on the servers that granted it at first.
    ///
    /// # Servers that lose data
    ///
    /// A server that lost its data, or went back to older data, does not vote until no lease is left that it
    /// may have forgotten. That takes the [longest time to live](Self::longest_ttl), which a majority of the
    /// servers measures. Such a server is recognized by a key in each namespace, `{NAMESPACE:}`, and by its
    /// run ID.
    ///
    /// **Two clients can hold one lock at once if a majority loses its data within that time**, or if some
    /// servers lose theirs and new servers replace others.
    ///
    /// A majority of empty servers counts as a new quorum and starts at once. Have all servers up for the
    /// first lock. Otherwise those that come later may have to wait as if they had forgotten something.
    ///
    /// # Waiters
    ///
    /// Waiters are served in order, whatever the order of each locker's list. All lockers rank the servers of
    /// a name alike, by properties of the servers, and a name's line is at the first majority of them. So
    /// different names have their lines at different servers. Where one of these servers is down, slow or
    /// refuses, the others of them decide.
    ///
    /// The order does not hold in these cases:
    ///
    /// - between lockers that each miss a different one of these servers;
    /// - for a locker that reaches none of them;
    /// - for a waiter that a server cannot notify;
    /// - when a server restarts, because that changes its rank.
    ///
    /// A waiter leaves a server that has fallen silent at its next heartbeat, after half of the time to live
    /// and within 5 s. It leaves a server that only returns errors after its [`patience`](Self::patience),
    /// too.
    ///
    /// # Clocks
    ///
    /// Setting a server's clock forward ends the leases there early. In quarantine this makes no second holder,
    /// because the server grants no locks. So let a machine that boots set its clock before its server's
    /// quarantine ends.
    ///
    /// The servers' clocks must differ by less than the longest time to live and the [token
    /// retention](Self::token_retention). Otherwise a token may be smaller than an earlier one, because a
    /// server that lost its data restarts its tokens from its clock.
    ///
    /// # Errors
    ///
    /// The errors of [`connect`](Self::connect), with the server's number in the list. Also:
    ///
    /// - [`ErrorKind::Config`](crate::ErrorKind::Config) for another number of servers, for one that is in
    ///   the list twice, and for Redis and in-memory servers together;
    /// - [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if no majority is up.
    ///
    /// A quorum refuses [dense tokens](crate::Lock::dense_tokens) when a lock is acquired.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// let servers = ["memory://one", "memory://two", "memory://three"];
    /// let locker = leasehold::Locker::builder().quorum(servers).await?;
    /// let lease = locker.lock("orders/42")?.acquire().await?;
    /// lease.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn quorum<U: AsRef<str>>(
        self,
        urls: impl IntoIterator<Item = U>,
    ) -> Result<Locker, Error> {
        let owner = self.checked()?;
        let urls: Vec<_> = urls
            .into_iter()
            .map(|url| url.as_ref().to_owned())
            .collect();
        let stores = Stores::quorum(&urls, self.dial()).await;
        let stores = stores.map_err(|error| error.in_namespace(&self.namespace))?;
        self.start_on(owner, stores).await
    }

    async fn start_on(self, owner: Owner, stores: Stores) -> Result<Locker, Error> {
        let (locker, clock) = self.start(owner, stores)?;
        clock.await;
        Ok(locker)
    }

    fn start(
        self,
        owner: Owner,
        stores: Stores,
    ) -> Result<(Locker, impl Future<Output = ()> + Send), Error> {
        let random = u64::try_from(rt::random_bits()? >> 64).unwrap_or(0);
        // A subscriber finds a channel's shard by the first braces in its name. They must be those of the
        // lock's key.
        let client = if stores.are_addressed() && !self.namespace.contains('{') {
            ClientId::at_shards(random)
        } else {
            ClientId::new(random)
        };
        let settings = self.settings(client)?;
        let scope = (self.namespace.clone(), self.tracking);
        let (driver, clock) = Driver::start(stores, settings, scope)?;
        let Self {
            namespace,
            token_retention,
            ..
        } = self;
        let core = Core {
            driver,
            namespace,
            options: Arc::new(Lock::defaults(owner, token_retention)),
            recent: Mutex::default(),
            #[cfg(feature = "metrics")]
            recorded: crate::client::metrics::Recorded::default(),
        };
        Ok((
            Locker {
                core: Arc::new(core),
            },
            clock,
        ))
    }
}
