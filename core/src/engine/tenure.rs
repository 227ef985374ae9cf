//! A held lock: its renewals, and its loss.

use std::sync::Arc;
use std::time::Duration;

use super::clock::Margin;
use super::contender::{Contender, Phase};
use super::io::{CallId, Done, LockId, LockSpec};
use super::link::{Answer, came_late, mismatch};
use super::pace::{Flight, Pace, jitter_at};
use super::release::Doubt;
use super::table::Short;
use super::{Engine, Whose};
use crate::error::{Error, ErrorKind};
use crate::event::{LeaseEvent, LossReason};
use crate::protocol::{Command, LeaseId, Renew, Reply};
use crate::time::{ServerTime, Timestamp};
use crate::token::FencingToken;

/// How long before its deadline a loss is told. Timers count whole milliseconds and round up: they
/// are one or two late on a machine that does nothing else. Of the shortest lease this leaves 7 ms,
/// of which a renewal begins in the fourth or fifth.
const LEAST_LEAD: Duration = Duration::from_millis(3);
const MOST_LEAD: Duration = Duration::from_millis(50);

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
    /// Calls that wait for the one after it, since they changed the time to live meanwhile.
    later: Vec<CallId>,
    /// The time to live that the program asked for by hand, and the one that it has got.
    wanted: Option<Duration>,
    ttl: Option<Duration>,
    /// What the store was asked for last, and the longest that it ever was.
    asked: Option<Duration>,
    longest: Duration,
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
            pace: Pace::due(next_renewal(spec.ttl, lease, began)),
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
            rare.later.retain(|renewal| *renewal != call);
        }
    }

    /// All who wait for a renewal, which are answered now.
    pub(super) fn take_renewals(&mut self) -> Vec<CallId> {
        let mut calls = self.take_renewals_under_way();
        if let Some(rare) = &mut self.rare {
            calls.append(&mut rare.later);
        }
        calls
    }

    fn take_renewals_under_way(&mut self) -> Vec<CallId> {
        let rare = self.rare.as_mut();
        rare.map(|rare| std::mem::take(&mut rare.renewals))
            .unwrap_or_default()
    }

    /// The time to live that the store gave it last.
    fn ttl(&self, spec: &LockSpec) -> Duration {
        let changed = self.rare.as_ref().and_then(|rare| rare.ttl);
        changed.unwrap_or(spec.ttl)
    }

    /// The time to live that renewals ask for.
    fn wanted_ttl(&self, spec: &LockSpec) -> Duration {
        let changed = self.rare.as_ref().and_then(|rare| rare.wanted);
        changed.unwrap_or(spec.ttl)
    }

    /// The longest time to live that the store may have given it.
    pub(super) fn longest_ttl(&self, spec: &LockSpec) -> Duration {
        let changed = self.rare.as_ref().map(|rare| rare.longest);
        changed.unwrap_or_default().max(spec.ttl)
    }

    /// What the store is asked for now. A shorter time to live than before, or a wider margin, must
    /// not cut short what the holder was promised: the store may act on it while the holder still
    /// counts on the rest.
    fn ask(&mut self, spec: &LockSpec, now: Timestamp, margin: Margin) -> Duration {
        let wanted = self.wanted_ttl(spec);
        let asked = margin.covering(self.deadline.since(now), wanted);
        if asked != spec.ttl || self.rare.is_some() {
            let rare = self.rare.get_or_insert_default();
            rare.asked = Some(asked);
            rare.longest = rare.longest.max(asked);
        }
        asked
    }

    /// What the store was asked for last.
    fn asked(&self, spec: &LockSpec) -> Duration {
        let changed = self.rare.as_ref().and_then(|rare| rare.asked);
        changed.unwrap_or(spec.ttl)
    }

    /// When `Lost` is told: so long before the deadline that a host which wakes a little late
    /// still tells it in time.
    pub(super) fn loss_at(&self, spec: &LockSpec) -> Timestamp {
        self.deadline - (self.ttl(spec) / 10).clamp(LEAST_LEAD, MOST_LEAD)
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

    pub(super) fn is_renewed(&self, spec: &LockSpec) -> bool {
        !spec.fixed || self.unconfirmed || self.is_asked()
    }

    /// Whether calls wait for a renewal.
    fn is_asked(&self) -> bool {
        let rare = self.rare.as_ref();
        rare.is_some_and(|rare| !rare.renewals.is_empty() || !rare.later.is_empty())
    }
}

