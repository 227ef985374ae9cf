//! Client-side tracking: the server reports changes to keys that this client has read. It is turned on for
//! the command connection, and reports arrive on the connection that the adapter names.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold_engine::engine::Input;
use leasehold_engine::protocol::LockKey;
use leasehold_engine::time::Timestamp;
use leasehold_engine::{Error, ErrorKind, Finding};
use tokio::sync::Mutex;

use super::{ServerSink, call, number, pair};
use crate::adapter::slots::is_about_slots;
use crate::adapter::{Adapter, Command};
use crate::rt;

const TIMEOUT: Duration = Duration::from_secs(2);
/// The shortest time between two attempts to turn tracking on after a read. Without it, a client with several
/// connections would try with each command.
const PAUSE: Duration = Duration::from_secs(1);

/// Replies to `CLIENT GETREDIR`: tracking is off, or reports arrive on the command connection itself.
const OFF: i64 = -1;
const HERE: i64 = 0;

/// Part of the error for a listening connection that has just closed.
const LISTENER_IS_GONE: &str = "redirect to does not exist";

pub(super) struct Tracking {
    adapter: Arc<dyn Adapter>,
    /// True if this crate made the command connection, so that nobody else tracks keys on it.
    is_own: bool,
    on: AtomicBool,
    /// Locked while tracking is being turned on.
    last: Mutex<Last>,
    found: OnceLock<Finding>,
}

struct Last {
    /// The connection ID that the server was told, and the one on which the adapter listens.
    to: i64,
    heard: i64,
    /// The time at which a read last found tracking off.
    off: Option<Timestamp>,
}

impl Tracking {
    pub(super) fn new(adapter: Arc<dyn Adapter>, is_own: bool) -> Self {
        Self {
            adapter,
            is_own,
            on: AtomicBool::new(false),
            last: Mutex::new(Last {
                to: OFF,
                heard: OFF,
                off: None,
            }),
            found: OnceLock::new(),
        }
    }

    pub(super) fn finding(&self) -> Option<&Finding> {
        self.found.get()
    }

    /// Returns true if tracking is on, or cannot be turned on.
    pub(super) fn is_settled(&self) -> bool {
        self.on.load(Ordering::Acquire) || self.found.get().is_some()
    }

    /// Gives tracking up, with a finding.
    pub(super) fn is_impossible(&self, reason: String) {
        self.on.store(false, Ordering::Release);
        self.found.get_or_init(|| Finding::Untracked { reason });
    }

    /// Turns tracking on for reports to the connection of this ID, or to the command connection. A user without the right
    /// to it goes on without tracking.
    pub(super) async fn is_heard(&self, id: Option<i64>, sink: &ServerSink) {
        if self.found.get().is_none() {
            let mut last = self.last.lock().await;
            last.heard = id.unwrap_or(HERE);
            self.turn_on(&mut last, sink).await;
        }
    }

    async fn turn_on(&self, last: &mut Last, sink: &ServerSink) {
        match self.try_turn_on(last).await {
            Ok(is_new) => {
                self.on.store(true, Ordering::Release);
                if is_new {
                    let server = sink.server;
                    sink.feed(Input::Watching { server });
                }
            }
            Err(error) => self.failed(&error),
        }
    }

    /// Returns true if tracking was off, or its reports move to another connection.
    async fn try_turn_on(&self, last: &mut Last) -> Result<bool, Error> {
        if !self.is_own {
            let to = self.call(Command::client(["GETREDIR"])).await?;
            if to == last.to && to == last.heard {
                return Ok(false);
            }
            if to != OFF && to != last.to {
                let message = "the program's client tracks keys itself, or for another locker";
                return Err(Error::new(ErrorKind::Config, message));
            }
        }
        let id = last.heard.to_string();
        let command = match last.heard {
            HERE => Command::client(["TRACKING", "ON", "OPTIN", "NOLOOP"]),
            _ => Command::client(["TRACKING", "ON", "REDIRECT", &id, "OPTIN", "NOLOOP"]),
        };
        if let Err(error) = call(&*self.adapter, command, TIMEOUT).await {
            // The adapter calls again once it has reconnected.
            if error.said().contains(LISTENER_IS_GONE) {
                return Err(Error::unreachable(error.said()));
            }
            return Err(error.into());
        }
        last.to = last.heard;
        Ok(true)
    }

    /// Reads the keys of locks. A missing key counts as a change.
    pub(super) async fn read(&self, keys: Vec<LockKey>, sink: &ServerSink) {
        if !self.on.load(Ordering::Acquire) {
            return;
        }
        for keys in sink.at_once(keys) {
            self.read_at_once(keys, sink).await;
        }
    }

