//! Redis clients: what the lock needs of one.
//!
//! A program that has a Redis client gives it to the lock by an [`Adapter`], which knows nothing of locks:
//! it sends a command, hears a channel, and says when its connection comes and goes. The lock's own client,
//! fred, is behind one, too. With the feature `redis-rs` there is one for the client of that name, `RedisRs`.
//!
//! The suite in `tests/adapters` of the repository says of any adapter whether the lock can rely on it; the
//! smallest of which it can is in `examples/adapter`.

pub(crate) mod fred;
#[cfg(feature = "redis-rs")]
mod redis_rs;
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

/// What an [`Adapter`] does in the background.
pub type Task<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A reply that is under way. It may be dropped at any time.
pub type Calling<'a> = Pin<Box<dyn Future<Output = Result<Vec<Vec<u8>>, CallError>> + Send + 'a>>;

/// The replies to two commands, each as of a [`Calling`]. They may be dropped at any time.
pub type Pairing<'a> =
    Pin<Box<dyn Future<Output = [Result<Vec<Vec<u8>>, CallError>; 2]> + Send + 'a>>;

/// What the lock needs of a Redis client. Given to [`Builder::with_adapter`](crate::Builder::with_adapter).
///
/// An adapter need not time calls out: the lock gives up on a call at a moment of its own by dropping it, and
/// decides itself what is asked again. What was dropped must not be sent any more, and nothing twice but by a
/// cluster's client that is redirected, or whose connection broke.
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
    /// Sends a command, and resolves to its reply: the texts of a list, or one text as a list of one. Whole
    /// numbers are texts of decimal digits. Commands that are called one after another leave in this order
    /// if they go to the same server. `INFO` may resolve to the texts of several servers of a cluster.
    fn call(&self, command: Command) -> Calling<'_>;

    /// Sends two commands on one connection, with nothing between them, and resolves to the replies of both;
    /// if the connection breaks before the second has one, that has none. With this a lock can wait for
    /// replicas and the disk, and [changes](Hearing::hears_changes) are heard. Nothing, and then nothing is
    /// sent, if the client cannot do that.
    fn pair(&self, first: Command, second: Command) -> Option<Pairing<'_>> {
        drop((first, second));
        None
    }

    /// Whether it is of a cluster: it sends a command to the server of its [key](Command::key), and follows
    /// redirections. Asked after the reply to the first command. It cannot say which server replied, so
    /// the servers' clocks are not told apart: a call that was given up may act late, by as much as they differ,
    /// and locks cannot be listed.
    fn is_clustered(&self) -> bool {
        false
    }

    /// Says whether the connection is there, for as long as the locker lives. Called once; dropped when the
    /// locker ends. Without it the connection counts as up at all times: a call that fails says enough, but
    /// what waits is asked again a little later.
    fn watch(&self, link: Link) -> Task<'_> {
        drop(link);
        Box::pin(std::future::ready(()))
    }

    /// Hears a channel by `SUBSCRIBE`, on a connection that may, and goes on trying for as long as the locker
    /// lives. Called once at the most; dropped when the locker ends. Without it those who wait for a lock
    /// that another client holds ask every second.
    fn listen(&self, channel: String, hearing: Hearing) -> Task<'_> {
        drop((channel, hearing));
        Box::pin(std::future::ready(()))
    }

    /// The connection for commands may be of no use: replies do not come in time, or it leads to a server that
    /// is a replica now. An adapter that made the connection replaces it. The lock goes on sending meanwhile, and calls
    /// again while nothing improves.
    fn suspect(&self, why: Suspicion) -> Task<'_> {
        let _ = why;
        Box::pin(std::future::ready(()))
    }

    /// Closes what the adapter itself has opened, when the locker ends.
    fn close(&self) -> Task<'_> {
        Box::pin(std::future::ready(()))
    }
}

/// Why a call has no reply.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The server refused it, in these words, which begin with a code such as `NOSCRIPT` or `ERR`.
    #[error("{0}")]
    Refused(String),
    /// The connection broke or could not be made; it may have been executed. Shown to people, so without
    /// passwords.
    #[error("{0}")]
    Unreachable(String),
    /// There was no reply in the client's own time.
    #[error("no reply in time")]
    TimedOut,
    /// There was a reply that is none to this command.
    #[error("{0}")]
    Unreadable(String),
    /// What fred's adapter knows: the server's words, if it said any, and what is wrong.
    #[doc(hidden)]
    #[error("{1}")]
    Known(String, Error),
}

impl CallError {
    /// The server's words; empty if it said nothing.
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
    /// How long its caller waits for the reply.
    left: Duration,
}

#[derive(Debug)]
struct Script {
    /// Or its hash.
    text: &'static str,
    call: ScriptCall,
    /// How many keys there are, as text: fred takes numbers.
    count: OnceLock<String>,
}

/// To whom the call of a script goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Plain,
    /// To a node of a cluster that only takes the batch's slot over.
    Asking,
    /// To a node of a cluster that serves all slots of the batch.
    OfNode,
}

