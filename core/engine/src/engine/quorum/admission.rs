//! Decides which servers of a quorum may vote: those that have forgotten nothing that still matters.
//!
//! A server that lost its data, or went back to older ones, does not know to whom it gave a lock, and would
//! give it to another. So it stays in *quarantine* for as long as the longest lease lives. Its
//! [incarnation](Incarnation) tells it from one that went on. What the others know tells it from a new one: every
//! incarnation that votes is known to all that vote with it.
//!
//! # How a quarantine is measured
//!
//! The wall clock of a server that has just started may be set forward at any time. So nobody trusts it alone:
//! lockers tell each other member of the new incarnation, and the member measures by its own clock for how long it
//! has known that. A quarantine is over once m of the 2m - 1 members, of which the server itself is one, say so. A
//! locker that watches goes on from what each member said first, by its own monotonic clock; a later, greater age
//! shortens nothing.
//!
//! 1. A member cannot hear of an incarnation before it begins. So no age is more than the true one, plus by how
//!    much the clock that measured it was set forward meanwhile.
//! 2. Fewer than m clocks are set forward during one quarantine. Then one of any m members measured by a clock that
//!    was not, and by (1) the quarantine took its time, within the drift margin, which is counted twice.
//! 3. A locker that saw the first age of each of these m members adds its own time to that, so for it (2) holds
//!    whatever clocks are set later.
//! 4. All lockers with leases have the same longest time to live. A server that votes keeps the one that it was told
//!    by the locker that let it vote, and a locker that finds another one at any server asks nobody for locks.
//!    Two lockers' leases share a server, so their times are the same as long as that has not forgotten its own; and
//!    whoever lets it vote again has heard from m members, of which one has not forgotten.
//!
//! A clock that is set forward on a server while a lease stands on it ends that lease there early, in quarantine or
//! not. Nothing here helps against that.
//!
//! # Why no lease is given twice
//!
//! 1. A lease stands on m of 2m - 1 members, each of which knew all others when it voted.
//! 2. Say that one of them forgot the lease, and that its new incarnation is let in before the lease is over, and
//!    that it is the first of which that is true. It is not let in by its quarantine, which takes at least as long.
//! 3. Then m others that were admitted said that they know of no incarnation that is over, and were asked when the
//!    new one was there already.
//! 4. One of these has the lease as well by (1), and knew the incarnation that is over now. A member only drops one
//!    that it knew when no member is in it, as all of them said, or when it knows far more than there are members:
//!    then it still knows some that are over. So it forgot that it knew it, and its new incarnation was let in before
//!    the lease was over. That contradicts (2).
//! 5. Nor are there m that are all new at once, as long as fewer than m forget within the life of a lease.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::protocol::{Entered, Incarnation};
use crate::time::Timestamp;

/// What is known of all members. A member is named by its place.
#[derive(Debug)]
pub(super) struct Admission {
    all: Vec<Option<Seen>>,
    majority: usize,
    /// How long a lease lives at the most.
    longest: Duration,
    /// How far clocks may run apart, in parts per million.
    drift: u32,
    /// How many questions were asked.
    turn: u64,
    /// Incarnations that are known and that nobody is in, as it seems, and the turn of their discovery.
    over: Vec<(Incarnation, u64)>,
}

/// What a member last said.
#[derive(Debug)]
struct Seen {
    incarnation: Incarnation,
    /// For how long it had been in it, and when it said so.
    age: Duration,
    at: Timestamp,
    known: BTreeSet<Incarnation>,
    /// For how long it had known of incarnations that may not vote.
    watched: Vec<(Incarnation, Duration)>,
    /// When its quarantine is over by the clock of each member, if that has said so: the latest of all that it said.
    ripe: Vec<Option<Timestamp>>,
    /// The turn in which it was asked.
    asked: u64,
    /// The last turn that had begun when this incarnation was heard of first.
    found: u64,
    admitted: bool,
    /// It knows all that vote, and they know it.
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

    /// A member is asked now.
    pub(super) fn next_turn(&mut self) -> u64 {
        self.turn += 1;
        self.turn
    }

    /// What it said to what it was asked in that turn.
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

    /// Nothing is known of it any more.
    pub(super) fn lost(&mut self, at: usize) {
        self.all[at] = None;
    }

    /// What follows.
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

