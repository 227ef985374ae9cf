//! The votes of the members on one lease, and their joint result.

use std::collections::BTreeSet;

use crate::engine::io::{Acquired, CallId};
use crate::engine::spec::LockSpec;
use crate::error::{Error, ErrorKind};
use crate::time::Timestamp;
use crate::token::FencingToken;

/// The vote of one member on a lease.
#[derive(Debug)]
pub(super) enum Vote {
    /// The member was not asked, or the lease gave back what it had there.
    None,
    /// The member will be asked as soon as it is known whether it may vote.
    Open,
    Asked(CallId),
    /// The lease stands in line there.
    InLine(CallId),
    Has(Has),
    /// An earlier request for the lease is still being released there.
    Leaving,
    /// Somebody else has the lock there.
    Busy,
    Failed(Error),
}

impl Vote {
    /// Makes the vote of a member that had the lease, and may give it again if it is asked.
    pub(super) fn gone(why: &Error) -> Self {
        Self::Failed(if why.is_not_held() {
            Error::new(ErrorKind::Unavailable, why.to_string())
        } else {
            why.clone()
        })
    }
}

/// The lease as one member has it.
#[derive(Debug)]
pub(super) struct Has {
    pub(super) token: FencingToken,
    /// Every later token of the member is above this. `None` while the member may have lost the lease
    /// unnoticed.
    pub(super) floor: Option<FencingToken>,
    pub(super) deadline: Timestamp,
    pub(super) began: Timestamp,
    /// Why the last renewal failed.
    pub(super) trouble: Option<Error>,
    /// The token to which the member was asked to raise its counter.
    pub(super) raising: Option<FencingToken>,
    /// The raise was requested before a majority had the lease, so its success proves nothing.
    raising_is_old: bool,
    /// Set if the member gave the lease after it began, and does not count yet.
    pub(super) late: Option<Late>,
    /// True if the member may not extend the lease any more, because of its age.
    pub(super) is_overheld: bool,
}

/// The state of a member that gave a lease to its holder only after the lease began: it does not count yet.
///
/// After a forced release that the holder has not noticed, there may have been a later lease in between. Let
/// m be the majority, as in [`Votes`].
///
/// 1. If m members still had this lease when the member gave it, there was no later lease until then. The
///    holder finds out by asking the others after the member's grant, in a *round*. Then the member counts.
/// 2. Unless the owner reclaims leases, a member whose token is at most the lease's counts at once. By claims
///    2 and 3 of [`Votes`], m members of any later lease have counters above that token. The member is none
///    of these m, or its own token would be greater.
/// 3. The m members of a later lease do not have this one any more. So the members that have it, on time or
///    by (2), are at most the other m - 1. They are no majority, and the holder learns that the lease is
///    lost.
#[derive(Debug)]
pub(super) struct Late {
    /// The first round that begins after the member gave the lease.
    pub(super) since: u64,
    /// The members that have had the lease since then, as they said.
    pub(super) proven_by: BTreeSet<usize>,
}

/// The votes on one lease. Of N = 2m - 1 members, m decide.
///
/// 1. **Exclusion.** A lease is held while m members have it, until the m-th latest of their deadlines
///    ([`deadline`]). Two sets of m members share one, and a member gives its lock to one lease at a time.
/// 2. **The token** is the m-th smallest of the granted tokens ([`token`]). A lease begins once m members
///    have it and also a counter that is not below its token ([`at_least`]).
/// 3. **Tokens grow.** Say that a lease has the token a, and a later lease the token b.
///    - By (2), m members had the earlier lease and counters of at least a.
///    - By (2), m members granted the later lease tokens of at most b.
///    - One member is in both sets. It granted the later lease after it had the earlier one, and each grant
///      is above the counter. So a < its grant, and its grant <= b.
/// 4. **When nothing is raised.** If m members agree on a [proposed](super::proposal) token, it is the m-th
///    smallest, and the counters of these m equal it. If all N members grant, the m-th smallest is the
///    median, and m grants are at least it.
/// 5. **Raising.** Otherwise some members are asked to raise their counters ([`below`]), by a renewal, which
///    does nothing unless they have the lease. Raising a counter at another time would prove nothing: the
///    member may have granted a smaller token to another lease before.
///
/// **Owners that reclaim leases** break (3): a member may have gone on to a later lease of the same owner
/// since it answered. So for them (2) is replaced:
///
/// 6. Counters that members reported or raised before m members had answered count for nothing
///    ([`forget_floors`]). A lease begins after m members have raised their counters to its token, which
///    confirms that they still have it.
/// 7. The token is the greatest granted one ([`greatest_token`]). One of the members that confirmed it is
///    among those that confirmed the earlier lease, and granted a token above that lease's since. The
///    greatest is not below this grant.
///
/// [`at_least`]: Self::at_least
/// [`below`]: Self::below
/// [`deadline`]: Self::deadline
/// [`forget_floors`]: Self::forget_floors
/// [`greatest_token`]: Self::greatest_token
/// [`token`]: Self::token
#[derive(Debug)]
pub(super) struct Votes(Vec<Vote>);

