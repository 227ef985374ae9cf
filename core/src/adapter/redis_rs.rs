//! The client redis-rs.

use std::time::Duration;

use futures::StreamExt;
use redis::aio::{ConnectionLike, PubSub};
use redis::{Cmd, ErrorKind, RedisError, RedisResult, Value};

use super::{Adapter, CallError, Calling, Command, Hearing, Task};

/// How often the connection for pushes is asked whether it is still there, and how long it may take.
const CHECK: Duration = Duration::from_secs(10);
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);
/// Waiting before the next try to subscribe.
const FIRST_RETRY: Duration = Duration::from_millis(50);
const SLOWEST_RETRY: Duration = Duration::from_secs(10);

/// A connection of the client [redis-rs](https://docs.rs/redis) that the program has: a
/// `MultiplexedConnection`, a `ConnectionManager`, or whatever else can be cloned and takes commands, on
/// one server. Its settings stay the program's; its own time-out for replies holds beside the locker's
/// `command_timeout`, whichever is earlier.
///
/// A `MultiplexedConnection` is not made anew when it breaks: leases on it are lost then. Prefer a
/// `ConnectionManager`.
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
#[derive(Clone)]
pub struct RedisRs<C> {
    connection: C,
    pushes: Option<redis::Client>,
}

impl<C> RedisRs<C> {
    /// By itself it hears no pushes: those who wait for a lock that another client holds ask every second.
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
            pushes: None,
        }
    }

    /// Hears pushes on a connection of its own, which this client makes after the first acquisition, and
    /// again whenever it breaks. It ends with the locker.
    ///
    /// ```no_run
    /// # async fn example(client: redis::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use leasehold::{Locker, adapter::RedisRs};
    ///
    /// let connection = client.get_multiplexed_async_connection().await?;
    /// let locker = Locker::with_adapter(RedisRs::new(connection).hearing_by(client)).await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn hearing_by(self, client: redis::Client) -> Self {
        let pushes = Some(client);
        Self { pushes, ..self }
    }
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Adapter for RedisRs<C> {
    fn call(&self, command: Command) -> Calling<'_> {
        let mut connection = self.connection.clone();
        Box::pin(async move {
            let reply = connection.req_packed_command(&packed(&command)).await;
            let reply = reply.and_then(Value::extract_error);
            texts(reply.map_err(|error| failure(&error))?)
        })
    }

    fn listen(&self, channel: String, hearing: Hearing) -> Task<'_> {
        Box::pin(async move {
            let Some(client) = &self.pushes else { return };
            let mut pause = FIRST_RETRY;
            loop {
                match subscribe(client, &channel).await {
                    Ok(pubsub) => {
                        hearing.subscribed();
                        hear(pubsub, &hearing).await;
                        pause = FIRST_RETRY;
                    }
                    // The client's own words may hold what the server echoed.
                    Err(error) => {
                        let kind = error.kind();
                        tracing::warn!(
                            ?kind,
                            "pushes cannot be heard; waiters ask every second instead"
                        );
                    }
                }
                hearing.unsubscribed();
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(SLOWEST_RETRY);
            }
        })
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

fn failure(error: &RedisError) -> CallError {
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

async fn subscribe(client: &redis::Client, channel: &str) -> RedisResult<PubSub> {
    let mut pubsub = client.get_async_pubsub().await?;
    pubsub.subscribe(channel).await?;
    Ok(pubsub)
}

/// Hears until the connection is gone, or is silent when it is asked.
async fn hear(pubsub: PubSub, hearing: &Hearing) {
    let (mut asking, mut messages) = pubsub.split();
    let check = async {
        loop {
            tokio::time::sleep(CHECK).await;
            let ping = tokio::time::timeout(CHECK_TIMEOUT, asking.ping::<Value>()).await;
            if !matches!(ping, Ok(Ok(_))) {
                return;
            }
        }
    };
    let heard = async {
        while let Some(message) = messages.next().await {
            hearing.message(message.get_payload_bytes());
        }
    };
    tokio::select! {
        () = check => {}
        () = heard => {}
    }
}