    /// Updates when each quarantine ends by what this member just reported, and when its own does by all reports.
    fn measure(&mut self, said: usize) {
        let all = 0..self.all.len();
        for (at, by) in all.flat_map(|other| [(other, said), (said, other)]) {
            let ripe = self.ripe_by(at, by);
            if let Some(seen) = &mut self.all[at] {
                seen.ripe[by] = seen.ripe[by].max(ripe);
            }
        }
    }

    /// When the quarantine of one member is over, as another one last said, or it itself.
    fn ripe_by(&self, at: usize, by: usize) -> Option<Timestamp> {
        let (of, said) = (self.all[at].as_ref()?, self.all[by].as_ref()?);
        let age = if at == by {
            said.age
        } else {
            said.watches(of)?
        };
        Some(said.at + self.left(age))
    }

    /// Those that are new, if nobody can know of what they may have been before: m that were admitted have lost
    /// nothing, or m begin together. What these said counts if they were asked when the new one was there
    /// already: what they said before may be old.
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

    /// How much of a quarantine is left after this time, by any clock.
    fn left(&self, age: Duration) -> Duration {
        let left = self.longest.saturating_sub(age);
        left + left.saturating_mul(self.drift) / 500_000
    }

    fn known(&self) -> BTreeSet<Incarnation> {
        self.seen().flat_map(|seen| &seen.known).copied().collect()
    }
}

/// What is to be done.
impl Admission {
    /// Whether it has said in which incarnation it is.
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

    /// For how long it has been in its incarnation.
    pub(super) fn age(&self, now: Timestamp, at: usize) -> Duration {
        let seen = self.all[at].as_ref();
        seen.map_or(Duration::ZERO, |seen| seen.age + now.since(seen.at))
    }

    /// When no lease that it may have forgotten is left, as a majority says.
    pub(super) fn ripe_at(&self, at: usize) -> Timestamp {
        let seen = self.all[at].as_ref();
        let mut ripe: Vec<_> = seen.map_or(Vec::new(), |seen| {
            seen.ripe.iter().flatten().copied().collect()
        });
        ripe.sort_unstable();
        let ripe = ripe.get(self.majority - 1).copied();
        ripe.unwrap_or(Timestamp::NEVER)
    }

    /// How long that takes yet, also if too few have said so.
    pub(super) fn remaining(&self, now: Timestamp, at: usize) -> Duration {
        let ripe = self.ripe_at(at).since(now);
        ripe.min(self.left(Duration::ZERO))
    }

    /// Whether both know of one another, and may vote on one lease. One that may not vote now is not known
    /// to anybody, and need not be.
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

    /// Returns the incarnations that may not vote and that this member does not watch.
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

    /// Those that it knows and that are over: nobody was in them when all were asked after that was seen.
    pub(super) fn to_forget(&self, at: usize) -> Vec<Incarnation> {
        let (true, Some(to)) = (self.all_vote(), &self.all[at]) else {
            return Vec::new();
        };
        let asked = self.seen().map(|seen| seen.asked).min().unwrap_or(0);
        let over = self.over.iter().filter(|(_, turn)| *turn < asked);
        let over = over.map(|(id, _)| *id);
        over.filter(|id| to.known.contains(id)).collect()
    }

    /// Whether it has to be asked again for a new one to be let in.
    pub(super) fn is_to_be_heard(&self, at: usize) -> bool {
        let new = self.seen().filter(|seen| !seen.admitted);
        let found = new.map(|seen| seen.found).max();
        let asked = self.all[at].as_ref().map(|seen| seen.asked);
        let are_enough = self.answered() >= self.majority;
        are_enough && self.over.is_empty() && asked.is_some() && found >= asked
    }

    /// Whether it has to be asked again for that to be seen.
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

