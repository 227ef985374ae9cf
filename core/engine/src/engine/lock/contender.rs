//! One acquisition, from wanting the lock to the end of its tenure.

use super::acquiring::{Acquiring, Next};
use super::tenure::Tenure;
use super::who::Who;
use crate::engine::attempt::Outcome;
use crate::engine::ctx::{Ctx, Serial};
use crate::engine::env::Env;
use crate::engine::io::CallId;
use crate::engine::timers::Timed;
use crate::event::LeaseEvent;
use crate::protocol::LeaseId;
use crate::time::Timestamp;

/// All calls of a re-entrant handle have one contender together, every other call has its own.
#[derive(Debug)]
pub(super) struct Contender {
    pub(super) who: Who,
    pub(super) phase: Phase,
    pub(super) wake: Timestamp,
}

#[derive(Debug)]
pub(super) enum Phase {
    /// In a box, because most contenders of a large locker hold their lock.
    Acquiring(Box<Acquiring>),
    Held(Tenure),
}

impl Contender {
    pub(super) fn new(who: Who, acquiring: Acquiring) -> Self {
        Self {
            who,
            phase: Phase::Acquiring(Box::new(acquiring)),
            wake: Timestamp::NEVER,
        }
    }

    pub(super) fn is_acquiring(&self) -> bool {
        matches!(self.phase, Phase::Acquiring(_))
    }

    /// The tenure, if it has the lock.
    pub(super) fn tenure(&mut self) -> Option<(&Who, &mut Tenure)> {
        match &mut self.phase {
            Phase::Held(tenure) => Some((&self.who, tenure)),
            Phase::Acquiring(_) => None,
        }
    }

    /// An event that says that the lock is held, if it is.
    pub(super) fn held(&self, now: Timestamp) -> Option<(LeaseId, LeaseEvent)> {
        let (Phase::Held(tenure), spec) = (&self.phase, &self.who.spec) else {
            return None;
        };
        let event = tenure.acquired(spec, now);
        (!tenure.is_over(spec, now)).then_some((self.who.lease, event))
    }

    pub(super) fn time(&mut self, env: &mut Env) -> Next {
        match &mut self.phase {
            Phase::Acquiring(acquiring) => acquiring.time(env, &self.who),
            Phase::Held(tenure) => Next::of(tenure.time(env, &self.who)),
        }
    }

    /// Whether this attempt is under way.
    pub(super) fn awaits(&self, attempt: Serial) -> bool {
        let own = match &self.phase {
            Phase::Acquiring(acquiring) => &acquiring.attempt,
            Phase::Held(tenure) => &tenure.attempt,
        };
        let under_way = own.under_way();
        under_way.is_some_and(|flight| flight.attempt == attempt)
    }

    /// What is under way has an outcome.
    pub(super) fn landed(&mut self, env: &mut Env, outcome: Outcome) -> Next {
        match &mut self.phase {
            Phase::Acquiring(acquiring) => acquiring.landed(env, &self.who, outcome),
            Phase::Held(tenure) => Next::of(tenure.landed(env, &self.who, outcome)),
        }
    }

    /// The call is given up.
    pub(super) fn cancel(&mut self, call: CallId) -> Next {
        match &mut self.phase {
            Phase::Acquiring(acquiring) => acquiring.cancel(call),
            Phase::Held(tenure) => {
                tenure.cancel_renewal(call);
                Next::Stay
            }
        }
    }

    /// Asks at once: what is known of the lock may not be so any more.
    pub(super) fn ask_again(&mut self, env: &mut Env) -> Next {
        match &mut self.phase {
            Phase::Acquiring(acquiring) => acquiring.ask_now(env, &self.who),
            Phase::Held(_) => Next::Stay,
        }
    }

    /// Sets its timer to what its phase needs.
    pub(super) fn settle(&mut self, cx: &mut Ctx) {
        let at = match &self.phase {
            Phase::Acquiring(acquiring) => acquiring.wake_at(),
            Phase::Held(tenure) => tenure.wake_at(&self.who.spec),
        };
        self.set_timer(cx, at);
    }

    pub(super) fn set_timer(&mut self, cx: &mut Ctx, at: Timestamp) {
        cx.timers
            .set(Timed::Contender(self.who.id()), &mut self.wake, at);
    }
}
