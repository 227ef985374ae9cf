//! A held lock: its renewals, and its loss.

use std::time::Duration;

use super::clock;
use super::io::{CallId, Done, LockId, LockSpec};
use super::link::{Answer, came_late, mismatch};
use super::pace::{Flight, Pace, jitter_at};
use super::release::Doubt;
use super::{Engine, Phase, Whose};
use crate::error::{Error, ErrorKind};
use crate::event::{LeaseEvent, LossReason};
use crate::protocol::{Command, LeaseId, Reply};
use crate::time::{ServerTime, Timestamp};
use crate::token::FencingToken;

#[derive(Debug)]
pub(super) struct Tenure {
    pub(super) lease: LeaseId,
    pub(super) token: FencingToken,
    pub(super) deadline: Timestamp,
    pub(super) began: Timestamp,
    /// How many leases of the program share it.
    pub(super) leases: u32,
    pub(super) flight: Option<Flight>,
    pub(super) pace: Pace,
    /// It was handed over, and the store knows only that it has some time to take the lock up.
    pub(super) unconfirmed: bool,
    /// What is under way only looks whether the store still has it, and whether that is to be asked
    /// once more.
    looks: bool,
    looks_again: bool,
    rare: Option<Box<Rare>>,
}

/// What few tenures have.
#[derive(Debug, Default)]
struct Rare {
    /// An earlier attempt of the acquisition may have taken the lock again by then, after it was
    /// freed: whoever ends the tenure sees to it.
    doubt: Option<Doubt>,
    /// Calls that wait for a renewal.
    renewals: Vec<CallId>,
}

impl Tenure {
    /// One that began at a local moment no earlier than `began`, and that nobody shares yet.
    pub(super) fn new(
        spec: &LockSpec,
        lease: LeaseId,
        token: FencingToken,
        began: Timestamp,
        deadline: Timestamp,
    ) -> Self {
        Self {
            lease,
            token,
            deadline,
            began,
            leases: 0,
            flight: None,
            pace: Pace::due(next_renewal(spec, lease, began)),
            unconfirmed: false,
            looks: false,
            looks_again: false,
            rare: None,
        }
    }

    pub(super) fn doubt(&self) -> Option<Doubt> {
        self.rare.as_ref()?.doubt
    }

    pub(super) fn set_doubt(&mut self, doubt: Option<Doubt>) {
        if doubt.is_some() || self.rare.is_some() {
            self.rare.get_or_insert_default().doubt = doubt;
        }
    }

    /// The call does not wait for a renewal any more.
    pub(super) fn forget_renewal(&mut self, call: CallId) {
        if let Some(rare) = &mut self.rare {
            rare.renewals.retain(|renewal| *renewal != call);
        }
    }

    /// Those who wait for a renewal, which they are answered now.
    pub(super) fn take_renewals(&mut self) -> Vec<CallId> {
        let rare = self.rare.as_mut();
        rare.map(|rare| std::mem::take(&mut rare.renewals))
            .unwrap_or_default()
    }

    /// When `Lost` is told: so long before the deadline that a host which wakes a little late
    /// still tells it in time.
    pub(super) fn loss_at(&self, spec: &LockSpec) -> Timestamp {
        self.deadline - (spec.ttl / 10).min(Duration::from_millis(50))
    }

    pub(super) fn is_over(&self, spec: &LockSpec, now: Timestamp) -> bool {
        now >= self.loss_at(spec)
    }

    pub(super) fn wake_at(&self, spec: &LockSpec) -> Timestamp {
        let renewal = match self.flight {
            Some(flight) => flight.give_up,
            None if self.is_renewed(spec) => self.pace.next,
            None => Timestamp::NEVER,
        };
        renewal.min(self.loss_at(spec))
    }

    fn is_renewed(&self, spec: &LockSpec) -> bool {
        !spec.fixed || self.unconfirmed || self.is_asked()
    }

