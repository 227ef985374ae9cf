//! A lease at the members of a quorum: their votes, and how the lease is requested and given back.

use std::sync::Arc;

use super::Quorum;
use super::calls::Asked;
use super::handshakes::Standing;
use super::members::too_few;
use super::votes::{Vote, Votes};
use crate::engine::front::{self, Who};
use crate::engine::io::Wait;
use crate::engine::spec::LockSpec;
use crate::error::{Error, ErrorKind};
use crate::protocol::{LeaseId, Reclaim};
use crate::time::Timestamp;
use crate::token::FencingToken;

/// A lease at the members of a quorum.
#[derive(Debug)]
pub(in crate::engine) struct Leased {
    pub(super) who: Who,
    /// The options that members get. They are not re-entrant, because the quorum itself shares re-entrant
    /// locks. They have no longest time: a vote has no age, because a waiter may keep its turn for longer.
    spec: Arc<LockSpec>,
    pub(super) votes: Votes,
    /// The lease ID of the last request to each member. Each request has a new ID: a release may reach a
    /// server very late, and must not free what the server granted since.
    ids: Vec<LeaseId>,
    /// How many requests each member has had.
    asks: Vec<u64>,
    /// When a member was last asked, or would have been.
    pub(super) asked_at: Timestamp,
    /// The token that is proposed to the members.
    proposed: Option<FencingToken>,
}

impl front::Lease for Leased {
    fn who(&self) -> &Who {
        &self.who
    }
}

impl Leased {
    pub(super) fn new(who: Who, members: usize) -> Self {
        let spec = if who.spec.reentrant || who.spec.at_most.is_some() {
            let mut spec = LockSpec::clone(&who.spec);
            let options = Arc::make_mut(&mut spec.options);
            (options.reentrant, options.at_most) = (false, None);
            Arc::new(spec)
        } else {
            who.spec.clone()
        };
        Self {
            ids: vec![who.lease; members],
            asks: vec![0; members],
            asked_at: Timestamp::from_nanos(0),
            proposed: None,
            who,
            spec,
            votes: Votes::new(members),
        }
    }

    /// Returns the lease ID at this member. Its first half is the same at all members.
    pub(super) fn id_at(&self, at: usize) -> LeaseId {
        self.ids[at]
    }

    /// Requests the lease from this member, unless it was requested already or the member cannot be asked
    /// yet.
    pub(super) fn ask(&mut self, env: &mut Quorum, at: usize, wait: Wait) {
        if self.leaves_to_holders(env, at) {
            let message = "it votes again, and existing holders get their leases back there first";
            let error = Error::new(ErrorKind::Unavailable, message);
            return self.votes.set(at, Vote::Failed(error));
        }
        self.ask_by(env, at, wait, |lease, env| match lease.proposed {
            // An owner that reclaims a lease must ask first, because it may not have the tenure that it would
            // name.
            _ if lease.who.spec.owner.is_reclaimable() => Reclaim::Ask,
            None => lease.propose(env).map_or(Reclaim::Never, Reclaim::Propose),
            Some(token) => Reclaim::Propose(token),
        });
    }

    /// Returns true if holders come first at this member and it has no request yet. A fixed lease is an
    /// exception: its members are asked only once, so it would never stand on this one.
    fn leaves_to_holders(&self, env: &Quorum, at: usize) -> bool {
        let is_unasked = matches!(
            self.votes.get(at),
            Vote::None | Vote::Open | Vote::Leaving | Vote::Busy | Vote::Failed(_)
        );
        is_unasked && !self.who.spec.fixed && env.is_for_holders(at)
    }

    /// Begins new requests to the members. The first request makes a new proposal.
    pub(super) fn begin_anew(&mut self, now: Timestamp) {
        (self.asked_at, self.proposed) = (now, None);
    }

    /// Returns a token near the current time, or one that a member gave already.
    fn propose(&mut self, env: &mut Quorum) -> Option<FencingToken> {
        let given = self.votes.has().map(|(_, has)| has.token).max();
        self.proposed = env.propose(given);
        self.proposed
    }

    /// Limits this member's vote to the longest time of the lease, which began at `began`.
    pub(super) fn limit(&mut self, env: &mut Quorum, at: usize, began: Timestamp) {
        let id = self.ids[at];
        if let (Some(age), Some(has)) = (self.who.spec.at_most, self.votes.has_mut(at)) {
            has.deadline = has.deadline.min(began + age);
            has.is_overheld = has.deadline == began + age;
            env.members.limit(&env.cx, at, id, (began, age));
        }
    }

    /// Requests the lease from this member for a tenure that other members have. It reclaims nothing, because
    /// its owner may have begun a later tenure.
    pub(super) fn ask_again(&mut self, env: &mut Quorum, at: usize) {
        // A token that agrees with the others' at once proves that the member was no part of a later lease:
        // see `Late`.
        self.ask_by(env, at, Wait::Never, |lease, _| {
            lease.proposed.map_or(Reclaim::Never, Reclaim::Propose)
        });
    }

