//! The adapter for the client fred.

mod endpoint;
mod errors;
mod link;
mod listener;
mod nodes;
mod own_task;
mod sentinels;
mod target;
#[cfg(feature = "tls-rustls")]
mod tls;
#[cfg(not(feature = "tls-rustls"))]
#[path = "fred/no_tls.rs"]
mod tls;

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use ::fred::bytes::Bytes;
use ::fred::clients::Client;
use ::fred::error::{Error as FredError, ErrorKind as FredErrorKind};
use ::fred::interfaces::{ClientLike, EventInterface};
use ::fred::types::config::{Config, Options, ReconnectPolicy};
use ::fred::types::{Builder, ClusterHash, CustomCommand, FromValue, Value};
use futures::TryFutureExt;
use futures::future::{self, Either};
use leasehold_engine::protocol::LockKey;
use leasehold_engine::{Error, ErrorKind};
use tokio::sync::Notify;
use tokio::sync::broadcast::error::TryRecvError;

pub(crate) use self::errors::Secrets;
pub(crate) use self::nodes::{Nodes, first_of};
pub(crate) use self::target::{Dial, Target};

use self::endpoint::Endpoint;
use self::errors::is_answer;
use self::link::Follower;
use self::listener::{Listener, Shards};
use self::own_task::OwnTask;
use super::{
    Adapter, CallError, Calling, Command, Hearing, Link, Pairing, Script, Suspicion, Task, Way,
    unanswered,
};

/// Connecting takes several requests, so it may take this many timeouts.
const INIT_TIMEOUTS: u32 = 2;
const QUIT_TIMEOUT: Duration = Duration::from_secs(1);

/// The number of commands that fred may hold back. The engine gives up on each after its timeout.
const MAX_COMMANDS: usize = 65_536;

const PING_TIMEOUT: Duration = Duration::from_secs(1);

/// A client of one server, with its connection for commands and one for pushes.
pub(crate) struct Fred {
    client: Client,
    secrets: Secrets,
    /// The address, if this crate made the client.
    endpoint: Option<Endpoint>,
    /// The timeout of connecting, and of each of the first requests.
    timeout: Duration,
    /// The connection task, once it runs, if this crate made the client and may replace its connection.
    own: Option<OnceLock<OwnTask>>,
    /// True while the connection is being tested or replaced.
    is_suspected: AtomicBool,
    /// Notified when a primary that sentinels named does not answer. Nothing is sent to it until the
    /// sentinels are asked again.
    doubted: Notify,
    /// The primary that sentinels named when the connection last led to a demoted server.
    left_for: Mutex<Option<(String, u16)>>,
    /// The channels of single locks at a cluster node.
    shards: Shards,
}

/// Creating and connecting clients.
impl Fred {
    /// Creates a client. It connects by [`open`](Self::open), or, with retries, once it is [watched](Adapter::watch).
    pub(crate) fn make(target: Target, fail_fast: bool) -> Result<Self, Error> {
        let client = target.client(fail_fast)?;
        Ok(Self {
            endpoint: target.endpoint,
            own: Some(OnceLock::new()),
            ..Self::of_program(client, target.timeout)
        })
    }

    /// Wraps a program's own client, which must not be a cluster client.
    pub(crate) fn of_program(client: Client, timeout: Duration) -> Self {
        Self {
            secrets: Secrets::of(&client),
            client,
            endpoint: None,
            timeout,
            own: None,
            is_suspected: AtomicBool::new(false),
            doubted: Notify::new(),
            left_for: Mutex::default(),
            shards: Shards::default(),
        }
    }

    /// Connects, and runs a check on the new connection. Its errors may name a cause that fred does not know.
    pub(crate) async fn open(
        &self,
        shown: &str,
        check: impl AsyncFnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let task = {
            let open = pin!(self.try_open(shown, check));
            let look = pin!(self.look_if_slow());
            match future::select(open, look).await {
                Either::Left((task, _)) => self.explained(task).await,
                Either::Right((Some(error), _)) => Err(error),
                Either::Right((None, open)) => open.await,
            }
        };
        let task = task.map_err(|error| error.of(shown))?;
        if let Some(own) = &self.own {
            own.get_or_init(|| task);
        }
        Ok(())
    }

    async fn try_open(
        &self,
        shown: &str,
        check: impl AsyncFnOnce() -> Result<(), Error>,
    ) -> Result<OwnTask, Error> {
        let limit = self.timeout * INIT_TIMEOUTS;
        let task = tokio::time::timeout(limit, OwnTask::connect(&self.client));
        let task = task.await.map_err(|_| {
            let message = format!("{shown} did not answer within {limit:?}");
            Error::new(ErrorKind::Timeout, message)
        })?;
        let task = task.map_err(|error| unanswered(self.secrets.convert(&error)))?;
        check().await?;
        Ok(task)
    }

    /// Returns true if this crate made the client, and so may replace its connection.
    pub(crate) fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Returns true if the client has connected and passed its check.
    pub(crate) fn is_open(&self) -> bool {
        self.own.as_ref().is_none_or(|task| task.get().is_some())
    }