    /// Whether calls wait for a renewal.
    fn is_asked(&self) -> bool {
        let rare = self.rare.as_ref();
        rare.is_some_and(|rare| !rare.renewals.is_empty())
    }
}

impl Engine {
    pub(super) fn tenure_time(&mut self, id: LockId) {
        let now = self.now;
        let Some((spec, tenure)) = self.tenure(id) else {
            return;
        };
        if tenure.is_over(spec, now) {
            return self.lose(id, LossReason::Expired);
        }
        match tenure.flight {
            Some(flight) if flight.give_up <= now => self.renewal_failed(id, Error::no_answer()),
            None if tenure.is_renewed(spec) && tenure.pace.next <= now => self.renew(id),
            _ => {}
        }
    }

    pub(super) fn renew_by_hand(&mut self, call: CallId, id: LockId, lease: LeaseId) {
        match self.tenure(id) {
            Some((_, tenure)) if tenure.lease == lease => {
                tenure.rare.get_or_insert_default().renewals.push(call);
                if tenure.flight.is_none() {
                    self.renew(id);
                }
                self.settle_lock(id);
            }
            _ => self.complete(call, Err(not_held())),
        }
    }

    pub(super) fn renewal_answer(&mut self, id: LockId, flight: Flight, answer: Answer) {
        match answer {
            Ok((Reply::Renewed { expires }, time)) => self.renewed(id, flight, expires, time),
            Ok((Reply::Gone, _)) => self.lose(id, LossReason::Deleted),
            Ok((Reply::Taken, _)) => self.lose(id, LossReason::Superseded),
            Ok((Reply::Late, _)) => self.renewal_failed(id, came_late()),
            Ok(_) => self.renewal_failed(id, mismatch()),
            // Somebody put something else in the lock's place.
            Err(error) if error.kind() == ErrorKind::WrongType => {
                self.lose(id, LossReason::Superseded);
            }
            Err(error) => self.renewal_failed(id, error),
        }
    }

    /// Ends the tenure without a release by its holder.
    pub(super) fn lose(&mut self, id: LockId, reason: LossReason) {
        let Some(lock) = self.locks.get_mut(&id) else {
            return;
        };
        let phase = std::mem::replace(&mut lock.phase, Phase::Idle);
        let Phase::Held(mut tenure) = phase else {
            lock.phase = phase;
            return;
        };
        let spec = lock.spec.clone();
        let (name, token) = (spec.name.clone(), tenure.token);
        self.emit(
            id,
            LeaseEvent::Lost {
                name,
                token,
                reason,
            },
            None,
        );
        for call in tenure.take_renewals() {
            self.complete(call, Err(lost(reason)));
        }
        let doubt = tenure.doubt();
        if doubt.is_some() || matches!(reason, LossReason::Expired | LossReason::Shutdown) {
            // The store may still have it for a while; others need not wait that long.
            self.give_back(id, &spec, tenure.lease, doubt);
        }
    }

    /// Renews a lease to learn whether the store still has it. Nobody is told if so, and neither its
    /// deadline nor its next renewal changes.
    pub(super) fn look(&mut self, id: LockId) {
        match self.tenure(id) {
            Some((spec, _)) if spec.fixed => {}
            Some((_, tenure)) if tenure.flight.is_some() => tenure.looks_again = true,
            _ => {
                self.renew(id);
                if let Some((_, tenure)) = self.tenure(id) {
                    tenure.looks = tenure.flight.is_some();
                }
            }
        }
    }