    async fn read_at_once(&self, keys: Vec<LockKey>, sink: &ServerSink) {
        let names = keys.iter().map(|key| key.lock().to_owned()).collect();
        let reading = [
            Command::client(["CACHING", "YES"]),
            Command::plain("EXISTS", names),
        ];
        let Some([may, there]) = pair(&*self.adapter, reading, TIMEOUT).await else {
            return self.is_impossible("the client cannot send two commands as one".to_owned());
        };
        let are_there = match (may.map_err(Error::from), there) {
            (Err(error), _) if error.kind() == ErrorKind::Auth => return self.failed(&error),
            // The slot has moved, or is being migrated.
            (_, Err(error)) if is_about_slots(error.said()) => false,
            (_, Err(error)) => return self.failed(&error.into()),
            // The command connection is a new one, without tracking.
            (Err(_), Ok(_)) => return self.is_off(sink).await,
            (Ok(_), Ok(there)) => {
                let there = there.first().and_then(|text| number::<usize>(text));
                there.is_none_or(|there| there >= keys.len())
            }
        };
        if !are_there {
            for key in keys {
                sink.feed(Input::Changed { key: Some(key) });
            }
        }
    }

    async fn is_off(&self, sink: &ServerSink) {
        let mut last = self.last.lock().await;
        let now = rt::now();
        if last.off.is_none_or(|off| off + PAUSE <= now) {
            last.off = Some(now);
            self.turn_on(&mut last, sink).await;
        }
    }

    async fn call(&self, command: Command) -> Result<i64, Error> {
        let reply = call(&*self.adapter, command, TIMEOUT).await?;
        let number = reply.first().and_then(|text| number(text));
        number.ok_or_else(|| Error::unreadable("it is not a number"))
    }

    /// Gives up after a permanent error. Otherwise the adapter's next report tries again.
    fn failed(&self, error: &Error) {
        tracing::debug!(target: "leasehold", %error, "changes by other clients are not tracked");
        if !error.is_transient() {
            self.is_impossible(error.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::PoisonError;

    use leasehold_engine::Name;

    use super::*;
    use crate::adapter::{CallError, Calling, Pairing};

    /// A client on whose server every key exists. Its connection may be replaced.
    #[derive(Default)]
    struct Client {
        /// The connection to which changes are reported, if the command connection tracks.
        to: std::sync::Mutex<Option<String>>,
    }

    impl Client {
        fn to(&self) -> std::sync::MutexGuard<'_, Option<String>> {
            self.to.lock().unwrap_or_else(PoisonError::into_inner)
        }

        fn answer(&self, command: &Command) -> Result<Vec<Vec<u8>>, CallError> {
            let words = std::iter::once(command.name().as_bytes()).chain(command.args());
            let words: Vec<_> = words.map(String::from_utf8_lossy).collect();
            let words: Vec<_> = words.iter().map(|word| &**word).collect();
            let reply = match &*words {
                ["CLIENT", "GETREDIR"] => self.to().clone().unwrap_or_else(|| OFF.to_string()),
                ["CLIENT", "TRACKING", "ON", "REDIRECT", id, ..] => {
                    *self.to() = Some((*id).to_owned());
                    "OK".to_owned()
                }
                ["CLIENT", "CACHING", "YES"] if self.to().is_some() => "OK".to_owned(),
                ["CLIENT", "CACHING", "YES"] => {
                    let said =
                        "ERR CLIENT CACHING can be called only when the client is in tracking mode";
                    return Err(CallError::Refused(said.to_owned()));
                }
                ["EXISTS", keys @ ..] => keys.len().to_string(),
                words => panic!("unexpected: {words:?}"),
            };
            Ok(vec![reply.into_bytes()])
        }
    }

    impl Adapter for Client {
        fn call(&self, command: Command) -> Calling<'_> {
            Box::pin(std::future::ready(self.answer(&command)))
        }

        fn pair(&self, first: Command, second: Command) -> Option<Pairing<'_>> {
            let replies = [first, second].map(|command| self.answer(&command));
            Some(Box::pin(std::future::ready(replies)))
        }
    }

    /// Catches a new command connection that does not track: until the adapter's next check, which may be 10 s
    /// away, no holder would hear of a change.
    #[tokio::test]
    async fn a_read_on_a_connection_that_does_not_track_turns_tracking_on() {
        let name = Name::new("name").expect("valid");
        let key = LockKey::new("leasehold", &name).expect("valid");
        let sink = ServerSink::without_locker();
        for is_own in [true, false] {
            let client = Arc::new(Client::default());
            let tracking = Tracking::new(client.clone(), is_own);
            tracking.is_heard(Some(7), &sink).await;
            assert_eq!(client.to().take().as_deref(), Some("7"));
            // The connection was replaced.
            tracking.read(vec![key.clone()], &sink).await;
            assert_eq!(client.to().as_deref(), Some("7"));
            assert!(tracking.is_settled());
            assert_eq!(tracking.finding(), None);
        }
    }
}
