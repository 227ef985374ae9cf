//! The timers of the engine.

use super::io::{CallId, ServerId};
use super::table::Table;
use crate::protocol::HalfId;
use crate::time::Timestamp;

/// The owner of a timer.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Timed {
    Server(ServerId),
    Contender(HalfId),
    Release(HalfId),
    Query(CallId),
    Watch,
    Shutdown,
}

impl Timed {
    const KINDS: usize = 6;

    /// Returns the index of its kind, and its ID within that kind.
    fn number(self) -> (usize, u64) {
        match self {
            Self::Server(id) => (0, u64::from(id.0)),
            Self::Contender(id) => (1, id.0),
            Self::Release(id) => (2, id.0),
            Self::Query(call) => (3, call.0),
            Self::Watch => (4, 0),
            Self::Shutdown => (5, 0),
        }
    }
}

/// At most one timer for each owner, which remembers the time that its timer is set for. The owner has an
/// entry here that is no later than that. Moving a timer to a later time leaves its entry in place until the
/// entry is due.
#[derive(Debug, Default)]
pub(super) struct Timers {
    /// A heap: the entry at place `n` is no later than the entries at `2 * n + 1` and `2 * n + 2`.
    near: Vec<(Timestamp, Timed)>,
    /// Stretches of time with the later entries, from the last stretch to the soonest. In a large locker they
    /// hold nearly all entries, because leases are renewed seldom, and many fall due together.
    far: Vec<Stretch>,
    /// The number of entries in `far`.
    far_entries: usize,
    /// The number of the stretch that contained the time of the last tidying.
    begun: u64,
}

/// The contenders whose timers are set for one stretch of time.
#[derive(Debug)]
struct Stretch {
    number: u64,
    /// The time of the earliest entry, or earlier.
    first: Timestamp,
    ids: Vec<HalfId>,
}

/// The entries left behind that are kept for each owner, plus `MANY` in total. A timer that moves to an
/// earlier time leaves its old entry behind.
const MOST_LEFT: usize = 1;
const MANY: usize = 512;
/// With fewer near entries, the first one is kept exact.
const FEW: usize = 64;
/// With fewer near entries, all new ones are near.
const MOST_NEAR: usize = 1024;
/// The bits of the nanoseconds within one stretch, which lasts 134 ms.
const STRETCH_BITS: u32 = 27;
/// The most stretches. An entry that would need another one goes to the heap.
const MOST_STRETCHES: usize = 256;

impl Timers {
    /// Moves a timer to `at`. `was` is the time that its owner remembers.
    pub(super) fn set(&mut self, what: Timed, was: &mut Timestamp, at: Timestamp) {
        if at < *was {
            self.push((at, what));
        }
        *was = at;
    }

    /// Returns the time of the first timer, or an earlier time.
    pub(super) fn first(&self) -> Option<Timestamp> {
        let near = self.near.first().map(|(at, _)| *at);
        match self.far.last() {
            Some(far) => Some(near.map_or(far.first, |near| near.min(far.first))),
            None => near,
        }
    }

    /// Returns a timer that is due. Valid right after [`tidy`](Self::tidy).
    pub(super) fn due(&self, now: Timestamp) -> Option<Timed> {
        let stretch = self.far.last().filter(|far| far.first <= now);
        if let Some(id) = stretch.and_then(|stretch| stretch.ids.last()) {
            return Some(Timed::Contender(*id));
        }
        let (at, what) = self.near.first()?;
        (*at <= now).then_some(*what)
    }

    /// Makes the first entry exact if there are few entries or the first is due. Under load, most entries are
    /// left behind long before their time, so exactness would cost much. Also drops all entries left behind
    /// if there are too many for this number of owners. `set_for` returns the time that an owner remembers.
    pub(super) fn tidy(
        &mut self,
        things: usize,
        now: Timestamp,
        set_for: impl Fn(Timed) -> Timestamp,
    ) {
        let set_for: &dyn Fn(Timed) -> Timestamp = &set_for;
        self.begun = number(now);
        if self.len() > things * (1 + MOST_LEFT) + MANY {
            self.rebuild(set_for);
        }
        if self.near.len() > FEW && self.due(now).is_none() {
            return;
        }
        self.tidy_far(now, set_for);
        self.tidy_near(set_for);
    }

