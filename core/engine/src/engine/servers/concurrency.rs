//! Estimates how many callers use a server concurrently, and so how many requests should leave together.

/// An estimate of the callers whose requests are in flight or pending, or who were just answered and are
/// likely to ask again. Requests of concurrent callers leave in halves: the host works on one half while the
/// server works on the other.
#[derive(Debug, Default)]
pub(super) struct Concurrency {
    callers: usize,
    /// The callers that were answered last and have not asked again yet.
    answered: usize,
}

impl Concurrency {
    pub(super) fn asked(&mut self) {
        self.answered = self.answered.saturating_sub(1);
    }

    pub(super) fn answered(&mut self, callers: usize) {
        self.answered = callers;
    }

    /// Takes in that nothing is in flight or pending, although callers had time to ask.
    pub(super) fn idles(&mut self) {
        self.answered = 0;
    }

    /// Takes in that requests leave, while `seen` are in flight or pending. The estimate decays slowly,
    /// because a caller between two requests is briefly invisible.
    pub(super) fn leaves(&mut self, seen: usize) {
        let before = self.callers - self.callers.div_ceil(16);
        self.callers = before.max(seen + self.answered);
    }

    /// Returns how many requests are worth a call of their own while others are in flight, up to `most`.
    pub(super) fn half(&self, most: usize) -> usize {
        self.callers.div_ceil(2).clamp(1, most)
    }

    /// Returns true if callers beyond these pending ones are likely to ask at once.
    pub(super) fn is_more_than(&self, waiting: usize, most: usize) -> bool {
        self.callers > 1 && waiting + self.answered > 0 && waiting < self.half(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 16;

    /// Lets two halves of the callers alternate for this many turns. Returns the batch size at the end.
    fn takes_turns(estimate: &mut Concurrency, callers: usize, turns: usize) -> usize {
        let mut under_way = 0;
        for _ in 0..turns {
            let half = estimate.half(MOST).min(callers);
            estimate.answered(callers - under_way);
            (0..half).for_each(|_| estimate.asked());
            estimate.leaves(under_way + half);
            under_way = (callers - half).min(half);
        }
        estimate.half(MOST)
    }

    /// Catches batches of a third or a quarter, which an estimate yields that misses the callers just
    /// answered.
    #[test]
    fn callers_leave_in_halves_and_stay_so() {
        for callers in [1, 2, 3, 4, 8, 16, 31] {
            let mut estimate = Concurrency::default();
            let half = takes_turns(&mut estimate, callers, 1_000);
            assert_eq!(half, callers.div_ceil(2), "{callers} callers");
        }
        assert_eq!(takes_turns(&mut Concurrency::default(), 1_000, 100), MOST);
    }

    #[test]
    fn callers_that_left_are_forgotten() {
        let mut estimate = Concurrency::default();
        estimate.leaves(256);
        assert!(estimate.is_more_than(1, MOST) && !estimate.is_more_than(MOST, MOST));
        assert!(!estimate.is_more_than(0, MOST), "no caller was answered");
        estimate.answered(100);
        assert!(estimate.is_more_than(0, MOST), "all callers may ask again");
        estimate.idles();
        assert!(!estimate.is_more_than(0, MOST), "no caller asked again");
        (0..60).for_each(|_| estimate.leaves(1));
        assert!(
            !estimate.is_more_than(1, MOST),
            "a lone caller waits for no one"
        );
    }
}
