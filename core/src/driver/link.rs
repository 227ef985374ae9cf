//! The connection for commands to a Redis server: what goes over it, whether it is there, and if not, why.

use std::future::pending;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Poll;
use std::time::Duration;

use ::fred::bytes::Bytes;
use ::fred::clients::Client;
use ::fred::error::Error as FredError;
use ::fred::interfaces::{ClientLike, EventInterface};
use ::fred::types::Value;
use ::fred::types::config::Server;
use futures::{FutureExt, Stream, StreamExt};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio_stream::wrappers::BroadcastStream;

use super::Input;
use super::clock::Clock;
use super::endpoint::Endpoint;
use super::errors::Secrets;
use super::fred::{check_server, send_script, send_script_asking};
use super::seat::Seat;
use super::sentinels;
use super::tracking::Tracking;
use crate::error::{Error, ErrorKind};
use crate::protocol::{self, BatchReply, Op};
use crate::rt;
use crate::time::Timestamp;

/// How often a link that is down is looked at, if fred has no news of it.
const LINK_CHECK: Duration = Duration::from_secs(1);

/// The interval of checks while the link is in doubt. Whether it is replaced is decided by then, and until then the
/// client calls the old connection a good one.
const DOUBT_CHECK: Duration = Duration::from_secs(2);

/// A server of another protocol than is expected often looks like one that is slow.
const SLOW: Duration = Duration::from_millis(500);

pub(super) struct Link {
    pub(super) client: Client,
    pub(super) secrets: Secrets,
    pub(super) tracking: Arc<Tracking>,
    /// Where it leads to, if this crate made it.
    pub(super) endpoint: Option<Endpoint>,
    /// Whether that is a node of a cluster.
    pub(super) of_cluster: bool,
    /// For a connection, and for the reply to each of the requests that it begins with.
    pub(super) timeout: Duration,
    /// Which server it first led to.
    pub(super) run_id: OnceLock<String>,
    /// Whether this crate made it, and so may replace it.
    pub(super) own: bool,
    /// Rings when a primary that sentinels named does not answer: nothing is sent to it before they are asked again.
    pub(super) doubted: Notify,
    /// Whom sentinels named when it last led to a server that is the primary no more.
    pub(super) left_for: Mutex<Option<(String, u16)>>,
}

/// What kind of call a batch goes in.
#[derive(Clone, Copy)]
pub(super) enum Way {
    Plain,
    /// At a node of a cluster that only takes the batch's slot over.
    Asking,
    /// At a node of a cluster that serves all slots of the batch.
    OfNode,
}

impl Link {
    pub(super) async fn execute(
        &self,
        batch: &[Op],
        give_up: Timestamp,
    ) -> Result<BatchReply, Error> {
        let answer = self.ask(batch, give_up, Way::Plain).await;
        let answer = answer.map_err(|error| self.secrets.convert(&error))?;
        protocol::decode(batch, &answer)
    }

    /// The server's answer as it came.
    pub(super) async fn ask(
        &self,
        batch: &[Op],
        give_up: Timestamp,
        way: Way,
    ) -> Result<Vec<Bytes>, FredError> {
        let (hash, script) = match way {
            Way::Plain | Way::Asking => (protocol::SCRIPT_SHA, protocol::SCRIPT),
            Way::OfNode => (protocol::NODE_SCRIPT_SHA, protocol::NODE_SCRIPT),
        };
        // A future that has a name before it is awaited is kept twice in this one, and fred's is large.
        let mut answer = self.run(("EVALSHA", hash), batch, give_up, way).await;
        if let Err(error) = &answer
            && protocol::script_is_missing(error.details())
        {
            answer = self.run(("EVAL", script), batch, give_up, way).await;
        }
        answer
    }