    pub(super) fn renew(&mut self, id: LockId) {
        let (now, timeout) = (self.now, self.settings.command_timeout);
        let attempt = self.next_serial();
        let Some((spec, tenure)) = self.tenure(id) else {
            return;
        };
        let give_up = (now + timeout.min(spec.ttl / 3)).min(tenure.loss_at(spec));
        let flight = Flight {
            attempt,
            sent: now,
            give_up,
        };
        tenure.flight = Some(flight);
        (tenure.looks, tenure.looks_again) = (false, false);
        let command = Command::Renew {
            key: spec.key.clone(),
            lease: tenure.lease,
            token: tenure.token,
            ttl: spec.ttl,
        };
        if let Err(error) = self.send(Whose::Lock(id), flight, command) {
            self.renewal_failed(id, error);
        }
    }

    fn renewed(&mut self, id: LockId, flight: Flight, expires: ServerTime, time: ServerTime) {
        let Some((_, tenure)) = self.tenure(id) else {
            return;
        };
        tenure.flight = None;
        let looks_again = tenure.looks_again;
        if !tenure.looks || tenure.unconfirmed || tenure.is_asked() {
            self.extended(id, flight, expires, time);
        }
        if looks_again {
            self.look(id);
        }
    }

    fn extended(&mut self, id: LockId, flight: Flight, expires: ServerTime, time: ServerTime) {
        let now = self.now;
        let Some((spec, tenure)) = self.tenure(id) else {
            return;
        };
        let expires = expires.min(time + spec.ttl);
        let deadline = clock::deadline(flight.sent, time, expires).max(tenure.deadline);
        tenure.unconfirmed = false;
        tenure.deadline = deadline;
        tenure.pace = Pace::due(next_renewal(spec, tenure.lease, flight.sent));
        let (name, token) = (spec.name.clone(), tenure.token);
        let calls = tenure.take_renewals();
        let remaining = deadline.since(now);
        self.emit(
            id,
            LeaseEvent::Renewed {
                name,
                token,
                remaining,
            },
            Some(deadline),
        );
        for call in calls {
            self.complete(call, Ok(Done::Renewed));
        }
    }

    fn renewal_failed(&mut self, id: LockId, error: Error) {
        let now = self.now;
        let Some((spec, tenure)) = self.tenure(id) else {
            return;
        };
        let flight = tenure.flight.take();
        let base = (spec.ttl / 30).clamp(Duration::from_millis(1), Duration::from_millis(100));
        let most = (spec.ttl / 6).clamp(base, Duration::from_secs(1));
        tenure.pace.back_off(now, base, most, tenure.lease);
        let (name, token) = (spec.name.clone(), tenure.token);
        let calls = tenure.take_renewals();
        let remaining = tenure.deadline.since(now);
        if let Some(flight) = flight {
            self.unsend(flight.attempt);
        }
        for call in calls {
            self.complete(call, Err(error.clone()));
        }
        self.emit(
            id,
            LeaseEvent::AtRisk {
                name,
                token,
                remaining,
                error,
            },
            None,
        );
    }

    fn tenure(&mut self, id: LockId) -> Option<(&LockSpec, &mut Tenure)> {
        let lock = self.locks.get_mut(&id)?;
        match &mut lock.phase {
            Phase::Held(tenure) => Some((&lock.spec, tenure)),
            Phase::Idle | Phase::Acquiring(_) => None,
        }
    }
}

/// After a third of the time to live, with jitter, so that lockers come apart; on a grid, so that
/// one locker's leases leave together.
fn next_renewal(spec: &LockSpec, lease: LeaseId, sent: Timestamp) -> Timestamp {
    let next = sent + jitter_at(spec.ttl / 3, lease, sent);
    let grid = u64::try_from(spec.ttl.as_nanos() / 64).unwrap_or(u64::MAX);
    Timestamp::from_nanos(next.as_nanos() - next.as_nanos() % grid.max(1))
}

pub(super) fn not_held() -> Error {
    Error::new(
        ErrorKind::NotHeld,
        "the lease is not held: it was lost or released before",
    )
}

pub(super) fn lost(reason: LossReason) -> Error {
    Error::new(
        ErrorKind::NotHeld,
        format!("the lease is not held: {reason}"),
    )
}