impl Has {
    pub(super) fn new(acquired: &Acquired, spec: &LockSpec) -> Self {
        Self {
            token: acquired.token,
            floor: Some(acquired.token).filter(|_| !spec.owner.is_reclaimable()),
            deadline: acquired.deadline,
            began: acquired.began,
            trouble: None,
            raising: None,
            raising_is_old: false,
            late: None,
            is_overheld: false,
        }
    }

    /// Records that the member raised its counter.
    pub(super) fn was_raised(&mut self) {
        let raised = self.raising.take();
        if !std::mem::take(&mut self.raising_is_old) {
            self.floor = raised.max(self.floor);
        }
    }
}

impl Votes {
    pub(super) fn new(members: usize) -> Self {
        Self(
            std::iter::repeat_with(|| Vote::None)
                .take(members)
                .collect(),
        )
    }

    pub(super) fn get(&self, at: usize) -> &Vote {
        &self.0[at]
    }

    pub(super) fn set(&mut self, at: usize, vote: Vote) {
        self.0[at] = vote;
    }

    pub(super) fn has_mut(&mut self, at: usize) -> Option<&mut Has> {
        match &mut self.0[at] {
            Vote::Has(has) => Some(has),
            _ => None,
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Vote)> {
        self.0.iter().enumerate()
    }

    pub(super) fn count(&self, are: impl Fn(&Vote) -> bool) -> usize {
        self.0.iter().filter(|vote| are(vote)).count()
    }

    /// Returns the members that have the lease and count.
    pub(super) fn has(&self) -> impl Iterator<Item = (usize, &Has)> {
        self.iter().filter_map(|(at, vote)| match vote {
            Vote::Has(has) if has.late.is_none() => Some((at, has)),
            _ => None,
        })
    }

    /// Discards the floors that members reported before a majority had answered: they may have gone on to
    /// another lease since. See claim 6 of [`Votes`].
    pub(super) fn forget_floors(&mut self) {
        for vote in &mut self.0 {
            if let Vote::Has(has) = vote {
                has.floor = None;
                has.raising_is_old = has.raising.is_some();
            }
        }
    }

    pub(super) fn are_late(&self) -> bool {
        self.count(|vote| matches!(vote, Vote::Has(has) if has.late.is_some())) > 0
    }

    /// Records that a member confirmed the lease in this round. Members that gave the lease before the round
    /// count once a majority has confirmed.
    pub(super) fn prove(&mut self, (by, round): (usize, u64), majority: usize) {
        for vote in &mut self.0 {
            let Vote::Has(has) = vote else { continue };
            if let Some(late) = has.late.as_mut().filter(|late| late.since <= round) {
                late.proven_by.insert(by);
                if late.proven_by.len() >= majority {
                    has.late = None;
                }
            }
        }
    }

    /// Returns the members that the lease does not stand on, and why.
    pub(super) fn missing(&self) -> impl Iterator<Item = (usize, Error)> {
        self.iter().filter_map(|(at, vote)| {
            let error = match vote {
                Vote::Has(has) => match (&has.trouble, &has.late) {
                    (Some(trouble), _) => trouble.clone(),
                    (None, Some(_)) => Error::new(
                        ErrorKind::Unavailable,
                        "it joined the lease late, and the others have not confirmed since that they have it",
                    ),
                    (None, None) => return None,
                },
                Vote::Failed(error) => error.clone(),
                Vote::Busy => Error::new(ErrorKind::NotHeld, "somebody else has the lock there"),
                Vote::Leaving => {
                    Error::new(ErrorKind::NotHeld, "an earlier lease is still being released there")
                }
                Vote::None | Vote::Open | Vote::Asked(_) | Vote::InLine(_) => {
                    Error::new(ErrorKind::NotHeld, "it does not have the lease")
                }
            };
            Some((at, error))
        })
    }

    /// Returns the members that failed, and why.
    pub(super) fn failures(&self) -> impl Iterator<Item = (usize, &Error)> {
        self.iter().filter_map(|(at, vote)| match vote {
            Vote::Failed(error) => Some((at, error)),
            _ => None,
        })
    }
}

/// The joint result of the votes.
impl Votes {
    /// Returns the token of the lease if a majority has it.
    pub(super) fn token(&self, majority: usize) -> Option<FencingToken> {
        let mut tokens: Vec<_> = self.has().map(|(_, has)| has.token).collect();
        tokens.sort_unstable();
        tokens.get(majority - 1).copied()
    }