    pub(super) async fn run(
        &self,
        (command, script): (&'static str, &str),
        batch: &[Op],
        give_up: Timestamp,
        way: Way,
    ) -> Result<Vec<Bytes>, FredError> {
        let (text, ends, keys) = protocol::encode(batch).into_parts();
        let text = Bytes::from(text);
        let mut args: Vec<Value> = Vec::with_capacity(3 + ends.len());
        let number = |count: usize| Value::from(i64::try_from(count).unwrap_or(i64::MAX));
        let of_node = matches!(way, Way::OfNode);
        let named = if of_node { keys.min(1) } else { keys };
        args.extend([script.into(), number(named)]);
        let mut begin = 0;
        for (place, end) in ends.into_iter().enumerate() {
            if of_node && place == named {
                args.push(number(keys));
            }
            args.push(Value::Bytes(text.slice(begin..end)));
            begin = end;
        }
        let left = give_up.since(rt::now());
        if matches!(way, Way::Asking) {
            return send_script_asking(&self.client, command, args, left).await;
        }
        send_script(&self.client, command, args, left).await
    }

    /// Whether the server can keep locks, and lets this user; and what endangers leases.
    pub(super) async fn check(&self) -> Result<(), Error> {
        let server = (&self.run_id, self.of_cluster);
        let found = check_server(&self.client, &self.secrets, server, self.timeout).await;
        let found = found.map_err(unanswered)?;
        // Loads the script, and finds out whether this user may run it.
        let probe = self.execute(&[], rt::now() + self.timeout).await;
        probe.map_err(unanswered)?;
        self.tracking.found(found);
        Ok(())
    }

    /// What became of connecting, with the reason if it is one that the client does not see.
    pub(super) async fn explained<T>(&self, connected: Result<T, Error>) -> Result<T, Error> {
        match connected {
            Err(error) if is_vague(&error) => Err(self.look().await.unwrap_or(error)),
            connected => connected,
        }
    }

    /// What is wrong with a server that is slow to connect to.
    pub(super) async fn look_if_slow(&self) -> Option<Error> {
        Clock::Machine.sleep(SLOW).await;
        self.look_at_endpoint().await
    }

    async fn look(&self) -> Option<Error> {
        match self.look_at_endpoint().await {
            None => sentinels::trouble(&self.client, &self.secrets).await,
            found => found,
        }
    }

    async fn look_at_endpoint(&self) -> Option<Error> {
        let look = self.endpoint.as_ref()?.look();
        tokio::time::timeout(self.timeout, look).await.ok()?
    }

    /// Whether sentinels name another primary than the server that it leads to. One that stood still, or was cut
    /// off, learns only after some seconds that it is none any more, and gives locks until then.
    pub(super) async fn is_deposed(&self) -> bool {
        let Some(named) = sentinels::primary(&self.client).await else {
            return false;
        };
        let leads_to = self.client.active_connections();
        let is_there = |server: &Server| *server.host == named.0 && server.port == named.1;
        let mut left_for = self.left_for.lock().unwrap_or_else(PoisonError::into_inner);
        if leads_to.iter().any(is_there) {
            *left_for = None;
            return false;
        }
        // If it was left for that one, and leads here again, this is another address of it.
        left_for.replace(named.clone()) != Some(named)
    }

    pub(super) async fn reconnect(&self) {
        let again = self.client.force_reconnection();
        let _ = tokio::time::timeout(self.timeout, again).await;
    }

    /// Tells the engine when the link goes and when it is back. One that was never there is `checked` as
    /// soon as it is.
    pub(super) fn follow(
        self: Arc<Self>,
        checked: bool,
        seat: Seat,
    ) -> impl Future<Output = ()> + Send + 'static {
        let secrets = self.secrets.clone();
        let errors = BroadcastStream::new(self.client.error_rx()).map(move |error| match error {
            Ok((error, _)) => Change::Down(secrets.convert(&error)),
            // Something was missed. A fresh start is right whatever it was.
            Err(_) => Change::Up,
        });
        let connects = BroadcastStream::new(self.client.reconnect_rx()).map(|_| Change::Up);
        let follower = Follower {
            changes: futures::stream::select(errors, connects),
            seat,
            checked,
            down: !checked,
            in_doubt: false,
            look: Box::pin(pending()),
            vague: None,
            link: self,
        };
        follower.run()
    }
}

enum Change {
    Up,
    /// A primary that sentinels named does not answer.
    InDoubt,
    Down(Error),
    /// Why it is down.
    Because(Error),
}

/// Follows a link, and asks why it cannot be made.
struct Follower<S> {
    link: Arc<Link>,
    changes: S,
    seat: Seat,
    checked: bool,
    down: bool,
    in_doubt: bool,
    look: Pin<Box<dyn Future<Output = Option<Error>> + Send>>,
    /// What the client says of it, and what is known of that.
    vague: Option<(String, Option<Error>)>,
}

