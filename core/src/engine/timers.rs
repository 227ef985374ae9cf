//! When the engine has to look at what again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::io::{CallId, ServerId};
use crate::protocol::HalfId;
use crate::time::Timestamp;

/// What a timer is of.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Timed {
    Server(ServerId),
    Contender(HalfId),
    Release(HalfId),
    Query(CallId),
    Shutdown,
}

/// One timer at most for each thing; the thing remembers when its own is set for. A timer that is
/// moved leaves an entry behind where it was, which is passed over when its turn comes.
#[derive(Debug, Default)]
pub(super) struct Timers(BinaryHeap<Reverse<(Timestamp, Timed)>>);

/// So many entries that were left behind are kept for each timer, and then some.
const MOST_LEFT: usize = 2;
const FEW: usize = 64;

impl Timers {
    /// Moves a timer from where the thing remembers it to where it should be.
    pub(super) fn set(&mut self, what: Timed, was: &mut Timestamp, at: Timestamp) {
        if *was != at && at != Timestamp::NEVER {
            self.0.push(Reverse((at, what)));
        }
        *was = at;
    }

    /// The earliest. It is a timer, and not what one left behind, right after [`tidy`](Self::tidy).
    pub(super) fn first(&self) -> Option<(Timestamp, Timed)> {
        self.0.peek().map(|Reverse(first)| *first)
    }

    /// Drops what is before the first timer, and everything that was left behind if that is much for
    /// so many things. `set_for` tells what a thing remembers.
    pub(super) fn tidy(&mut self, things: usize, set_for: impl Fn(Timed) -> Timestamp) {
        if self.0.len() > things * (1 + MOST_LEFT) + FEW {
            let (mut all, mut kept) = (std::mem::take(&mut self.0), Vec::new());
            while let Some(Reverse((at, what))) = all.pop() {
                let entry = Reverse((at, what));
                // A timer that was moved to and fro has several entries, which come one after another.
                if set_for(what) == at && kept.last() != Some(&entry) {
                    kept.push(entry);
                }
            }
            self.0 = kept.into();
        }
        while self.first().is_some_and(|(at, what)| set_for(what) != at) {
            self.0.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: Timestamp = Timestamp::NEVER;

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    /// A timer for each call, as the calls remember it.
    #[derive(Default)]
    struct Things(Timers, Vec<Timestamp>);

    impl Things {
        fn set(&mut self, call: usize, at: Timestamp) {
            self.1.resize(self.1.len().max(call + 1), NEVER);
            let what = Timed::Query(CallId(call as u64));
            self.0.set(what, &mut self.1[call], at);
            let Self(timers, set_for) = self;
            let things = set_for.iter().filter(|at| **at != NEVER).count();
            timers.tidy(things, |what| match what {
                Timed::Query(call) => set_for[usize::try_from(call.0).unwrap_or(0)],
                _ => NEVER,
            });
        }

        fn first(&self) -> Option<(u64, u64)> {
            let (at, what) = self.0.first()?;
            let Timed::Query(call) = what else {
                panic!("{what:?} was never set")
            };
            Some((at.as_nanos(), call.0))
        }
    }

    /// Catches a timer that goes off where it was before it was moved.
    #[test]
    fn the_first_is_the_earliest_that_is_set() {
        let mut things = Things::default();
        assert_eq!(things.first(), None);
        things.set(1, at(10));
        things.set(2, at(20));
        assert_eq!(things.first(), Some((10, 1)));
        things.set(1, at(30));
        assert_eq!(things.first(), Some((20, 2)));
        things.set(1, at(10));
        assert_eq!(things.first(), Some((10, 1)));
        things.set(1, NEVER);
        assert_eq!(things.first(), Some((20, 2)));
        things.set(2, NEVER);
        assert_eq!(things.first(), None);
    }

    /// Catches entries left behind that add up, of timers that are moved to and fro and of ones that
    /// were unset long before their time.
    #[test]
    fn what_is_left_behind_is_bounded() {
        let mut things = Things::default();
        things.set(0, at(1));
        for round in 0..100_000 {
            things.set(1, at(if round % 2 == 0 { 1_000 } else { 2_000 }));
            things.set(2, at(1_000_000 + round));
            things.set(2, NEVER);
        }
        assert!(things.0.0.len() <= 3 * 3 + FEW, "{}", things.0.0.len());
        assert_eq!(things.first(), Some((1, 0)));
        things.set(0, NEVER);
        assert_eq!(things.first(), Some((2_000, 1)));
    }
}
