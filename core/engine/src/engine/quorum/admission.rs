//! Admission: which servers of a quorum may vote, because they have forgotten nothing that still matters.
//!
//! A server that lost its data, or went back to older data, does not know who has its lock, and would give it
//! to somebody else. So it stays in *quarantine* for as long as the longest lease may live. Its
//! [incarnation](Incarnation) tells whether it lost data. What the other members know tells whether it is
//! new: every incarnation that votes is known to all members that vote with it.
//!
//! Below, a quorum has 2m - 1 members, so m are a majority.
//!
//! # How a quarantine is measured
//!
//! The wall clock of a server that has just started may be set forward at any time, so it is not trusted
//! alone. Lockers report a new incarnation to every other member. Each member measures by its own clock how
//! long it has known the incarnation. A quarantine is over once m members say so, of which the server itself
//! may be one. A locker that watches continues from the first age that each member reported, by its own
//! monotonic clock; a greater age that a member reports later shortens nothing.
//!
//! 1. A member cannot hear of an incarnation before it begins. So a reported age is at most the true age,
//!    plus the time by which the member's clock was set forward meanwhile.
//! 2. Assumption: fewer than m clocks are set forward during one quarantine. So one of any m members measured
//!    by a clock that was not. By (1), the quarantine took its full time, except for clock drift, for which
//!    the margin is counted twice.
//! 3. A locker that has the first age of each of these m members adds its own elapsed time. So for this
//!    locker, (2) holds whichever clocks are set forward later.
//! 4. All lockers that hold leases have the same longest time to live. A server that votes keeps the value of
//!    the locker that let it vote, and a locker that finds another value at any server asks for no locks. The
//!    leases of two lockers share a server, so their values are equal until that server forgets its own. And
//!    a locker that lets the server vote again has heard from m members, one of which has not forgotten.
//!
//! A clock that is set forward on a server ends the leases there early, and nothing here prevents that. In
//! quarantine this makes no second holder, because lockers ask the server for no lock until it votes again.
//!
//! # Why no lease is given twice
//!
//! 1. A lease stands on m members, each of which knew all others when it voted.
//! 2. Assume that a member of a lease forgets it, and that its new incarnation is admitted before the lease
//!    ends. Take the first admission of this kind. It was not by quarantine, which lasts at least as long as
//!    the lease.
//! 3. So it was admitted because m other admitted members, asked after the new incarnation had appeared, said
//!    that they know of no ended incarnation.
//! 4. Two sets of m members share one. So one of these members also has the lease, and by (1) it knew the
//!    incarnation that has ended since.
//! 5. A member drops a known incarnation only in two cases: when all members said that none of them is in it,
//!    or when it knows far more incarnations than there are members. In the second case it still knows others
//!    that have ended, which contradicts (3).
//! 6. So that member forgot, too, and its own new incarnation was admitted before the lease ended. That
//!    contradicts "first" in (2).
//! 7. The other way to be admitted is that m members are all new at once. This does not happen as long as
//!    fewer than m members forget within the life of a lease.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::protocol::{Entered, Incarnation};
use crate::time::Timestamp;

/// The known state of all members. Members are named by their index.
#[derive(Debug)]
pub(super) struct Admission {
    all: Vec<Option<Seen>>,
    majority: usize,
    /// The longest time to live of any lease.
    longest: Duration,
    /// How far clocks may drift apart, in parts per million.
    drift: u32,
    /// How many times members were asked. Each time is a *turn*.
    turn: u64,
    /// Ended incarnations: some member knows them, and no member is in them. With the turn in which each was
    /// found.
    over: Vec<(Incarnation, u64)>,
}

/// The last report of a member.
#[derive(Debug)]
struct Seen {
    incarnation: Incarnation,
    /// The age of the incarnation, and when the member reported it.
    age: Duration,
    at: Timestamp,
    known: BTreeSet<Incarnation>,
    /// Incarnations in quarantine that the member knows, and for how long it has.
    watched: Vec<(Incarnation, Duration)>,
    /// When this member's quarantine ends by the clock of each member that has reported on it. The latest of
    /// all reports counts.
    ripe: Vec<Option<Timestamp>>,
    /// The turn in which the member was asked.
    asked: u64,
    /// The last turn that had begun when this incarnation was first heard of.
    found: u64,
    admitted: bool,
    /// The member and all voting members know each other.
    votes: bool,
}

impl Admission {
    pub(super) fn new(members: usize, longest: Duration, drift: u32) -> Self {
        Self {
            all: std::iter::repeat_with(|| None).take(members).collect(),
            majority: super::members::majority(members),
            longest,
            drift,
            turn: 0,
            over: Vec::new(),
        }
    }

    /// Starts a turn: a numbered request to a member.
    pub(super) fn next_turn(&mut self) -> u64 {
        self.turn += 1;
        self.turn
    }

