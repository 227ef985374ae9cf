//! Watches the command connection, and finds out why it is down.

use std::future::pending;
use std::pin::Pin;
use std::sync::PoisonError;
use std::time::Duration;

use ::fred::interfaces::{ClientLike, EventInterface};
use ::fred::types::config::Server;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use leasehold_engine::{Error, ErrorKind};
use tokio_stream::wrappers::BroadcastStream;

use super::{Fred, sentinels};
use crate::adapter::{Link, Report};
use crate::clock::Clock;

/// The interval at which a broken link is checked while fred reports nothing.
const LINK_CHECK: Duration = Duration::from_secs(1);

/// The interval of checks while the link is in doubt. By the first check it is decided whether the connection
/// is replaced. Until then fred calls the old connection good.
const DOUBT_CHECK: Duration = Duration::from_secs(2);

/// The time after which the endpoint is examined: a server that speaks another protocol often looks like a slow one.
const SLOW: Duration = Duration::from_millis(500);

impl Fred {
    /// Adds the reason for a failed connection if fred does not know it.
    pub(super) async fn explained<T>(&self, connected: Result<T, Error>) -> Result<T, Error> {
        match connected {
            Err(error) if is_vague(&error) => Err(self.look().await.unwrap_or(error)),
            connected => connected,
        }
    }

    /// Examines a server that is slow to connect to.
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

    /// Returns true if sentinels name another primary than the connected server. A primary that was paused or cut off learns
    /// of its demotion only after some seconds, and grants locks until then.
    pub(super) async fn is_deposed(&self) -> bool {
        let Some(named) = sentinels::primary(&self.client).await else {
            return false;
        };
        let leads_to = self.client.active_connections();
        let mut left_for = self.left_for.lock().unwrap_or_else(PoisonError::into_inner);
        is_to_be_left(&leads_to, named, &mut left_for)
    }

    pub(super) async fn reconnect(&self) {
        let again = self.client.force_reconnection();
        let _ = tokio::time::timeout(self.timeout, again).await;
    }
}

/// Returns true if connections to these servers must be replaced, because sentinels name another primary.
/// `left_for` is the primary for which that was last done.
fn is_to_be_left(
    leads_to: &[Server],
    named: (String, u16),
    left_for: &mut Option<(String, u16)>,
) -> bool {
    let is_there = |server: &Server| *server.host == named.0 && server.port == named.1;
    if leads_to.iter().any(is_there) {
        *left_for = None;
        return false;
    }
    // If the connection was replaced for that primary and leads here again, this is another address of it.
    left_for.replace(named.clone()) != Some(named)
}

enum LinkChange {
    Up,
    /// A primary that sentinels named does not answer.
    InDoubt,
    Down(Error),
    /// The reason for which the link is down.
    Because(Error),
}

/// Reports changes of a link, and finds out why it is down.
pub(super) struct Follower<'a> {
    client: &'a Fred,
    changes: BoxStream<'a, LinkChange>,
    link: Link,
    /// False for a server that was never reached. It is checked on the first connection.
    is_checked: bool,
    is_down: bool,
    is_in_doubt: bool,
    look: Pin<Box<dyn Future<Output = Option<Error>> + Send + 'a>>,
    /// fred's last vague error, and its cause if that was found.
    vague: Option<(String, Option<Error>)>,
}

impl<'a> Follower<'a> {
    pub(super) fn new(client: &'a Fred, link: Link) -> Self {
        let errors = BroadcastStream::new(client.client.error_rx()).map(|error| match error {
            Ok((error, _)) => LinkChange::Down(client.secrets.convert(&error)),
            // Some changes were missed. A fresh start is right in any case.
            Err(_) => LinkChange::Up,
        });
        let connects = BroadcastStream::new(client.client.reconnect_rx()).map(|_| LinkChange::Up);
        let is_checked = client.is_open();
        Self {
            client,
            changes: futures::stream::select(errors, connects).boxed(),
            link,
            is_checked,
            // The link may have broken before it was watched.
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
            self.is_in_doubt = matches!(change, LinkChange::InDoubt);
            let trouble = match change {
                // Boxed while it runs: it is rare, and takes 14 KiB.
                LinkChange::Up => Box::pin(self.up()).await.err(),
                LinkChange::InDoubt => Some(in_doubt()),
                LinkChange::Down(error) => Some(self.explained(error)),
                LinkChange::Because(error) => {
                    self.vague
                        .iter_mut()
                        .for_each(|(_, known)| *known = Some(error.clone()));
                    Some(error)
                }
            };
            tracing::debug!(target: "leasehold", ?trouble, "the link changed");
            self.is_down = trouble.is_some();
            self.link.0.take(trouble.map_or(Report::Up, Report::Down));
        }
    }

    async fn next(&mut self) -> Option<LinkChange> {
        loop {
            if !self.is_down {
                return tokio::select! {
                    biased;
                    change = self.changes.next() => change,
                    () = self.client.doubted.notified() => Some(LinkChange::InDoubt),
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
                        Some(error) => Some(LinkChange::Because(error)),
                        None => continue,
                    }
                }
                // Not every error that fred reports ends the connection, and then nothing follows it.
                () = Clock::Machine.sleep(check) => {
                    if !self.client.client.is_connected() {
                        continue;
                    }
                    Some(LinkChange::Up)
                }
            };
        }
    }

    async fn up(&mut self) -> Result<(), Error> {
        if !self.is_checked {
            let checked = self.link.0.check().await;
            if let Err(error) = self.client.explained(checked).await {
                if error.kind() == ErrorKind::ReadOnly {
                    // The host name may lead to another server soon.
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
        // A notification until now is about the former connection.
        let _rang = self.client.doubted.notified().now_or_never();
        self.look = Box::pin(pending());
        self.vague = None;
        Ok(())
    }

    /// Looks for the cause of a vague error, once per error.
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

/// Returns true for errors that may have a cause that fred does not name.
fn is_vague(error: &Error) -> bool {
    use ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::Unavailable | Kind::Timeout | Kind::Store | Kind::Tls
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a connection that stays with a deposed primary, and one that is replaced again and again
    /// because the sentinels know the primary by another address.
    #[test]
    fn a_connection_leaves_a_deposed_primary_once() {
        let at = |host: &str| vec![Server::new(host, 6_379)];
        let mut left_for = None;
        let mut is_left = |leads_to: &str, named: &str| {
            let named = (named.to_owned(), 6_379);
            is_to_be_left(&at(leads_to), named, &mut left_for)
        };
        assert!(!is_left("one", "one"), "the primary");
        assert!(is_left("one", "two"), "it is deposed");
        assert!(
            !is_left("one", "two"),
            "it is another address of the new one"
        );
        assert!(is_left("one", "three"), "there is a later failover");
        assert!(!is_left("three", "three"), "the primary");
        assert!(
            is_left("one", "three"),
            "the connection led to it, so this is another server"
        );
        let mut left_for = None;
        assert!(is_to_be_left(
            &at("one"),
            ("one".to_owned(), 6_380),
            &mut left_for
        ));
    }
}
