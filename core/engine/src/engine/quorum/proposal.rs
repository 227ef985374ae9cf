//! The token that a lease proposes to the members, so that they all give the same one, and an acquisition ends
//! with the answers of a majority.
//!
//! **Why no clock has to be trusted.** All that [`Votes`](super::votes::Votes) needs of a token is that it is above
//! those which its member gave before, and each member sees to that by itself: if what is proposed is not above its
//! last it gives the next to that, as ever. A proposal stands in for the member's clock alone, which is not trusted
//! either. So a client whose idea of the clocks is wrong loses time, and no order: the members then disagree, and
//! counters are raised.
//!
//! A member refuses what is a tenth of a second or more from its own clock. So nobody uses the tokens up, and a
//! member that forgot its last token still gives greater ones once it may vote again, if the clocks of the servers
//! are less than the longest time to live apart, but for twice that tenth.

use crate::protocol::limits::MOST_APART_US;
use crate::time::ServerTime;
use crate::token::FencingToken;

#[derive(Debug, Default)]
pub(super) struct Proposals {
    last: u64,
}

impl Proposals {
    /// What these clocks say about now, the middle one of them, and no token twice: whoever comes next to a lock
    /// has a greater one. Few may be known as yet; a wrong one among them costs time alone. A token that a member
    /// has given already is what the others are asked for, too.
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
        // After a clock was set back it would be far ahead for long.
        let next = Some(self.last + 1).filter(|next| is_near(*next));
        self.last = next.map_or(now, |next| next.max(now));
        FencingToken::new(self.last).ok()
    }
}

/// Half of what a member takes; the rest is for the clocks of the others, and for the way.
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

    /// Catches one server with a clock that is far off, which would make all others refuse.
    #[test]
    fn it_is_about_the_time_of_most() {
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

    /// Catches a token that a member has to refuse because the one before it was as great.
    #[test]
    fn none_is_proposed_twice_unless_the_clocks_were_set_back() {
        let mut proposals = Proposals::default();
        assert_eq!(next(&mut proposals, &[NOW; 3], None), Some(NOW));
        assert_eq!(next(&mut proposals, &[NOW; 3], None), Some(NOW + 1));
        assert_eq!(next(&mut proposals, &[NOW - 9; 3], None), Some(NOW + 2));
        let back = NOW - 5_000_000;
        assert_eq!(next(&mut proposals, &[back; 3], None), Some(back));
    }

    /// Catches members that disagree with the one at which a lease has waited for its turn.
    #[test]
    fn what_a_member_gave_is_asked_of_the_others_unless_it_is_old() {
        let mut proposals = Proposals::default();
        assert_eq!(
            next(&mut proposals, &[NOW; 3], Some(NOW - 9)),
            Some(NOW - 9)
        );
        let old = NOW - NEAR;
        assert_eq!(next(&mut proposals, &[NOW; 3], Some(old)), Some(NOW));
    }
}
