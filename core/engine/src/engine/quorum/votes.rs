//! What each member says of one lease, and what follows from that together.

use std::collections::BTreeSet;

use crate::engine::io::{Acquired, CallId, LockSpec};
use crate::error::{Error, ErrorKind};
use crate::time::Timestamp;
use crate::token::FencingToken;

/// What a member says of a lease.
#[derive(Debug)]
pub(super) enum Vote {
    /// Nothing: it was not asked, or has given back what it had.
    None,
    /// It is asked as soon as it is known whether it may vote.
    Open,
    Asked(CallId),
    /// It is in line there.
    InLine(CallId),
    Has(Has),
    /// What was asked for before is still being given back there.
    Leaving,
    /// Somebody else has the lock there.
    Busy,
    Failed(Error),
}

impl Vote {
    /// Of a member that had the lease, and may have it again if it is asked.
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
    /// Every later token of the member is above this. Nothing while that is not to be counted on.
    pub(super) floor: Option<FencingToken>,
    pub(super) deadline: Timestamp,
    pub(super) began: Timestamp,
    /// Why its last renewal failed.
    pub(super) trouble: Option<Error>,
    /// It was asked to raise its counter to this.
    pub(super) raising: Option<FencingToken>,
    /// That was asked for before a majority had it, and says nothing.
    raising_is_old: bool,
    /// It came later than the majority, and does not count yet.
    pub(super) late: Option<Late>,
}

/// Why a member does not count that gave a lease to its holder later than the majority. After a forced release of
/// which the holder has not heard, there may have been a later lease meanwhile: not if a majority still had this
/// one when the member gave it. And not at that member if its token is no greater than the lease's: at the m that a
/// later lease stood on, counters are above that. So all that have this one with such tokens were no part of it, and
/// are fewer than m from then on.
#[derive(Debug)]
pub(super) struct Late {
    /// The first round of questions that was asked after that.
    pub(super) since: u64,
    /// Who had it since then.
    pub(super) proven_by: BTreeSet<usize>,
}

/// The votes on one lease. Of N = 2m - 1 members, m decide.
///
/// **The token** of a lease is the m-th smallest of those that were granted, as soon as m members have the
/// lease and a counter that is no lower. A later lease has a token that is no lower than those of m members,
/// and one of these is among the former m: it gave out a token above its counter, after it had the former
/// lease. So tokens grow. Members that agree on what was [proposed](super::proposal) are enough as soon as there
/// are m of them. With all members it is the median, and nothing more is asked either. Where fewer do not agree, the
/// counters of some are raised, and only while they have the lease: of a counter that is raised
/// at another time it is not known who was granted a token before.
///
/// An owner that takes leases over from itself breaks that: a member may have gone on to a later lease since it
/// answered. So the token of such a lease is the greatest: among the members that do have it is one of any former
/// lease's, and it gave out a greater token after that. They do have it if they say so once a majority has
/// answered, and raise their counters with that.
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
        }
    }

    /// Its counter was raised.
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

    /// Those that count.
    pub(super) fn has(&self) -> impl Iterator<Item = (usize, &Has)> {
        self.iter().filter_map(|(at, vote)| match vote {
            Vote::Has(has) if has.late.is_none() => Some((at, has)),
            _ => None,
        })
    }

    /// What members said who may not have it any more now that a majority answers.
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

    /// A member has it still, as it was asked in this round: those that came before that may count.
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

    /// Those on which a lease does not stand, and why.
    pub(super) fn missing(&self) -> impl Iterator<Item = (usize, Error)> {
        self.iter().filter_map(|(at, vote)| {
            let error = match vote {
                Vote::Has(has) => match (&has.trouble, &has.late) {
                    (Some(trouble), _) => trouble.clone(),
                    (None, Some(_)) => Error::new(
                        ErrorKind::Unavailable,
                        "it came later, and the others have not said since that they have it",
                    ),
                    (None, None) => return None,
                },
                Vote::Failed(error) => error.clone(),
                Vote::Busy => Error::new(ErrorKind::NotHeld, "somebody else has the lock there"),
                Vote::Leaving => {
                    Error::new(ErrorKind::NotHeld, "it is still being given back there")
                }
                Vote::None | Vote::Open | Vote::Asked(_) | Vote::InLine(_) => {
                    Error::new(ErrorKind::NotHeld, "it does not have the lease")
                }
            };
            Some((at, error))
        })
    }

    /// Of those that failed, and why.
    pub(super) fn failures(&self) -> impl Iterator<Item = (usize, &Error)> {
        self.iter().filter_map(|(at, vote)| match vote {
            Vote::Failed(error) => Some((at, error)),
            _ => None,
        })
    }
}