    /// Returns the token of the lease if a majority has it and its owner may reclaim leases.
    pub(super) fn greatest_token(&self, majority: usize) -> Option<FencingToken> {
        let is_enough = self.has().count() >= majority;
        let greatest = self.has().map(|(_, has)| has.token).max();
        greatest.filter(|_| is_enough)
    }

    /// Returns how many members that have the lease would grant only tokens above this one.
    pub(super) fn at_least(&self, token: FencingToken) -> usize {
        self.has()
            .filter(|(_, has)| has.floor >= Some(token))
            .count()
    }

    /// Returns the members whose counters must be raised before they count.
    pub(super) fn below(&self, token: FencingToken) -> Vec<usize> {
        let below = self
            .has()
            .filter(|(_, has)| has.floor < Some(token) && has.raising.is_none());
        below.map(|(at, _)| at).collect()
    }

    /// Returns until when a majority has the lease. Counters do not matter here, only when a lease begins.
    pub(super) fn deadline(&self, majority: usize) -> Option<Timestamp> {
        let mut deadlines: Vec<_> = self.has().map(|(_, has)| has.deadline).collect();
        deadlines.sort_unstable_by(|one, other| other.cmp(one));
        deadlines.get(majority - 1).copied()
    }

    /// True if no renewal can move the [`deadline`](Self::deadline), because the member that decides it may not
    /// hold the lease for longer.
    pub(super) fn are_overheld(&self, majority: usize) -> bool {
        let mut all: Vec<_> = self
            .has()
            .map(|(_, has)| (has.deadline, has.is_overheld))
            .collect();
        all.sort_unstable_by(|one, other| other.cmp(one));
        all.get(majority - 1)
            .is_some_and(|(_, is_overheld)| *is_overheld)
    }

    /// Returns since when a majority has had the lease.
    pub(super) fn began(&self, majority: usize) -> Option<Timestamp> {
        let mut began: Vec<_> = self.has().map(|(_, has)| has.began).collect();
        began.sort_unstable();
        began.get(majority - 1).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u64) -> FencingToken {
        FencingToken::new(number).expect("the token is above 0")
    }

    fn votes(has: &[(u64, u64)]) -> Votes {
        let mut votes = Votes::new(5);
        for (at, (number, deadline)) in has.iter().enumerate() {
            votes.set(
                at,
                Vote::Has(Has {
                    token: token(*number),
                    floor: Some(token(*number)),
                    deadline: Timestamp::from_nanos(*deadline),
                    began: Timestamp::from_nanos(0),
                    trouble: None,
                    raising: None,
                    raising_is_old: false,
                    late: None,
                    is_overheld: false,
                }),
            );
        }
        votes
    }

