//! The lock protocol as a state machine: it decides everything and does nothing.
//!
//! One [`Engine`] serves one locker. It has no I/O, no clock, no randomness and no threads; a
//! *host* brings those. The contract:
//!
//! 1. Tell the engine what happened and what time it is: [`Engine::handle`].
//! 2. Drain [`Engine::poll`] and do what it says, in order, until it says [`Output::Wait`].
//! 3. Call `handle` with [`Input::Tick`] at the moment that this names, if nothing else happens
//!    before. Being late is safe, it only delays: the clock decides, never the timer.
//! 4. Answer every [`Output::Send`] by one [`Input::Reply`] at the most. If none comes, the engine
//!    gives up by itself.
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use leasehold::engine::{
//!     Answer, CallId, Engine, Input, LockId, LockSpec, Output, ServerId, Settings, Wait,
//! };
//! use leasehold::protocol::{ClientId, Counter, LeaseId, LockKey};
//! use leasehold::time::{ServerTime, Timestamp};
//! use leasehold::{MemoryServer, Name, Owner};
//!
//! let name = Name::new("orders/42")?;
//! let spec = Arc::new(LockSpec {
//!     key: LockKey::new("app", &name)?,
//!     name,
//!     ttl: Duration::from_secs(30),
//!     fixed: false,
//!     reentrant: false,
//!     owner: Owner::labelled("docs")?,
//!     counter: Counter::Dense,
//! });
//! let (mut engine, mut server) = (Engine::new(Settings::new(ClientId(1))), MemoryServer::new());
//! let now = Timestamp::from_nanos(0);
//! engine.handle(now, Input::Connected { server: ServerId::ONLY });
//! let (call, lock, lease) = (CallId(1), LockId(1), LeaseId(1));
//! engine.handle(now, Input::Acquire { call, lock, spec, lease, wait: Wait::Never });
//! let mut token = None;
//! loop {
//!     match engine.poll() {
//!         Output::Send { server: from, request, batch, .. } => {
//!             let result = Ok(server.execute(ServerTime::from_micros(1), &batch));
//!             engine.handle(now, Input::Reply { server: from, request, result });
//!         }
//!         Output::Answer { answer: Answer::Acquire(Ok(Some(acquired))), .. } => {
//!             token = Some(acquired.token);
//!         }
//!         Output::Wait { .. } => break,
//!         _ => {}
//!     }
//! }
//! assert_eq!(token.map(|token| token.get()), Some(1));
//! # Ok::<(), leasehold::Error>(())
//! ```

mod acquire;
mod acquiring;
mod clock;
mod contender;
mod hub;
mod io;
mod line;
mod link;
mod outbox;
mod pace;
mod query;
mod rates;
mod release;
mod table;
mod tenure;
#[cfg(test)]
mod tests;
mod timers;

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::time::Duration;

pub use hub::{Hub, ReaderId};
use io::Done;
pub use io::{
    Acquired, Answer, CallId, HolderInfo, Input, Inspection, Listing, LockId, LockSpec, Output,
    RequestId, ServerId, Suspicion, Wait, WaiterInfo,
};

use crate::error::{Error, ErrorKind};
use crate::event::{LeaseEvent, LossReason};
use crate::protocol::{ClientId, Command, Inspect, LeaseId, List};
use crate::time::Timestamp;
use acquiring::Caller;
use clock::Margin;
use contender::{Contender, Lock, Phase};
use line::Line;
use link::Link;
use query::{Goal, Query};
use release::Release;
use table::Short;
pub use table::{Id, Table};
use timers::{Timed, Timers};

/// What holds for the whole locker.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who this locker is: 64 random bits.
    pub client: ClientId,
    /// How long one attempt waits for the store's answer at the most.
    pub command_timeout: Duration,
    /// How long a call goes on trying while the store gives no answer.
    pub patience: Duration,
    /// How far the rates of the store's clock and of the host's may differ, in parts per million.
    pub drift_margin: u32,
    /// Whether the store is a cluster, of servers with a clock of their own each: operations then
    /// leave one by one, and a lock that was handed over is asked for once more.
    pub clustered: bool,
    /// Whether the host does everything in one thread: a batch then takes only a part of what waits,
    /// so that the store works on the next while the host takes in the answers to the one before.
    pub single_threaded: bool,
}

