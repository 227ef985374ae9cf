//! Adapters, by which a lock uses a Redis client that the program already has.
//!
//! An [`Adapter`] knows nothing of locks. It sends commands, hears a channel, and reports when its connection
//! comes and goes. The lock's own client, fred, is behind an adapter, too. The feature `redis-rs` adds
//! `RedisRs`, an adapter for the client of that name.
//!
//! The suite in the repository's `tests/adapters` checks whether the lock can rely on an adapter. The
//! smallest adapter that passes is in `examples/adapter`.

pub(crate) mod fred;
#[cfg(feature = "redis-rs")]
mod redis_rs;
#[cfg(test)]
mod reports;
mod room;
pub(crate) mod slots;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold_engine::protocol::{self, Durability, Op, ScriptCall};
use leasehold_engine::{Error, ErrorKind};

pub use leasehold_engine::engine::Suspicion;
#[cfg(feature = "redis-rs")]
pub(crate) use redis_rs::failure;
#[cfg(feature = "redis-rs")]
pub use redis_rs::{RedisPushes, RedisRs};

/// A background task of an [`Adapter`].
pub type Task<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A pending reply. The lock may drop it at any time.
pub type Calling<'a> = Pin<Box<dyn Future<Output = Result<Vec<Vec<u8>>, CallError>> + Send + 'a>>;

/// The pending replies to two commands, each as in [`Calling`]. The lock may drop them at any time.
pub type Pairing<'a> =
    Pin<Box<dyn Future<Output = [Result<Vec<Vec<u8>>, CallError>; 2]> + Send + 'a>>;

/// A Redis client, as far as a lock needs one; for [`Builder::with_adapter`](crate::Builder::with_adapter).
///
/// An adapter needs no timeouts: the lock gives up on a call by dropping it, and decides itself what to
/// retry. A dropped call must not be sent any more. A call must not be sent twice, except by a cluster's
/// client that is redirected or whose connection broke.
///
/// ```
/// use leasehold::adapter::{Adapter, CallError, Calling, Command};
/// use leasehold::Locker;
///
/// /// A client that never reaches its server.
/// struct Nowhere;
///
/// impl Adapter for Nowhere {
///     fn call(&self, _: Command) -> Calling<'_> {
///         Box::pin(async { Err(CallError::Unreachable("no route".to_owned())) })
///     }
/// }
///
/// # #[tokio::main] async fn main() {
/// let error = Locker::with_adapter(Nowhere).await.unwrap_err();
/// assert!(error.is_transient() && error.to_string().contains("no route"));
/// # }
/// ```
pub trait Adapter: Send + Sync + 'static {
    /// Sends a command and resolves to its reply: the texts of a list, or a single text as a list of one.
    ///
    /// Whole numbers are texts of decimal digits. Commands that are called one after another must leave in
    /// that order if they go to the same server. In a cluster, `INFO` may resolve to the texts of several
    /// servers.
    fn call(&self, command: Command) -> Calling<'_>;

    /// Sends two commands on one connection with nothing between them, and resolves to both replies.
    ///
    /// If the connection breaks between the two replies, only the second is an error. Return `None`, and send
    /// nothing, if the client cannot do this. Pairs let a lock wait for replicas and the disk, and let
    /// [changes](Hearing::hears_changes) be heard.
    fn pair(&self, first: Command, second: Command) -> Option<Pairing<'_>> {
        drop((first, second));
        None
    }

    /// Returns true if this is a cluster's client: it sends each command to the server of its
    /// [key](Command::key) and follows redirections.
    ///
    /// Asked after the reply to the first command. Such an adapter cannot say which server replied, so the
    /// lock cannot tell the servers' clocks apart. A canceled call may therefore act late, by as much as
    /// those clocks differ, and locks cannot be listed.
    fn is_clustered(&self) -> bool {
        false
    }

    /// Reports whether the connection is up, for as long as the locker lives.
    ///
    /// Called once; dropped when the locker ends. Without it the connection counts as up at all times: a
    /// failed call tells the lock enough, except that pending requests are retried a little later.
    fn watch(&self, link: Link) -> Task<'_> {
        drop(link);
        Box::pin(std::future::ready(()))
    }

    /// Subscribes to a channel with `SUBSCRIBE`, and retries for as long as the locker lives.
    ///
    /// It must use a connection that may enter subscriber mode. Called at most once; dropped when the locker
    /// ends. Without it, a waiter for a lock that another client holds polls every second.
    fn listen(&self, channel: String, hearing: Hearing) -> Task<'_> {
        drop((channel, hearing));
        Box::pin(std::future::ready(()))
    }

    /// Reports that the connection for commands may be useless: replies do not come in time, or the server is
    /// now a replica.
    ///
    /// An adapter that made the connection replaces it. Meanwhile the lock goes on sending, and calls this
    /// again while nothing improves.
    fn suspect(&self, why: Suspicion) -> Task<'_> {
        let _ = why;
        Box::pin(std::future::ready(()))
    }

    /// Closes what the adapter itself has opened. Called when the locker ends.
    fn close(&self) -> Task<'_> {
        Box::pin(std::future::ready(()))
    }
}

