//! Who wants a lock, and how far the asking for it is.

use std::num::NonZeroU32;
use std::time::Duration;

use super::io::{CallId, LockSpec, Wait};
use super::line;
use super::pace::{Flight, Pace};
use crate::error::Error;
use crate::event::LossReason;
use crate::protocol::{LeaseId, Reclaim};
use crate::time::{ServerTime, Timestamp};
use crate::token::FencingToken;

#[derive(Debug)]
pub(super) struct Acquiring {
    pub(super) lease: LeaseId,
    pub(super) callers: Vec<Caller>,
    /// The first and the last moment at which a caller stops waiting.
    pub(super) soonest: Timestamp,
    pub(super) latest: Timestamp,
    pub(super) flight: Option<Flight>,
    pub(super) pace: Pace,
    /// What is under way will have to be asked once more.
    pub(super) asks_again: bool,
    /// The place in line as it was told last.
    pub(super) place: Option<NonZeroU32>,
    /// The server's clock when it last answered that somebody else has the lock.
    pub(super) refused: Option<ServerTime>,
    /// What it may take over: the tenure that it found first, if its own owner has it.
    pub(super) reclaims: Reclaim,
    /// What was taken away before the answer was here that it was taken.
    pub(super) taken_away: Option<(FencingToken, LossReason)>,
    /// An ask that was never answered may have taken a place in line.
    pub(super) lost_ask: bool,
    /// Since when the store has given no answer, and why.
    pub(super) silence: Option<(Timestamp, Error)>,
    /// An attempt whose outcome is unknown may have taken the lock, or may until then.
    pub(super) doubt: Option<Timestamp>,
}

#[derive(Debug)]
pub(super) struct Caller {
    pub(super) call: CallId,
    pub(super) wait: Wait,
    pub(super) asked: Timestamp,
}

impl Caller {
    pub(super) fn new(call: CallId, wait: Wait, now: Timestamp) -> Self {
        Self {
            call,
            wait,
            asked: now,
        }
    }

    pub(super) fn until(&self) -> Timestamp {
        match self.wait {
            Wait::Until(until) => until,
            Wait::Never | Wait::Forever => Timestamp::NEVER,
        }
    }
}

impl Acquiring {
    pub(super) fn new(lease: LeaseId, now: Timestamp) -> Self {
        Self {
            lease,
            callers: Vec::new(),
            soonest: Timestamp::NEVER,
            latest: Timestamp::from_nanos(0),
            flight: None,
            pace: Pace::due(now),
            asks_again: false,
            place: None,
            refused: None,
            reclaims: Reclaim::Ask,
            taken_away: None,
            lost_ask: false,
            silence: None,
            doubt: None,
        }
    }

    pub(super) fn wake_at(&self) -> Timestamp {
        let own = self.flight.map_or(self.pace.next, |flight| flight.give_up);
        own.min(self.soonest)
    }

    /// Whether anybody wants a place in line.
    pub(super) fn waits(&self) -> bool {
        self.callers.iter().any(|caller| caller.wait != Wait::Never)
    }

    /// How long one attempt waits for its answer. A place in line must not be lost meanwhile.
    pub(super) fn attempt_time(&self, spec: &LockSpec, timeout: Duration) -> Duration {
        let heartbeat = self
            .place
            .map_or(Duration::MAX, |_| line::heartbeat(spec.ttl));
        timeout.min(spec.ttl).min(heartbeat)
    }

    /// The server said at that time that somebody else has the lock, to an attempt of then.
    pub(super) fn answered(&mut self, sent: Timestamp, time: ServerTime) {
        self.flight = None;
        self.silence = None;
        self.refused = Some(time);
        if self.reclaims == Reclaim::Ask {
            self.reclaims = Reclaim::Never;
        }
        // Attempts that could not take effect any more at that time did not take the lock.
        self.doubt = self.doubt.filter(|until| *until > sent);
    }

    pub(super) fn add(&mut self, caller: Caller) {
        let until = caller.until();
        self.soonest = self.soonest.min(until);
        self.latest = self.latest.max(until);
        self.callers.push(caller);
    }

    /// Takes out the callers that a condition holds for.
    pub(super) fn remove(&mut self, condition: impl Fn(&Caller) -> bool) -> Vec<Caller> {
        let removed: Vec<_> = self
            .callers
            .extract_if(.., |caller| condition(caller))
            .collect();
        if !removed.is_empty() {
            let rest = self.callers.iter().map(Caller::until);
            self.soonest = rest.clone().min().unwrap_or(Timestamp::NEVER);
            self.latest = rest.max().unwrap_or(Timestamp::from_nanos(0));
        }
        removed
    }
}
