//! The token that a lease proposes to the members, so that they all give the same token and the answers of a
//! majority complete an acquisition.
//!
//! # Why no clock needs to be trusted
//!
//! 1. [`Votes`](super::votes::Votes) requires of a token only that it is above all earlier tokens of its
//!    member.
//! 2. Each member ensures this by itself: if a proposal is not above its last token, it gives the last token
//!    + 1.
//! 3. A proposal replaces only the member's own clock, which is not trusted either.
//! 4. So a client with wrong clocks loses time but not the order of tokens: the members then disagree, and
//!    their counters are raised.
//!
//! A member ignores a proposal that is 0.1 s or more from its own clock. So no client can use up the tokens.
//! And a member that forgot its last token gives greater ones once it may vote again, provided that the
//! servers' clocks differ by less than the longest time to live minus 0.2 s.

use crate::protocol::limits::MOST_APART_US;
use crate::time::ServerTime;
use crate::token::FencingToken;

#[derive(Debug, Default)]
pub(super) struct Proposals {
    last: u64,
}

impl Proposals {
    /// Returns the token to propose: the median of the members' clocks, or the last proposal + 1 if that is
    /// greater, so that the next proposal for the same lock is greater. If a member has given a token
    /// already, the others are asked for the same one. Few clocks may be known yet; a wrong clock costs only
    /// time.
    pub(super) fn next(
        &mut self,
        clocks: impl Iterator<Item = ServerTime>,
        given: Option<FencingToken>,
    ) -> Option<FencingToken> {
        let mut clocks: Vec<_> = clocks.map(ServerTime::as_micros).collect();
        clocks.sort_unstable();
        let now = *clocks.get(clocks.len() / 2)?;
        let is_near = |token: u64| token.abs_diff(now) < NEAR;
        if let Some(given) = given.filter(|given| is_near(given.get())) {
            return Some(given);
        }
        // Without the check, proposals would stay far ahead for long after a clock was set back.
        let next = Some(self.last + 1).filter(|next| is_near(*next));
        self.last = next.map_or(now, |next| next.max(now));
        FencingToken::new(self.last).ok()
    }
}

/// Half of the difference that a member accepts. The rest allows for differences between the servers' clocks,
/// and for the time that a request takes.
const NEAR: u64 = MOST_APART_US / 2;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000_000_000;

    fn next(proposals: &mut Proposals, clocks: &[u64], given: Option<u64>) -> Option<u64> {
        let clocks = clocks.iter().copied().map(ServerTime::from_micros);
        let given = given.and_then(|given| FencingToken::new(given).ok());
        proposals.next(clocks, given).map(FencingToken::get)
    }

    /// Catches one server whose wrong clock makes all others ignore the proposals.
    #[test]
    fn a_proposal_is_the_median_of_the_clocks() {
        let mut proposals = Proposals::default();
        let off = NOW + 3_600_000_000;
        assert_eq!(
            next(&mut proposals, &[off, NOW, NOW + 7], None),
            Some(NOW + 7)
        );
        assert_eq!(
            next(&mut proposals, &[1, NOW + 9, NOW + 8], None),
            Some(NOW + 8)
        );
        assert_eq!(next(&mut proposals, &[NOW + 9], None), Some(NOW + 9));
        assert_eq!(next(&mut proposals, &[], None), None);
    }

    /// Catches a token that a member must replace because its last one was as great.
    #[test]
    fn no_token_is_proposed_twice_unless_the_clocks_were_set_back() {
        let mut proposals = Proposals::default();
        assert_eq!(next(&mut proposals, &[NOW; 3], None), Some(NOW));
        assert_eq!(next(&mut proposals, &[NOW; 3], None), Some(NOW + 1));
        assert_eq!(next(&mut proposals, &[NOW - 9; 3], None), Some(NOW + 2));
        let back = NOW - 5_000_000;
        assert_eq!(next(&mut proposals, &[back; 3], None), Some(back));
    }

    /// Catches a proposal that differs from the token that a member has just granted, so that members
    /// disagree.
    #[test]
    fn the_others_are_asked_for_a_members_token_unless_it_is_old() {
        let mut proposals = Proposals::default();
        assert_eq!(
            next(&mut proposals, &[NOW; 3], Some(NOW - 9)),
            Some(NOW - 9)
        );
        let old = NOW - NEAR;
        assert_eq!(next(&mut proposals, &[NOW; 3], Some(old)), Some(NOW));
    }
}
