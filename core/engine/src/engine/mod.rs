//! The lock protocol as a state machine: it makes all decisions and performs no I/O.
//!
//! One [`Engine`] serves one locker. It has no I/O, no clock, no randomness and no threads; a *host* provides
//! those. The contract:
//!
//! 1. Report each event with the current time: [`Engine::handle`].
//! 2. Poll [`Engine::poll`] and execute its outputs in order, until it returns [`Output::Wait`].
//! 3. Call `handle` with [`Input::Tick`] at the time that `Wait` names, unless another input comes first. A
//!    late call is safe and only delays work, because the clock decides and not the timer.
//! 4. Answer each [`Output::Send`] with at most one [`Input::Reply`]. Without a reply the engine gives up by
//!    itself.
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use leasehold_engine::engine::{
//!     Answer, CallId, Engine, Input, LockId, LockOptions, LockSpec, Output, ServerId, Settings,
//!     Wait,
//! };
//! use leasehold_engine::protocol::{ClientId, Counter, LeaseId, LockKey};
//! use leasehold_engine::time::{ServerTime, Timestamp};
//! use leasehold_engine::{MemoryServer, Owner};
//!
//! let (name, key) = LockKey::with_name("app", "orders/42")?;
//! let options = Arc::new(LockOptions {
//!     ttl: Duration::from_secs(30),
//!     fixed: false,
//!     reentrant: false,
//!     owner: Owner::labelled("docs")?,
//!     counter: Counter::Dense,
//!     durability: None,
//!     at_most: None,
//!     at_least: None,
//!     backlog: None,
//!     max_line: None,
//!     strict: false,
//! });
//! let spec = Arc::new(LockSpec { name, key, options });
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
//! # Ok::<(), leasehold_engine::Error>(())
//! ```

#![cfg_attr(
    not(feature = "quorum"),
    allow(
        dead_code,
        unused_imports,
        reason = "some parts serve quorums only, which a browser build may leave out"
    )
)]

mod clock;
mod ctx;
mod front;
mod hub;
mod inspection;
mod io;
mod pace;
mod queue;
#[cfg(feature = "quorum")]
mod quorum;
mod servers;
mod settings;
mod single;
mod spec;
mod stats;
mod table;
#[cfg(test)]
mod tests;
mod timers;

pub use hub::{Hub, ReaderId};
pub use inspection::{
    CompletedInfo, HolderInfo, Inspection, JobInfo, Listing, PermitInfo, SharedInfo, WaiterInfo,
    WantedInfo,
};
pub use io::{
    Acquired, Answer, CallId, Input, LockId, Output, RequestId, ServerId, Suspicion, Wait,
};
pub use settings::Settings;
pub use spec::{Backlog, LockOptions, LockSpec};
pub use stats::{Counts, Histogram, Losses, Stats};
pub use table::{Id, Table};

use crate::event::LeaseEvent;
use crate::protocol::LeaseId;
use crate::time::{ServerTime, Timestamp};
use front::{Front, ServerSide};
#[cfg(feature = "quorum")]
use quorum::Quorum;
#[cfg(feature = "quorum")]
pub use quorum::members::{check_members, majority, too_few};
use single::Single;

/// The state of one locker. See the [module](self) for how to drive it.
#[derive(Debug)]
pub struct Engine(Kind);

/// Boxed, because hosts move engines around.
#[derive(Debug)]
enum Kind {
    Single(Box<Front<Single>>),
    // Left out of builds without quorums, because a browser should not load code that it does not use.
    #[cfg(feature = "quorum")]
    Quorum(Box<Front<Quorum>>),
}

/// Evaluates an expression for either kind of engine.
macro_rules! of {
    ($engine:expr, $kind:ident => $what:expr) => {
        match $engine {
            Kind::Single($kind) => $what,
            #[cfg(feature = "quorum")]
            Kind::Quorum($kind) => $what,
        }
    };
}

/// Inputs and outputs.
impl Engine {
    /// Creates an engine for one server or for a cluster. It is not connected yet.
    pub fn new(settings: Settings) -> Self {
        Self(Kind::Single(Box::new(Front::new(Single::new(settings)))))
    }