    /// Subscribes to the channel of one lock at its cluster node.
    pub(crate) fn listen_at_shard(&self, key: &LockKey) {
        self.shards.add(key);
    }
}

/// Sending commands.
impl Fred {
    /// Sends a command like [`call`](Adapter::call), without boxing the future.
    pub(crate) async fn send(&self, command: Command) -> Result<Vec<Bytes>, CallError> {
        // Await fred's futures in place: binding one to a name first takes its (large) space twice.
        let reply = match command {
            Command {
                name,
                script: Some(script),
                way,
                left,
                ..
            } => {
                let args = words_of(script, way);
                match way {
                    Way::Asking => send_script_asking(&self.client, name, args, left).await,
                    Way::Plain | Way::OfNode => send_script(&self.client, name, args, left).await,
                }
            }
            // fred has asked for INFO on connecting. A user who may not run it is not refused a second time.
            Command { name: "INFO", .. } if self.client.server_version().is_none() => Err(
                FredError::new(FredErrorKind::Auth, "NOPERM the version is withheld"),
            ),
            Command {
                name, plain, left, ..
            } => {
                let client = self.client.with_options(&options(left));
                let reply = client.custom(custom(name), plain).await;
                reply.and_then(texts)
            }
        };
        reply.map_err(|error| self.failure(&error))
    }

    fn failure(&self, error: &FredError) -> CallError {
        let said = if is_answer(error) {
            error.details()
        } else {
            ""
        };
        CallError::Known(said.to_owned(), self.secrets.convert(error))
    }

    /// Sends both commands at once. If the connection is replaced meanwhile, both fail: the second would wait
    /// for copies of nothing, because the new connection has written nothing.
    async fn send_both(
        &self,
        first: Command,
        second: Command,
    ) -> [Result<Vec<Bytes>, CallError>; 2] {
        let mut reconnects = self.client.reconnect_rx();
        // Both leave at the first poll, in this order.
        let (first, second) = future::join(self.send(first), self.send(second)).await;
        if first.is_ok() && !matches!(reconnects.try_recv(), Err(TryRecvError::Empty)) {
            let message =
                "the connection was replaced before the copies of the write were confirmed";
            let error = Error::new(ErrorKind::Unavailable, message);
            let error = CallError::Known(String::new(), error);
            return [Err(error.clone()), Err(error)];
        }
        [first, second]
    }

    /// Sends both commands in one pipeline.
    async fn send_in_line(
        &self,
        commands: [Command; 2],
    ) -> Result<[Result<Vec<Bytes>, CallError>; 2], FredError> {
        let pipeline = self.client.pipeline();
        let left = commands[0].left.min(commands[1].left);
        for Command { name, plain, .. } in commands {
            let _queued: Value = pipeline.custom(custom(name), plain).await?;
        }
        let replies = in_time(left, pipeline.try_all::<Value>()).await?;
        // A pipeline that could not be sent returns a single error.
        match <[_; 2]>::try_from(replies) {
            Ok(replies) => Ok(replies.map(|reply| {
                let reply = reply.and_then(texts);
                reply.map_err(|error| self.failure(&error))
            })),
            Err(replies) => Err(replies
                .into_iter()
                .find_map(Result::err)
                .unwrap_or_else(|| {
                    FredError::new(FredErrorKind::Protocol, "two replies were expected")
                })),
        }
    }
}

impl Adapter for Fred {
    fn call(&self, command: Command) -> Calling<'_> {
        Box::pin(async { Ok(owned(self.send(command).await?)) })
    }

    fn pair(&self, first: Command, second: Command) -> Option<Pairing<'_>> {
        Some(Box::pin(async move {
            let replies = if first.script.is_some() {
                // The script's reply counts even if the connection breaks before the second reply.
                self.send_both(first, second).await
            } else {
                let replies = self.send_in_line([first, second]).await;
                replies.unwrap_or_else(|error| {
                    let error = self.failure(&error);
                    [Err(error.clone()), Err(error)]
                })
            };
            replies.map(|reply| reply.map(owned))
        }))
    }

    fn watch(&self, link: Link) -> Task<'_> {
        let follower = Follower::new(self, link);
        if let Some(task) = &self.own {
            task.get_or_init(|| OwnTask::start(&self.client));
        }
        Box::pin(follower.run())
    }

    fn listen(&self, channel: String, hearing: Hearing) -> Task<'_> {
        Box::pin(async move { Listener::listen(self, &channel, &hearing).await })
    }

    /// Replaces the connection if it does not answer, or leads to the wrong server.
    ///
    /// fred itself does not notice a silent connection as long as something is written to it, such as an
    /// occasional renewal.
    fn suspect(&self, why: Suspicion) -> Task<'_> {
        Box::pin(async move {
            if !self.is_own() || self.is_suspected.swap(true, Ordering::AcqRel) {
                return;
            }
            if sentinels::found(&self.client) {
                self.doubted.notify_one();
            }
            let is_kept = match why {
                // Short timeouts alone prove little.
                Suspicion::Silent => answers(&self.client).await && !self.is_deposed().await,
                // A demoted server still answers a PING.
                Suspicion::Demoted => false,
            };
            if !is_kept {
                tracing::debug!(target: "leasehold", ?why, "replacing the connection");
                self.reconnect().await;
            }
            self.is_suspected.store(false, Ordering::Release);
        })
    }

    fn close(&self) -> Task<'_> {
        Box::pin(async {
            if let Some(task) = &self.own {
                // fred's `quit` may hang while it reconnects, and its task may outlive it.
                let _ = tokio::time::timeout(QUIT_TIMEOUT, self.client.quit()).await;
                task.get().inspect(|task| task.abort());
            }
        })
    }
}