impl Command {
    /// What the server says of itself.
    pub(crate) fn info() -> Self {
        Self::plain("INFO", Vec::new())
    }

    /// What is about the connection itself.
    pub(crate) fn client<const N: usize>(args: [&str; N]) -> Self {
        Self::plain("CLIENT", args.map(str::to_owned).to_vec())
    }

    /// What waits until there are copies of what the connection has written.
    pub(crate) fn wait(durability: &Durability) -> Self {
        let name = if durability.fsynced {
            "WAITAOF"
        } else {
            "WAIT"
        };
        let words = durability.command();
        Self::plain(name, words.into_iter().skip(1).collect())
    }

    /// What is no script, and names no key that decides on a server.
    pub(crate) fn plain(name: &'static str, plain: Vec<String>) -> Self {
        Self {
            name,
            script: None,
            plain,
            way: Way::Plain,
            left: Duration::MAX,
        }
    }

    /// A call of the script, which the server has already, or else its text, too.
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

    /// Its caller gives up after this time.
    pub(crate) fn within(self, left: Duration) -> Self {
        Self { left, ..self }
    }

    /// Its name, such as `EVALSHA`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What follows the name.
    pub fn args(&self) -> impl Iterator<Item = &[u8]> {
        let script = self.script.iter();
        let script = script.flat_map(|Script { text, call, count }| {
            let count = count.get_or_init(|| call.keys().len().to_string());
            let head = [text.as_bytes(), count.as_bytes()].into_iter();
            head.chain(call.parts())
        });
        script.chain(self.plain.iter().map(String::as_bytes))
    }

    /// The first of its keys, by which a cluster's client finds the server: all are in one slot, if the
    /// adapter [is of a cluster](Adapter::is_clustered). A command without keys may go to any.
    pub fn key(&self) -> Option<&[u8]> {
        let script = self.script.as_ref()?;
        script.call.keys().next().map(str::as_bytes)
    }
}

/// By this an adapter says whether its connection for commands is there.
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
    /// It is there, for the first time or again, perhaps to another server: what was sent before and has no
    /// reply yet gets none.
    pub fn up(&self) {
        self.0.take(Report::Up);
    }

    /// It broke, or could not be made, for this reason, which people are shown; the client tries again by
    /// itself. May be said several times.
    pub fn down(&self, reason: &str) {
        self.0.take(Report::Down(Error::unreachable(reason)));
    }
}

/// Takes in what an adapter says of its server.
pub(crate) trait Sink: Send + Sync {
    fn take(&self, report: Report<'_>);

    /// Whether the locker is still there.
    fn is_open(&self) -> bool;

    /// Whether the server can keep locks, and lets this user; for one that was away at first.
    fn check(&self) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + '_>>;

    /// Whether changes are heard, or never will be.
    fn is_tracking_settled(&self) -> bool;
}

/// What an adapter says of its server.
pub(crate) enum Report<'a> {
    Up,
    Down(Error),
    Subscribed,
    Unsubscribed,
    Message(&'a [u8]),
    /// Of this key, or of all.
    Changed(Option<&'a [u8]>),
    /// On the connection of this id, or on that for commands.
    HearsChanges(Option<i64>),
    HearsNoChanges(&'a str),
}

/// What hears a channel.
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
    /// From now on nothing is missed: the server has confirmed the subscription, for the first time or again.
    pub fn subscribed(&self) {
        self.0.take(Report::Subscribed);
    }

    /// The channel cannot be heard for now.
    pub fn unsubscribed(&self) {
        self.0.take(Report::Unsubscribed);
    }

    /// A message on the channel.
    pub fn message(&self, message: &[u8]) {
        self.0.take(Report::Message(message));
    }

    /// This connection also hears when others change what was read, by `CLIENT TRACKING`, which the lock turns
    /// on for the connection for commands. `id` is what `CLIENT ID` says on this one; nothing if it is the
    /// connection for commands itself, which speaks RESP3 then. To be said behind each
    /// [`subscribed`](Self::subscribed), and now and then, because the connection for commands may be a new one.
    ///
    /// The adapter has to send [pairs](Adapter::pair). Without this a holder learns at its next renewal that
    /// its lock was deleted or overwritten.
    pub fn hears_changes(&self, id: Option<i64>) {
        self.0.take(Report::HearsChanges(id));
    }

    /// Such changes cannot be heard, for this reason, which is among the locker's
    /// [findings](crate::Locker::findings).
    pub fn hears_no_changes(&self, reason: &str) {
        self.0.take(Report::HearsNoChanges(reason));
    }

    /// Somebody else may have changed this key; of all keys if there is none.
    pub fn changed(&self, key: Option<&[u8]>) {
        self.0.take(Report::Changed(key));
    }
}

/// An adapter that several may use.
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

/// What became of a question that asks for nothing to be done.
pub(crate) fn unanswered(error: Error) -> Error {
    if error.is_timeout() {
        return Error::new(error.kind(), "the server did not answer in time");
    }
    error
}

/// Whether it may be there later; anything else is to be mended first.
pub(crate) fn is_away(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout)
}