impl Settings {
    /// The defaults: 2 s for an attempt, 10 s of patience, a drift margin of 2,000 parts per million.
    pub fn new(client: ClientId) -> Self {
        Self {
            client,
            command_timeout: Duration::from_secs(2),
            patience: Duration::from_secs(10),
            drift_margin: Margin::DEFAULT.parts_per_million(),
            clustered: false,
            single_threaded: false,
        }
    }

    /// The same, with a patience of one attempt at least.
    /// [`ErrorKind::Config`] if one is out of bounds: 1 ms to 1 min for an
    /// attempt, up to 1 h of patience, 1,000 to 250,000 parts per million of drift.
    ///
    /// ```
    /// use leasehold::{engine::Settings, protocol::ClientId};
    ///
    /// let mut settings = Settings::new(ClientId(1));
    /// assert!(settings.clone().checked().is_ok());
    /// settings.command_timeout = std::time::Duration::ZERO;
    /// assert!(settings.checked().unwrap_err().is_config());
    /// ```
    pub fn checked(mut self) -> Result<Self, Error> {
        let (least, minute) = (Duration::from_millis(1), Duration::from_secs(60));
        Error::check_range("command_timeout", self.command_timeout, least, minute)?;
        Error::check_range("patience", self.patience, Duration::ZERO, minute * 60)?;
        let margin = self.drift_margin;
        if Margin::new(margin).parts_per_million() != margin {
            let [least, most] = [Margin::LEAST, Margin::MOST].map(Margin::parts_per_million);
            let message =
                format!("drift_margin is from {least} to {most} parts per million, not {margin}");
            return Err(Error::new(ErrorKind::Config, message));
        }
        self.patience = self.patience.max(self.command_timeout);
        Ok(self)
    }
}

/// The state of one locker: its locks, calls, leases, link and timers. See the
/// [module](self) for how to drive it.
#[derive(Debug)]
pub struct Engine {
    settings: Settings,
    now: Timestamp,
    link: Link,
    line: Line,
    locks: Table<LockId, Lock>,
    /// In boxes: much of a table is empty.
    contenders: Table<Short, Box<Contender>>,
    releases: Table<Short, Box<Release>>,
    /// Attempts whose answer a release would like to know.
    doubted: Table<Serial, Short>,
    queries: Table<CallId, Query>,
    timers: Timers,
    shutdown: Option<Shutdown>,
    outputs: VecDeque<Output>,
    last_serial: u64,
    kinds: Table<CallId, Kind>,
}

#[derive(Copy, Clone, Debug)]
enum Kind {
    Acquire,
    Renew,
    Release,
    Inspect,
    List,
    ForceRelease,
    Shutdown,
}

/// Tells attempts, releases and requests apart; never used twice.
type Serial = NonZeroU64;

/// Whose operation an answer belongs to, and which attempt of it.
#[derive(Copy, Clone, Debug)]
struct Origin {
    whose: Whose,
    attempt: Serial,
}

#[derive(Copy, Clone, Debug)]
enum Whose {
    Contender(Short),
    Release(Short),
    Query(CallId),
}

#[derive(Debug)]
struct Shutdown {
    /// Who waits for its end.
    calls: Vec<CallId>,
    ended: bool,
    wake: Timestamp,
}

/// Inputs and outputs.
impl Engine {
    /// An engine that is not connected yet.
    pub fn new(settings: Settings) -> Self {
        let link = Link::new(Margin::new(settings.drift_margin));
        Self {
            settings,
            now: Timestamp::from_nanos(0),
            link,
            line: Line::default(),
            locks: Table::default(),
            contenders: Table::default(),
            releases: Table::default(),
            doubted: Table::default(),
            queries: Table::default(),
            timers: Timers::default(),
            shutdown: None,
            outputs: VecDeque::new(),
            last_serial: 0,
            kinds: Table::default(),
        }
    }

