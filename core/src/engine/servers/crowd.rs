//! How many callers take turns with a server, and so how many of them should leave together.

/// An estimate of who is at the server, waits to leave for it, or has its answer and is likely to ask
/// again. Where several take turns, the server and the host should both have work: so they leave in
/// halves, of which one is worked on here while the other is there.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    size: usize,
    /// Of those who were answered last, who did not ask again yet.
    answered: usize,
}

impl Crowd {
    pub(super) fn asked(&mut self) {
        self.answered = self.answered.saturating_sub(1);
    }

    pub(super) fn answered(&mut self, callers: usize) {
        self.answered = callers;
    }

    /// Nothing is under way and nothing waits, although there was time to ask.
    pub(super) fn idles(&mut self) {
        self.answered = 0;
    }

    /// Some leave; so many are under way then, or still wait. A crowd is gone as slowly as it may come
    /// back: who is between two questions for a moment is not seen.
    pub(super) fn leaves(&mut self, seen: usize) {
        let before = self.size - self.size.div_ceil(16);
        self.size = before.max(seen + self.answered);
    }

    /// How many are worth a call of their own while others are under way, up to so many.
    pub(super) fn half(&self, most: usize) -> usize {
        self.size.div_ceil(2).clamp(1, most)
    }

    /// Whether more than these few are likely to ask at once.
    pub(super) fn is_more_than(&self, waiting: usize, most: usize) -> bool {
        self.size > 1 && waiting + self.answered > 0 && waiting < self.half(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 16;

    /// Two halves take turns so often. Returns how many left at a time, at the end.
    fn takes_turns(crowd: &mut Crowd, callers: usize, turns: usize) -> usize {
        let mut under_way = 0;
        for _ in 0..turns {
            let half = crowd.half(MOST).min(callers);
            crowd.answered(callers - under_way);
            (0..half).for_each(|_| crowd.asked());
            crowd.leaves(under_way + half);
            under_way = (callers - half).min(half);
        }
        crowd.half(MOST)
    }

    /// Catches thirds and quarters, which an estimate falls into that misses who has just been answered.
    #[test]
    fn callers_leave_in_halves_and_stay_so() {
        for callers in [1, 2, 3, 4, 8, 16, 31] {
            let mut crowd = Crowd::default();
            let half = takes_turns(&mut crowd, callers, 1_000);
            assert_eq!(half, callers.div_ceil(2), "{callers} callers");
        }
        assert_eq!(takes_turns(&mut Crowd::default(), 1_000, 100), MOST);
    }

    #[test]
    fn a_crowd_that_went_away_is_forgotten() {
        let mut crowd = Crowd::default();
        crowd.leaves(256);
        assert!(crowd.is_more_than(1, MOST) && !crowd.is_more_than(MOST, MOST));
        assert!(!crowd.is_more_than(0, MOST), "nobody was answered");
        crowd.answered(100);
        assert!(crowd.is_more_than(0, MOST), "they may all ask again");
        crowd.idles();
        assert!(!crowd.is_more_than(0, MOST), "and did not");
        (0..60).for_each(|_| crowd.leaves(1));
        assert!(
            !crowd.is_more_than(1, MOST),
            "a lone caller waits for nobody"
        );
    }
}