    fn tidy_near(&mut self, set_for: &dyn Fn(Timed) -> Timestamp) {
        let mut before = None;
        while let Some((at, what)) = self.near.first().copied() {
            let set = set_for(what);
            if set == at {
                break;
            }
            // Equal entries follow each other. Keep one of them.
            let is_left = set == Timestamp::NEVER || before == Some((at, what));
            before = Some((at, what));
            if is_left {
                self.pop();
            } else if self.is_far(set, what) {
                self.pop();
                self.push((set, what));
            } else {
                self.near[0].0 = set;
                self.sift_down(0);
            }
        }
    }

    /// Drops or moves entries until the last one of the stretch that is due belongs to a timer that is due.
    fn tidy_far(&mut self, now: Timestamp, set_for: &dyn Fn(Timed) -> Timestamp) {
        while let Some(stretch) = self.far.last_mut().filter(|far| far.first <= now) {
            let what = stretch.ids.last().map(|id| Timed::Contender(*id));
            let set = what.map_or(Timestamp::NEVER, set_for);
            if set <= now {
                return;
            }
            stretch.ids.pop();
            self.far_entries -= 1;
            if stretch.ids.is_empty() {
                self.far.pop();
            }
            if let Some(what) = what.filter(|_| set != Timestamp::NEVER) {
                self.push((set, what));
            }
        }
    }

    fn len(&self) -> usize {
        self.near.len() + self.far_entries
    }

    fn rebuild(&mut self, set_for: &dyn Fn(Timed) -> Timestamp) {
        let near = std::mem::take(&mut self.near).into_iter();
        let far = std::mem::take(&mut self.far).into_iter();
        self.far_entries = 0;
        let far = far.flat_map(|stretch| stretch.ids);
        let all = near.map(|(_, what)| what);
        let mut seen: [Table<u64, ()>; Timed::KINDS] = Default::default();
        for what in all.chain(far.map(Timed::Contender)) {
            let at = set_for(what);
            let (kind, number) = what.number();
            if at != Timestamp::NEVER && !seen[kind].contains_key(&number) {
                seen[kind].insert(number, ());
                self.push((at, what));
            }
        }
    }

    fn push(&mut self, (at, what): (Timestamp, Timed)) {
        if let Timed::Contender(id) = what
            && self.is_far(at, what)
            && let Some(stretch) = self.stretch(at)
        {
            stretch.first = stretch.first.min(at);
            stretch.ids.push(id);
            self.far_entries += 1;
            return;
        }
        let mut place = self.near.len();
        self.near.push((at, what));
        while place > 0 && (at, what) < self.near[(place - 1) / 2] {
            self.near.swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
    }

    /// True if the entry may go to a stretch. A stretch that has begun gets no more entries.
    fn is_far(&self, at: Timestamp, what: Timed) -> bool {
        let is_later = number(at) > self.begun;
        is_later && self.near.len() > MOST_NEAR && matches!(what, Timed::Contender(_))
    }

    /// Returns the stretch that contains this time, or `None` if there are too many stretches.
    fn stretch(&mut self, at: Timestamp) -> Option<&mut Stretch> {
        let number = number(at);
        let place = self.far.partition_point(|stretch| stretch.number > number);
        let is_there = self
            .far
            .get(place)
            .is_some_and(|stretch| stretch.number == number);
        if !is_there {
            if self.far.len() >= MOST_STRETCHES {
                return None;
            }
            let stretch = Stretch {
                number,
                first: at,
                ids: Vec::new(),
            };
            self.far.insert(place, stretch);
        }
        self.far.get_mut(place)
    }

    fn pop(&mut self) -> Option<(Timestamp, Timed)> {
        let last = self.near.pop()?;
        // Returns a burst's memory.
        if self.near.len() < self.near.capacity() / 4 {
            self.near.shrink_to(MANY.max(self.near.capacity() / 2));
        }
        let Some(first) = self.near.first_mut() else {
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
                if below < self.near.len() && self.near[below] < self.near[least] {
                    least = below;
                }
            }
            if least == place {
                return;
            }
            self.near.swap(place, least);
            place = least;
        }
    }
}