    /// For how long it has, if it does.
    fn watches(&self, other: &Self) -> Option<Duration> {
        let mut watched = self.watched.iter();
        let watched = watched.find(|(incarnation, _)| *incarnation == other.incarnation);
        watched.map(|(_, age)| *age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(60);
    const NOW: Timestamp = Timestamp::from_nanos(5_000_000_000);

    fn of(members: usize) -> Admission {
        Admission::new(members, LONGEST, 2_000)
    }

    /// A member says that it is in this incarnation, for so many seconds, and knows these.
    fn say(admission: &mut Admission, at: usize, (id, age): (u128, u64), known: &[u128]) {
        watch(admission, (NOW, at), (id, age), (known, &[]));
    }

    /// A member says at `now` what [`say`] says, and that it has watched these for so many seconds each.
    fn watch(
        admission: &mut Admission,
        (now, at): (Timestamp, usize),
        (id, age): (u128, u64),
        (known, watched): (&[u128], &[(u128, u64)]),
    ) {
        let watched = watched.iter();
        let watched = watched.map(|(id, age)| (Incarnation(*id), Duration::from_secs(*age)));
        let turn = admission.next_turn();
        let entered = Entered {
            incarnation: Incarnation(id),
            age: Duration::from_secs(age),
            longest: LONGEST,
            known: known.iter().map(|id| Incarnation(*id)).collect(),
            watched: watched.collect(),
        };
        admission.saw(now, at, (entered, turn));
        admission.settle(now);
    }

    fn voting(admission: &Admission) -> Vec<usize> {
        let members = 0..admission.all.len();
        members.filter(|at| admission.votes(*at)).collect()
    }

    fn admitted(admission: &Admission) -> Vec<usize> {
        let members = 0..admission.all.len();
        members.filter(|at| admission.is_admitted(*at)).collect()
    }

    #[test]
    fn a_majority_of_new_members_is_admitted_and_votes_once_they_know_each_other() {
        let mut new = of(3);
        say(&mut new, 0, (1, 0), &[]);
        assert!(admitted(&new).is_empty(), "one of three tells nothing");
        say(&mut new, 2, (3, 0), &[]);
        assert!(
            admitted(&new).is_empty(),
            "the first may know others by now"
        );
        assert_eq!(
            [0, 1, 2].map(|at| new.is_to_be_heard(at)),
            [true, false, true]
        );
        say(&mut new, 0, (1, 0), &[]);
        say(&mut new, 2, (3, 0), &[]);
        assert_eq!((admitted(&new), voting(&new)), (vec![0, 2], vec![]));
        assert_eq!(new.to_tell(0), [Incarnation(1), Incarnation(3)]);
        say(&mut new, 0, (1, 0), &[1, 3]);
        assert_eq!(voting(&new), [0], "the other does not know it");
        say(&mut new, 2, (3, 0), &[1, 3]);
        assert_eq!(voting(&new), [0, 2]);
        say(&mut new, 1, (2, 0), &[]);
        say(&mut new, 0, (1, 0), &[1, 3]);
        say(&mut new, 2, (3, 0), &[1, 3]);
        assert_eq!((admitted(&new), voting(&new)), (vec![0, 1, 2], vec![0, 2]));
        assert!((0..3).all(|at| new.to_tell(at).contains(&Incarnation(2))));
    }

    #[test]
    fn who_is_known_votes_whatever_its_age() {
        let mut used = of(3);
        say(&mut used, 1, (2, 0), &[1, 2, 3]);
        assert_eq!((admitted(&used), voting(&used)), (vec![1], vec![1]));
        say(&mut used, 0, (1, 0), &[1, 2, 3]);
        assert_eq!(voting(&used), [0, 1]);
    }

    /// Catches one that may have forgotten a lock: others know of one that is nobody's any more.
    #[test]
    fn who_may_have_been_another_waits_for_as_long_as_a_lease_lives() {
        let mut used = of(3);
        say(&mut used, 0, (1, 900), &[1, 2, 3]);
        say(&mut used, 1, (2, 900), &[1, 2, 3]);
        say(&mut used, 2, (9, 20), &[]);
        assert_eq!(admitted(&used), [0, 1]);
        assert_eq!(used.ripe_at(2), Timestamp::NEVER, "it alone says so");
        assert!(used.remaining(NOW, 2) < LONGEST + Duration::from_secs(1));
        assert_eq!([0, 1].map(|at| used.to_watch(at)), [[Incarnation(9)]; 2]);
        watch(&mut used, (NOW, 0), (1, 900), (&[1, 2, 3], &[(9, 18)]));
        assert_eq!(used.to_watch(0), []);
        let ripe = used.ripe_at(2);
        // The drift margin counts twice: 0.4 % of what is left.
        assert_eq!(ripe, NOW + Duration::from_millis(42_168));
        used.settle(ripe);
        assert_eq!(admitted(&used), [0, 1, 2]);
        assert_eq!(used.to_watch(1), []);
    }

    /// Catches a server that votes as soon as its clock is set right after it began: to a locker that has watched it,
    /// and to one that comes later.
    #[test]
    fn a_clock_that_is_set_forward_does_not_end_a_quarantine() {
        let all = &[1, 2, 3];
        let mut watches = of(3);
        watch(&mut watches, (NOW, 0), (1, 900), (all, &[]));
        watch(&mut watches, (NOW, 2), (9, 0), (&[], &[]));
        watch(&mut watches, (NOW, 0), (1, 900), (all, &[(9, 0)]));
        let mut later = of(3);
        let soon = NOW + Duration::from_secs(5);
        for admission in [&mut watches, &mut later] {
            watch(admission, (soon, 0), (1, 905), (all, &[(9, 5)]));
            watch(admission, (soon, 2), (9, 3_605), (&[], &[]));
            assert!(!admission.is_admitted(2));
        }
        // The others' clocks may be set as well, while it is watched.
        for at in [0, 1] {
            watch(&mut watches, (soon, at), (1, 4_000), (all, &[(9, 4_000)]));
        }
        assert!(!watches.is_admitted(2));
        let ripe = NOW + LONGEST;
        for admission in [&mut watches, &mut later] {
            admission.settle(ripe - Duration::from_secs(1));
            assert!(!admission.is_admitted(2));
            admission.settle(ripe + Duration::from_secs(1));
            assert!(admission.is_admitted(2));
        }
    }

    /// Catches a minority that lets in one that may have voted with those that are not heard.
    #[test]
    fn who_is_new_to_fewer_than_a_majority_waits() {
        let mut used = of(5);
        say(&mut used, 0, (1, 900), &[1, 2]);
        say(&mut used, 1, (2, 900), &[1, 2]);
        say(&mut used, 4, (5, 0), &[]);
        assert_eq!(admitted(&used), [0, 1]);
        say(&mut used, 2, (3, 900), &[1, 2, 3]);
        for (at, id) in [(0, 1), (1, 2)] {
            assert_eq!(admitted(&used), [0, 1, 2]);
            say(&mut used, at, (id, 900), &[1, 2, 3]);
        }
        assert_eq!(admitted(&used), [0, 1, 2, 4]);
    }

    /// Catches two holders: the second of three votes for a lease with one that the first did not know when it
    /// was asked, and that forgets the lease then.
    #[test]
    fn what_was_said_before_one_was_new_does_not_let_it_in() {
        let mut used = of(3);
        say(&mut used, 0, (1, 900), &[1, 2]);
        say(&mut used, 1, (2, 900), &[1, 2]);
        say(&mut used, 2, (9, 0), &[]);
        assert_eq!(admitted(&used), [0, 1]);
        assert!((0..3).all(|at| used.is_to_be_heard(at)));
        say(&mut used, 0, (1, 900), &[1, 2, 3]);
        say(&mut used, 1, (2, 900), &[1, 2]);
        assert_eq!(admitted(&used), [0, 1]);
        assert!(!used.is_to_be_heard(2), "it has to wait");
    }

    /// The same of members that seem to begin together.
    #[test]
    fn one_that_was_new_long_ago_may_have_voted_since() {
        let mut used = of(3);
        say(&mut used, 1, (2, 0), &[]);
        say(&mut used, 2, (9, 0), &[]);
        assert!(admitted(&used).is_empty());
        say(&mut used, 1, (2, 1), &[1, 2, 3]);
        say(&mut used, 2, (9, 0), &[]);
        assert_eq!(admitted(&used), [1]);
    }

    /// Catches an incarnation that is forgotten though somebody may be in it: one that is newer than what
    /// its member said before.
    #[test]
    fn what_is_over_is_forgotten_once_all_were_asked_again() {
        let all = [1, 2, 3, 9];
        let mut used = of(3);
        for at in 0..3 {
            let id = u128::try_from(at + 1).expect("it is small");
            say(&mut used, at, (id, 900), &all);
        }
        assert_eq!(used.to_forget(0), []);
        let again = (0..3).filter(|at| used.is_to_be_asked(*at));
        assert_eq!(
            again.collect::<Vec<_>>(),
            [0],
            "the others were asked after it was seen"
        );
        say(&mut used, 0, (1, 900), &all);
        assert!((0..3).all(|at| used.to_forget(at) == [Incarnation(9)]));
        let mut newer = of(3);
        for at in 0..3 {
            let id = u128::try_from(at + 1).expect("it is small");
            say(&mut newer, at, (id, 900), &all);
        }
        // The first is in it by now.
        say(&mut newer, 0, (9, 0), &all);
        assert!((0..3).all(|at| !newer.to_forget(at).contains(&Incarnation(9))));
    }
}
