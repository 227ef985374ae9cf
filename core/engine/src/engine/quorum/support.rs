//! A held lease of a quorum: which members support it, and how it wins missing members back.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Quorum;
use super::calls::Asked;
use super::leased::Leased;
use super::members::too_few;
use super::votes::{Late, Vote};
use crate::engine::front::{self, Keeping, Renewal, Tenure, lead, overheld};
use crate::engine::io::{Answer, CallId};
use crate::engine::pace::{Pace, RETRY};
use crate::error::Error;
use crate::event::LossReason;
use crate::time::Timestamp;
use crate::token::FencingToken;

type Next = front::Next<Quorum>;

/// How the members support a tenure.
#[derive(Debug)]
pub(in crate::engine) struct Support {
    /// The time to live that the program asked for last.
    ttl: Duration,
    /// How many members have no trouble with the lease, as last reported to the holder.
    sound: usize,
    /// Until this time, a member that is still releasing another lease does not count as missing: it may
    /// finish at once.
    settles: Timestamp,
    /// When to ask the members whether they still have the lease, because a member joined late. Delayed,
    /// because a lease that is released soon does not need this.
    prove_at: Timestamp,
    /// How many times the members were asked.
    rounds: u64,
    /// How many members have not replied to that.
    proving: usize,
    /// The pace of asking members that do not have the lease, and the time until which none of them is asked.
    pace: Pace,
    rests_until: Timestamp,
    renewals: Vec<ManualRenewal>,
    /// True once the holder knows that no renewal moves the deadline any more.
    is_overheld: bool,
    /// The end of the last request to yield that was emitted.
    wanted_until: Option<Timestamp>,
}

/// A renewal that the program waits for.
#[derive(Debug)]
struct ManualRenewal {
    call: CallId,
    renewed: usize,
    pending: usize,
    error: Option<Error>,
}

impl Tenure<Support> {
    /// Begins a tenure that a majority has granted. Returns `None` if it would end at once.
    pub(super) fn begin(env: &Quorum, lease: &Leased, token: FencingToken) -> Option<Self> {
        let majority = env.members.majority();
        let began = lease.votes.began(majority)?;
        let ends = lease.who.spec.at_most.map(|age| began + age);
        let deadline = lease.votes.deadline(majority)?;
        let deadline = deadline.min(ends.unwrap_or(deadline));
        let ends_at = deadline - lead(lease.who.spec.ttl);
        // By then, other lockers that asked at the same moment have given back what they got.
        let soon = env.cx.now + RETRY.0.min(lease.who.spec.ttl / 16);
        let is_settled = lease.votes.failures().count() > 0 || lease.who.spec.fixed;
        let kept = Support {
            ttl: lease.who.spec.ttl,
            sound: env.members.len(),
            settles: if is_settled { env.cx.now } else { soon },
            prove_at: Timestamp::NEVER,
            rounds: 0,
            proving: 0,
            pace: Pace::due_at(soon),
            rests_until: env.cx.now,
            renewals: Vec::new(),
            is_overheld: false,
            wanted_until: None,
        };
        (ends_at > env.cx.now).then(|| Self::new(token, (began, deadline), kept))
    }

    /// Returns until when a majority has the lease, and no longer than it may be held.
    fn backed_until(&self, env: &Quorum, lease: &Leased) -> Option<Timestamp> {
        let deadline = lease.votes.deadline(env.members.majority())?;
        Some(deadline.min(self.ends(&lease.who.spec)))
    }

    /// Returns when to ask members again, or when the tenure ends.
    pub(super) fn wake_at(&self, lease: &Leased) -> Timestamp {
        let asks_at = self.kept.asks_at(lease).min(self.kept.prove_at);
        self.ends_at(lease).min(asks_at)
    }

    /// Returns when the tenure ends: a little before the deadline, as with one server, even if a majority has
    /// the lease a little longer.
    fn ends_at(&self, lease: &Leased) -> Timestamp {
        self.deadline - lead(self.kept.shortest_ttl(lease))
    }

    pub(super) fn time(&mut self, env: &mut Quorum, lease: &mut Leased) -> Next {
        if self.kept.asks_at(lease) <= env.cx.now {
            let third = lease.who.spec.ttl / 3;
            let between = (third, third.max(RETRY.1));
            self.kept
                .pace
                .back_off(env.cx.now, between, lease.who.lease);
            for at in 0..env.members.len() {
                lease.ask_again(env, at);
            }
            if lease.votes.are_late() {
                self.kept.prove_at = env.cx.now;
            }
        }
        if self.kept.prove_at <= env.cx.now {
            self.ask_for_proof(env, lease);
        }
        self.judge(env, lease, LossReason::Expired)
    }

