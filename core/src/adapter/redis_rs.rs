//! The adapter for the client redis-rs.

use std::sync::atomic::{AtomicBool, Ordering};

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, PushInfo, RedisError, Value};
use tokio::sync::broadcast;

use super::{Adapter, CallError, Calling, Command, Hearing, Pairing, Task};

mod listener;

/// An adapter for a program's own connection of the client [redis-rs](https://docs.rs/redis).
///
/// The connection is a `MultiplexedConnection`, a `ConnectionManager`, a `ClusterConnection` or anything else
/// that can be cloned and takes commands. Its settings stay as they are. The shorter of its response timeout
/// (500 ms by default) and the locker's `command_timeout` applies. Set a longer response timeout for locks that
/// wait for [replicas](crate::Lock::replicas) or the disk.
///
/// - A `MultiplexedConnection` does not reconnect, so its leases are lost when it breaks. Prefer a
///   `ConnectionManager`.
/// - If several lockers share a connection, only the first learns at once that its lock was deleted or
///   overwritten. The others report this in their [findings](crate::Locker::findings).
///
/// A `ClusterConnection` does not say which server replied, so the servers' clocks are not told apart. This
/// has drawbacks that connecting by a URL of the cluster ([`connect`](crate::Builder::connect)) avoids:
///
/// - A call that was given up may act late, by as much as the clocks differ.
/// - A call to a server whose clock is ahead of the others' by more than the `command_timeout` takes several
///   attempts.
/// - Locks cannot be listed and cannot wait for replicas.
/// - A holder learns only at its next renewal that its lock was deleted.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use leasehold::{Locker, adapter::RedisRs};
///
/// let client = redis::Client::open("redis://127.0.0.1:6379")?;
/// let connection = client.get_connection_manager().await?;
/// let adapter = RedisRs::new(connection).hearing_by(client);
/// let locker = Locker::builder().namespace("shop").with_adapter(adapter).await?;
/// # Ok(()) }
/// ```
pub struct RedisRs<C> {
    connection: C,
    pushes: RedisPushes,
    is_clustered: AtomicBool,
}

/// The source of pushes for a locker on a connection of redis-rs.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use redis::aio::ConnectionManagerConfig;
///
/// // On the connection for commands itself, which speaks RESP3.
/// let (pushes, _) = tokio::sync::broadcast::channel(4_096);
/// let client = redis::Client::open("redis://127.0.0.1:6379?protocol=resp3")?;
/// let config = ConnectionManagerConfig::new().set_push_sender(pushes.clone());
/// let connection = client.get_connection_manager_with_config(config).await?;
/// let locker = leasehold::Locker::with_redis(connection, pushes).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RedisPushes {
    /// No pushes: waiters for a lock that another client holds poll every second.
    Unheard,
    /// A separate connection, which this client makes after the first acquisition and again whenever it
    /// breaks.
    ///
    /// It speaks RESP3, whatever the client's setting, and ends with the locker. On a cluster it connects to
    /// the client's server, or to any other server that the command connection knows.
    Client(Box<redis::Client>),
    /// The push sender of the command connection, which must speak RESP3.
    ///
    /// If the locker falls so far behind that it misses pushes, it asks the server instead.
    Sender(broadcast::Sender<PushInfo>),
}

impl From<redis::Client> for RedisPushes {
    fn from(client: redis::Client) -> Self {
        Self::Client(Box::new(client))
    }
}

impl From<broadcast::Sender<PushInfo>> for RedisPushes {
    fn from(sender: broadcast::Sender<PushInfo>) -> Self {
        Self::Sender(sender)
    }
}

impl<C> RedisRs<C> {
    /// Returns an adapter without pushes: waiters for a lock that another client holds poll every second.
    ///
    /// Add pushes with [`hearing_by`](Self::hearing_by).
    ///
    /// ```no_run
    /// # async fn example(client: redis::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use leasehold::{Locker, adapter::RedisRs};
    ///
    /// let connection = client.get_multiplexed_async_connection().await?;
    /// let locker = Locker::with_adapter(RedisRs::new(connection)).await?;
    /// # Ok(()) }
    /// ```
    pub fn new(connection: C) -> Self {
        Self {
            connection,
            pushes: RedisPushes::Unheard,
            is_clustered: AtomicBool::new(false),
        }
    }

