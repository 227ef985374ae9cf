use std::fmt;
use std::sync::Arc;

use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use leasehold_engine::engine::{HolderInfo, Inspection, Listing, Stats};
use leasehold_engine::protocol::{LockKey, Pattern};
use leasehold_engine::{Error, FencingToken, Finding, Name};

use super::{Builder, Core, LeaseEvents, Lock};
use crate::adapter::Adapter;

/// A client of the lock service: its identity, its connection, and the background task that
/// renews every lease it holds. Clones are the same locker; one per process is enough.
///
/// It has one connection for commands and, from the first acquisition on, a second one for pushes: the
/// server's messages that a lock was handed to it or taken from it. When the last handle of a locker is
/// gone (clones, locks and leases count), its task ends and both connections are closed.
///
/// # Testing
///
/// On a store in memory a locker goes by tokio's time where a test has paused that
/// (`#[tokio::test(start_paused = true)]`, of tokio's feature `test-util`): leases are renewed and
/// expire, and waiters wait, in no time at all. A test that sleeps for an hour sees an hour of renewals.
/// One that jumps ahead by `tokio::time::advance`, further than a lease lives, plays a process that stood
/// still, and loses the lease. Tests with paused time need a store each: do not give them one
/// `memory://` URL with a name.
///
/// With paused time do not use a server: its own time goes on, and the client's time-outs would come at
/// once.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
/// let locker = leasehold::Locker::in_memory();
/// let lease = locker.lock("orders/42")?.acquire().await?;
/// println!("held with token {}", lease.token());
/// lease.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Locker {
    pub(super) core: Arc<Core>,
}

impl Locker {
    /// Connects to the store that a URL names, with default settings: see [`Builder::connect`]
    /// for the forms and the errors. The locker lives as long as the tokio runtime that this is
    /// called on: see there.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), leasehold::Error> {
    /// let locker = leasehold::Locker::connect("redis://127.0.0.1:6379").await?;
    /// # Ok(()) }
    /// ```
    pub async fn connect(url: impl AsRef<str>) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// Connects to several independent servers, of which a majority has each lock: see
    /// [`Builder::quorum`] for what that promises, and what not.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), leasehold::Error> {
    /// let servers = ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"];
    /// let locker = leasehold::Locker::quorum(servers).await?;
    /// # Ok(()) }
    /// ```
    pub async fn quorum<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<Self, Error> {
        Self::builder().quorum(urls).await
    }

