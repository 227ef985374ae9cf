//! The part of a tenure that does not depend on its store, and the events for its holder.

use std::time::Duration;

use super::who::Who;
use crate::engine::ctx::Ctx;
use crate::engine::io::{Acquired, Answer, CallId};
use crate::engine::spec::LockSpec;
use crate::error::{Error, ErrorKind};
use crate::event::{LeaseEvent, LossReason};
use crate::protocol::Admission;
use crate::share::Share;
use crate::time::Timestamp;
use crate::token::FencingToken;

/// The least time from the emission of a loss to the lease's deadline. Timers count whole milliseconds and
/// round up, so they fire one or two late even on an idle machine. The shortest lease, of 10 ms, keeps 7 ms,
/// and its renewal starts in the fourth or fifth of them.
const LEAST_LEAD: Duration = Duration::from_millis(3);
const MOST_LEAD: Duration = Duration::from_millis(50);

/// A held lock. `K` is how its store keeps it.
#[derive(Debug)]
pub(crate) struct Tenure<K> {
    pub(crate) token: FencingToken,
    /// The deadline that the holder last received.
    pub(crate) deadline: Timestamp,
    pub(crate) began: Timestamp,
    /// The number of the program's leases that share the tenure.
    pub(crate) leases: u32,
    /// True if the release of this turn completes its tick.
    pub(crate) completes: bool,
    /// True if its release frees the name at once, whatever `at_least` says: a quorum gives back a vote.
    pub(crate) is_vote: bool,
    pub(crate) kept: K,
}

impl<K> Tenure<K> {
    /// Creates a tenure that has no lease yet. It began at the local time `began` or later.
    pub(crate) fn new(
        token: FencingToken,
        (began, deadline): (Timestamp, Timestamp),
        kept: K,
    ) -> Self {
        Self {
            token,
            deadline,
            began,
            leases: 0,
            completes: false,
            is_vote: false,
            kept,
        }
    }

    /// Returns the time at which the tenure ends even if it is renewed: the cap of its deadlines.
    pub(crate) fn ends(&self, spec: &LockSpec) -> Timestamp {
        let at_most = spec.at_most.map(|age| self.began + age);
        at_most.unwrap_or(Timestamp::NEVER)
    }

    /// Returns the time until which the name stays taken after a release.
    pub(crate) fn keeps_until(&self, spec: &LockSpec) -> Timestamp {
        let at_least = spec.at_least.filter(|_| !self.is_vote);
        self.began + at_least.unwrap_or_default()
    }

    /// Returns a lease of this tenure.
    pub(crate) fn lease(&self, who: &Who) -> Acquired {
        Acquired {
            lock: who.lock,
            lease: who.lease,
            token: self.token,
            deadline: self.deadline,
            began: self.began,
            waited: Duration::ZERO,
            admission: None,
        }
    }

    /// Gives the call one more lease of this tenure.
    pub(crate) fn join(&mut self, cx: &mut Ctx, who: &Who, call: CallId) {
        let answer = if self.leases == u32::MAX {
            let message = "4,294,967,295 leases share this tenure already";
            Err(Error::new(ErrorKind::Overloaded, message))
        } else {
            self.leases += 1;
            Ok(Some(self.lease(who)))
        };
        cx.answer(call, Answer::Acquire(answer));
    }

    /// Returns the `Acquired` event, with the time that remains at `now`.
    pub(crate) fn acquired(&self, spec: &LockSpec, now: Timestamp) -> LeaseEvent {
        LeaseEvent::Acquired {
            name: spec.name.clone(),
            token: self.token,
            remaining: self.deadline.since(now),
        }
    }

    pub(crate) fn emit_renewed(&self, cx: &mut Ctx, who: &Who) {
        let event = LeaseEvent::Renewed {
            name: who.spec.name.clone(),
            token: self.token,
            remaining: self.deadline.since(cx.now),
        };
        who.emit(cx, event, Some(self.deadline));
    }

    pub(crate) fn emit_wanted(&self, cx: &mut Ctx, who: &Who, (by, within): (Box<str>, Duration)) {
        let event = LeaseEvent::Wanted {
            name: who.spec.name.clone(),
            token: self.token,
            by,
            within,
        };
        who.emit(cx, event, None);
    }