    /// Takes in what happened. Time never goes back: an earlier `now` counts as the latest seen.
    pub fn handle(&mut self, now: Timestamp, input: Input) {
        self.now = self.now.max(now);
        // What is over is over before anything else is looked at.
        self.run_due();
        self.note_kind(&input);
        match input {
            Input::Connected { .. } => self.connected(),
            Input::Disconnected { error, .. } => self.disconnected(error),
            Input::Slots { .. } => {}
            Input::Reply {
                request, result, ..
            } => self.reply(request, result),
            Input::Push { push, .. } => self.pushed(push),
            Input::Subscribed { .. } => self.subscribed(),
            Input::Unsubscribed { .. } => self.unsubscribed(),
            Input::Tick => {}
            Input::Cancel { call, of: None } => self.end_query(call),
            Input::Cancel {
                call,
                of: Some((lock, lease)),
            } => {
                if let Some(id) = self.contender_of(lock, lease) {
                    self.cancel(id, call);
                }
            }
            Input::Release { call, lease } => self.release(call, lease),
            Input::Close { lock } => self.close(lock),
            Input::Shutdown { call } => self.shut_down(call),
            Input::Acquire { call, .. }
            | Input::Renew { call, .. }
            | Input::Inspect { call, .. }
            | Input::List { call, .. }
            | Input::ForceRelease { call, .. }
                if self.shutdown.is_some() =>
            {
                self.complete(call, Err(Error::shutdown()));
            }
            Input::Acquire {
                call,
                lock,
                spec,
                lease,
                wait,
            } => {
                self.acquire(lock, spec, lease, Caller::new(call, wait, self.now));
            }
            Input::Renew { call, lease, ttl } => self.renew_by_hand(call, lease, ttl),
            Input::Inspect { call, key } => {
                self.query(call, Command::Inspect(Inspect { key }), Goal::Look)
            }
            Input::ForceRelease { call, key } => {
                self.query(call, Command::Inspect(Inspect { key }), Goal::Free);
            }
            Input::List {
                call,
                pattern,
                cursor,
            } => self.query(call, Command::List(List { pattern, cursor }), Goal::Look),
        }
        self.settle_shutdown();
        self.tidy_timers();
    }

    /// The next thing for the host to do. What is to be sent comes last: a host that takes in
    /// several inputs before it polls sends their operations together.
    pub fn poll(&mut self) -> Output {
        if self.outputs.is_empty() {
            self.flush();
        }
        let until = self.timers.first().map(|(at, _)| at);
        self.outputs.pop_front().unwrap_or(Output::Wait { until })
    }

    /// When the engine wants to be told the time, if nothing else happens before.
    #[cfg(test)]
    fn wake_at(&self) -> Option<Timestamp> {
        self.timers.first().map(|(at, _)| at)
    }

    /// Whether nothing is held, under way or waiting for an answer.
    pub fn is_idle(&self) -> bool {
        self.releases.is_empty() && self.queries.is_empty() && self.contenders.is_empty()
    }
}

/// What the parts share.
impl Engine {
    fn next_serial(&mut self) -> Serial {
        self.last_serial += 1;
        Serial::new(self.last_serial).unwrap_or(Serial::MAX)
    }

    fn complete(&mut self, call: CallId, result: Result<Done, Error>) {
        let Some(kind) = self.kinds.take(&call) else {
            return;
        };
        let answer = match kind {
            Kind::Acquire => Answer::Acquire(result.map(|done| match done {
                Done::Acquired(acquired) => Some(acquired),
                _ => None,
            })),
            Kind::Renew => Answer::Renew(result.map(|_| ())),
            Kind::Release => Answer::Release(result.map(|_| ())),
            Kind::Inspect => Answer::Inspect(result.and_then(|done| match done {
                Done::Inspected(seen) => Ok(seen),
                _ => Err(link::mismatch()),
            })),
            Kind::List => Answer::List(result.and_then(|done| match done {
                Done::Listed { cursor, names } => Ok(Listing { cursor, names }),
                _ => Err(link::mismatch()),
            })),
            Kind::ForceRelease => Answer::ForceRelease(result.and_then(|done| match done {
                Done::ForceReleased(holder) => Ok(holder),
                _ => Err(link::mismatch()),
            })),
            Kind::Shutdown => Answer::Shutdown,
        };
        self.outputs.push_back(Output::Answer { call, answer });
    }