/// Creates a client that is not connected yet. The error is fred's own and may contain a password.
fn client_of(config: Config, timeout: Duration, fail_fast: bool) -> Result<Client, FredError> {
    Builder::from_config(Config {
        fail_fast,
        ..config
    })
    .with_connection_config(|connection| {
        connection.connection_timeout = timeout;
        connection.internal_command_timeout = timeout;
        // The engine decides whether a command is sent again, not the client.
        connection.max_command_attempts = 1;
        connection.max_command_buffer_len = MAX_COMMANDS;
        connection.tcp.nodelay = Some(true);
    })
    .set_policy(ReconnectPolicy::new_exponential(0, 50, 2_000, 2))
    .build()
}

/// Returns the arguments of a script call. A call of several slots at a cluster node declares its first key only, and
/// passes the others as arguments.
fn words_of(Script { text, call, .. }: Script, way: Way) -> Vec<Value> {
    let (parts, ends, keys) = call.into_parts();
    let parts = Bytes::from(parts);
    let mut words: Vec<Value> = Vec::with_capacity(3 + ends.len());
    let number = |count: usize| Value::from(i64::try_from(count).unwrap_or(i64::MAX));
    let of_node = way == Way::OfNode;
    let named = if of_node { keys.min(1) } else { keys };
    words.extend([text.into(), number(named)]);
    let mut begin = 0;
    for (place, end) in ends.into_iter().enumerate() {
        if of_node && place == named {
            words.push(number(keys));
        }
        words.push(Value::Bytes(parts.slice(begin..end)));
        begin = end;
    }
    words
}

/// Sends a script call once, and waits for its reply up to a limit. The arguments are the script or its hash, the number
/// of keys, and the keys; the first key determines the cluster node.
pub(crate) async fn send_script<R: FromValue>(
    client: &Client,
    command: &'static str,
    args: Vec<Value>,
    left: Duration,
) -> Result<R, FredError> {
    let options = options(left);
    let command = CustomCommand::new_static(command, ClusterHash::Offset(2), false);
    client.with_options(&options).custom(command, args).await
}

/// Sends a script call with `ASKING` to a cluster node that is importing the slot.
async fn send_script_asking<R: FromValue>(
    client: &Client,
    command: &'static str,
    args: Vec<Value>,
    left: Duration,
) -> Result<R, FredError> {
    let pipeline = client.pipeline();
    for (command, args) in [("ASKING", vec![]), (command, args)] {
        let _queued: Value = pipeline.custom(custom(command), args).await?;
    }
    // A user without the right to `ASKING` gets that error, not that the slot is elsewhere.
    let replies = in_time(left, pipeline.try_all::<Value>())
        .await?
        .into_iter();
    let reply = replies.collect::<Result<Vec<_>, _>>()?.pop();
    let nothing = || FredError::new(FredErrorKind::Canceled, "nothing was sent");
    reply.ok_or_else(nothing)?.convert()
}

fn custom(command: &'static str) -> CustomCommand {
    CustomCommand::new_static(command, ClusterHash::FirstKey, false)
}

/// Limits the time of a command. Not an async function, whose future would hold the command twice.
fn in_time<T>(
    left: Duration,
    sent: impl Future<Output = T>,
) -> impl Future<Output = Result<T, FredError>> {
    let late = |_| FredError::new(FredErrorKind::Timeout, "no reply");
    tokio::time::timeout(left, sent).map_err(late)
}

/// Converts a reply to the form that adapters return.
fn texts(reply: Value) -> Result<Vec<Bytes>, FredError> {
    match reply {
        Value::Array(values) => values.into_iter().map(Value::convert).collect(),
        // fred would convert an integer to its eight bytes, not to digits.
        Value::Integer(number) => Ok(vec![number.to_string().into()]),
        value => Ok(vec![value.convert()?]),
    }
}

fn owned(reply: Vec<Bytes>) -> Vec<Vec<u8>> {
    reply.into_iter().map(Vec::from).collect()
}

/// Returns true if the server answers a PING, even with an error.
async fn answers(client: &Client) -> bool {
    let client = client.with_options(&options(PING_TIMEOUT));
    match client.ping::<Value>(None).await {
        Ok(_) => true,
        Err(error) => is_answer(&error),
    }
}

fn options(timeout: Duration) -> Options {
    // fred takes zero for "no timeout".
    let timeout = timeout.max(Duration::from_millis(1));
    Options {
        max_attempts: Some(1),
        timeout: Some(timeout),
        ..Options::default()
    }
}