    /// Records a member's reply to the request of a turn.
    pub(super) fn saw(&mut self, now: Timestamp, at: usize, (entered, asked): (Entered, u64)) {
        let members = self.all.len();
        let before = self.all[at].take();
        let before = before.filter(|before| before.incarnation == entered.incarnation);
        self.all[at] = Some(Seen {
            incarnation: entered.incarnation,
            age: entered.age,
            at: now,
            known: entered.known.into_iter().collect(),
            watched: entered.watched,
            ripe: before
                .as_ref()
                .map_or_else(|| vec![None; members], |before| before.ripe.clone()),
            asked,
            found: before.as_ref().map_or(self.turn, |before| before.found),
            admitted: before.as_ref().is_some_and(|before| before.admitted),
            votes: before.is_some_and(|before| before.votes),
        });
        self.measure(at);
    }

    /// Forgets the report of a member.
    pub(super) fn lost(&mut self, at: usize) {
        self.all[at] = None;
    }

    /// Updates which members are admitted, which vote, and which incarnations have ended.
    pub(super) fn settle(&mut self, now: Timestamp) {
        let known = self.known();
        let current: BTreeSet<_> = self.seen().map(|seen| seen.incarnation).collect();
        for at in 0..self.all.len() {
            let ripe = self.ripe_at(at) <= now;
            if let Some(seen) = &mut self.all[at] {
                seen.admitted |= ripe || known.contains(&seen.incarnation);
            }
        }
        let is_over = |id: &Incarnation| !current.contains(id);
        if !known.iter().any(is_over) {
            self.let_new_in();
        }
        self.let_vote();
        self.over
            .retain(|(id, _)| known.contains(id) && is_over(id));
        for id in known.into_iter().filter(is_over) {
            if !self.over.iter().any(|(over, _)| *over == id) {
                self.over.push((id, self.turn));
            }
        }
    }

    /// Updates the ends of quarantines after a member's report: those of the others by its report, and its
    /// own by all reports.
    fn measure(&mut self, said: usize) {
        let all = 0..self.all.len();
        for (at, by) in all.flat_map(|other| [(other, said), (said, other)]) {
            let ripe = self.ripe_by(at, by);
            if let Some(seen) = &mut self.all[at] {
                seen.ripe[by] = seen.ripe[by].max(ripe);
            }
        }
    }

    /// Returns when the quarantine of member `at` ends, by the last report of member `by`.
    fn ripe_by(&self, at: usize, by: usize) -> Option<Timestamp> {
        let (of, said) = (self.all[at].as_ref()?, self.all[by].as_ref()?);
        let age = if at == by {
            said.age
        } else {
            said.watches(of)?
        };
        Some(said.at + self.left(age))
    }

    /// Admits new members that cannot have forgotten anything: m admitted members have lost nothing, or m
    /// members are new together. Reports count only if they were requested after the new incarnation had
    /// appeared; see claim 3 of "Why no lease is given twice" in the [module](self).
    fn let_new_in(&mut self) {
        let enough =
            |are: &dyn Fn(&&Seen) -> bool| self.seen().filter(are).count() >= self.majority;
        let is_first = !self.seen().any(|seen| seen.admitted);
        let is_let_in = |new: &Seen| {
            if !is_first {
                return enough(&|seen| seen.admitted && seen.asked > new.found);
            }
            let mut turns = self.seen().map(|seen| seen.found);
            turns.any(|turn| {
                let with = |seen: &&Seen| seen.found <= turn && turn < seen.asked;
                with(&new) && enough(&with)
            })
        };
        let all = self.all.iter();
        let are_let_in = all.map(|seen| seen.as_ref().is_some_and(is_let_in));
        let are_let_in: Vec<_> = are_let_in.collect();
        for (seen, is_let_in) in self.all.iter_mut().zip(are_let_in) {
            if let Some(seen) = seen {
                seen.admitted |= is_let_in;
            }
        }
    }

    fn let_vote(&mut self) {
        for at in 0..self.all.len() {
            let knows_itself = |seen: &Seen| seen.known.contains(&seen.incarnation);
            let is_ready = |seen: &&Seen| seen.admitted && knows_itself(seen);
            let Some(seen) = self.all[at].as_ref().filter(is_ready) else {
                continue;
            };
            let votes = self.seen().filter(|other| other.votes);
            let strangers = votes.filter(|other| !seen.knows(other) || !other.knows(seen));
            let votes = strangers.count() == 0;
            if let Some(seen) = &mut self.all[at] {
                seen.votes = votes;
            }
        }
    }

    fn seen(&self) -> impl Iterator<Item = &Seen> + Clone {
        self.all.iter().flatten()
    }

    /// Returns how much of a quarantine is left at this age, by any clock.
    fn left(&self, age: Duration) -> Duration {
        let left = self.longest.saturating_sub(age);
        left + left.saturating_mul(self.drift) / 500_000
    }

    fn known(&self) -> BTreeSet<Incarnation> {
        self.seen().flat_map(|seen| &seen.known).copied().collect()
    }
}