/// Why a call failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The server refused the command. Its words begin with a code such as `NOSCRIPT` or `ERR`.
    #[error("{0}")]
    Refused(String),
    /// The connection broke or could not be made. The server may have executed the command. The text is shown
    /// to people, so keep passwords out of it.
    #[error("{0}")]
    Unreachable(String),
    /// The client's own timeout ran out before a reply came.
    #[error("no reply in time")]
    TimedOut,
    /// The reply does not fit the command.
    #[error("{0}")]
    Unreadable(String),
    /// From fred's adapter: the server's words, if any, and the error they mean.
    #[doc(hidden)]
    #[error("{1}")]
    Known(String, Error),
}

impl CallError {
    /// The server's own words; empty if it said nothing.
    pub(crate) fn said(&self) -> &str {
        match self {
            Self::Refused(said) | Self::Known(said, _) => said,
            Self::Unreachable(_) | Self::TimedOut | Self::Unreadable(_) => "",
        }
    }
}

impl From<CallError> for Error {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Refused(said) => protocol::server_error(&said, None),
            CallError::TimedOut => Self::no_answer(),
            CallError::Unreachable(why) => Self::unreachable(&why),
            CallError::Unreadable(why) => Self::unreadable(&protocol::printable(&why)),
            CallError::Known(_, error) => error,
        }
    }
}

/// A command to a server.
///
/// ```
/// use leasehold::adapter::{Adapter, CallError, Calling, Command};
///
/// struct Shown;
///
/// impl Adapter for Shown {
///     fn call(&self, command: Command) -> Calling<'_> {
///         let words: Vec<_> = command.args().map(String::from_utf8_lossy).collect();
///         println!("{} {}, to the server of {:?}", command.name(), words.join(" "), command.key());
///         Box::pin(async { Err(CallError::Refused("ERR not today".to_owned())) })
///     }
/// }
/// ```
#[derive(Debug)]
pub struct Command {
    name: &'static str,
    script: Option<Script>,
    plain: Vec<String>,
    way: Way,
    /// How long the caller waits for the reply.
    left: Duration,
}

#[derive(Debug)]
struct Script {
    /// The script's text, or its hash.
    text: &'static str,
    call: ScriptCall,
    /// The number of keys as text, made on first use: fred takes a number instead.
    count: OnceLock<String>,
}

/// The recipient of a script call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Plain,
    /// A cluster node that is still importing the batch's slot.
    Asking,
    /// A cluster node that serves all slots of the batch.
    OfNode,
}

impl Command {
    /// `INFO`: the server's description of itself.
    pub(crate) fn info() -> Self {
        Self::plain("INFO", Vec::new())
    }

    /// `CLIENT`: a command about the connection itself.
    pub(crate) fn client<const N: usize>(args: [&str; N]) -> Self {
        Self::plain("CLIENT", args.map(str::to_owned).to_vec())
    }

    /// `WAIT` or `WAITAOF`: waits until enough copies of the connection's writes exist.
    pub(crate) fn wait(durability: &Durability) -> Self {
        let name = if durability.fsynced {
            "WAITAOF"
        } else {
            "WAIT"
        };
        let words = durability.command();
        Self::plain(name, words.into_iter().skip(1).collect())
    }