impl Engine {
    pub(super) fn tenure_time(&mut self, id: Short) {
        let now = self.now;
        let Some((spec, tenure)) = self.tenure(id) else {
            return;
        };
        if tenure.is_over(spec, now) {
            return self.lose(id, LossReason::Expired);
        }
        match tenure.flight {
            Some(flight) if flight.give_up <= now => {
                let error = self.why_no_answer(flight.attempt);
                self.renewal_failed(id, error);
            }
            None if tenure.is_renewed(spec) && tenure.pace.next <= now => self.renew(id),
            _ => {}
        }
    }

    pub(super) fn renew_by_hand(&mut self, call: CallId, lease: LeaseId, ttl: Option<Duration>) {
        if let Some(Err(error)) = ttl.map(LockSpec::check_ttl) {
            return self.complete(call, Err(error));
        }
        let id = Short::of(lease);
        let Some((_, tenure)) = self.tenure(id).filter(|(_, held)| held.lease == lease) else {
            return self.complete(call, Err(not_held()));
        };
        let under_way = tenure.flight.is_some();
        let rare = tenure.rare.get_or_insert_default();
        rare.wanted = ttl.or(rare.wanted);
        match ttl {
            Some(_) if under_way => rare.later.push(call),
            _ => rare.renewals.push(call),
        }
        if !under_way {
            self.renew(id);
        }
        self.settle(id);
    }

