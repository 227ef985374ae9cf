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
        reason = "parts are for quorums alone, which a page in a browser may leave out"
    )
)]

mod clock;
mod ctx;
mod front;
mod hub;
mod io;
mod pace;
mod queue;
#[cfg(feature = "quorum")]
mod quorum;
mod servers;
mod settings;
mod single;
mod stats;
mod table;
#[cfg(test)]
mod tests;
mod timers;

pub use hub::{Hub, ReaderId};
pub use io::{
    Acquired, Answer, CallId, HolderInfo, Input, Inspection, Listing, LockId, LockOptions,
    LockSpec, Output, RequestId, ServerId, Suspicion, Wait, WaiterInfo,
};
pub use settings::Settings;
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

/// In boxes, because hosts move an engine about.
#[derive(Debug)]
enum Kind {
    Single(Box<Front<Single>>),
    // A page in a browser must not load what it does not use.
    #[cfg(feature = "quorum")]
    Quorum(Box<Front<Quorum>>),
}

/// What both kinds do.
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
    /// One on one server, or on a cluster, that is not connected yet.
    pub fn new(settings: Settings) -> Self {
        Self(Kind::Single(Box::new(Front::new(Single::new(settings)))))
    }

    /// One on so many independent servers, of which a majority decides; none is connected yet. They are
    /// [`ServerId`]s from 0 on. [`ErrorKind::Config`](crate::ErrorKind::Config) unless they are 3, 5 or 7.
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

    /// Takes in what happened. Time never goes back: an earlier `now` counts as the latest seen.
    pub fn handle(&mut self, now: Timestamp, input: Input) {
        of!(&mut self.0, engine => engine.handle(now, input));
    }

    /// The next thing for the host to do; [`Output::Wait`] if there is none. What is to be sent
    /// comes last: a host that takes in several inputs before it polls sends their operations
    /// together.
    pub fn poll(&mut self) -> Output {
        of!(&mut self.0, engine => engine.poll())
    }

    /// As [`poll`](Self::poll), but what is to be sent waits for that.
    pub fn poll_unsent(&mut self) -> Output {
        of!(&mut self.0, engine => engine.poll_unsent())
    }

    /// Whether it is worth to let those who were just answered go on before the next [`poll`](Self::poll):
    /// they are likely to ask again, and what they ask then leaves in one batch with what waits. Until
    /// then [`poll_unsent`](Self::poll_unsent) has all else that there is to do.
    pub fn expects_more(&self) -> bool {
        of!(&self.0, engine => engine.env.expects_more())
    }

    /// Whether something waits to be sent.
    pub fn has_unsent(&self) -> bool {
        of!(&self.0, engine => engine.env.has_unsent())
    }

    /// For a host that follows a cluster's redirection: a time that the clock of `to` reaches no later than
    /// that of `from` reaches `time`. Nothing if one of the clocks is not known, or for a quorum.
    pub fn no_later(&self, time: ServerTime, from: ServerId, to: ServerId) -> Option<ServerTime> {
        match &self.0 {
            Kind::Single(engine) => engine.env.servers.no_later(time, from, to),
            #[cfg(feature = "quorum")]
            Kind::Quorum(_) => None,
        }
    }

    /// Whether nothing is held, under way or waiting for an answer.
    pub fn is_idle(&self) -> bool {
        of!(&self.0, engine => engine.is_idle())
    }
}

/// What there is to know of it, for readers that begin or that missed something.
impl Engine {
    /// The leases that are held now, in no order, each with an `Acquired` event that says so.
    pub fn all_held(&self, now: Timestamp) -> Box<dyn Iterator<Item = (LeaseId, LeaseEvent)> + '_> {
        of!(&self.0, engine => Box::new(engine.locks.all_held(now)))
    }

    /// As [`all_held`](Self::all_held), of one handle.
    pub fn held(
        &self,
        now: Timestamp,
        lock: LockId,
    ) -> Box<dyn Iterator<Item = (LeaseId, LeaseEvent)> + '_> {
        of!(&self.0, engine => Box::new(engine.locks.held(now, lock)))
    }

    /// What was counted since it was made.
    pub fn counts(&self) -> Counts {
        of!(&self.0, engine => engine.env.counts())
    }

    /// The drift margin, if it had to be widened: an event for readers of all locks.
    pub fn clock_drift(&self) -> Option<LeaseEvent> {
        of!(&self.0, engine => engine.env.clock_drift())
    }
}
