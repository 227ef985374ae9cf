//! What each member says of one lease, and what follows from that together.

use crate::engine::io::{Acquired, CallId};
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
    /// Every later token of the member is above this.
    pub(super) floor: FencingToken,
    pub(super) deadline: Timestamp,
    pub(super) began: Timestamp,
    /// Why its last renewal failed.
    pub(super) trouble: Option<Error>,
    /// It was asked to raise its counter to this.
    pub(super) raising: Option<FencingToken>,
}

/// The votes on one lease. Of N = 2m - 1 members, m decide.
///
/// **The token** of a lease is the m-th smallest of those that were granted, as soon as m members have the
/// lease and a counter that is no lower. A later lease has a token that is no lower than those of m members,
/// and one of these is among the former m: it gave out a token above its counter, after it had the former
/// lease. So tokens grow. With all members it is the median, and nothing more is asked. Where fewer do not
/// agree, the counters of some are raised, and only while they have the lease: of a counter that is raised
/// at another time it is not known who was granted a token before.
///
/// An owner that takes leases over from itself breaks that: a member may have gone on to a later lease since it
/// answered. So the token of such a lease is the greatest: among the members that do have it is one of any former
/// lease's, and it gave out a greater token after that.
#[derive(Debug)]
pub(super) struct Votes(Vec<Vote>);

impl Has {
    pub(super) fn new(acquired: &Acquired) -> Self {
        Self {
            token: acquired.token,
            floor: acquired.token,
            deadline: acquired.deadline,
            began: acquired.began,
            trouble: None,
            raising: None,
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

    fn has(&self) -> impl Iterator<Item = (usize, &Has)> {
        self.iter().filter_map(|(at, vote)| match vote {
            Vote::Has(has) => Some((at, has)),
            _ => None,
        })
    }

    /// Those on which a lease does not stand, and why.
    pub(super) fn missing(&self) -> impl Iterator<Item = (usize, Error)> {
        self.iter().filter_map(|(at, vote)| {
            let error = match vote {
                Vote::Has(has) => has.trouble.clone()?,
                Vote::Failed(error) => error.clone(),
                Vote::Busy => Error::new(ErrorKind::NotHeld, "somebody else has the lock there"),
                Vote::Leaving => {
                    Error::new(ErrorKind::NotHeld, "it is still being given back there")
                }
                Vote::None | Vote::Open | Vote::Asked(_) => {
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
        self.has().filter(|(_, has)| has.floor >= token).count()
    }

    /// Those whose counter is to be raised before they count.
    pub(super) fn below(&self, token: FencingToken) -> Vec<usize> {
        let below = self
            .has()
            .filter(|(_, has)| has.floor < token && has.raising.is_none());
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
                    floor: token(*number),
                    deadline: Timestamp::from_nanos(*deadline),
                    began: Timestamp::from_nanos(0),
                    trouble: None,
                    raising: None,
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

    /// Catches a token that a later majority would not know of.
    #[test]
    fn a_bare_majority_counts_once_the_lower_counters_are_raised() {
        let mut votes = votes(&[(9, 50), (2, 40), (7, 30)]);
        assert_eq!(votes.token(3), Some(token(9)));
        assert_eq!(votes.below(token(9)), [1, 2]);
        assert_eq!(votes.at_least(token(9)), 1);
        for at in [1, 2] {
            votes.has_mut(at).expect("it has it").floor = token(9);
        }
        assert_eq!(votes.at_least(token(9)), 3);
        assert_eq!(votes.deadline(3), Some(Timestamp::from_nanos(30)));
        votes.set(0, Vote::Busy);
        assert_eq!((votes.token(3), votes.deadline(3)), (None, None));
    }
}
