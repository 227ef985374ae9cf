use std::sync::{Arc, Mutex};

use futures::FutureExt;
use leasehold_engine::protocol::ClientId;
use leasehold_engine::{Error, Owner};

use super::Builder;
use crate::adapter::Adapter;
use crate::client::{Core, Lock, Locker};
use crate::driver::{Driver, Store, Stores};
use crate::rt;

/// From settings to lockers.
impl Builder {
    /// Connects to the store that a URL names.
    ///
    /// | URL | store |
    /// |---|---|
    /// | `redis://[user:password@]host[:port][/database]` | a server; port 6379 and database 0 if there are none. An IPv6 address stands in brackets |
    /// | `rediss://…` | the same by TLS 1.2 or 1.3 |
    /// | `redis-cluster://[user:password@]host[:port],…` | a cluster, of which these are some nodes; the others are asked for at them |
    /// | `rediss-cluster://…` | the same by TLS. Nodes that call themselves by addresses need certificates of these, or `?serverName=…` |
    /// | `redis-sentinel://[user:password@]host[:port],…/service[/database]` | the primary of a service, which its sentinels know, also after a failover; port 26379 if there is none. How to log in to them is in `?sentinelUsername=…&sentinelPassword=…` |
    /// | `rediss-sentinel://…` | the same by TLS, also to the sentinels |
    /// | `unix:///path/to/socket[?db=database]` | the server behind a socket |
    /// | `memory://[name]` | one in this process, which all lockers share that give the same name |
    ///
    /// A `/`, `?`, `#`, `@` or `%` in a user or password has to be percent-encoded. The parameters of a
    /// URL of TLS are those of [`Tls`](crate::Tls): `?ca=FILE`, `&cert=FILE&key=FILE`, `&serverName=NAME`. It
    /// takes the feature `tls-rustls`, which is on by default.
    ///
    /// Fails with
    ///
    /// - [`Config`](crate::ErrorKind::Config) if a setting, the URL, its database or a file of TLS is not
    ///   valid, if one side speaks TLS and the other does not, or if one is of a cluster and the other is not;
    /// - [`Tls`](crate::ErrorKind::Tls) if the server's certificate has expired, is of another name, or
    ///   signed by nobody who is trusted; or if the server refuses the client's. The message says which;
    /// - [`Unavailable`](crate::ErrorKind::Unavailable) or [`Timeout`](crate::ErrorKind::Timeout) if the
    ///   server cannot be reached: after about twice the [`connect_timeout`](Self::connect_timeout) without a
    ///   connection, or once that without a reply to one of the two requests that it begins with;
    /// - [`Auth`](crate::ErrorKind::Auth) if the server refuses the user;
    /// - [`Unsupported`](crate::ErrorKind::Unsupported) if it is older than 7.0, or for TLS in a build
    ///   without it;
    /// - [`ReadOnly`](crate::ErrorKind::ReadOnly) if it is a replica.
    ///
    /// Cancel-safe: a dropped call leaves no connection behind.
    ///
    /// # The runtime
    ///
    /// Must be called on a tokio runtime with time and I/O enabled. The locker's connections and its
    /// background task run there: other runtimes may use it, but it lives only as long as that one. When
    /// that one ends, leases are lost as by [`shutdown`](Locker::shutdown), but stay at the store until
    /// their time to live; calls under way and later ones fail with
    /// [`Shutdown`](crate::ErrorKind::Shutdown). So do not keep a locker in a `static` that several
    /// `#[tokio::test]`s use: each of them has a runtime of its own.
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
        // It is large, and comes once for each locker.
        let store = Box::pin(Store::connect(url.as_ref(), self.dial())).await;
        let store = store.map_err(|error| error.in_namespace(&self.namespace))?;
        self.start_on(owner, Stores::one(store)).await
    }

    /// As [`connect`](Self::connect), for a server that need not be there yet: it connects in the
    /// background, again and again with pauses of up to 2 s, so that a service can start while its Redis
    /// is away. A call that is made meanwhile goes on as one whose link is lost: it waits for the server
    /// for as long as its own time and [`patience`](Self::patience) allow, and fails with what is in the
    /// way. What [`connect`](Self::connect) finds wrong with a server fails the calls instead; and they
    /// fail at once if waiting does not help, as with a wrong password, until the server thinks better
    /// of it.
    ///
    /// Fails with [`Config`](crate::ErrorKind::Config) if a setting, the URL or a file of TLS is not valid,
    /// and for TLS in a build without it with [`Unsupported`](crate::ErrorKind::Unsupported). Panics
    /// outside of a tokio runtime with time enabled; for the rest the runtime is as of
    /// [`connect`](Self::connect). [`findings`](Locker::findings) are there once it has connected.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::Locker;
    ///
    /// let locker = Locker::builder().connect_lazily("redis://127.0.0.1:1")?;
    /// // Nobody is there.
    /// let error = locker.lock("orders/42")?.try_acquire().await.unwrap_err();
    /// assert!(error.is_transient());
    /// # Ok(()) }
    /// ```
    pub fn connect_lazily(self, url: impl AsRef<str>) -> Result<Locker, Error> {
        let owner = self.checked()?;
        let store = Store::connect_lazily(url.as_ref(), self.dial())?;
        let (locker, clock) = self.start(owner, Stores::one(store))?;
        // A store in memory answers at once; any other is not asked yet.
        let _ = clock.now_or_never();
        Ok(locker)
    }

    /// Uses a fred client that the program has and that is connected (`init` was awaited). Of a client of
    /// a cluster only the configuration is used: the locker has a connection of its own to each master,
    /// because it has to know which one answered. Any other keeps its settings and its connection. Give it a reconnection policy, and an
    /// `UnresponsiveConfig`, because this crate does not replace a connection of the program's that has
    /// gone silent. After the first acquisition a second connection is made for pushes, with the same
    /// configuration; it ends with the locker.
    ///
    /// Errors and the runtime as of [`connect`](Self::connect). Cancel-safe: the client stays as it is.
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

    /// Uses whatever Redis client the program has, by an [`Adapter`]: one for the client redis-rs is
    /// [there](crate::adapter). Its connection stays the program's.
    ///
    /// Errors and the runtime as of [`connect`](Self::connect). Cancel-safe: the client stays as it is.
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

    /// A fred client of the server that a URL names, for what a program asks of that besides locks. It is
    /// made as [`connect`](Self::connect) makes its own, with the URL's user, database, sentinels and TLS, and
    /// [`tls`](Self::tls); the other settings of this builder are not for it. No I/O: it is not connected, `init`
    /// does that, and connects anew when a connection is lost.
    ///
    /// Its configuration has the password in it. Fails with [`Config`](crate::ErrorKind::Config) if the URL or a
    /// file of TLS is not valid, or if it is `memory://`, which no client can connect to; and for TLS in a build
    /// without it with [`Unsupported`](crate::ErrorKind::Unsupported).
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

    /// A locker on a store of its own in this process. Nothing else sees its locks. Fails with
    /// [`Config`](crate::ErrorKind::Config) if a setting is not valid. Panics outside of a tokio runtime
    /// with time enabled; the locker lives as long as that runtime, as of [`connect`](Self::connect).
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
            .expect("a store in memory answers at once");
        Ok(locker)
    }

    /// Connects to 3, 5 or 7 independent servers, of which a majority has each lock: it outlives the loss
    /// of the others. Each is a URL as [`connect`](Self::connect) takes it, of a server that replicates to
    /// none of the others.
    ///
    /// A lease is held while a majority has it, and ends with the deadline of that majority. Its token is
    /// greater than those of all leases before. A majority has to be there now; a server that is away
    /// is taken in when it comes.
    ///
    /// Waiters are served in order, whatever the order of each locker's list: all lockers rank the servers of a name
    /// alike, by what the servers are, and the waiters of a name stand in line at the first majority. So different names
    /// have their lines at different servers. Where a server is away, slow or refuses, the others of these decide. Two
    /// kinds of lockers are not ordered with each other: those of which each misses another one of these servers, and
    /// a locker that reaches none of them. A waiter that a server cannot notify may be overtaken, too. A restart of a
    /// server changes its rank.
    ///
    /// A minority that is away, slow or read-only keeps a call for no longer than one
    /// [`command_timeout`](Self::command_timeout). Who stands in line at a server that falls silent notices with
    /// its next look at its place, after half of the time to live and within 5 s, and goes to another; at one
    /// that answers with errors alone, after its [`patience`](Self::patience) too. Where a majority
    /// is away, `try_acquire` fails after one `command_timeout`, and `acquire` after the patience; what they
    /// took is given back, by servers that come back as well.
    ///
    /// A server that is back counts for a lease that is held once it is asked again, which is as soon as it votes, and
    /// otherwise with the renewals, a third of the time to live apart; and once the majority that has the lease has said
    /// after that that it has it still. Until then a lease that a bare majority has stays
    /// [at risk](crate::LeaseEvent::AtRisk): the next server that fails takes it along. So no lease goes on after a
    /// later one, whatever was freed by force or taken over by its owner. A [fixed](crate::Lock::fixed) lease
    /// stands on the servers that gave it at once.
    ///
    /// A server that loses its data, or goes back to older ones, does not vote until no lease is left that it
    /// may have forgotten: for the [longest time to live](Self::longest_ttl), which a majority of the servers measures.
    /// It is told from one that goes on by a key in each namespace, `{NAMESPACE:}`, and by its run id. **Two holders there can be if a
    /// majority lose their data within that time**; also if some do, and others are replaced by new ones.
    /// A majority that is empty is taken for a new quorum, and begins at once; let all servers be there for
    /// the first lock, or those that come later may have to wait as if they had forgotten something.
    ///
    /// A server's clock that is set forward ends the leases there early. While the server may not vote that does no
    /// harm, so let a machine that boots set its clock before its server's quarantine is over.
    ///
    /// The servers' clocks are to be apart by less than the longest time to live and the
    /// [token retention](Self::token_retention): else a token may be smaller than one before, since what a
    /// server that lost its data gives out begins at its clock.
    ///
    /// # Errors
    ///
    /// As for `connect`, with the number of the server in the list.
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for other numbers of servers, one that is there twice,
    /// and servers of Redis and in memory together; [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable)
    /// if no majority is there. Dense tokens are refused when a lock is acquired.
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
        // The channel of a shard is found by its first braces, which are to be those of the lock's key.
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