/// Queries.
impl Admission {
    /// Returns true if the member has reported its incarnation.
    pub(super) fn has_answered(&self, at: usize) -> bool {
        self.all[at].is_some()
    }

    pub(super) fn answered(&self) -> usize {
        self.seen().count()
    }

    pub(super) fn is_admitted(&self, at: usize) -> bool {
        self.all[at].as_ref().is_some_and(|seen| seen.admitted)
    }

    pub(super) fn votes(&self, at: usize) -> bool {
        self.all[at].as_ref().is_some_and(|seen| seen.votes)
    }

    pub(super) fn incarnation(&self, at: usize) -> Option<Incarnation> {
        Some(self.all[at].as_ref()?.incarnation)
    }

    /// Returns how long the member has been in its incarnation.
    pub(super) fn age(&self, now: Timestamp, at: usize) -> Duration {
        let seen = self.all[at].as_ref();
        seen.map_or(Duration::ZERO, |seen| seen.age + now.since(seen.at))
    }

    /// Returns when, as a majority reported, no lease is left that the member may have forgotten.
    pub(super) fn ripe_at(&self, at: usize) -> Timestamp {
        let seen = self.all[at].as_ref();
        let mut ripe: Vec<_> = seen.map_or(Vec::new(), |seen| {
            seen.ripe.iter().flatten().copied().collect()
        });
        ripe.sort_unstable();
        let ripe = ripe.get(self.majority - 1).copied();
        ripe.unwrap_or(Timestamp::NEVER)
    }

    /// Returns how much of the quarantine is left, with an estimate if too few have reported.
    pub(super) fn remaining(&self, now: Timestamp, at: usize) -> Duration {
        let ripe = self.ripe_at(at).since(now);
        ripe.min(self.left(Duration::ZERO))
    }

    /// Returns true if both members may vote on one lease because they know each other. The others need not
    /// know a member that may not vote now.
    pub(super) fn are_acquainted(&self, one: usize, other: usize) -> bool {
        match (&self.all[one], &self.all[other]) {
            (Some(one), Some(other)) => other.knows(one) && (one.knows(other) || !other.admitted),
            _ => false,
        }
    }

    /// Returns the incarnations that may vote, if this member does not know all of them.
    pub(super) fn to_tell(&self, at: usize) -> Vec<Incarnation> {
        let Some(to) = &self.all[at] else {
            return Vec::new();
        };
        let admitted = self.seen().filter(|seen| seen.admitted);
        if admitted.clone().all(|seen| to.knows(seen)) {
            return Vec::new();
        }
        admitted.map(|seen| seen.incarnation).collect()
    }

    /// Returns the incarnations in quarantine that this member does not watch yet.
    pub(super) fn to_watch(&self, at: usize) -> Vec<Incarnation> {
        let Some(to) = &self.all[at] else {
            return Vec::new();
        };
        let others = self
            .seen()
            .filter(|seen| seen.incarnation != to.incarnation);
        let out = others.filter(|seen| !seen.admitted && to.watches(seen).is_none());
        out.map(|seen| seen.incarnation).collect()
    }

    /// Returns the ended incarnations that this member may drop. All members were asked after each was found,
    /// and none was in it.
    pub(super) fn to_forget(&self, at: usize) -> Vec<Incarnation> {
        let (true, Some(to)) = (self.all_vote(), &self.all[at]) else {
            return Vec::new();
        };
        let asked = self.seen().map(|seen| seen.asked).min().unwrap_or(0);
        let over = self.over.iter().filter(|(_, turn)| *turn < asked);
        let over = over.map(|(id, _)| *id);
        over.filter(|id| to.known.contains(id)).collect()
    }

    /// Returns true if the member must be asked again before a new member can be admitted.
    pub(super) fn is_to_be_heard(&self, at: usize) -> bool {
        let new = self.seen().filter(|seen| !seen.admitted);
        let found = new.map(|seen| seen.found).max();
        let asked = self.all[at].as_ref().map(|seen| seen.asked);
        let are_enough = self.answered() >= self.majority;
        are_enough && self.over.is_empty() && asked.is_some() && found >= asked
    }

    /// Returns true if the member must be asked again before an ended incarnation can be dropped.
    pub(super) fn is_to_be_asked(&self, at: usize) -> bool {
        let found = self.over.iter().map(|(_, turn)| *turn).max();
        let asked = self.all[at].as_ref().map(|seen| seen.asked);
        self.all_vote() && found >= asked
    }

    fn all_vote(&self) -> bool {
        self.seen().filter(|seen| seen.votes).count() == self.all.len()
    }
}

impl Seen {
    fn knows(&self, other: &Self) -> bool {
        self.known.contains(&other.incarnation)
    }

    /// Returns how long this member has watched the other, if it does.
    fn watches(&self, other: &Self) -> Option<Duration> {
        let mut watched = self.watched.iter();
        let watched = watched.find(|(incarnation, _)| *incarnation == other.incarnation);
        watched.map(|(_, age)| *age)
    }
}

#[cfg(test)]
mod tests;