    /// A command that is not a script and has no key to route by.
    pub(crate) fn plain(name: &'static str, plain: Vec<String>) -> Self {
        Self {
            name,
            script: None,
            plain,
            way: Way::Plain,
            left: Duration::MAX,
        }
    }

    /// A call of the lock script: by its hash if the server has the script, otherwise with its text.
    pub(crate) fn script(batch: &[Op], way: Way, has_it: bool) -> Self {
        let (name, text) = match (has_it, way) {
            (true, Way::OfNode) => ("EVALSHA", protocol::NODE_SCRIPT_SHA),
            (true, _) => ("EVALSHA", protocol::SCRIPT_SHA),
            (false, Way::OfNode) => ("EVAL", protocol::NODE_SCRIPT),
            (false, _) => ("EVAL", protocol::SCRIPT),
        };
        let script = Some(Script {
            text,
            call: protocol::encode(batch),
            count: OnceLock::new(),
        });
        Self {
            script,
            way,
            ..Self::plain(name, Vec::new())
        }
    }

    /// Sets how long the caller waits for the reply.
    pub(crate) fn within(self, left: Duration) -> Self {
        Self { left, ..self }
    }

    /// The command's name, such as `EVALSHA`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The arguments after the name.
    pub fn args(&self) -> impl Iterator<Item = &[u8]> {
        let script = self.script.iter();
        let script = script.flat_map(|Script { text, call, count }| {
            let count = count.get_or_init(|| call.keys().len().to_string());
            let head = [text.as_bytes(), count.as_bytes()].into_iter();
            head.chain(call.parts())
        });
        script.chain(self.plain.iter().map(String::as_bytes))
    }

    /// The command's first key, by which a cluster's client finds the server. All keys are in one slot if the
    /// adapter [is for a cluster](Adapter::is_clustered). A command without keys may go to any server.
    pub fn key(&self) -> Option<&[u8]> {
        let script = self.script.as_ref()?;
        script.call.keys().next().map(str::as_bytes)
    }
}

/// Reports whether an adapter's connection for commands is up.
///
/// ```
/// use leasehold::adapter::{Adapter, Link, Task};
/// # use leasehold::adapter::{CallError, Calling, Command};
///
/// struct Client(tokio::sync::watch::Receiver<bool>);
///
/// impl Adapter for Client {
///     fn watch(&self, link: Link) -> Task<'_> {
///         let mut is_up = self.0.clone();
///         Box::pin(async move {
///             loop {
///                 match *is_up.borrow_and_update() {
///                     true => link.up(),
///                     false => link.down("the connection broke"),
///                 }
///                 if is_up.changed().await.is_err() {
///                     return;
///                 }
///             }
///         })
///     }
/// #   fn call(&self, _: Command) -> Calling<'_> { Box::pin(async { Err(CallError::TimedOut) }) }
/// }
/// ```
#[derive(Clone)]
pub struct Link(pub(crate) Arc<dyn Sink>);

impl Link {
    /// Reports that the connection is up, for the first time or again, perhaps to another server. Requests
    /// sent before and still without a reply never get one.
    pub fn up(&self) {
        self.0.take(Report::Up);
    }

    /// Reports that the connection broke or could not be made. `reason` is shown to people. The client
    /// reconnects by itself. May be called several times in a row.
    pub fn down(&self, reason: &str) {
        self.0.take(Report::Down(Error::unreachable(reason)));
    }
}

