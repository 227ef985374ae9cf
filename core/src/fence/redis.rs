//! A guard of keys of a Redis server, 7.0 or newer, or of a Redis Cluster, by a fred client or, with the
//! feature `redis-rs`, a connection of that client.
//!
//! ```no_run
//! # async fn example(client: fred::clients::Client) -> Result<(), leasehold::Error> {
//! use leasehold::{Locker, fence::redis::FencedRedis};
//!
//! let locker = Locker::with_fred(client.clone()).await?;
//! let redis = FencedRedis::new(client);
//! let lease = locker.lock("orders/42")?.acquire().await?;
//! redis.resource("orders/42", lease.token())?.set("orders/42", "paid").await?;
//! # Ok(()) }
//! ```
//!
//! Each call is one script: it compares the token with the *fence* of the resource, the greatest
//! token that was seen, keeps the token if it is greater, and writes. Nothing of another client
//! comes in between.
//!
//! # What it promises, and what not
//!
//! A refusal, [`StaleToken`](ErrorKind::StaleToken), wrote nothing. It is safe to rely on as long
//! as:
//!
//! - *everybody* who writes these keys does it by the guard and names the same resource. The
//!   server does not know which keys belong to it. Reading needs no token.
//! - *the server keeps the fence.* It is a key beside the data, without an expiry, and as durable
//!   as they are. After `FLUSHALL`, a restart without persistence or a failover to a replica that
//!   lags behind, an older token passes once more *until the next holder has written*: new tokens
//!   are greater still, because they are lifted to the server's clock, but nothing tells the server
//!   so before. Set `maxmemory-policy` to `noeviction`: `allkeys-*` may evict the fence, and
//!   `volatile-*` evicts locks that are held, if they are on the same server.
//!
//! **An error of the write itself**, such as a wrong type or a mistake in a script, is after the
//! check: *the token was kept though the write failed*. That refuses nobody but older holders. A
//! command does all or nothing; what a script wrote before its mistake stays, because Redis does not
//! roll back. A server that is out of memory refuses before anything is written, the token too,
//! and so refuses the `del` of a new holder.
//!
//! **After a time-out or a broken connection** it is unknown whether the write was done; it may
//! even be done later, though never after one of a greater token. The guard does not send a write
//! twice. To repeat it under the same token is safe for what has the same effect twice, `set`,
//! `del`, `hset` and `hdel`, as long as this holder wrote nothing else to that key meanwhile; not
//! for [`incr_by`](Fenced::incr_by) and [`push`](Fenced::push), which may then count twice. The
//! same holds for a call whose future is dropped: the calls are *not cancel-safe*.
//!
//! # Where the fence is
//!
//! On the cluster slot of a key named as the resource, which is that of its hash tag, if it has
//! one:
//!
//! | resource | key of its fence |
//! |---|---|
//! | `orders/42` | `{orders/42}:fence` |
//! | `orders:{42}` | `{42}:fence:orders:{42}` |
//! | `a}b`, which no tag can hold | `{n}:fence:a}b`, where n is the smallest number on its slot |
//!
//! On one server the keys that are written can be any. On a cluster they must be on the slot of
//! the fence: the resource itself, and whatever has its tag, `{orders/42}:items`. If they are not
//! the call is an error of kind [`Config`](ErrorKind::Config), before anything is sent.

mod failure;
mod fenced;
mod key;
#[cfg(feature = "redis-rs")]
mod redis_rs;
mod runner;
mod script;

use std::fmt;
use std::time::Duration;

use fred::clients::Client;
#[cfg(doc)]
use leasehold_engine::ErrorKind;
use leasehold_engine::limits;
use leasehold_engine::{Error, FencingToken};

pub use fenced::Fenced;
pub use script::Script;

use self::runner::Runner;
use super::check_resource;

const DEFAULT_TIMEOUT: Duration = limits::time("guardTimeout");
const LONGEST_TIMEOUT: Duration = limits::time("longestGuardTimeout");