    pub(super) fn renewal_answer(&mut self, id: Short, flight: Flight, answer: Answer) {
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
    pub(super) fn lose(&mut self, id: Short, reason: LossReason) {
        let Some((lock, spec, mut tenure)) = self.end_tenure(id) else {
            return;
        };
        let (name, token) = (spec.name.clone(), tenure.token);
        let event = LeaseEvent::Lost {
            name,
            token,
            reason,
        };
        self.emit((lock, tenure.lease), event, None);
        for call in tenure.take_renewals() {
            self.complete(call, Err(lost(reason)));
        }
        let doubt = tenure.doubt();
        // Who was granted it by a push may have asked for a place in line once more meanwhile.
        let kept = matches!(reason, LossReason::Expired | LossReason::Shutdown);
        if doubt.is_some() || kept || tenure.unconfirmed {
            // The store may still have it for a while; others need not wait that long.
            self.give_back(&spec, tenure.lease, doubt, tenure.longest_ttl(&spec));
        }
        self.leave(lock);
    }

    /// Takes out a contender that holds its lock.
    pub(super) fn end_tenure(&mut self, id: Short) -> Option<(LockId, Arc<LockSpec>, Tenure)> {
        self.tenure(id)?;
        let Contender {
            lock, spec, phase, ..
        } = self.take_contender(id)?;
        match phase {
            Phase::Held(tenure) => Some((lock, spec, tenure)),
            Phase::Acquiring(_) => None,
        }
    }

    /// Renews a lease to learn whether the store still has it. Nobody is told if so, and neither its
    /// deadline nor its next renewal changes.
    pub(super) fn look(&mut self, id: Short) {
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

    pub(super) fn renew(&mut self, id: Short) {
        let (now, timeout) = (self.now, self.settings.command_timeout);
        let (attempt, margin) = (self.next_serial(), self.margin());
        let Some((spec, tenure)) = self.tenure(id) else {
            return;
        };
        let third = tenure.ttl(spec) / 3;
        let give_up = (now + timeout.min(third)).min(tenure.loss_at(spec));
        let flight = Flight {
            attempt,
            sent: now,
            give_up,
        };
        tenure.flight = Some(flight);
        (tenure.looks, tenure.looks_again) = (false, false);
        let command = Command::Renew(Renew {
            key: spec.key.clone(),
            lease: tenure.lease,
            token: tenure.token,
            ttl: tenure.ask(spec, now, margin),
        });
        self.send(Whose::Contender(id), flight, command);
    }

    fn renewed(&mut self, id: Short, flight: Flight, expires: ServerTime, time: ServerTime) {
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

    fn extended(&mut self, id: Short, flight: Flight, expires: ServerTime, time: ServerTime) {
        let (now, margin) = (self.now, self.margin());
        let Some((spec, tenure)) = self.tenure(id) else {
            return;
        };
        let expires = expires.min(time + tenure.asked(spec));
        let deadline = margin
            .deadline(flight.sent, time, expires)
            .max(tenure.deadline);
        tenure.unconfirmed = false;
        tenure.deadline = deadline;
        let ttl = tenure.wanted_ttl(spec);
        if let Some(rare) = &mut tenure.rare
            && rare.later.is_empty()
        {
            rare.ttl = rare.wanted;
        }
        tenure.pace = Pace::due(next_renewal(ttl, tenure.lease, flight.sent));
        let (name, token) = (spec.name.clone(), tenure.token);
        let (lease, calls) = (tenure.lease, tenure.take_renewals_under_way());
        let event = LeaseEvent::Renewed {
            name,
            token,
            remaining: deadline.since(now),
        };
        self.tell(id, lease, event, Some(deadline));
        for call in calls {
            self.complete(call, Ok(Done::Renewed));
        }
        self.renew_later(id);
    }

    pub(super) fn renewal_failed(&mut self, id: Short, error: Error) {
        let now = self.now;
        let Some((spec, tenure)) = self.tenure(id) else {
            return;
        };
        let flight = tenure.flight.take();
        let ttl = tenure.ttl(spec);
        let base = (ttl / 30).clamp(Duration::from_millis(1), Duration::from_millis(100));
        let most = (ttl / 6).clamp(base, Duration::from_secs(1));
        tenure.pace.back_off(now, base, most, tenure.lease);
        let (name, token) = (spec.name.clone(), tenure.token);
        let (lease, calls) = (tenure.lease, tenure.take_renewals_under_way());
        let remaining = tenure.deadline.since(now);
        if let Some(flight) = flight {
            self.unsend(flight.attempt);
        }
        for call in calls {
            self.complete(call, Err(error.clone()));
        }
        let event = LeaseEvent::AtRisk {
            name,
            token,
            remaining,
            error,
        };
        self.tell(id, lease, event, None);
        self.renew_later(id);
    }

    /// Begins the renewal that waited for the one before, which asked for another time to live.
    fn renew_later(&mut self, id: Short) {
        let Some((_, tenure)) = self.tenure(id) else {
            return;
        };
        let rare = tenure.rare.as_mut();
        if let Some(rare) = rare.filter(|rare| !rare.later.is_empty()) {
            rare.renewals = std::mem::take(&mut rare.later);
            self.renew(id);
        }
    }

    fn tell(&mut self, id: Short, lease: LeaseId, event: LeaseEvent, deadline: Option<Timestamp>) {
        if let Some(lock) = self.contenders.get(&id).map(|contender| contender.lock) {
            self.emit((lock, lease), event, deadline);
        }
    }
}

/// After a third of the time to live, with jitter, so that lockers come apart; on a grid, so that
/// one locker's leases leave together.
fn next_renewal(ttl: Duration, lease: LeaseId, sent: Timestamp) -> Timestamp {
    let next = sent + jitter_at(ttl / 3, lease, sent);
    let grid = u64::try_from(ttl.as_nanos() / 64).unwrap_or(u64::MAX);
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