    /// Connects in the background to a server that need not be there yet, with default settings: see
    /// [`Builder::connect_lazily`].
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), leasehold::Error> {
    /// let locker = leasehold::Locker::connect_lazily("redis://127.0.0.1:6379")?;
    /// # Ok(()) }
    /// ```
    pub fn connect_lazily(url: impl AsRef<str>) -> Result<Self, Error> {
        Self::builder().connect_lazily(url)
    }

    /// Uses a fred client that the program has: see [`Builder::with_fred`]. The locker lives as long
    /// as the tokio runtime that this is called on: see [`Builder::connect`].
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use fred::prelude::*;
    ///
    /// let client = fred::types::Builder::default_centralized()
    ///     .set_policy(ReconnectPolicy::new_exponential(0, 50, 2_000, 2))
    ///     .build()?;
    /// client.init().await?;
    /// let locker = leasehold::Locker::with_fred(client).await?;
    /// # Ok(()) }
    /// ```
    pub async fn with_fred(client: fred::clients::Client) -> Result<Self, Error> {
        Self::builder().with_fred(client).await
    }

    /// Uses whatever Redis client the program has: see [`Builder::with_adapter`].
    ///
    /// ```no_run
    /// # async fn example(adapter: impl leasehold::adapter::Adapter) -> Result<(), leasehold::Error> {
    /// let locker = leasehold::Locker::with_adapter(adapter).await?;
    /// # Ok(()) }
    /// ```
    pub async fn with_adapter(adapter: impl Adapter) -> Result<Self, Error> {
        Self::builder().with_adapter(adapter).await
    }

    /// Uses a connection of the client redis-rs, such as a `ConnectionManager` or a `ClusterConnection`, and
    /// for pushes a client, or the connection's push sender: see [`RedisRs`](crate::adapter::RedisRs) and
    /// [`RedisPushes`](crate::adapter::RedisPushes).
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = redis::Client::open("redis://127.0.0.1:6379")?;
    /// let connection = client.get_connection_manager().await?;
    /// let locker = leasehold::Locker::with_redis(connection, client).await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "redis-rs")]
    pub async fn with_redis<C>(
        connection: C,
        pushes: impl Into<crate::adapter::RedisPushes>,
    ) -> Result<Self, Error>
    where
        C: redis::aio::ConnectionLike + Clone + Send + Sync + 'static,
    {
        let adapter = crate::adapter::RedisRs::new(connection);
        Self::with_adapter(adapter.hearing_by(pushes)).await
    }

    /// A locker on a store of its own in this process: for tests, and for programs that run
    /// alone. Panics outside of a tokio runtime with time enabled. The locker lives as long as that
    /// runtime: see [`Builder::connect`].
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// let locker = leasehold::Locker::in_memory();
    /// assert!(locker.lock("orders/42")?.try_acquire().await?.is_some());
    /// # Ok(()) }
    /// ```
    pub fn in_memory() -> Self {
        Self::builder()
            .in_memory()
            .expect("the defaults are valid, and there is randomness")
    }

    /// Makes a locker with other settings than the defaults.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// let locker = leasehold::Locker::builder().namespace("shop").connect("memory://").await?;
    /// # Ok(()) }
    /// ```
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// A handle on one name; no I/O. Fails with [`Config`](crate::ErrorKind::Config) if the name is empty
    /// or longer than 512 bytes.
    ///
    /// Acquisitions exclude each other: through one handle and through several, within this locker and
    /// across processes.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// let locker = leasehold::Locker::in_memory();
    /// let lock = locker.lock("orders/42")?;
    /// let held = lock.acquire().await?;
    /// assert!(lock.clone().try_acquire().await?.is_none());
    /// assert!(locker.lock("orders/42")?.try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn lock(&self, name: impl AsRef<str>) -> Result<Lock, Error> {
        let (name, key) = LockKey::with_name(&self.core.namespace, name.as_ref())?;
        Ok(Lock::new(self.core.clone(), name, key))
    }

    /// What is wrong with the store, though it works, and endangers leases: for example that the server
    /// evicts keys. It is looked at once, when connecting, and each finding is also traced as a warning.
    /// Nothing is found in memory, or if this user may not run `INFO`. After the first acquisition
    /// [`Untracked`](Finding::Untracked) may follow.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// let locker = leasehold::Locker::in_memory();
    /// for finding in locker.findings() {
    ///     eprintln!("{finding}");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn findings(&self) -> Vec<Finding> {
        self.core.driver.findings()
    }

    /// What this locker has done since it was made, as numbers: how many leases it holds, what it acquired
    /// and lost and why, how long calls waited. No I/O; the locker always counts, which costs next to
    /// nothing. See [`Stats`] for each of them, [`Stats::to_prometheus`] for a page that Prometheus reads.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// let locker = leasehold::Locker::in_memory();
    /// let lease = locker.lock("orders/42")?.acquire().await?;
    /// lease.release().await?;
    /// let stats = locker.stats();
    /// assert_eq!((stats.held, stats.acquired, stats.released), (0, 1, 1));
    /// assert_eq!(stats.holding_times.count, 1);
    /// # Ok(()) }
    /// ```
    pub fn stats(&self) -> Stats {
        self.core.driver.stats()
    }

    /// Hands what was counted since the last call of this to the recorder of the crate
    /// [`metrics`](https://docs.rs/metrics), with the names of [`Stats::to_prometheus`] and the label
    /// `namespace`. Nothing happens without a recorder; install it first. No I/O.
    ///
    /// To be called every few seconds, or whenever the numbers are looked at, and once more at the end.
    /// Lockers of one namespace add up. The crate has no histograms that are counted already: times are
    /// recorded one by one, within their buckets, so that their sum is right. Buckets with
    /// [`Histogram::BOUNDS`](crate::Histogram::BOUNDS) show them as they were counted.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// use std::time::Duration;
    ///
    /// let recorded = locker.clone();
    /// tokio::spawn(async move {
    ///     let mut ticks = tokio::time::interval(Duration::from_secs(5));
    ///     loop {
    ///         ticks.tick().await;
    ///         recorded.record_metrics();
    ///     }
    /// });
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "metrics")]
    pub fn record_metrics(&self) {
        let Core {
            namespace,
            recorded,
            ..
        } = &*self.core;
        recorded.record(namespace, || self.stats());
    }

    /// The events of all locks of this locker: see [`LeaseEvents`].
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// use futures::StreamExt;
    ///
    /// let mut events = locker.events();
    /// let lease = locker.lock("orders/42")?.acquire().await?;
    /// let event = events.next().await.unwrap();
    /// assert_eq!(event.token(), Some(lease.token()));
    /// # Ok(()) }
    /// ```
    pub fn events(&self) -> LeaseEvents {
        LeaseEvents::new(self.core.driver.clone(), None)
    }

    /// Asks the store who holds a name and who waits for it. Fails with
    /// [`Config`](crate::ErrorKind::Config) for a bad name, with the store's error if it refuses, and with
    /// the last error if it has not replied for the [patience](Builder::patience). Cancel-safe.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locker = leasehold::Locker::in_memory();
    /// let json = serde_json::to_string(&locker.inspect("orders/42").await?)?;
    /// assert_eq!(json, r#"{"holder":null,"lastToken":null,"waiting":0,"line":[]}"#);
    /// let lease = locker.lock("orders/42")?.acquire().await?;
    /// let holder = locker.inspect("orders/42").await?.holder.expect("it is held");
    /// assert_eq!(holder.token, lease.token());
    /// # Ok(()) }
    /// ```
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<Inspection, Error> {
        let key = LockKey::new(&self.core.namespace, &Name::new(name)?)?;
        self.core.driver.inspect(key).await
    }

    /// Returns a stream of the names that match a pattern and are held: `list(…).try_collect().await` gives all of
    /// them at once, and [`list_steps`](Self::list_steps) lets you pause. `*` in the pattern stands for any characters, `\*`
    /// for a star, `\\` for a backslash, and all else for itself.
    ///
    /// The server is asked in small steps, so that it does other work meanwhile, and only while the
    /// stream is polled. A name may come twice; one that is held all the while comes for sure, unless its
    /// slot of a cluster is moved meanwhile: each master is walked in its turn. The stream
    /// ends after an error: [`Config`](crate::ErrorKind::Config) for a pattern that is empty, too long, or
    /// has a backslash before anything but `*` and `\`; else as of [`inspect`](Self::inspect).
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// use futures::TryStreamExt;
    ///
    /// let locker = leasehold::Locker::in_memory();
    /// let lease = locker.lock("orders/42")?.acquire().await?;
    /// let other = locker.lock("users/7")?.acquire().await?;
    /// let held: Vec<_> = locker.list("orders/*").try_collect().await?;
    /// assert_eq!(held, [lease.name().clone()]);
    /// # Ok(()) }
    /// ```
    pub fn list(&self, pattern: impl AsRef<str>) -> BoxStream<'static, Result<Name, Error>> {
        let names = self
            .list_steps(pattern)
            .map_ok(|names| futures::stream::iter(names).map(Ok));
        names.try_flatten().boxed()
    }

    /// The same as [`list`](Self::list), with the names of one step of the server together: of up to some
    /// thousand keys, so there may be none. For who pauses between steps, because the server has much to do,
    /// or many keys that are no locks.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// use futures::TryStreamExt;
    ///
    /// let locker = leasehold::Locker::in_memory();
    /// let lease = locker.lock("orders/42")?.acquire().await?;
    /// let mut steps = locker.list_steps("*");
    /// while let Some(names) = steps.try_next().await? {
    ///     println!("{names:?}");
    ///     tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn list_steps(
        &self,
        pattern: impl AsRef<str>,
    ) -> BoxStream<'static, Result<Vec<Name>, Error>> {
        let pattern = Pattern::new(&self.core.namespace, pattern.as_ref());
        let core = self.core.clone();
        let steps = futures::stream::try_unfold(None, move |walks: Option<Vec<u64>>| {
            let (core, pattern) = (core.clone(), pattern.clone());
            async move {
                let mut walks = match walks {
                    Some(walks) => walks,
                    None => core.driver.walks()?,
                };
                let Some(cursor) = walks.pop() else {
                    return Ok::<_, Error>(None);
                };
                let Listing { cursor, names } = core.driver.list(pattern?, cursor).await?;
                walks.extend(cursor);
                Ok(Some((names, Some(walks))))
            }
        });
        steps.boxed()
    }

    /// Frees a name whoever holds it, and returns who that was; `None` if it was free. The first in line
    /// gets the lock. The holder hears of it at once if it is connected, else at its next renewal (with a
    /// fixed lease when it is renewed by hand, or ends). Its writes are refused wherever its token is
    /// checked.
    ///
    /// It ends the tenure that it finds when it first looks, and no other, however often it has to try.
    /// After an error, or if the future was dropped, the lock may or may not have been freed: calling it
    /// again is safe, but may hit the next holder. Errors as of [`inspect`](Self::inspect).
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// let locker = leasehold::Locker::in_memory();
    /// let stuck = locker.lock("orders/42")?.acquire().await?;
    /// assert!(locker.force_release("orders/42").await?.is_some());
    /// let next = locker.lock("orders/42")?.acquire().await?;
    /// assert!(next.token() > stuck.token());
    /// # Ok(()) }
    /// ```
    pub async fn force_release(&self, name: impl AsRef<str>) -> Result<Option<HolderInfo>, Error> {
        let key = LockKey::new(&self.core.namespace, &Name::new(name)?)?;
        self.core.driver.force_release(key, None).await
    }

    /// As [`force_release`](Self::force_release), of the tenure with this token alone: whoever has the lock by
    /// then keeps it. So it is the one to call after a look at who has it, which is over by then, and calling it
    /// again is safe. `None` if nothing was released, because that tenure is over.
    ///
    /// Of a [quorum](super::Builder::quorum) it is the token that [`inspect`](Self::inspect) shows. With other
    /// servers away than at the look it may be another number, and nothing is released then.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// let locker = leasehold::Locker::in_memory();
    /// let stuck = locker.lock("orders/42")?.acquire().await?;
    /// let seen = locker.inspect("orders/42").await?.holder.expect("it is held");
    ///
    /// // While somebody thinks about it, the lock changes hands.
    /// stuck.release().await?;
    /// let next = locker.lock("orders/42")?.acquire().await?;
    /// assert!(locker.force_release_token("orders/42", seen.token).await?.is_none());
    /// assert!(next.is_valid());
    /// # Ok(()) }
    /// ```
    pub async fn force_release_token(
        &self,
        name: impl AsRef<str>,
        token: FencingToken,
    ) -> Result<Option<HolderInfo>, Error> {
        let key = LockKey::new(&self.core.namespace, &Name::new(name)?)?;
        self.core.driver.force_release(key, Some(token)).await
    }

    /// Ends everything. Leases are lost with [`LossReason::Shutdown`](crate::LossReason) and freed at the
    /// store. Calls under way, except releases, and all later calls fail with
    /// [`Shutdown`](crate::ErrorKind::Shutdown); releasing a lease that was lost by this fails with
    /// [`NotHeld`](crate::ErrorKind::NotHeld), as after any loss.
    ///
    /// Returns when the store has confirmed it, or after the [patience](Builder::patience), 10 s by
    /// default, if it does not reply. Dropping the future does not stop the shutdown.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let lease = locker.lock("orders/42")?.acquire().await?;
    /// locker.shutdown().await;
    /// assert_eq!(lease.lost().await.reason, leasehold::LossReason::Shutdown);
    /// assert!(locker.lock("orders/42")?.acquire().await.is_err());
    /// # Ok(()) }
    /// ```
    pub async fn shutdown(&self) {
        // An error is ignored: what the store did not confirm ends by its time to live.
        let _ = self.core.driver.shutdown().await;
    }
}

impl fmt::Debug for Locker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locker")
            .field("namespace", &self.core.namespace)
            .field("owner", &self.core.options.owner.label())
            .finish_non_exhaustive()
    }
}
