//! Whether the connection for commands is there, and if not, why.

use std::future::pending;
use std::pin::{Pin, pin};
use std::sync::PoisonError;
use std::task::Poll;
use std::time::Duration;

use ::fred::clients::Client;
use ::fred::error::Error as FredError;
use ::fred::interfaces::{ClientLike, EventInterface};
use ::fred::types::config::Server;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use tokio::task::AbortHandle;
use tokio_stream::wrappers::BroadcastStream;

use super::{Fred, sentinels};
use crate::adapter::{Link, News};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};

/// How often a link that is down is looked at, if fred has no news of it.
const LINK_CHECK: Duration = Duration::from_secs(1);

/// The interval of checks while the link is in doubt. Whether it is replaced is decided by then, and until then the
/// client calls the old connection a good one.
const DOUBT_CHECK: Duration = Duration::from_secs(2);

/// A server of another protocol than is expected often looks like one that is slow.
const SLOW: Duration = Duration::from_millis(500);

impl Fred {
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
pub(super) struct Follower<'a> {
    client: &'a Fred,
    changes: BoxStream<'a, Change>,
    link: Link,
    /// Whether the server was checked; one that was never there is as soon as it is.
    is_checked: bool,
    is_down: bool,
    is_in_doubt: bool,
    look: Pin<Box<dyn Future<Output = Option<Error>> + Send + 'a>>,
    /// What the client says of it, and what is known of that.
    vague: Option<(String, Option<Error>)>,
}

impl<'a> Follower<'a> {
    pub(super) fn new(client: &'a Fred, link: Link) -> Self {
        let errors = BroadcastStream::new(client.client.error_rx()).map(|error| match error {
            Ok((error, _)) => Change::Down(client.secrets.convert(&error)),
            // Something was missed. A fresh start is right whatever it was.
            Err(_) => Change::Up,
        });
        let connects = BroadcastStream::new(client.client.reconnect_rx()).map(|_| Change::Up);
        let is_checked = client.is_open();
        Self {
            client,
            changes: futures::stream::select(errors, connects).boxed(),
            link,
            is_checked,
            // It may have gone before it was followed.
            is_down: !is_checked || !client.client.is_connected(),
            is_in_doubt: false,
            look: Box::pin(pending()),
            vague: None,
        }
    }

    pub(super) async fn run(mut self) {
        while self.link.0.is_open() {
            let Some(change) = self.next().await else {
                break;
            };
            self.is_in_doubt = matches!(change, Change::InDoubt);
            let trouble = match change {
                Change::Up => self.up().await.err(),
                Change::InDoubt => Some(in_doubt()),
                Change::Down(error) => Some(self.explained(error)),
                Change::Because(error) => {
                    self.vague
                        .iter_mut()
                        .for_each(|(_, known)| *known = Some(error.clone()));
                    Some(error)
                }
            };
            tracing::debug!(target: "leasehold", ?trouble, "the link changed");
            self.is_down = trouble.is_some();
            self.link.0.take(trouble.map_or(News::Up, News::Down));
        }
    }

    async fn next(&mut self) -> Option<Change> {
        loop {
            if !self.is_down {
                return tokio::select! {
                    biased;
                    change = self.changes.next() => change,
                    () = self.client.doubted.notified() => Some(Change::InDoubt),
                };
            }
            let check = if self.is_in_doubt {
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
                    if !self.client.client.is_connected() {
                        continue;
                    }
                    Some(Change::Up)
                }
            };
        }
    }

    async fn up(&mut self) -> Result<(), Error> {
        if !self.is_checked {
            let checked = self.link.0.check().await;
            if let Err(error) = self.client.explained(checked).await {
                if error.kind() == ErrorKind::ReadOnly {
                    // Its name may lead to another server soon.
                    self.client.reconnect().await;
                }
                return Err(error);
            }
            self.is_checked = true;
        }
        if self.client.is_own() && self.client.is_deposed().await {
            self.client.reconnect().await;
            let message = "the store cannot be reached: the sentinels name another primary";
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        // What rang meanwhile was about the time before.
        let _rang = self.client.doubted.notified().now_or_never();
        self.look = Box::pin(pending());
        self.vague = None;
        Ok(())
    }

    /// The same trouble is not looked at again and again.
    fn explained(&mut self, error: Error) -> Error {
        if self.client.endpoint.is_none() || !is_vague(&error) {
            return error;
        }
        let said = error.to_string();
        match &self.vague {
            Some((before, known)) if *before == said => known.clone().unwrap_or(error),
            _ => {
                self.look = Box::pin(self.client.look());
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
