//! A guard for keys of a Redis server, 7.0 or newer, or of a Redis Cluster.
//!
//! It runs on a fred client or, with the feature `redis-rs`, on a connection of that client.
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
//! Each call is one script. It compares the token with the *fence* of the resource, which is the greatest
//! token seen. It stores the token if it is greater, and writes. No other client's command runs in between.
//!
//! # Guarantees and limits
//!
//! A refusal, [`StaleToken`](ErrorKind::StaleToken), wrote nothing. The guard protects only as long as:
//!
//! - *Every writer* of these keys uses the guard and names the same resource. The server does not know which
//!   keys belong to a resource. Readers need no token.
//! - *The server keeps the fence.* It is a key without an expiry and as durable as the data beside it. After
//!   `FLUSHALL`, a restart without persistence or a failover to a lagging replica, an older token may pass
//!   *until the next holder has written*. The next holder's token is greater, because new tokens keep
//!   up with the server's clock.
//! - *The server does not evict the fence.* Set `maxmemory-policy` to `noeviction`: `allkeys-*` may evict
//!   fences, and `volatile-*` evicts held locks that are on the same server.
//!
//! **If the write itself fails**, for example on a wrong type or a mistake in a script, *the token is stored
//! anyway*. That refuses only older holders. A single command does all or nothing. What a script wrote
//! before its mistake stays, because Redis does not roll back. A server that is out of memory refuses the
//! call before it stores anything, the token included; so it also refuses the `del` of a new holder.
//!
//! **After a timeout or a broken connection** it is unknown whether the write happened. It may even happen
//! later, but never after a write with a greater token. The guard does not send a write twice. You may repeat
//! `set`, `del`, `hset` and `hdel` with the same token if this holder wrote nothing else to that key
//! meanwhile. A repeated [`incr_by`](Fenced::incr_by) or [`push`](Fenced::push) may count twice.
//!
//! **Not cancel safe**: if a call's future is dropped, the same holds as after a timeout.
//!
//! # The key of the fence
//!
//! The fence is on the cluster slot of a key with the resource's name, so its hash tag decides, if it has
//! one:
//!
//! | resource | key of its fence |
//! |---|---|
//! | `orders/42` | `{orders/42}:fence` |
//! | `orders:{42}` | `{42}:fence:orders:{42}` |
//! | `a}b`, which no tag can hold | `{n}:fence:a}b`, where n is the smallest number on its slot |
//!
//! On one server you may write to any keys. On a cluster they must be on the slot of the fence: the key that
//! has the resource's name, and keys with that hash tag, such as `{orders/42}:items`. Otherwise the call
//! fails with [`Config`](ErrorKind::Config) before anything is sent.

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

/// A guard for the keys of a Redis server.
///
/// It is cheap to clone and uses the client unchanged: its connection, its reconnects, its database. The
/// [module](self) lists the guarantees.
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
    /// Returns a guard that writes through a fred client. No I/O: the client may connect later.
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

    /// Returns a guard that writes through a connection of the client redis-rs. No I/O.
    ///
    /// The connection is a `MultiplexedConnection`, a `ConnectionManager` or anything else that can be cloned
    /// and takes commands. Its own response timeout, 500 ms by default, applies besides the guard's.
    ///
    /// A `ClusterConnection` sends a write again if the connection broke, as often as its `retries` allow.
    /// This gives no older holder an advantage, but [`incr_by`](Fenced::incr_by) and [`push`](Fenced::push)
    /// may count twice even if you do not repeat them.
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

    /// Sets the timeout of a call, 5 s by default and one day at most.
    ///
    /// A write that was not sent by then is not sent at all. If it was sent, it is unknown whether the server
    /// carries it out. In both cases the call fails with [`Timeout`](ErrorKind::Timeout).
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
        // fred takes zero for "no timeout".
        self.timeout = timeout.clamp(Duration::from_millis(1), LONGEST_TIMEOUT);
        self
    }

    /// Returns the writes to a resource under a token. No I/O.
    ///
    /// The resource is what the lock stands for, often the key that is written. All its writers must name it
    /// alike. The call is cheap: make one for each lease.
    ///
    /// Errors: [`ErrorKind::Config`] if the name is empty or longer than 512 bytes.
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