    /// Creates an engine for this number of independent servers, of which a majority decides. It is not
    /// connected yet. Their [`ServerId`]s count from 0. Fails with
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) unless there are 3, 5 or 7.
    ///
    /// ```
    /// use leasehold_engine::engine::{Engine, Input, Output, ServerId, Settings};
    /// use leasehold_engine::protocol::ClientId;
    /// use leasehold_engine::time::Timestamp;
    ///
    /// let mut engine = Engine::quorum(Settings::new(ClientId(1)), 3)?;
    /// engine.handle(Timestamp::from_nanos(0), Input::Connected { server: ServerId(2) });
    /// assert!(matches!(engine.poll(), Output::Send { server: ServerId(2), .. }));
    /// # Ok::<(), leasehold_engine::Error>(())
    /// ```
    #[cfg(feature = "quorum")]
    pub fn quorum(settings: Settings, servers: usize) -> Result<Self, crate::error::Error> {
        let quorum = Quorum::new(settings, servers)?;
        Ok(Self(Kind::Quorum(Box::new(Front::new(quorum)))))
    }

    /// Takes in an input. Time never goes back: an earlier `now` counts as the latest seen.
    pub fn handle(&mut self, now: Timestamp, input: Input) {
        of!(&mut self.0, engine => engine.handle(now, input));
    }

    /// Returns the next thing for the host to do; [`Output::Wait`] if there is none. Batches come last, so
    /// that a host that takes in several inputs before it polls sends their operations together.
    pub fn poll(&mut self) -> Output {
        of!(&mut self.0, engine => engine.poll())
    }

    /// Returns the next output as [`poll`](Self::poll) does, except that pending operations stay queued until
    /// `poll`.
    pub fn poll_unsent(&mut self) -> Output {
        of!(&mut self.0, engine => engine.poll_unsent())
    }

    /// Returns true if the callers that were just answered are likely to ask again. A host gains by letting
    /// them run before its next [`poll`](Self::poll): their new operations then share a batch with the
    /// pending ones. Until then, [`poll_unsent`](Self::poll_unsent) returns all other outputs.
    pub fn expects_more(&self) -> bool {
        of!(&self.0, engine => engine.env.expects_more())
    }

    /// Returns true if operations are pending.
    pub fn has_unsent(&self) -> bool {
        of!(&self.0, engine => engine.env.has_unsent())
    }

    /// Converts a time from one server's clock to another's, for a host that follows a cluster's redirection.
    /// The clock of `to` reaches the result no later than the clock of `from` reaches `time`. Returns `None`
    /// if one of the clocks is not known, and for a quorum.
    pub fn no_later(&self, time: ServerTime, from: ServerId, to: ServerId) -> Option<ServerTime> {
        match &self.0 {
            Kind::Single(engine) => engine.env.servers.no_later(time, from, to),
            #[cfg(feature = "quorum")]
            Kind::Quorum(_) => None,
        }
    }

    /// Returns true if no lock is held, no operation is in flight and no call waits for an answer.
    pub fn is_idle(&self) -> bool {
        of!(&self.0, engine => engine.is_idle())
    }
}

/// The current state, for readers that start or that missed events.
impl Engine {
    /// Returns the leases that are held now, in no order, each with its `Acquired` event.
    pub fn all_held(&self, now: Timestamp) -> Box<dyn Iterator<Item = (LeaseId, LeaseEvent)> + '_> {
        of!(&self.0, engine => Box::new(engine.locks.all_held(now)))
    }

    /// Returns the held leases of one handle, as [`all_held`](Self::all_held) does for all.
    pub fn held(
        &self,
        now: Timestamp,
        lock: LockId,
    ) -> Box<dyn Iterator<Item = (LeaseId, LeaseEvent)> + '_> {
        of!(&self.0, engine => Box::new(engine.locks.held(now, lock)))
    }

    /// Returns all counts since the engine was created.
    pub fn counts(&self) -> Counts {
        of!(&self.0, engine => engine.env.counts())
    }

    /// Returns the drift margin as an event for readers of all locks, if the margin had to be widened.
    pub fn clock_drift(&self) -> Option<LeaseEvent> {
        of!(&self.0, engine => engine.env.clock_drift())
    }
}
