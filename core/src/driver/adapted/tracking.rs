//! Has a server say when others change what was read, through a client that the program adapts: turned on
//! for the connection of commands, and heard wherever the adapter says.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Mutex;

use super::convert;
use crate::adapter::{Adapter, CallError, Command};
use crate::driver::{Input, Seat};
use crate::error::{Error, ErrorKind};
use crate::finding::Finding;
use crate::protocol::LockKey;
use crate::rt;
use crate::time::Timestamp;

const TIMEOUT: Duration = Duration::from_secs(2);
/// A client with several connections would have it turned on again with each command.
const PAUSE: Duration = Duration::from_secs(1);

/// What `CLIENT GETREDIR` says where nothing is tracked, and where changes are said on the connection itself.
const OFF: i64 = -1;
const HERE: i64 = 0;

pub(crate) struct Tracking {
    adapter: Arc<dyn Adapter>,
    runtime: Handle,
    on: AtomicBool,
    /// One at a time turns it on.
    last: Mutex<Last>,
    found: OnceLock<Finding>,
}

struct Last {
    /// Where the server was told to say it, and where it is heard: a connection's id.
    to: i64,
    heard: i64,
    /// When a read found it off.
    off: Option<Timestamp>,
}

impl Tracking {
    pub(super) fn new(adapter: Arc<dyn Adapter>, runtime: Handle) -> Self {
        Self {
            adapter,
            runtime,
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

    /// They are not heard, and never will be.
    pub(crate) fn is_impossible(&self, reason: String) {
        self.on.store(false, Ordering::Release);
        self.found.get_or_init(|| Finding::Untracked { reason });
    }

    /// Changes are heard on the connection of this id, or on that for commands.
    pub(crate) fn is_heard(self: &Arc<Self>, id: Option<i64>, seat: &Seat) {
        if self.found.get().is_some() {
            return;
        }
        let (this, seat) = (self.clone(), seat.clone());
        self.runtime.spawn(async move {
            let mut last = this.last.lock().await;
            last.heard = id.unwrap_or(HERE);
            this.turn_on(&mut last, &seat).await;
        });
    }

    async fn turn_on(&self, last: &mut Last, seat: &Seat) {
        match self.try_turn_on(last).await {
            Ok(is_new) => {
                self.on.store(true, Ordering::Release);
                if is_new {
                    let server = seat.server;
                    seat.feed(Input::Watching { server });
                }
            }
            Err(error) => self.failed(&error),
        }
    }

    /// Returns whether it was off, or is to be heard elsewhere.
    async fn try_turn_on(&self, last: &mut Last) -> Result<bool, Error> {
        let to = number(&self.call(Command::client(["GETREDIR"])).await?)?;
        if to == last.to && to == last.heard {
            return Ok(false);
        }
        if to != OFF && to != last.to {
            let message = "the program's client tracks keys itself, or for another locker";
            return Err(Error::new(ErrorKind::Config, message));
        }
        let id = last.heard.to_string();
        let done = match last.heard {
            HERE => Command::client(["TRACKING", "ON", "OPTIN", "NOLOOP"]),
            _ => Command::client(["TRACKING", "ON", "REDIRECT", &id, "OPTIN", "NOLOOP"]),
        };
        self.call(done).await?;
        last.to = last.heard;
        Ok(true)
    }

    /// Reads these locks' keys. If one is not there, the engine hears of it as of a change.
    pub(super) async fn read(&self, keys: Vec<LockKey>, seat: &Seat) {
        if !self.on.load(Ordering::Acquire) {
            return;
        }
        let names = keys.iter().map(|key| key.lock().to_owned()).collect();
        let reading = Command::plain("EXISTS", names);
        let Some(pair) = self
            .adapter
            .pair(Command::client(["CACHING", "YES"]), reading)
        else {
            return self.is_impossible("the client cannot send two commands as one".to_owned());
        };
        let late = |_| [Err(CallError::TimedOut), Err(CallError::TimedOut)];
        let replies = tokio::time::timeout(TIMEOUT, pair).await;
        let [may, there] = replies.unwrap_or_else(late);
        match (may.map_err(convert), there.map_err(convert)) {
            (Err(error), _) if error.kind() == ErrorKind::Auth => self.failed(&error),
            (_, Err(error)) => self.failed(&error),
            // It is a new connection.
            (Err(_), Ok(_)) => self.is_off(seat).await,
            (Ok(_), Ok(there)) => {
                let count = i64::try_from(keys.len()).unwrap_or(i64::MAX);
                if number(&there).is_ok_and(|there| there < count) {
                    for key in keys {
                        seat.feed(Input::Changed { key: Some(key) });
                    }
                }
            }
        }
    }

    async fn is_off(&self, seat: &Seat) {
        let mut last = self.last.lock().await;
        let now = rt::now();
        if last.off.is_none_or(|off| off + PAUSE <= now) {
            last.off = Some(now);
            self.turn_on(&mut last, seat).await;
        }
    }

    async fn call(&self, command: Command) -> Result<Vec<Vec<u8>>, Error> {
        let reply = tokio::time::timeout(TIMEOUT, self.adapter.call(command)).await;
        let reply = reply.unwrap_or(Err(CallError::TimedOut));
        reply.map_err(convert)
    }

    /// What may be well later is tried again when the adapter says the next time that changes are heard.
    fn failed(&self, error: &Error) {
        tracing::debug!(target: "leasehold", %error, "changes by others are not heard at once");
        if !error.is_transient() {
            self.is_impossible(error.to_string());
        }
    }
}

fn number(reply: &[Vec<u8>]) -> Result<i64, Error> {
    let text = reply.first().and_then(|text| str::from_utf8(text).ok());
    let number = text.and_then(|text| text.parse().ok());
    number.ok_or_else(|| Error::unreadable("it is no number"))
}
