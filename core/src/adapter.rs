//! Redis clients other than fred: what the lock needs of one.
//!
//! A program that has a Redis client gives it to the lock by an [`Adapter`], which knows nothing of locks:
//! it sends a command, hears a channel, and says when its connection comes and goes. With the feature
//! `redis-rs` there is one for the client of that name, `RedisRs`.
//!
//! The suite in `tests/adapters` of the repository says of any adapter whether the lock can rely on it; the
//! smallest of which it can is in `examples/adapter`.

#[cfg(feature = "redis-rs")]
mod redis_rs;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::driver::{Seat, Tracking};
use crate::engine::Input;
use crate::error::Error;
use crate::protocol::{self, Durability, LockKey, Op, ScriptCall};

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

    /// Closes what the adapter itself has opened, when the locker ends.
    fn close(&self) -> Task<'_> {
        Box::pin(std::future::ready(()))
    }
}

/// Why a call has no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
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
}

#[derive(Debug)]
struct Script {
    /// Or its hash.
    text: &'static str,
    keys: String,
    call: ScriptCall,
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
        }
    }

    /// A call of the script, which has it already.
    pub(crate) fn evalsha(batch: &[Op]) -> Self {
        Self::script("EVALSHA", protocol::SCRIPT_SHA, batch)
    }

    /// The same with its text.
    pub(crate) fn eval(batch: &[Op]) -> Self {
        Self::script("EVAL", protocol::SCRIPT, batch)
    }

    fn script(name: &'static str, text: &'static str, batch: &[Op]) -> Self {
        let call = protocol::encode(batch);
        let keys = call.keys().len().to_string();
        let script = Some(Script { text, keys, call });
        Self {
            name,
            script,
            plain: Vec::new(),
        }
    }

    /// Its name, such as `EVALSHA`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What follows the name.
    pub fn args(&self) -> impl Iterator<Item = &[u8]> {
        let script = self.script.iter();
        let script = script.flat_map(|Script { text, keys, call }| {
            let head = [text.as_bytes(), keys.as_bytes()].into_iter();
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
pub struct Link(pub(crate) Seat);

impl Link {
    /// It is there, for the first time or again, perhaps to another server: what was sent before and has no
    /// reply yet gets none.
    pub fn up(&self) {
        self.0.connected();
    }

    /// It broke, or could not be made, for this reason, which people are shown; the client tries again by
    /// itself. May be said several times.
    pub fn down(&self, reason: &str) {
        self.0.disconnected(Error::unreachable(reason));
    }
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
pub struct Hearing {
    pub(crate) seat: Seat,
    /// Unless the locker is not to hear of changes.
    pub(crate) tracking: Option<Arc<Tracking>>,
}

impl Hearing {
    /// From now on nothing is missed: the server has confirmed the subscription, for the first time or again.
    pub fn subscribed(&self) {
        self.seat.subscribed();
    }

    /// The channel cannot be heard for now.
    pub fn unsubscribed(&self) {
        self.seat.unsubscribed();
    }

    /// A message on the channel.
    pub fn message(&self, message: &[u8]) {
        self.seat.hear(message);
    }

    /// This connection also hears when others change what was read, by `CLIENT TRACKING`, which the lock turns
    /// on for the connection for commands. `id` is what `CLIENT ID` says on this one; nothing if it is the
    /// connection for commands itself, which speaks RESP3 then. To be said behind each
    /// [`subscribed`](Self::subscribed), and now and then, because the connection for commands may be a new one.
    ///
    /// The adapter has to send [pairs](Adapter::pair). Without this a holder learns at its next renewal that
    /// its lock was deleted or overwritten.
    pub fn hears_changes(&self, id: Option<i64>) {
        if let Some(tracking) = &self.tracking {
            tracking.is_heard(id, &self.seat);
        }
    }

    /// Such changes cannot be heard, for this reason, which is among the locker's
    /// [findings](crate::Locker::findings).
    pub fn hears_no_changes(&self, reason: &str) {
        if let Some(tracking) = &self.tracking {
            tracking.is_impossible(protocol::printable(reason));
        }
    }

    /// Somebody else may have changed this key; of all keys if there is none.
    pub fn changed(&self, key: Option<&[u8]>) {
        let key = key.map(|key| str::from_utf8(key).ok().and_then(LockKey::of_lock));
        if key != Some(None) {
            self.seat.feed(Input::Changed { key: key.flatten() });
        }
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

    fn close(&self) -> Task<'_> {
        (**self).close()
    }
}