/// Receives an adapter's reports about its server.
pub(crate) trait Sink: Send + Sync {
    fn take(&self, report: Report<'_>);

    /// Returns true while the locker exists.
    fn is_open(&self) -> bool;

    /// Checks that the server can keep locks and permits this user. For a server that was down at first.
    fn check(&self) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + '_>>;

    /// Returns true if tracking is on, or will never be.
    fn is_tracking_settled(&self) -> bool;
}

/// A report from an adapter about its server.
#[derive(Debug)]
pub(crate) enum Report<'a> {
    Up,
    Down(Error),
    Subscribed,
    Unsubscribed,
    /// The user may not subscribe.
    Refused,
    Message(&'a [u8]),
    /// This key may have changed, or any key if `None`.
    Changed(Option<&'a [u8]>),
    /// Changes are heard on the connection with this ID, or on the command connection if `None`.
    HearsChanges(Option<i64>),
    HearsNoChanges(&'a str),
}

/// Receives what an adapter hears on the lock's channel.
///
/// ```
/// use leasehold::adapter::{Adapter, Hearing, Task};
/// # use leasehold::adapter::{CallError, Calling, Command};
///
/// struct Client(tokio::sync::broadcast::Sender<Vec<u8>>);
///
/// impl Adapter for Client {
///     fn listen(&self, _channel: String, hearing: Hearing) -> Task<'_> {
///         let mut messages = self.0.subscribe();
///         Box::pin(async move {
///             hearing.subscribed();
///             while let Ok(message) = messages.recv().await {
///                 hearing.message(&message);
///             }
///             hearing.unsubscribed();
///         })
///     }
/// #   fn call(&self, _: Command) -> Calling<'_> { Box::pin(async { Err(CallError::TimedOut) }) }
/// }
/// ```
#[derive(Clone)]
pub struct Hearing(pub(crate) Arc<dyn Sink>);

impl Hearing {
    /// Reports that the server has confirmed the subscription, for the first time or again. From now on the
    /// adapter misses no message.
    pub fn subscribed(&self) {
        self.0.take(Report::Subscribed);
    }

    /// Reports that the channel cannot be heard for now.
    pub fn unsubscribed(&self) {
        self.0.take(Report::Unsubscribed);
    }

    /// Reports that the user may not subscribe to the channel.
    pub(crate) fn refused(&self) {
        self.0.take(Report::Refused);
    }

    /// Reports a message on the channel.
    pub fn message(&self, message: &[u8]) {
        self.0.take(Report::Message(message));
    }

    /// Reports that this connection also hears when another client changes a key that the lock has read, by
    /// `CLIENT TRACKING`. The lock turns tracking on for the connection for commands.
    ///
    /// `id` is this connection's `CLIENT ID`, or `None` if it is the connection for commands itself, which
    /// then speaks RESP3. Call this after each [`subscribed`](Self::subscribed), and now and then: the
    /// connection for commands may have been replaced.
    ///
    /// The adapter must send [pairs](Adapter::pair). Without this report a holder learns only at its next
    /// renewal that its lock was deleted or overwritten.
    pub fn hears_changes(&self, id: Option<i64>) {
        self.0.take(Report::HearsChanges(id));
    }

    /// Reports that changes to keys cannot be heard, and why. The locker adds the reason to its
    /// [findings](crate::Locker::findings).
    pub fn hears_no_changes(&self, reason: &str) {
        self.0.take(Report::HearsNoChanges(reason));
    }

    /// Reports that messages and changes were missed: waiters ask again, and holders check their locks. Holders
    /// of fixed leases only do so because any key may have changed.
    pub(crate) fn missed(&self) {
        self.subscribed();
        self.changed(None);
    }

    /// Reports that another client may have changed this key, or any key if `key` is `None`.
    pub fn changed(&self, key: Option<&[u8]>) {
        self.0.take(Report::Changed(key));
    }
}

/// Delegates to the inner adapter, so several lockers can share one.
impl<T: Adapter + ?Sized> Adapter for Arc<T> {
    fn call(&self, command: Command) -> Calling<'_> {
        (**self).call(command)
    }

    fn pair(&self, first: Command, second: Command) -> Option<Pairing<'_>> {
        (**self).pair(first, second)
    }

    fn is_clustered(&self) -> bool {
        (**self).is_clustered()
    }

    fn watch(&self, link: Link) -> Task<'_> {
        (**self).watch(link)
    }

    fn listen(&self, channel: String, hearing: Hearing) -> Task<'_> {
        (**self).listen(channel, hearing)
    }

    fn suspect(&self, why: Suspicion) -> Task<'_> {
        (**self).suspect(why)
    }

    fn close(&self) -> Task<'_> {
        (**self).close()
    }
}

/// Rewords a timeout of a read-only request: there is nothing that may or may not have been done.
pub(crate) fn unanswered(error: Error) -> Error {
    if error.is_timeout() {
        return Error::new(error.kind(), "the server did not answer in time");
    }
    error
}

/// Returns true if the server may only be down for now. Any other error must be fixed first.
pub(crate) fn is_away(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout)
}