    /// Emits `AtRisk`, with the new deadline if that is sooner than the one that the holder last received.
    pub(crate) fn emit_at_risk(
        &self,
        cx: &mut Ctx,
        who: &Who,
        (error, sooner): (Error, Option<Timestamp>),
    ) {
        let event = LeaseEvent::AtRisk {
            name: who.spec.name.clone(),
            token: self.token,
            remaining: self.deadline.since(cx.now),
            error,
        };
        who.emit(cx, event, sooner);
    }
}

impl Who {
    /// Emits that a turn with this token has begun, if the lease is one, and which ticks were missed before it.
    pub(crate) fn emit_begun(&self, cx: &mut Ctx, token: FencingToken) {
        if let Some(tick) = self.spec.owner.tick() {
            let name = self.spec.name.clone();
            self.emit(cx, LeaseEvent::Begun { name, token, tick }, None);
            let backlog = self.spec.backlog.unwrap_or_default();
            if backlog.again {
                cx.counts.repeated();
            }
            if backlog.missed > 0 {
                let event = LeaseEvent::Missed {
                    name: self.spec.name.clone(),
                    token,
                    first: backlog.first,
                    ticks: backlog.missed,
                };
                self.emit(cx, event, None);
            }
        }
    }

    /// Emits that the name has another capacity than its owner asked for, if so.
    pub(crate) fn emit_capacity(
        &self,
        cx: &mut Ctx,
        token: FencingToken,
        admission: Option<&Admission>,
    ) {
        let wanted = self.spec.owner.share().map_or(0, Share::capacity);
        if let Some(Admission { capacity, .. }) = admission.filter(|found| found.capacity != wanted)
        {
            let event = LeaseEvent::CapacityDiffers {
                name: self.spec.name.clone(),
                token,
                capacity: *capacity,
                wanted,
            };
            self.emit(cx, event, None);
        }
    }

    /// Emits that the turn with this token has completed its tick.
    pub(crate) fn emit_completed(&self, cx: &mut Ctx, token: FencingToken) {
        if let Some(tick) = self.spec.owner.tick() {
            let name = self.spec.name.clone();
            self.emit(cx, LeaseEvent::Completed { name, token, tick }, None);
        }
    }

    /// Emits that the tenure with this token was passed on.
    pub(crate) fn emit_passed(&self, cx: &mut Ctx, token: FencingToken) {
        let name = self.spec.name.clone();
        self.emit(cx, LeaseEvent::Passed { name, token }, None);
    }

    /// Emits the end of a tenure with this token: a loss if there is a reason, or a release.
    pub(crate) fn emit_end(&self, cx: &mut Ctx, token: FencingToken, lost_by: Option<LossReason>) {
        let name = self.spec.name.clone();
        let event = match lost_by {
            Some(reason) => LeaseEvent::Lost {
                name,
                token,
                reason,
            },
            None => LeaseEvent::Released { name, token },
        };
        self.emit(cx, event, None);
    }
}

/// Returns how long before its deadline the loss of a lease with this time to live is emitted.
pub(crate) fn lead(ttl: Duration) -> Duration {
    (ttl / 10).clamp(LEAST_LEAD, MOST_LEAD)
}

pub(crate) fn not_held() -> Error {
    Error::new(
        ErrorKind::NotHeld,
        "the lease is not held: it was lost or released before",
    )
}

/// Returns the error for a ticket whose lock somebody else has, or nobody.
pub(crate) fn used_up() -> Error {
    let message =
        "the ticket no longer has the lock: it was accepted or has expired, or the lock was freed";
    Error::new(ErrorKind::NotHeld, message)
}

/// Returns the error for a renewal that `at_most` does not allow.
pub(crate) fn overheld(spec: &LockSpec) -> Error {
    let most = spec.at_most.unwrap_or_default();
    let message = format!("the lease cannot be extended: {most:?} is the longest time allowed");
    Error::new(ErrorKind::Overheld, message)
}

pub(crate) fn lost(reason: LossReason) -> Error {
    Error::new(
        ErrorKind::NotHeld,
        format!("the lease is not held: {reason}"),
    )
}