/// What so many decide together.
impl Votes {
    /// The token that the lease gets, if so many have it.
    pub(super) fn token(&self, majority: usize) -> Option<FencingToken> {
        let mut tokens: Vec<_> = self.has().map(|(_, has)| has.token).collect();
        tokens.sort_unstable();
        tokens.get(majority - 1).copied()
    }

    /// The same for an owner that takes over.
    pub(super) fn greatest_token(&self, majority: usize) -> Option<FencingToken> {
        let is_enough = self.has().count() >= majority;
        let greatest = self.has().map(|(_, has)| has.token).max();
        greatest.filter(|_| is_enough)
    }

    /// How many of those that have it would give out none but higher tokens.
    pub(super) fn at_least(&self, token: FencingToken) -> usize {
        self.has()
            .filter(|(_, has)| has.floor >= Some(token))
            .count()
    }

    /// Those whose counter is to be raised before they count.
    pub(super) fn below(&self, token: FencingToken) -> Vec<usize> {
        let below = self
            .has()
            .filter(|(_, has)| has.floor < Some(token) && has.raising.is_none());
        below.map(|(at, _)| at).collect()
    }

    /// Until when so many have it, whatever their counters are at: that matters only once.
    pub(super) fn deadline(&self, majority: usize) -> Option<Timestamp> {
        let mut deadlines: Vec<_> = self.has().map(|(_, has)| has.deadline).collect();
        deadlines.sort_unstable_by(|one, other| other.cmp(one));
        deadlines.get(majority - 1).copied()
    }

    /// Since when at the latest so many have it.
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
        FencingToken::new(number).expect("it is above 0")
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
                }),
            );
        }
        votes
    }

    #[test]
    fn with_all_of_them_the_median_is_the_token_and_nothing_is_raised() {
        let votes = votes(&[(9, 50), (2, 40), (7, 30), (4, 20), (5, 10)]);
        assert_eq!(votes.token(3), Some(token(5)));
        assert_eq!(votes.at_least(token(5)), 3);
        assert_eq!(votes.deadline(3), Some(Timestamp::from_nanos(30)));
    }

    /// Catches a token that a later lease has exceeded, at a member that went on to that one meanwhile.
    #[test]
    fn an_owner_that_takes_over_has_the_greatest_token() {
        let votes = votes(&[(2, 50), (9, 40), (4, 30), (5, 20)]);
        assert_eq!(votes.token(3), Some(token(5)));
        assert_eq!(votes.greatest_token(3), Some(token(9)));
        assert_eq!(votes.at_least(token(9)), 1);
        assert_eq!(votes.greatest_token(5), None);
    }

    /// Catches a lease that goes on after a later one: a majority did not have it any more when it came back to
    /// a member.
    #[test]
    fn who_comes_late_counts_once_a_majority_has_it_still() {
        let mut votes = votes(&[(2, 50), (4, 40), (5, 30), (9, 20)]);
        let late = || Late {
            since: 2,
            proven_by: BTreeSet::new(),
        };
        votes.has_mut(2).expect("it has it").late = Some(late());
        votes.has_mut(3).expect("it has it").late = Some(late());
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

    /// Catches the votes of members that went on to another lease before a majority was there.
    #[test]
    fn what_was_raised_before_a_majority_was_there_does_not_count() {
        let mut votes = votes(&[(2, 50), (4, 40), (9, 30)]);
        votes.has_mut(0).expect("it has it").raising = Some(token(9));
        votes.forget_floors();
        votes.has_mut(0).expect("it has it").was_raised();
        assert_eq!(votes.below(token(9)), [0, 1, 2]);
        votes.has_mut(0).expect("it has it").raising = Some(token(9));
        votes.has_mut(0).expect("it has it").was_raised();
        assert_eq!(votes.below(token(9)), [1, 2]);
    }

    /// Catches a token that a later majority would not know of.
    #[test]
    fn a_bare_majority_counts_once_the_lower_counters_are_raised() {
        let mut votes = votes(&[(9, 50), (2, 40), (7, 30)]);
        assert_eq!(votes.token(3), Some(token(9)));
        assert_eq!(votes.below(token(9)), [1, 2]);
        assert_eq!(votes.at_least(token(9)), 1);
        for at in [1, 2] {
            votes.has_mut(at).expect("it has it").floor = Some(token(9));
        }
        assert_eq!(votes.at_least(token(9)), 3);
        assert_eq!(votes.deadline(3), Some(Timestamp::from_nanos(30)));
        votes.set(0, Vote::Busy);
        assert_eq!((votes.token(3), votes.deadline(3)), (None, None));
    }
}