    fn note_kind(&mut self, input: &Input) {
        let (call, kind) = match input {
            Input::Acquire { call, .. } => (*call, Kind::Acquire),
            Input::Renew { call, .. } => (*call, Kind::Renew),
            Input::Release {
                call: Some(call), ..
            } => (*call, Kind::Release),
            Input::Inspect { call, .. } => (*call, Kind::Inspect),
            Input::List { call, .. } => (*call, Kind::List),
            Input::ForceRelease { call, .. } => (*call, Kind::ForceRelease),
            Input::Shutdown { call } => (*call, Kind::Shutdown),
            _ => return,
        };
        self.kinds.insert(call, kind);
    }

    fn emit(
        &mut self,
        (lock, lease): (LockId, LeaseId),
        event: LeaseEvent,
        deadline: Option<Timestamp>,
    ) {
        self.outputs.push_back(Output::Event {
            lock,
            lease,
            event,
            deadline,
        });
    }

    fn run_due(&mut self) {
        // A timer stays set until the thing that it is of moves it.
        while let Some((_, what)) = self.timers.first().filter(|(at, _)| *at <= self.now) {
            match what {
                Timed::Link => self.link_time(),
                Timed::Contender(id) => self.contender_time(id),
                Timed::Release(id) => self.release_time(id),
                Timed::Query(call) => self.query_time(call),
                Timed::Shutdown => self.end_shutdown(),
            }
            self.tidy_timers();
        }
    }

    /// So that the first timer is one that is set.
    fn tidy_timers(&mut self) {
        let Self {
            contenders,
            releases,
            queries,
            ..
        } = self;
        let things = contenders.len() + releases.len() + queries.len();
        let set_for = |what| match what {
            Timed::Link => Some(self.link.wake),
            Timed::Contender(id) => contenders.get(&id).map(|contender| contender.wake),
            Timed::Release(id) => releases.get(&id).map(|release| release.wake),
            Timed::Query(call) => queries.get(&call).map(|query| query.wake),
            Timed::Shutdown => self.shutdown.as_ref().map(|shutdown| shutdown.wake),
        };
        let set_for = |what| set_for(what).unwrap_or(Timestamp::NEVER);
        self.timers.tidy(things, set_for);
    }
}

/// Shutting down.
impl Engine {
    fn shut_down(&mut self, call: CallId) {
        match &mut self.shutdown {
            Some(shutdown) if shutdown.ended => return self.complete(call, Ok(Done::ShutDown)),
            Some(shutdown) => return shutdown.calls.push(call),
            None => {}
        }
        let mut shutdown = Shutdown {
            calls: vec![call],
            ended: false,
            wake: Timestamp::NEVER,
        };
        let until = self.now + self.settings.patience;
        self.timers.set(Timed::Shutdown, &mut shutdown.wake, until);
        self.shutdown = Some(shutdown);
        for id in self.contenders_that(|phase| matches!(phase, Phase::Acquiring(_))) {
            self.fail_acquiring(id, &Error::shutdown());
        }
        for id in self.contenders_that(|phase| matches!(phase, Phase::Held(_))) {
            self.lose(id, LossReason::Shutdown);
        }
        let queries: Vec<_> = self.queries.keys().copied().collect();
        for call in queries {
            self.end_query(call);
            self.complete(call, Err(Error::shutdown()));
        }
    }

    fn settle_shutdown(&mut self) {
        if self.shutdown.is_some() && self.releases.is_empty() {
            self.end_shutdown();
        }
    }

    /// Nobody waits any longer for what the store has not confirmed; it is tried on.
    fn end_shutdown(&mut self) {
        let Some(shutdown) = &mut self.shutdown else {
            return;
        };
        self.timers
            .set(Timed::Shutdown, &mut shutdown.wake, Timestamp::NEVER);
        shutdown.ended = true;
        let calls = std::mem::take(&mut shutdown.calls);
        for call in calls {
            self.complete(call, Ok(Done::ShutDown));
        }
    }
}
