//! A lock that a majority has given: whether enough members support it, and how others are won back.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Quorum;
use super::calls::Asked;
use super::leased::Leased;
use super::members::too_few;
use super::votes::{Late, Vote};
use crate::engine::front::{self, Keeping, Renewal, Tenure, lead};
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
    /// How many members have no trouble with it, as far as the holder was told.
    sound: usize,
    /// Until when no member is missing that has only not let go of another lease, since that may end at once.
    settles: Timestamp,
    /// When the members are asked whether they still have it, because one came late. Whoever lets go soon has no
    /// use for that.
    prove_at: Timestamp,
    /// How often they were.
    rounds: u64,
    /// How many have not said so.
    proving: usize,
    /// The pace of asking members that do not have the lease, and the time until which none of them is asked.
    pace: Pace,
    rests_until: Timestamp,
    renewals: Vec<ManualRenewal>,
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
    /// One that a majority has, and that nobody shares yet.
    pub(super) fn begin(env: &Quorum, lease: &Leased, token: FencingToken) -> Option<Self> {
        let majority = env.members.majority();
        let deadline = lease.votes.deadline(majority)?;
        let began = lease.votes.began(majority)?;
        let ends_at = deadline - lead(lease.who.spec.ttl);
        // Others who asked at the same moment have given back by then what they got.
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
        };
        (ends_at > env.cx.now).then(|| Self::new(token, (began, deadline), kept))
    }

    /// When it asks again, or ends.
    pub(super) fn wake_at(&self, lease: &Leased) -> Timestamp {
        let asks_at = self.kept.asks_at(lease).min(self.kept.prove_at);
        self.ends_at(lease).min(asks_at)
    }

    /// Somewhat before the deadline, as with one server. The holder counts on no more, even if a majority
    /// has it for a little longer.
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

    /// A member has it only now. Unless its token says that it was no part of a later lease by then, it counts when a
    /// majority says that it has it still.
    pub(super) fn comes_late(&mut self, env: &mut Quorum, lease: &mut Leased, at: usize) {
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
            // By a renewal, which a fixed lease has none of.
            if !lease.who.spec.fixed {
                let soon = env.cx.now + lease.who.spec.ttl / 16;
                self.kept.prove_at = self.kept.prove_at.min(soon);
            }
        }
    }

    /// Asks those that count whether they still have it.
    fn ask_for_proof(&mut self, env: &mut Quorum, lease: &Leased) {
        self.kept.prove_at = Timestamp::NEVER;
        self.kept.rounds += 1;
        // A renewal that is under way would not do: none of them has this floor.
        let floor = FencingToken::new(self.token.get().saturating_add(self.kept.rounds)).ok();
        for (at, _) in lease.votes.has() {
            let asked = Asked::Prove(lease.who.id(), self.kept.rounds);
            let of = (asked, lease.id_at(at));
            env.members.renew(&env.cx, at, of, (None, floor));
            self.kept.proving += 1;
        }
    }

    /// What follows from the votes, and from the time.
    pub(super) fn judge(&mut self, env: &mut Quorum, lease: &Leased, reason: LossReason) -> Next {
        let Some(deadline) = lease.votes.deadline(env.members.majority()) else {
            return Next::Lose(reason);
        };
        if self.ends_at(lease) <= env.cx.now {
            return Next::Lose(LossReason::Expired);
        }
        if deadline > self.deadline + self.kept.shortest_ttl(lease) / 8 {
            self.deadline = deadline;
            self.emit_renewed(&mut env.cx, &lease.who);
        }
        self.tell_risk(env, lease, deadline);
        Next::Stay
    }

    /// With a bare majority it is lost by the next member that fails. And what a member took away that
    /// the holder counts on ends sooner.
    pub(super) fn tell_risk(&mut self, env: &mut Quorum, lease: &Leased, deadline: Timestamp) {
        let (majority, of) = (env.members.majority(), env.members.len());
        let sound = lease.votes.has();
        let sound = sound.filter(|(_, has)| has.trouble.is_none()).count();
        let is_asked =
            lease.asked() > 0 || self.kept.proving > 0 || self.kept.prove_at != Timestamp::NEVER;
        let is_asked = is_asked || env.cx.now < self.kept.settles;
        let before = std::mem::replace(&mut self.kept.sound, sound);
        let is_worse = sound <= majority && sound < before && !is_asked;
        if is_asked && sound < before {
            // Its answer says which.
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

    /// A member has renewed it, or not.
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
            && let Some(deadline) = lease.votes.deadline(majority)
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
    /// The shortest time that a member's renewals may be for: the program may have asked for another one, and a
    /// member that is asked for the lease again has the lock's own.
    fn shortest_ttl(&self, lease: &Leased) -> Duration {
        self.ttl.min(lease.who.spec.ttl)
    }

    /// Those that do not have it are asked again: they may be back, or free by now.
    fn asks_at(&self, lease: &Leased) -> Timestamp {
        let lacks = |vote: &Vote| match vote {
            Vote::Has(has) => has.late.is_some(),
            Vote::Open | Vote::Asked(_) => false,
            Vote::InLine(_) => self.pace.failures == 0,
            Vote::None | Vote::Leaving | Vote::Busy | Vote::Failed(_) => true,
        };
        if lease.who.spec.fixed || lease.votes.count(lacks) == 0 {
            return Timestamp::NEVER;
        }
        self.pace.next
    }

    /// A member does not have it any more. It is only asked for it again when the others had the time to find
    /// out that they do not have it either: a lease that was taken away everywhere must not go on.
    pub(super) fn rest(&mut self, now: Timestamp, lease: &Leased) {
        // A member renews a third of the time to live after no more than that is left.
        let deadlines = lease.votes.has().map(|(_, has)| has.deadline);
        let since = deadlines.max().map_or(now, |last| now.max(last - self.ttl));
        let third = self.ttl.max(lease.who.spec.ttl) / 3;
        self.rests_until = since + third + third / 8;
        self.pace.next = self.pace.next.max(self.rests_until);
    }

    /// A member votes again that does not have it, or not for certain. It is asked soon: as one of many that it is
    /// asked for, in its turn, since all at once would be more than renewals ever are.
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

    /// One of them has answered.
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
