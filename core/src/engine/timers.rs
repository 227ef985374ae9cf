//! When the engine has to look at what again.

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
    Watch,
    Shutdown,
}

/// One timer at most for each thing; the thing remembers when its own is set for. It has an entry
/// here that is no later: one that is moved to later keeps its entry until that comes to its turn.
///
/// A heap: each entry is no later than the two whose places are twice its own, plus one and plus two.
#[derive(Debug, Default)]
pub(super) struct Timers(Vec<(Timestamp, Timed)>);

/// So many entries are kept for each thing, and then some: one that is moved to earlier leaves its
/// entry behind.
const MOST_LEFT: usize = 1;
const MANY: usize = 512;
const FEW: usize = 64;

impl Timers {
    /// Moves a timer from where the thing remembers it to where it should be.
    pub(super) fn set(&mut self, what: Timed, was: &mut Timestamp, at: Timestamp) {
        if at < *was {
            self.push((at, what));
        }
        *was = at;
    }

    /// When something has to be looked at, or earlier.
    pub(super) fn first(&self) -> Option<Timestamp> {
        self.0.first().map(|(at, _)| *at)
    }

    /// A timer whose time has come, right after [`tidy`](Self::tidy).
    pub(super) fn due(&self, now: Timestamp) -> Option<Timed> {
        let (at, what) = self.0.first()?;
        (*at <= now).then_some(*what)
    }

    /// Makes the first entry a timer, if there are few or the time of the first has come: while much goes
    /// on, most are left behind long before their time. Drops everything that was left behind if that is
    /// much for so many things. `set_for` tells what a thing remembers.
    pub(super) fn tidy(
        &mut self,
        things: usize,
        now: Timestamp,
        set_for: impl Fn(Timed) -> Timestamp,
    ) {
        let set_for: &dyn Fn(Timed) -> Timestamp = &set_for;
        if self.0.len() > things * (1 + MOST_LEFT) + MANY {
            self.rebuild(set_for);
        }
        if self.0.len() > FEW && self.due(now).is_none() {
            return;
        }
        let mut before = None;
        while let Some((at, what)) = self.0.first().copied() {
            let set = set_for(what);
            if set == at {
                break;
            }
            // Entries of one timer at one moment come one after another: one of them is enough.
            let is_left = set == Timestamp::NEVER || before == Some((at, what));
            before = Some((at, what));
            if is_left {
                self.pop();
            } else {
                self.0[0].0 = set;
                self.sift_down(0);
            }
        }
    }

    fn rebuild(&mut self, set_for: &dyn Fn(Timed) -> Timestamp) {
        self.0.retain_mut(|(at, what)| {
            *at = set_for(*what);
            *at != Timestamp::NEVER
        });
        for place in (0..self.0.len() / 2).rev() {
            self.sift_down(place);
        }
        // In order, which is a heap, too.
        let mut kept = Vec::with_capacity(self.0.len());
        while let Some(entry) = self.pop() {
            if kept.last() != Some(&entry) {
                kept.push(entry);
            }
        }
        self.0 = kept;
    }

    fn push(&mut self, entry: (Timestamp, Timed)) {
        let mut place = self.0.len();
        self.0.push(entry);
        while place > 0 && entry < self.0[(place - 1) / 2] {
            self.0.swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
    }

    fn pop(&mut self) -> Option<(Timestamp, Timed)> {
        let last = self.0.pop()?;
        let Some(first) = self.0.first_mut() else {
            return Some(last);
        };
        let first = std::mem::replace(first, last);
        self.sift_down(0);
        Some(first)
    }

    fn sift_down(&mut self, mut place: usize) {
        loop {
            let mut least = place;
            for below in [2 * place + 1, 2 * place + 2] {
                if below < self.0.len() && self.0[below] < self.0[least] {
                    least = below;
                }
            }
            if least == place {
                return;
            }
            self.0.swap(place, least);
            place = least;
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
            self.tidy(Timestamp::from_nanos(0));
        }

        fn tidy(&mut self, now: Timestamp) {
            let Self(timers, set_for) = self;
            let things = set_for.iter().filter(|at| **at != NEVER).count();
            timers.tidy(things, now, |what| match what {
                Timed::Query(call) => set_for[usize::try_from(call.0).unwrap_or(0)],
                _ => NEVER,
            });
        }

        /// The first that is due once the time of all has come.
        fn first(&mut self) -> Option<(u64, u64)> {
            let early = self.0.first();
            self.tidy(NEVER);
            let at = self.0.first()?;
            assert!(early.is_some_and(|early| early <= at), "{early:?}");
            let Some(Timed::Query(call)) = self.0.due(NEVER) else {
                panic!("it was never set")
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
        assert!(things.0.0.len() <= 3 * 3 + MANY, "{}", things.0.0.len());
        assert_eq!(things.first(), Some((1, 0)));
        things.set(0, NEVER);
        assert_eq!(things.first(), Some((2_000, 1)));
    }

    /// Catches an entry that is lost, or out of its place, when timers go off and are moved about.
    #[test]
    fn whatever_is_moved_the_first_is_the_earliest() {
        let mut things = Things::default();
        let mut random = 5_u64;
        for _ in 0..50_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let [call, to] = [random >> 33, random >> 40].map(|bits| bits % 40);
            let to = if to < 3 { NEVER } else { at(to) };
            things.set(usize::try_from(call).expect("it is below 40"), to);
            let earliest = things.1.iter().filter(|at| **at != NEVER).min();
            let earliest = earliest.map(|at| at.as_nanos());
            assert_eq!(things.first().map(|(at, _)| at), earliest);
        }
        assert!(things.0.0.len() <= 2 * 40 + MANY);
    }
}
