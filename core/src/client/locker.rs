use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use leasehold_engine::engine::{HolderInfo, Inspection, Listing, Stats};
use leasehold_engine::protocol::{LockKey, Pattern};
use leasehold_engine::{Error, FencingToken, Finding, Name, Share as Part, Ticket};

use super::{
    Builder, Core, Job, Lease, LeaseEvents, Lock, LockSet, Observer, RwLock, Semaphore,
    YieldRequest,
};
use crate::adapter::Adapter;

/// A client of the lock service: its identity, its connections, and the background task that renews its
/// leases.
///
/// Share one locker in a process. A clone is the same locker and costs nothing. Callers of one locker share
/// connections and script calls; callers of different lockers do not.
///
/// A locker has one connection for commands. From its first acquisition on it has a second one for pushes.
/// A push notifies it that a lock was handed to it or taken from it. Dropping the last handle of a
/// locker ends its task and closes both connections. Clones, locks and leases are handles.
///
/// # Testing
///
/// On an in-memory store a locker follows tokio's time if a test has paused it (`#[tokio::test(start_paused =
/// true)]`, of tokio's feature `test-util`). Renewals, expiry and waiting then take no real time. A test that
/// sleeps for an hour sees an hour of renewals. If a test jumps ahead by `tokio::time::advance`, further than
/// a lease lives, it simulates a paused process, and the lease is lost.
///
/// Tests with paused time need a store each: do not give them one `memory://` URL with a name. Do not use a
/// server with paused time: the server's time goes on, and the client's timeouts would fire at once.
///
/// # Example
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
    /// Connects to the store at a URL, with default settings.
    ///
    /// See [`Builder::connect`] for the URL forms, the errors and the runtime.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), leasehold::Error> {
    /// let locker = leasehold::Locker::connect("redis://127.0.0.1:6379").await?;
    /// # Ok(()) }
    /// ```
    pub async fn connect(url: impl AsRef<str>) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// Connects to several independent servers, a majority of which holds each lock.
    ///
    /// See [`Builder::quorum`] for what that promises and what it does not.
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

    /// Connects in the background, so that a program can start while its Redis is down.
    ///
    /// Uses default settings: see [`Builder::connect_lazily`].
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), leasehold::Error> {
    /// let locker = leasehold::Locker::connect_lazily("redis://127.0.0.1:6379")?;
    /// # Ok(()) }
    /// ```
    pub fn connect_lazily(url: impl AsRef<str>) -> Result<Self, Error> {
        Self::builder().connect_lazily(url)
    }

    /// Uses a connected fred client of yours: see [`Builder::with_fred`].
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

    /// Uses any Redis client by an adapter: see [`Builder::with_adapter`].
    ///
    /// ```no_run
    /// # async fn example(adapter: impl leasehold::adapter::Adapter) -> Result<(), leasehold::Error> {
    /// let locker = leasehold::Locker::with_adapter(adapter).await?;
    /// # Ok(()) }
    /// ```
    pub async fn with_adapter(adapter: impl Adapter) -> Result<Self, Error> {
        Self::builder().with_adapter(adapter).await
    }

    /// Uses a connection of the client redis-rs, such as a `ConnectionManager` or a `ClusterConnection`.
    ///
    /// For pushes give it a client, or the connection's push sender: see [`RedisRs`](crate::adapter::RedisRs)
    /// and [`RedisPushes`](crate::adapter::RedisPushes).
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

    /// Makes a locker on an in-memory store of its own, for tests and for programs that run alone.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime with time enabled. The locker lives as long as that runtime: see
    /// [`Builder::connect`].
    ///
    /// # Example
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
            .expect("this is a tokio runtime, the defaults are valid, and there is randomness")
    }

    /// Returns a builder, for settings other than the defaults.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// let locker = leasehold::Locker::builder().namespace("shop").connect("memory://").await?;
    /// # Ok(()) }
    /// ```
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Returns a handle on one name. No I/O.
    ///
    /// Acquisitions exclude each other: through one handle or several, within this locker and across
    /// processes.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config) if the name is empty or longer than 512 bytes.
    ///
    /// # Example
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

    /// Returns a handle on a name that up to `slots` holders share, each with a slot of its own. No I/O.
    ///
    /// The slots have the numbers 0 to `slots - 1`, and each one is a fenced resource: see
    /// [`Permit::resource`](super::Permit::resource). The first permit of a name sets its capacity at the store. Later
    /// handles with another number continue with that one: see [`Semaphore::resize`].
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config) if the name is empty or longer than 512 bytes, or the number of slots is not
    /// from 1 to 10,000.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// let locker = leasehold::Locker::in_memory();
    /// let licenses = locker.semaphore("licenses", 3)?;
    /// let permit = licenses.acquire().await?;
    /// assert_eq!((permit.slot(), &*permit.resource()), (Some(0), "licenses#0"));
    /// # Ok(()) }
    /// ```
    pub fn semaphore(&self, name: impl AsRef<str>, slots: u32) -> Result<Semaphore, Error> {
        let lock = self.lock(name)?;
        let part = Part::slots(1, slots).map_err(|error| error.about(lock.name()))?;
        Ok(Semaphore::new(lock.sharing(part)))
    }

    /// Returns a handle on a name whose holders share `units` among them, without slots. No I/O.
    ///
    /// It suits large amounts, such as bytes of memory or rows: a permit may have any number of units.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config) if the name is empty or longer than 512 bytes, or the number of units is not
    /// from 1 to 1,000,000,000.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// let locker = leasehold::Locker::in_memory();
    /// let memory = locker.quota("memory/mb", 64_000)?;
    /// let permit = memory.acquire_many(48_000).await?;
    /// assert!(memory.try_acquire_many(16_001).await?.is_none());
    /// # drop(permit);
    /// # Ok(()) }
    /// ```
    pub fn quota(&self, name: impl AsRef<str>, units: u32) -> Result<Semaphore, Error> {
        let lock = self.lock(name)?;
        let part = Part::units(1, units).map_err(|error| error.about(lock.name()))?;
        Ok(Semaphore::new(lock.sharing(part)))
    }

    /// Returns a handle on a name that many readers or one writer hold. No I/O.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config) if the name is empty or longer than 512 bytes.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// let locker = leasehold::Locker::in_memory();
    /// let prices = locker.rw_lock("prices")?;
    /// let (one, other) = (prices.read().acquire().await?, prices.read().acquire().await?);
    /// assert!(prices.write().try_acquire().await?.is_none());
    /// # drop((one, other));
    /// # Ok(()) }
    /// ```
    pub fn rw_lock(&self, name: impl AsRef<str>) -> Result<RwLock, Error> {
        Ok(RwLock::new(self.lock(name)?.sharing(Part::reader())))
    }

    /// Returns a handle on several names, which are acquired one after the other in one global order. No I/O.
    ///
    /// The order is that of the names' bytes, whatever the order of the list. So callers that want the same
    /// names never wait for each other in a circle. While a name is awaited, those before it in the order are
    /// held and renewed. All requests for names that are free leave together.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config) if the list is empty, has a name twice, more than
    /// [`LockSet::MAX_NAMES`] names, or a name that is not valid.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// let locker = leasehold::Locker::in_memory();
    /// let bundle = locker.all(["accounts/7", "accounts/3"])?.acquire().await?;
    /// for (name, token) in bundle.tokens() {
    ///     println!("{name} is held with token {token}");
    /// }
    /// bundle.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn all<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Result<LockSet, Error> {
        LockSet::new(&self.core, names, false)
    }

    /// Returns a handle on several names, of which none is held while another one is awaited. No I/O.
    ///
    /// It stands in line for one busy name at a time. Once it gets that name, it tries all others at once. If
    /// one of them is busy, it passes on what it has, and stands in line for that one. So it never keeps a name
    /// from others for longer than a round trip, and it may starve: callers that keep only one of the names
    /// busy each may pass it for ever. Bound the time with [`acquire_within`](LockSet::acquire_within).
    ///
    /// # Errors
    ///
    /// Fails as [`all`](Self::all) does, for the same names.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    ///
    /// let locker = leasehold::Locker::in_memory();
    /// let busy = locker.lock("b")?.acquire().await?;
    /// let set = locker.all_at_once(["a", "b"])?;
    /// assert!(set.acquire_within(Duration::from_millis(100)).await?.is_none());
    /// drop(busy);
    /// assert!(set.acquire().await?.is_valid());
    /// # Ok(()) }
    /// ```
    pub fn all_at_once<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<LockSet, Error> {
        LockSet::new(&self.core, names, true)
    }

    /// Returns a job: work that runs once per tick in all processes together. No I/O. See [`Job`].
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config) if the name is empty or longer than 512 bytes.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// let locker = leasehold::Locker::in_memory();
    /// let job = locker.job("report")?.every(std::time::Duration::from_secs(900));
    /// # Ok(()) }
    /// ```
    pub fn job(&self, name: impl AsRef<str>) -> Result<Job, Error> {
        let (name, key) = LockKey::with_name(&self.core.namespace, name.as_ref())?;
        Ok(Job::new(self.core.clone(), name, key))
    }

    /// Accepts a lease that another locker [passed on](super::Lease::pass), and renews it from then on.
    ///
    /// The lease has the next token and the ticket's name and time to live. For other options accept with a lock:
    /// [`Lock::accept`], which also describes the errors and cancel safety.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::Locker;
    ///
    /// let [sender, receiver] = ["memory://docs-accept"; 2].map(Locker::connect);
    /// let (sender, receiver) = (sender.await?, receiver.await?);
    ///
    /// let lease = sender.lock("orders/42")?.acquire().await?;
    /// let (token, ticket) = (lease.token(), lease.pass().await?);
    /// let accepted = receiver.accept(&ticket).await?;
    /// assert!(accepted.token() > token);
    /// # Ok(()) }
    /// ```
    pub async fn accept(&self, ticket: &Ticket) -> Result<Lease, Error> {
        let lock = self.lock(ticket.name().as_str())?.ttl(ticket.ttl());
        lock.accept(ticket).await
    }

    /// Returns problems of the store that endanger leases although it works, such as the eviction of keys.
    ///
    /// The locker checks once, when connecting, and also traces each finding as a warning. It finds nothing
    /// in an in-memory store, or if this user may not run `INFO`. After the first acquisition
    /// [`Untracked`](Finding::Untracked) may follow, and [`Capacity`](Finding::Capacity) after one of a shared name.
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

    /// Returns counts and times since the locker was made, such as leases held, losses by reason, and waiting
    /// times.
    ///
    /// No I/O. The locker always counts; that costs next to nothing. [`Stats`] explains each number, and
    /// [`Stats::to_prometheus`] renders a page for Prometheus.
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

    /// Reports what was counted since the last call to the recorder of the crate
    /// [`metrics`](https://docs.rs/metrics).
    ///
    /// The names are those of [`Stats::to_prometheus`], with the label `namespace`. Without a recorder
    /// nothing happens, so install one first. No I/O.
    ///
    /// Call this every few seconds, or whenever the numbers are read, and once more at the end. Lockers of
    /// one namespace add up. That crate takes no precounted histograms, so times are recorded one by one,
    /// within their buckets and with the right sum. Use buckets with
    /// [`Histogram::BOUNDS`](crate::Histogram::BOUNDS) to see them as counted.
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

    /// Returns the events of all locks of this locker: see [`LeaseEvents`].
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

    /// Asks the store who holds a name and who waits for it.
    ///
    /// # Errors
    ///
    /// - [`Config`](crate::ErrorKind::Config) if the name is not valid;
    /// - the store's error, if it refuses;
    /// - the last error, if the store has not replied for the [patience](Builder::patience).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing: this only reads.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locker = leasehold::Locker::in_memory();
    /// let json = serde_json::to_string(&locker.inspect("orders/42").await?)?;
    /// assert!(json.starts_with(r#"{"holder":null,"lastToken":null,"waiting":0,"line":[],"serverTime":"#));
    /// let lease = locker.lock("orders/42")?.acquire().await?;
    /// let holder = locker.inspect("orders/42").await?.holder.expect("it is held");
    /// assert_eq!(holder.token, lease.token());
    /// # Ok(()) }
    /// ```
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<Inspection, Error> {
        let key = self.key(name)?;
        self.core.driver.inspect(key).await
    }

    /// Returns a stream of the holders of a name, beginning with the current one. See [`Observer`].
    ///
    /// The stream fails with [`Config`](crate::ErrorKind::Config) if the name is not valid, and otherwise as
    /// [`inspect`](Self::inspect) does, except that it retries while the store cannot be reached.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// use futures::TryStreamExt;
    ///
    /// let locker = leasehold::Locker::in_memory();
    /// let lease = locker.lock("leader")?.acquire().await?;
    /// let mut leaders = locker.observe("leader");
    /// if let Some(Some(leader)) = leaders.try_next().await? {
    ///     println!("{} leads with token {}", leader.owner.label(), leader.token);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn observe(&self, name: impl AsRef<str>) -> Observer {
        let of = LockKey::with_name(&self.core.namespace, name.as_ref());
        Observer::new(self.core.clone(), of)
    }

    /// Returns a stream of the held names that match a pattern.
    ///
    /// In the pattern, `*` stands for any characters, `\*` for a star and `\\` for a backslash. All other
    /// characters stand for themselves. `list(…).try_collect().await` gives all names at once;
    /// [`list_steps`](Self::list_steps) lets you pause.
    ///
    /// The stream scans the server in small steps, between which the server does other work. It asks for the
    /// next step only when you poll. It may yield a name more than once. It always yields a name that is held during the
    /// whole scan, except if the name's cluster slot moves meanwhile: the stream visits one master after the
    /// other.
    ///
    /// # Errors
    ///
    /// The stream ends after an error: [`Config`](crate::ErrorKind::Config) if the pattern is empty, too
    /// long, or has a backslash before anything except `*` and `\`; otherwise as for
    /// [`inspect`](Self::inspect).
    ///
    /// # Example
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

    /// Lists as [`list`](Self::list) does, with one item for each step of the server.
    ///
    /// A step looks at up to some thousand keys, so it may find no name. Use this to pause between steps, if
    /// the server is busy or has many keys that are not locks.
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

    /// Frees a name, whoever holds it, and returns the holder; `None` if it was free.
    ///
    /// The first waiter gets the lock. The holder learns of it at once if it is connected, otherwise at its
    /// next renewal. With a fixed lease it learns when the lease is renewed by hand or expires. Storage that
    /// checks tokens refuses its writes.
    ///
    /// This ends only the tenure that it finds at first, however often it retries.
    ///
    /// # Errors
    ///
    /// The errors of [`inspect`](Self::inspect). After an error the lock may or may not have been freed. Calling
    /// this again is safe, except that it may hit the next holder.
    ///
    /// # Cancel safety
    ///
    /// After dropping the future the lock may or may not have been freed, as after an error.
    ///
    /// # Example
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
        let key = self.key(name)?;
        self.core.driver.force_release(key, None).await
    }

    /// Frees a name if the tenure with this token holds it; otherwise returns `None`.
    ///
    /// Works as [`force_release`](Self::force_release), except that any later holder keeps the lock. Use this after
    /// someone has looked at the holder and decided. Calling it again is safe.
    ///
    /// On a [quorum](super::Builder::quorum) the token is the one that [`inspect`](Self::inspect) shows. If
    /// other servers are down than at the time of the look, the token may differ, and nothing is released.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// let locker = leasehold::Locker::in_memory();
    /// let stuck = locker.lock("orders/42")?.acquire().await?;
    /// let seen = locker.inspect("orders/42").await?.holder.expect("it is held");
    ///
    /// // Meanwhile the lock changes hands.
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
        let key = self.key(name)?;
        self.core.driver.force_release(key, Some(token)).await
    }

    /// Asks the holder of a name to release it within this time, and waits until it has.
    ///
    /// The holder gets [`Wanted`](crate::LeaseEvent::Wanted): at once if it is connected, otherwise with its next
    /// renewal. It shows this locker's [owner](Builder::owner), and can stop at a good point. Resolves to true once
    /// that tenure is over in any way, at once if the name is free. Resolves to false if the holder still has the
    /// name when the time is over. With [`force`](YieldRequest::force) the name is then freed by force.
    ///
    /// A request names the tenure that it finds at first, so no later holder is asked, however often it is retried.
    /// It stays with that tenure until its time is over, even if the future is dropped. While one is pending,
    /// another only counts if it ends sooner.
    ///
    /// # Errors
    ///
    /// The errors of [`inspect`](Self::inspect), and [`Config`](crate::ErrorKind::Config) if the time is longer than a
    /// year. After an error the holder may or may not have been asked.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the waiting, and nothing is freed by force. The holder may have been asked.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    ///
    /// let locker = leasehold::Locker::in_memory();
    /// let lease = locker.lock("leader")?.acquire().await?;
    /// let leader = tokio::spawn(async move {
    ///     lease.wanted().await?;
    ///     lease.release().await
    /// });
    /// assert!(locker.request_yield("leader", Duration::from_secs(10)).await?);
    /// leader.await.unwrap()?;
    /// # Ok(()) }
    /// ```
    pub fn request_yield(&self, name: impl AsRef<str>, within: Duration) -> YieldRequest {
        let key = self.key(name);
        YieldRequest::new(self.core.clone(), key, within)
    }

    /// Shuts the locker down. Its leases are lost with [`LossReason::Shutdown`](crate::LossReason) and freed
    /// at the store.
    ///
    /// Pending calls, except releases, and all later calls fail with
    /// [`Shutdown`](crate::ErrorKind::Shutdown). Releasing a lease that was lost this way fails with
    /// [`NotHeld`](crate::ErrorKind::NotHeld), as after any loss.
    ///
    /// Returns when the store has confirmed the releases, or after the [patience](Builder::patience) if it
    /// does not reply.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the shutdown.
    ///
    /// # Example
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
        // An error is ignored: a lease whose release the store did not confirm expires there.
        let _ = self.core.driver.shutdown().await;
    }

    fn key(&self, name: impl AsRef<str>) -> Result<LockKey, Error> {
        LockKey::new(&self.core.namespace, &Name::new(name)?)
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