/// A Redis server whose keys are written only by those who hold the newest token.
///
/// It is cheap to clone, and uses the client as it is: its connection, its reconnecting, its
/// database. The [module](self) says what is promised.
///
/// ```no_run
/// # async fn example(client: fred::clients::Client, lease: leasehold::Lease) -> Result<(), leasehold::Error> {
/// use leasehold::fence::redis::FencedRedis;
///
/// let redis = FencedRedis::new(client);
/// let account = redis.resource("account/7", lease.token())?;
/// account.hset("account/7", "owner", "Ada").await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct FencedRedis {
    runner: Runner,
    timeout: Duration,
}

impl FencedRedis {
    /// Guards what a client writes. No I/O: the client may be connected later.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use fred::prelude::*;
    /// use leasehold::fence::redis::FencedRedis;
    ///
    /// let client = fred::types::Builder::default_centralized()
    ///     .set_policy(ReconnectPolicy::new_exponential(0, 50, 2_000, 2))
    ///     .build()?;
    /// client.init().await?;
    /// let redis = FencedRedis::new(client);
    /// # Ok(()) }
    /// ```
    pub fn new(client: Client) -> Self {
        Self::by(Runner::Fred(client))
    }

    /// Guards what is written by a connection of the client redis-rs: a `MultiplexedConnection`, a
    /// `ConnectionManager`, or whatever else can be cloned and takes commands. No I/O. Its own time-out for
    /// replies, which is 500 ms unless it is set, holds beside the guard's.
    ///
    /// A `ClusterConnection` sends a write again whose connection broke, up to as often as its `retries` say.
    /// No older holder gains by that, but [`incr_by`](Fenced::incr_by) and [`push`](Fenced::push) may count
    /// twice there without being repeated.
    ///
    /// ```no_run
    /// # async fn example(lease: leasehold::Lease) -> Result<(), Box<dyn std::error::Error>> {
    /// use leasehold::fence::redis::FencedRedis;
    ///
    /// let client = redis::Client::open("redis://127.0.0.1:6379")?;
    /// let redis = FencedRedis::with_redis(client.get_connection_manager().await?);
    /// redis.resource("orders/42", lease.token())?.set("orders/42", "paid").await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "redis-rs")]
    pub fn with_redis<C>(connection: C) -> Self
    where
        C: ::redis::aio::ConnectionLike + Clone + Send + Sync + 'static,
    {
        Self::by(Runner::RedisRs(redis_rs::Connection::new(connection)))
    }

    fn by(runner: Runner) -> Self {
        Self {
            runner,
            timeout: DEFAULT_TIMEOUT,
        }
    }

    /// How long a call may take, 5 s by default, a day at the most. What was not sent by then is not sent any more;
    /// of what was sent it is unknown whether the server acts, and the error's kind is
    /// [`Timeout`](ErrorKind::Timeout).
    ///
    /// ```no_run
    /// # fn example(client: fred::clients::Client) {
    /// use std::time::Duration;
    /// use leasehold::fence::redis::FencedRedis;
    ///
    /// let redis = FencedRedis::new(client).timeout(Duration::from_millis(500));
    /// # }
    /// ```
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        // fred takes zero for "none"; and nobody waits for longer than a day.
        self.timeout = timeout.clamp(Duration::from_millis(1), LONGEST_TIMEOUT);
        self
    }

    /// The writes to a resource under a token. No I/O.
    ///
    /// The resource is what the lock stands for, often the key itself that is written, and always
    /// one that all its writers name alike; [`ErrorKind::Config`] if it is empty or longer than
    /// 512 bytes. It costs little: make one for each lease.
    ///
    /// ```no_run
    /// # async fn example(redis: leasehold::fence::redis::FencedRedis, lease: leasehold::Lease) -> Result<(), leasehold::Error> {
    /// redis.resource("orders/42", lease.token())?.set("orders/42", "paid").await?;
    /// # Ok(()) }
    /// ```
    pub fn resource(
        &self,
        resource: impl AsRef<str>,
        token: FencingToken,
    ) -> Result<Fenced, Error> {
        let resource = resource.as_ref();
        check_resource(resource)?;
        Ok(Fenced::new(self.clone(), resource, token))
    }
}

impl fmt::Debug for FencedRedis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FencedRedis")
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
