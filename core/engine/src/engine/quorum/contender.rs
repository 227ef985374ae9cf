//! One acquisition at a quorum, from wanting the lock to the end of its tenure.

use super::acquiring::Acquiring;
use super::env::Env;
use super::leased::{Leased, Next};
use super::tenure::Tenure;
use crate::engine::ctx::Ctx;
use crate::engine::timers::Timed;
use crate::event::{LeaseEvent, LossReason};
use crate::protocol::LeaseId;
use crate::time::Timestamp;

#[derive(Debug)]
pub(super) struct Contender {
    pub(super) lease: Leased,
    pub(super) phase: Phase,
    pub(super) wake: Timestamp,
}

#[derive(Debug)]
pub(super) enum Phase {
    Acquiring(Acquiring),
    Held(Tenure),
}

impl Contender {
    pub(super) fn settle(&mut self, cx: &mut Ctx) {
        let at = match &self.phase {
            Phase::Acquiring(acquiring) => acquiring.wake_at(),
            Phase::Held(tenure) => tenure.wake_at(&self.lease),
        };
        self.set_timer(cx, at);
    }

    pub(super) fn set_timer(&mut self, cx: &mut Ctx, at: Timestamp) {
        cx.timers
            .set(Timed::Contender(self.lease.who.id()), &mut self.wake, at);
    }

    pub(super) fn time(&mut self, env: &mut Env) -> Next {
        match &mut self.phase {
            Phase::Acquiring(acquiring) => acquiring.time(env, &mut self.lease),
            Phase::Held(tenure) => tenure.time(env, &mut self.lease),
        }
    }

    /// The votes have changed, or who can be reached.
    pub(super) fn judge(&mut self, env: &mut Env, reason: LossReason) -> Next {
        match &mut self.phase {
            Phase::Acquiring(acquiring) => acquiring.judge(env, &mut self.lease),
            Phase::Held(tenure) => tenure.judge(env, &self.lease, reason),
        }
    }

    /// An event that says that the lock is held, if it is.
    pub(super) fn held(&self, now: Timestamp) -> Option<(LeaseId, LeaseEvent)> {
        let Phase::Held(tenure) = &self.phase else {
            return None;
        };
        let event = tenure.acquired(&self.lease, now);
        (tenure.deadline > now).then_some((self.lease.who.lease, event))
    }
}