    fn ask_by(
        &mut self,
        env: &mut Quorum,
        at: usize,
        wait: Wait,
        reclaims: impl FnOnce(&mut Self, &mut Quorum) -> Reclaim,
    ) {
        if let Vote::Asked(_) | Vote::InLine(_) | Vote::Has(_) = self.votes.get(at) {
            return;
        }
        if env.members.uses(at, self.who.lease) {
            return self.votes.set(at, Vote::Leaving);
        }
        if let Some(vote) = self.may_not_vote(env, at, wait) {
            return self.votes.set(at, vote);
        }
        let id = LeaseId(self.who.lease.0 ^ u128::from(self.asks[at]));
        (self.ids[at], self.asks[at], self.asked_at) = (id, self.asks[at] + 1, env.cx.now);
        let reclaims = reclaims(self, env);
        let of = (self.who.lock, id, &self.spec);
        let call = env.members.acquire(&env.cx, at, of, (wait, reclaims));
        let vote = match wait {
            Wait::Never => Vote::Asked(call),
            Wait::Until(_) | Wait::Forever => Vote::InLine(call),
        };
        self.votes.set(at, vote);
    }

    /// Returns the vote of a member that cannot be asked now, or `None` if it can.
    fn may_not_vote(&self, env: &Quorum, at: usize, wait: Wait) -> Option<Vote> {
        match env.handshakes.standing(at) {
            Standing::Votes => {}
            Standing::Open if wait == Wait::Never => return Some(Vote::Open),
            Standing::Open | Standing::Out => {
                return Some(Vote::Failed(env.handshakes.why_not(env.cx.now, at)));
            }
        }
        let counts = |vote: &Vote| matches!(vote, Vote::Has(_) | Vote::Asked(_) | Vote::InLine(_));
        let mut others = self.votes.iter().filter(|(_, vote)| counts(vote));
        let strange = others.any(|(other, _)| !env.handshakes.are_acquainted(at, other));
        strange.then(|| {
            let message = "the servers that have the lease do not know this server yet";
            Vote::Failed(Error::new(ErrorKind::Unavailable, message))
        })
    }

    /// Handles a change in whether this member may vote.
    pub(super) fn standing_changed(&mut self, env: &mut Quorum, at: usize, holds: bool) {
        match (self.votes.get(at), env.handshakes.standing(at)) {
            (Vote::Open, Standing::Votes | Standing::Out) if holds => self.ask_again(env, at),
            (Vote::Open, Standing::Votes | Standing::Out) => self.ask(env, at, Wait::Never),
            (Vote::Failed(_), Standing::Votes) if !holds => self.votes.set(at, Vote::None),
            (Vote::Asked(_) | Vote::InLine(_), Standing::Open | Standing::Out) => {
                self.give_back(env, at);
                let why = env.handshakes.why_not(env.cx.now, at);
                self.votes.set(at, Vote::Failed(why));
            }
            _ => {}
        }
    }

    /// Gives back the lease that this member granted, or may have granted.
    pub(super) fn give_back(&mut self, env: &mut Quorum, at: usize) {
        let (lock, lease) = (self.who.lock, self.ids[at]);
        match self.votes.get(at) {
            Vote::Asked(call) | Vote::InLine(call) => {
                env.members.cancel(&env.cx, at, *call, (lock, lease));
            }
            Vote::Has(_) => env.members.give_back(&env.cx, at, lease),
            Vote::Open => {}
            Vote::None | Vote::Leaving | Vote::Busy | Vote::Failed(_) => return,
        }
        self.votes.set(at, Vote::None);
    }

    /// Renews the lease at this member, if the member's engine does not renew it by itself.
    pub(super) fn keep(&self, env: &mut Quorum, at: usize) {
        let (id, asked) = (self.ids[at], Asked::Keep);
        env.members.renew(&env.cx, at, (asked, id), (None, None));
    }

    pub(super) fn give_back_all(&mut self, env: &mut Quorum) {
        for at in 0..env.members.len() {
            self.give_back(env, at);
        }
    }

    /// Gives back the lease at all members except those to keep. Keeps all places in line.
    pub(super) fn give_back_unless(&mut self, env: &mut Quorum, is_kept: &dyn Fn(usize) -> bool) {
        for at in 0..env.members.len() {
            let keeps = match self.votes.get(at) {
                Vote::Has(_) => is_kept(at),
                vote => matches!(vote, Vote::InLine(_)),
            };
            if !keeps {
                self.give_back(env, at);
            }
        }
    }

    pub(super) fn has(&self) -> usize {
        self.votes.count(|vote| matches!(vote, Vote::Has(_)))
    }

    /// Returns true if this member has the lease and counts.
    pub(super) fn stands_on(&self, at: usize) -> bool {
        matches!(self.votes.get(at), Vote::Has(has) if has.late.is_none())
    }

    /// Returns true if nothing more can be done at this member: it has the lease, or somebody else has the
    /// lock.
    pub(super) fn is_settled_at(&self, at: usize) -> bool {
        self.stands_on(at) || matches!(self.votes.get(at), Vote::Busy)
    }

    pub(super) fn asked(&self) -> usize {
        self.votes
            .count(|vote| matches!(vote, Vote::Open | Vote::Asked(_)))
    }

    /// Returns an error if so many members failed that the others are no majority.
    pub(super) fn unavailable(&self, env: &Quorum) -> Option<Error> {
        let (needed, of) = (env.members.majority(), env.members.len());
        let failures = || self.votes.failures();
        let refusal = || failures().find(|(_, error)| !error.is_transient());
        (failures().count() > of - needed).then(|| {
            let error = too_few((needed, of), failures());
            match refusal() {
                // The cause is this locker's own setting.
                Some((_, refusal)) if refusal.is_config() => refusal.clone(),
                // A retry would not help.
                Some((_, refusal)) => Error::new(refusal.kind(), error.to_string()),
                None => error,
            }
        })
    }
}