/// Returns the number of the stretch that contains this time.
fn number(at: Timestamp) -> u64 {
    at.as_nanos() >> STRETCH_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: Timestamp = Timestamp::NEVER;

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    /// Timers of calls, and the time that each call remembers.
    #[derive(Default)]
    struct Things(Timers, Vec<Timestamp>);

    /// Tidies the timers of contenders, whose IDs are indexes into `set_for`.
    fn tidy_contenders(timers: &mut Timers, set_for: &[Timestamp], now: Timestamp) {
        timers.tidy(set_for.len(), now, |what| match what {
            Timed::Contender(id) => set_for[usize::try_from(id.0).unwrap_or(0)],
            _ => NEVER,
        });
    }

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

        /// The first timer that is due when all timers are.
        fn first(&mut self) -> Option<(u64, u64)> {
            let early = self.0.first();
            self.tidy(NEVER);
            let at = self.0.first()?;
            assert!(early.is_some_and(|early| early <= at), "{early:?}");
            let Some(Timed::Query(call)) = self.0.due(NEVER) else {
                panic!("only calls have timers here")
            };
            Some((at.as_nanos(), call.0))
        }
    }

    /// Catches a timer that fires at the time from which it was moved.
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

    /// Catches entries left behind that accumulate: of timers that move to and fro, and of timers unset long
    /// before their time.
    #[test]
    fn entries_left_behind_are_bounded() {
        let mut things = Things::default();
        things.set(0, at(1));
        for round in 0..100_000 {
            things.set(1, at(if round % 2 == 0 { 1_000 } else { 2_000 }));
            things.set(2, at(1_000_000 + round));
            things.set(2, NEVER);
        }
        assert!(things.0.len() <= 3 * 3 + MANY, "{}", things.0.len());
        assert_eq!(things.first(), Some((1, 0)));
        things.set(0, NEVER);
        assert_eq!(things.first(), Some((2_000, 1)));
    }

    /// Catches an entry that is lost or misplaced when timers fire and move.
    #[test]
    fn the_first_is_the_earliest_however_timers_move() {
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
        assert!(things.0.len() <= 2 * 40 + MANY);
    }

    /// Catches a timer of a large locker that is lost or fires too late or too early, and entries that
    /// accumulate.
    #[test]
    fn each_of_many_timers_fires_in_time() {
        const THINGS: usize = 2_000;
        const SECOND: u64 = 1_000_000_000;
        let (mut timers, mut set_for) = (Timers::default(), vec![NEVER; THINGS]);
        let (mut now, mut random, mut fired) = (0, 11_u64, 0);
        let mut next = |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 30) % below
        };
        for round in 0..20_000 {
            // On a grid or not, soon, late or never. Some timers move to an earlier time.
            let thing = usize::try_from(next(THINGS as u64)).expect("it is below 2,000");
            let to = match next(5) {
                0 => NEVER,
                1 => at(now + next(SECOND / 50)),
                2 => at(now + next(1_000 * SECOND)),
                _ => at((now / SECOND + 1 + next(20)) * SECOND),
            };
            let what = Timed::Contender(HalfId(thing as u64));
            timers.set(what, &mut set_for[thing], to);
            now += if round % 100 == 0 {
                SECOND
            } else {
                next(1_000)
            };
            loop {
                tidy_contenders(&mut timers, &set_for, at(now));
                let earliest = set_for.iter().min().copied().unwrap_or(NEVER);
                assert!(timers.first().unwrap_or(NEVER) <= earliest);
                let Some(what @ Timed::Contender(HalfId(due))) = timers.due(at(now)) else {
                    break;
                };
                let due =
                    &mut set_for[usize::try_from(due).expect("the contender is one of these")];
                assert!(*due <= at(now), "a timer fired early");
                fired += 1;
                timers.set(what, due, at(now + 10 * SECOND));
            }
            assert!(set_for.iter().all(|set| *set > at(now)), "a timer is late");
            assert!(timers.len() <= THINGS * 2 + MANY);
        }
        assert!(fired > 10_000 && timers.far.len() > 10, "{fired}");
    }

    /// Catches memory that is kept for past stretches, and more stretches than a list search can handle
    /// quickly.
    #[test]
    fn stretches_are_bounded() {
        let (mut timers, mut set_for) = (Timers::default(), vec![NEVER; 3_000]);
        for (number, set) in set_for.iter_mut().enumerate() {
            let what = Timed::Contender(HalfId(number as u64));
            timers.set(what, set, at((number as u64 + 1) << STRETCH_BITS));
        }
        assert_eq!(timers.far.len(), MOST_STRETCHES);
        set_for.fill(NEVER);
        tidy_contenders(&mut timers, &set_for, at(u64::MAX >> 1));
        assert_eq!((timers.len(), timers.first()), (0, None));
        assert!(timers.near.capacity() <= MANY);
    }
}