    /// Handles a member that granted the lease only now, during the tenure. The claims on [`Late`] say when
    /// it counts.
    pub(super) fn joins_late(&mut self, env: &mut Quorum, lease: &mut Leased, at: usize) {
        let has = lease.votes.has_mut(at);
        let is_no_later = has.is_some_and(|has| has.token <= self.token);
        if is_no_later && !lease.who.spec.owner.is_reclaimable() {
            return;
        }
        if let Some(has) = lease.votes.has_mut(at) {
            has.late = Some(Late {
                since: self.kept.rounds + 1,
                proven_by: BTreeSet::new(),
            });
            // Members are asked by a renewal, and fixed leases have none.
            if !lease.who.spec.fixed {
                let soon = env.cx.now + lease.who.spec.ttl / 16;
                self.kept.prove_at = self.kept.prove_at.min(soon);
            }
        }
    }

    /// Asks the members that count whether they still have the lease.
    fn ask_for_proof(&mut self, env: &mut Quorum, lease: &Leased) {
        self.kept.prove_at = Timestamp::NEVER;
        self.kept.rounds += 1;
        // The unique floor makes this a renewal of its own; one that is under way would prove nothing.
        let floor = FencingToken::new(self.token.get().saturating_add(self.kept.rounds)).ok();
        for (at, _) in lease.votes.has() {
            let asked = Asked::Prove(lease.who.id(), self.kept.rounds);
            let of = (asked, lease.id_at(at));
            env.members.renew(&env.cx, at, of, (None, floor));
            self.kept.proving += 1;
        }
    }

    /// Decides from the votes and the time whether the tenure goes on.
    pub(super) fn judge(&mut self, env: &mut Quorum, lease: &Leased, reason: LossReason) -> Next {
        let Some(deadline) = self.backed_until(env, lease) else {
            return Next::Lose(match reason {
                // Some members reached the longest time, and others were not renewed.
                LossReason::Overheld if !self.kept.is_overheld => LossReason::Expired,
                reason => reason,
            });
        };
        let is_over = self.ends_at(lease) <= env.cx.now;
        if is_over && self.kept.is_overheld {
            return Next::Lose(LossReason::Overheld);
        }
        if is_over {
            return Next::Lose(LossReason::Expired);
        }
        let is_new = !self.kept.is_overheld && lease.votes.are_overheld(env.members.majority());
        self.kept.is_overheld |= is_new;
        let gained = deadline.since(self.deadline);
        if gained > self.kept.shortest_ttl(lease) / 8 || is_new && gained > Duration::ZERO {
            self.deadline = deadline;
            self.emit_renewed(&mut env.cx, &lease.who);
        }
        if is_new {
            let error = overheld(&lease.who.spec);
            self.emit_at_risk(&mut env.cx, &lease.who, (error, None));
        }
        self.tell_risk(env, lease, deadline);
        Next::Stay
    }

    /// Warns the holder if the lease is at risk: only a bare majority supports it, so the next failing member
    /// loses it, or the deadline became earlier because a member lost the lease.
    pub(super) fn tell_risk(&mut self, env: &mut Quorum, lease: &Leased, deadline: Timestamp) {
        let (majority, of) = (env.members.majority(), env.members.len());
        let sound = lease.votes.has();
        let sound = sound.filter(|(_, has)| has.trouble.is_none()).count();
        let is_asked =
            lease.asked() > 0 || self.kept.proving > 0 || self.kept.prove_at != Timestamp::NEVER;
        let is_asked = is_asked || env.cx.now < self.kept.settles;
        let before = std::mem::replace(&mut self.kept.sound, sound);
        let is_worse = sound <= majority && sound < before && !is_asked && !self.kept.is_overheld;
        if is_asked && sound < before {
            // Pending answers decide.
            self.kept.sound = before;
        }
        if !is_worse && deadline >= self.deadline {
            return;
        }
        let sooner = self.deadline > deadline;
        self.deadline = self.deadline.min(deadline);
        let error = too_few((majority, of), lease.votes.missing());
        let sooner = sooner.then_some(deadline);
        self.emit_at_risk(&mut env.cx, &lease.who, (error, sooner));
    }

    /// Handles that a member reports a request to yield. The other members report the same request, and each
    /// at its own time. So while a request is pending, only one that leaves less than half as much time is
    /// new.
    pub(super) fn wanted(
        &mut self,
        env: &mut Quorum,
        lease: &Leased,
        (by, within): (Box<str>, Duration),
    ) {
        let left = self.kept.wanted_until.map(|until| until.since(env.cx.now));
        let is_new = match left {
            None => true,
            // A member that heard so late reports the request that is over.
            Some(Duration::ZERO) => !within.is_zero(),
            Some(left) => within < left / 2,
        };
        if is_new {
            self.kept.wanted_until = Some(env.cx.now + within);
            self.emit_wanted(&mut env.cx, &lease.who, (by, within));
        }
    }