    #[test]
    fn with_all_members_the_median_is_the_token_and_nothing_is_raised() {
        let votes = votes(&[(9, 50), (2, 40), (7, 30), (4, 20), (5, 10)]);
        assert_eq!(votes.token(3), Some(token(5)));
        assert_eq!(votes.at_least(token(5)), 3);
        assert_eq!(votes.deadline(3), Some(Timestamp::from_nanos(30)));
    }

    /// Catches a token that a later lease has exceeded, at a member that went on to that lease in between.
    #[test]
    fn an_owner_that_reclaims_gets_the_greatest_token() {
        let votes = votes(&[(2, 50), (9, 40), (4, 30), (5, 20)]);
        assert_eq!(votes.token(3), Some(token(5)));
        assert_eq!(votes.greatest_token(3), Some(token(9)));
        assert_eq!(votes.at_least(token(9)), 1);
        assert_eq!(votes.greatest_token(5), None);
    }

    /// Catches a lease that continues after a later one: a majority no longer had it when a member gave it
    /// again.
    #[test]
    fn a_late_member_counts_once_a_majority_has_confirmed_the_lease() {
        let mut votes = votes(&[(2, 50), (4, 40), (5, 30), (9, 20)]);
        let late = || Late {
            since: 2,
            proven_by: BTreeSet::new(),
        };
        votes.has_mut(2).expect("the member has the lease").late = Some(late());
        votes.has_mut(3).expect("the member has the lease").late = Some(late());
        assert_eq!(votes.deadline(3), None);
        for by in [0, 1, 4] {
            votes.prove((by, 1), 3);
        }
        votes.prove((0, 2), 3);
        votes.prove((0, 3), 3);
        votes.prove((1, 3), 3);
        assert!(votes.are_late());
        votes.prove((4, 2), 3);
        assert!(!votes.are_late());
        assert_eq!(votes.deadline(3), Some(Timestamp::from_nanos(30)));
    }

    /// Catches the votes of members that went on to another lease before a majority had answered.
    #[test]
    fn counters_raised_before_a_majority_answered_do_not_count() {
        let mut votes = votes(&[(2, 50), (4, 40), (9, 30)]);
        votes.has_mut(0).expect("the member has the lease").raising = Some(token(9));
        votes.forget_floors();
        votes
            .has_mut(0)
            .expect("the member has the lease")
            .was_raised();
        assert_eq!(votes.below(token(9)), [0, 1, 2]);
        votes.has_mut(0).expect("the member has the lease").raising = Some(token(9));
        votes
            .has_mut(0)
            .expect("the member has the lease")
            .was_raised();
        assert_eq!(votes.below(token(9)), [1, 2]);
    }

    /// Catches a token that a later majority would not know.
    #[test]
    fn a_bare_majority_counts_once_the_lower_counters_are_raised() {
        let mut votes = votes(&[(9, 50), (2, 40), (7, 30)]);
        assert_eq!(votes.token(3), Some(token(9)));
        assert_eq!(votes.below(token(9)), [1, 2]);
        assert_eq!(votes.at_least(token(9)), 1);
        for at in [1, 2] {
            votes.has_mut(at).expect("the member has the lease").floor = Some(token(9));
        }
        assert_eq!(votes.at_least(token(9)), 3);
        assert_eq!(votes.deadline(3), Some(Timestamp::from_nanos(30)));
        votes.set(0, Vote::Busy);
        assert_eq!((votes.token(3), votes.deadline(3)), (None, None));
    }

    /// Catches a lease that is renewed in vain, or not at all, because another member's limit decides.
    #[test]
    fn the_member_that_decides_the_deadline_decides_whether_it_can_move() {
        for (overheld, cannot_move) in [(0, false), (2, true), (3, false)] {
            let mut votes = votes(&[(1, 50), (2, 40), (3, 30), (4, 20)]);
            let has = votes.has_mut(overheld).expect("the member has the lease");
            has.is_overheld = true;
            assert_eq!(votes.are_overheld(3), cannot_move, "{overheld}");
        }
    }
}