impl<S: Stream<Item = Change> + Unpin> Follower<S> {
    async fn run(mut self) {
        while self.seat.is_taken() {
            let Some(change) = self.next().await else {
                break;
            };
            self.in_doubt = matches!(change, Change::InDoubt);
            let input = match change {
                Change::Up => self.up().await,
                Change::InDoubt => self.down(in_doubt()),
                Change::Down(error) => {
                    let error = self.explained(error);
                    self.down(error)
                }
                Change::Because(error) => {
                    self.vague
                        .iter_mut()
                        .for_each(|(_, known)| *known = Some(error.clone()));
                    self.down(error)
                }
            };
            tracing::debug!(target: "leasehold", ?input, "the link changed");
            self.down = matches!(input, Input::Disconnected { .. });
            self.seat.feed(input);
        }
    }

    async fn next(&mut self) -> Option<Change> {
        loop {
            if !self.down {
                return tokio::select! {
                    biased;
                    change = self.changes.next() => change,
                    () = self.link.doubted.notified() => Some(Change::InDoubt),
                };
            }
            let check = if self.in_doubt {
                DOUBT_CHECK
            } else {
                LINK_CHECK
            };
            return tokio::select! {
                biased;
                change = self.changes.next() => change,
                because = &mut self.look => {
                    self.look = Box::pin(pending());
                    match because {
                        Some(error) => Some(Change::Because(error)),
                        None => continue,
                    }
                }
                // Not every error that fred reports ends the connection; no news follows then.
                () = Clock::Machine.sleep(check) => {
                    if !self.link.client.is_connected() {
                        continue;
                    }
                    Some(Change::Up)
                }
            };
        }
    }

    async fn up(&mut self) -> Input {
        let server = self.seat.server;
        if !self.checked {
            let checked = self.link.check().await;
            if let Err(error) = self.link.explained(checked).await {
                if error.kind() == ErrorKind::ReadOnly {
                    // Its name may lead to another server soon.
                    self.link.reconnect().await;
                }
                return self.down(error);
            }
            self.checked = true;
        }
        if self.link.own && self.link.is_deposed().await {
            self.link.reconnect().await;
            let message = "the store cannot be reached: the sentinels name another primary";
            return self.down(Error::new(ErrorKind::Unavailable, message));
        }
        // What rang meanwhile was about the time before.
        let _rang = self.link.doubted.notified().now_or_never();
        self.look = Box::pin(pending());
        self.vague = None;
        Input::Connected { server }
    }

    fn down(&self, error: Error) -> Input {
        let server = self.seat.server;
        Input::Disconnected { server, error }
    }

    /// The same trouble is not looked at again and again.
    fn explained(&mut self, error: Error) -> Error {
        if self.link.endpoint.is_none() || !is_vague(&error) {
            return error;
        }
        let said = error.to_string();
        match &self.vague {
            Some((before, known)) if *before == said => known.clone().unwrap_or(error),
            _ => {
                let link = self.link.clone();
                self.look = Box::pin(async move { link.look().await });
                self.vague = Some((said, None));
                error
            }
        }
    }
}

fn in_doubt() -> Error {
    let message = "the store cannot be reached: the primary does not answer, and the sentinels are asked again";
    Error::new(ErrorKind::Unavailable, message)
}

/// Whether there may be more to it than the client says.
fn is_vague(error: &Error) -> bool {
    use ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::Unavailable | Kind::Timeout | Kind::Store | Kind::Tls
    )
}

/// Of a question that asks for nothing to be done.
pub(super) fn unanswered(error: Error) -> Error {
    if error.is_timeout() {
        return Error::new(error.kind(), "the server did not answer in time");
    }
    error
}

/// The task of a client that this crate made, which drives its connection. Both end with this.
pub(super) struct OwnTask(AbortHandle);

impl OwnTask {
    /// Connects. As fred's `init`, which leaves the task behind if its future is dropped.
    pub(super) async fn connect(client: &Client) -> Result<Self, FredError> {
        let mut connected = pin!(client.wait_for_connect());
        // It listens from its first poll on, and so hears of whatever comes of the connection.
        let early = futures::poll!(&mut connected);
        let task = Self::start(client);
        match early {
            Poll::Ready(result) => result?,
            Poll::Pending => connected.await?,
        }
        Ok(task)
    }

    /// Connects some time.
    pub(super) fn start(client: &Client) -> Self {
        Self(client.connect().abort_handle())
    }

    pub(super) fn abort(&self) {
        self.0.abort();
    }
}

impl Drop for OwnTask {
    fn drop(&mut self) {
        self.abort();
    }
}