    /// Handles a member's reply to a renewal that the program asked for.
    pub(super) fn renewed(
        &mut self,
        env: &mut Quorum,
        lease: &Leased,
        call: CallId,
        result: Result<(), Error>,
    ) {
        let majority = env.members.majority();
        let Some(place) = self
            .kept
            .renewals
            .iter()
            .position(|renewal| renewal.call == call)
        else {
            return;
        };
        let renewal = &mut self.kept.renewals[place];
        renewal.pending -= 1;
        match result {
            Ok(()) => renewal.renewed += 1,
            Err(error) => renewal.error = Some(error),
        }
        let answer = match &renewal.error {
            _ if renewal.renewed >= majority => Ok(()),
            Some(error) if renewal.renewed + renewal.pending < majority => Err(error.clone()),
            _ => return,
        };
        self.kept.renewals.remove(place);
        if answer.is_ok()
            && let Some(deadline) = self.backed_until(env, lease)
        {
            self.deadline = deadline.max(self.deadline);
            self.emit_renewed(&mut env.cx, &lease.who);
        }
        env.cx.answer(call, Answer::Renew(answer));
    }
}

impl Keeping for Support {
    fn cancel_renewal(&mut self, call: CallId) {
        self.renewals.retain(|renewal| renewal.call != call);
    }

    fn take_renewals(&mut self) -> Vec<CallId> {
        let renewals = std::mem::take(&mut self.renewals).into_iter();
        renewals.map(|renewal| renewal.call).collect()
    }
}

impl Support {
    /// Returns the shortest time to live that a renewal at a member may have: the program's last one, or the
    /// lock's own, which a member gets when it is asked for the lease again.
    fn shortest_ttl(&self, lease: &Leased) -> Duration {
        self.ttl.min(lease.who.spec.ttl)
    }

    /// Returns when to ask the members that lack the lease again. They may be reachable or free by then.
    fn asks_at(&self, lease: &Leased) -> Timestamp {
        let lacks = |vote: &Vote| match vote {
            Vote::Has(has) => has.late.is_some(),
            Vote::Open | Vote::Asked(_) => false,
            Vote::InLine(_) => self.pace.failures == 0,
            Vote::None | Vote::Leaving | Vote::Busy | Vote::Failed(_) => true,
        };
        if lease.who.spec.fixed || self.is_overheld || lease.votes.count(lacks) == 0 {
            return Timestamp::NEVER;
        }
        self.pace.next
    }

    /// Handles that a member lost the lease. The member is asked again only after the other members have had
    /// time to find out whether they lost it too: a lease that was taken away everywhere must not go on.
    pub(super) fn rest(&mut self, now: Timestamp, lease: &Leased) {
        // A member renews one third of the time to live after its last renewal, when the whole time to live
        // was left.
        let deadlines = lease.votes.has().map(|(_, has)| has.deadline);
        let since = deadlines.max().map_or(now, |last| now.max(last - self.ttl));
        let third = self.ttl.max(lease.who.spec.ttl) / 3;
        self.rests_until = since + third + third / 8;
        self.pace.next = self.pace.next.max(self.rests_until);
    }

    /// Schedules a request to a member that votes again and lacks the lease, or may lack it. With many
    /// leases, each has its turn: all requests at once would be more load than renewals ever are.
    pub(super) fn ask_in_turn(
        &mut self,
        now: Timestamp,
        (lease, at): (&mut Leased, usize),
        turn: usize,
    ) {
        if let Vote::Busy | Vote::Failed(_) = lease.votes.get(at) {
            lease.votes.set(at, Vote::None);
        }
        let most = (lease.who.spec.ttl / 6).as_millis().max(1);
        let after = u64::try_from(turn as u128 % most).unwrap_or(0) + 1;
        self.pace.next = (now + Duration::from_millis(after)).max(self.rests_until);
    }

    /// Records that a member replied to the question whether it has the lease.
    pub(super) fn proved(&mut self) {
        self.proving = self.proving.saturating_sub(1);
    }

    pub(super) fn renew(
        &mut self,
        env: &mut Quorum,
        lease: &Leased,
        Renewal { call, ttl, .. }: Renewal,
    ) {
        self.ttl = ttl.unwrap_or(self.ttl);
        let mut pending = 0;
        for (at, _) in lease.votes.has() {
            let asked = Asked::Renew(lease.who.id(), call);
            env.members
                .renew(&env.cx, at, (asked, lease.id_at(at)), (ttl, None));
            pending += 1;
        }
        self.renewals.push(ManualRenewal {
            call,
            renewed: 0,
            pending,
            error: None,
        });
    }
}
