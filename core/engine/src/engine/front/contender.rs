//! One acquisition, from its first request to the end of its tenure.

use super::backend::{Acquisition, Backend, Keeping, Lease, Next, Phase};
use super::tenure::Tenure;
use super::who::Who;
use crate::engine::ctx::Ctx;
use crate::engine::io::CallId;
use crate::engine::timers::Timed;
use crate::event::LeaseEvent;
use crate::protocol::LeaseId;
use crate::time::Timestamp;

/// One acquisition and the tenure that it leads to. All calls of a re-entrant handle share one contender;
/// every other call has its own.
#[derive(Debug)]
pub(crate) struct Contender<B: Backend> {
    pub(crate) lease: B::Lease,
    pub(crate) phase: Phase<B>,
    pub(crate) wake: Timestamp,
}

impl<B: Backend> Contender<B> {
    pub(crate) fn new(lease: B::Lease, acquiring: B::Acquiring) -> Self {
        Self {
            lease,
            phase: Phase::Acquiring(Box::new(acquiring)),
            wake: Timestamp::NEVER,
        }
    }

    pub(crate) fn who(&self) -> &Who {
        self.lease.who()
    }

    pub(crate) fn is_acquiring(&self) -> bool {
        matches!(self.phase, Phase::Acquiring(_))
    }

    /// The lease and the tenure, if the contender holds its lock.
    pub(crate) fn tenure(&mut self) -> Option<(&mut B::Lease, &mut Tenure<B::Keeping>)> {
        match &mut self.phase {
            Phase::Held(tenure) => Some((&mut self.lease, tenure)),
            Phase::Acquiring(_) => None,
        }
    }

    /// Returns an `Acquired` event if the lock is held.
    pub(crate) fn held(&self, now: Timestamp) -> Option<(LeaseId, LeaseEvent)> {
        let (Phase::Held(tenure), who) = (&self.phase, self.who()) else {
            return None;
        };
        let event = tenure.acquired(&who.spec, now);
        B::is_held(&self.lease, tenure, now).then_some((who.lease, event))
    }

    /// Cancels a call.
    pub(crate) fn cancel(&mut self, call: CallId) -> Next<B> {
        match &mut self.phase {
            Phase::Acquiring(acquiring) => {
                let callers = acquiring.callers();
                callers.remove(|caller| caller.call == call);
                Next::of(callers)
            }
            Phase::Held(tenure) => {
                tenure.kept.cancel_renewal(call);
                Next::Stay
            }
        }
    }

    /// Sets the timer to what the phase needs.
    pub(crate) fn settle(&mut self, cx: &mut Ctx) {
        let at = match &self.phase {
            Phase::Acquiring(acquiring) => acquiring.wake_at(),
            Phase::Held(tenure) => B::wake_at(&self.lease, tenure),
        };
        self.set_timer(cx, at);
    }

    pub(crate) fn set_timer(&mut self, cx: &mut Ctx, at: Timestamp) {
        let id = self.who().id();
        cx.timers.set(Timed::Contender(id), &mut self.wake, at);
    }
}