    /// Receives pushes through a client, on a separate connection, or through the connection's push sender.
    ///
    /// See [`RedisPushes`].
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use leasehold::{Locker, adapter::RedisRs};
    /// use redis::cluster::ClusterClient;
    ///
    /// let nodes = ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"];
    /// let connection = ClusterClient::new(nodes)?.get_async_connection().await?;
    /// let client = redis::Client::open(nodes[0])?;
    /// let locker = Locker::with_adapter(RedisRs::new(connection).hearing_by(client)).await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn hearing_by(self, pushes: impl Into<RedisPushes>) -> Self {
        let pushes = pushes.into();
        Self { pushes, ..self }
    }
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Adapter for RedisRs<C> {
    fn call(&self, command: Command) -> Calling<'_> {
        let mut connection = self.connection.clone();
        Box::pin(async move {
            let reply = connection.req_packed_command(&packed(&command)).await;
            let reply = reply.and_then(Value::extract_error);
            match reply.map_err(|error| failure(&error))? {
                // A cluster connection sends INFO to all servers.
                Value::Map(replies) => {
                    self.is_clustered.store(true, Ordering::Release);
                    let replies = replies.into_iter();
                    let replies = replies.map(|(_, reply)| reply.extract_error());
                    let texts = replies.map(|reply| text(reply.map_err(|error| failure(&error))?));
                    texts.collect()
                }
                reply => texts(reply),
            }
        })
    }

    fn pair(&self, first: Command, second: Command) -> Option<Pairing<'_>> {
        if self.is_clustered() {
            return None;
        }
        let mut connection = self.connection.clone();
        let mut pipeline = redis::pipe();
        for command in [&first, &second] {
            pipeline.add_command(packed(command));
        }
        Some(Box::pin(async move {
            let replies = connection.req_packed_commands(&pipeline, 0, 2).await;
            let replies = replies.map(<[Value; 2]>::try_from);
            match replies.map_err(|error| failure(&error)) {
                Ok(Ok(replies)) => replies.map(|reply| {
                    let reply = reply.extract_error();
                    texts(reply.map_err(|error| failure(&error))?)
                }),
                Ok(Err(_)) => {
                    let error = CallError::Unreadable("two replies were expected".to_owned());
                    [Err(error.clone()), Err(error)]
                }
                Err(error) => [Err(error.clone()), Err(error)],
            }
        }))
    }

    fn is_clustered(&self) -> bool {
        self.is_clustered.load(Ordering::Acquire)
    }

    fn listen(&self, channel: String, hearing: Hearing) -> Task<'_> {
        Box::pin(listener::listen(self, channel, hearing))
    }
}

fn packed(command: &Command) -> Cmd {
    let mut packed = redis::cmd(command.name());
    for arg in command.args() {
        packed.arg(arg);
    }
    packed
}

fn texts(reply: Value) -> Result<Vec<Vec<u8>>, CallError> {
    match reply {
        Value::Array(values) => values.into_iter().map(text).collect(),
        value => text(value).map(|text| vec![text]),
    }
}

fn text(value: Value) -> Result<Vec<u8>, CallError> {
    match value {
        Value::BulkString(bytes) => Ok(bytes),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Ok(text.into_bytes()),
        Value::Int(number) => Ok(number.to_string().into_bytes()),
        Value::Okay => Ok(b"OK".to_vec()),
        _ => Err(CallError::Unreadable("it is not text".to_owned())),
    }
}

/// Maps an error of redis-rs.
pub(crate) fn failure(error: &RedisError) -> CallError {
    let said = |code: &str| format!("{code} {}", error.detail().unwrap_or_default());
    match (error.kind(), error.code()) {
        (ErrorKind::Server(_) | ErrorKind::Extension, Some(code)) => CallError::Refused(said(code)),
        (ErrorKind::Parse | ErrorKind::UnexpectedReturnType, _) => {
            CallError::Unreadable(error.to_string())
        }
        _ if error.is_timeout() => CallError::TimedOut,
        _ => CallError::Unreachable(error.to_string()),
    }
}
