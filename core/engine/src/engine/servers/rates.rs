//! Detects that the rates of two clocks differ by more than the drift margin allows.
//!
//! Two replies bound how long the same stretch of time lasted by the server's clock and by the local one,
//! whatever the network did. Slow replies give wide bounds, and never wrong ones.
//!
//! A clock that was *set*, or a machine that stood still, looks like another rate between two replies. So a
//! difference counts only if each of three consecutive stretches shows it.

use std::time::Duration;

use crate::engine::clock::Margin;
use crate::time::{MICROS, ServerTime, Timestamp, in_parts};

/// The number of stretch lengths. The shortest is `SHORTEST`, and each is twice the one before: up to two
/// minutes, so that three stretches take more than six.
const SCALES: usize = 10;
const SHORTEST: Duration = Duration::from_millis(250);

/// The number of consecutive stretches that have to show a difference.
const STRETCHES: usize = 3;

/// The drift margin and the measurements of the clocks.
#[derive(Debug)]
pub(super) struct Rates {
    margin: Margin,
    is_widened: bool,
    /// The shortest time that a reply ever seemed to take. The local clock advances in steps no larger than
    /// this. Some browsers use steps of 16 or 100 ms, to prevent fingerprinting.
    step: Option<Duration>,
    /// The ends of the last stretches, for each length.
    scales: [Vec<Mark>; SCALES],
}

/// One reply: when the server's clock said `server`, the local clock was between the other two times.
#[derive(Copy, Clone, Debug)]
pub(super) struct Mark {
    pub(super) server: ServerTime,
    pub(super) sent: Timestamp,
    pub(super) received: Timestamp,
}

impl Rates {
    pub(super) fn new(margin: Margin) -> Self {
        let scales = [const { Vec::new() }; SCALES];
        Self {
            margin,
            is_widened: false,
            step: None,
            scales,
        }
    }

    /// Returns the drift margin from now on. It grows when necessary and never shrinks, because a clock that
    /// was slewed once will be again.
    pub(super) fn margin(&self) -> Margin {
        self.margin
    }

    /// Forgets the measurements, because another server, with another clock, may answer next.
    pub(super) fn forget(&mut self) {
        self.scales.iter_mut().for_each(Vec::clear);
    }

    /// Takes in a reply. Returns true if the margin had to be widened. The proven difference is always a
    /// little less than the real one, so the new margin is a quarter more plus the least margin.
    pub(super) fn saw(&mut self, mark: Mark) -> bool {
        let took = mark.received.since(mark.sent);
        let steps = self.step.into_iter().chain([took]);
        self.step = steps.filter(|step| !step.is_zero()).min();
        let Some(step) = self.step else {
            return false;
        };
        // The reply arrived up to one step after the time that the local clock showed.
        let received = mark.received + step;
        let mark = Mark { received, ..mark };
        let (mut length, mut proven) = (SHORTEST, 0);
        for marks in &mut self.scales {
            if take_in(marks, mark, length) {
                proven = proven.max(difference(marks));
            }
            length *= 2;
        }
        // What is proven of a difference that needed a wider margin may always stay a little below it.
        let unproven = if self.is_widened { proven / 16 } else { 0 };
        if proven + unproven <= u64::from(self.margin.parts_per_million()) {
            return false;
        }
        self.is_widened = true;
        let wider = proven + proven / 4 + u64::from(Margin::LEAST.parts_per_million());
        let wider = u32::try_from(wider).unwrap_or(u32::MAX);
        let before = std::mem::replace(&mut self.margin, Margin::new(wider));
        self.margin > before
    }
}

/// Ends a stretch with this reply, if it can. Returns true if it does. A reply that took too long is too
/// inexact to begin or end a stretch.
fn take_in(marks: &mut Vec<Mark>, mark: Mark, length: Duration) -> bool {
    let is_later = |last: &Mark| mark.received.since(last.received) >= length;
    let is_quick = mark.received.since(mark.sent) <= length / 16;
    let ends = is_quick && marks.last().is_none_or(is_later);
    if ends {
        if marks.len() > STRETCHES {
            marks.remove(0);
        }
        marks.push(mark);
    }
    ends
}

/// Returns by how much one clock was faster than the other in every stretch, in parts per million.
fn difference(marks: &[Mark]) -> u64 {
    if marks.len() <= STRETCHES {
        return 0;
    }
    let stretches = || marks.iter().zip(&marks[1..]);
    let fast = stretches().map(|(from, to)| {
        let longest = to.received.since(from.sent);
        excess(to.server.since(from.server), longest)
    });
    let slow = stretches().map(|(from, to)| {
        let shortest = to.sent.since(from.received);
        excess(shortest, to.server.since(from.server))
    });
    fast.min().max(slow.min()).unwrap_or(0)
}

/// Returns the excess of one time over another, in parts per million of the first.
fn excess(longer: Duration, shorter: Duration) -> u64 {
    let micros = |time: Duration| in_parts(time, MICROS);
    let more = micros(longer.saturating_sub(shorter));
    more.saturating_mul(1_000_000) / micros(longer).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000;

    /// Two clocks and a network between them. True time is in milliseconds, and the clocks are in
    /// nanoseconds.
    struct Clocks {
        rates: Rates,
        now: u64,
        server: u64,
        local: u64,
        /// The step of the local clock.
        step: u64,
        seed: u64,
        widened: Vec<u32>,
    }

    /// How fast the server's clock and the local one run, in parts per million above true time.
    type Fast = (i64, i64);

    impl Clocks {
        fn new() -> Self {
            Self {
                rates: Rates::new(Margin::DEFAULT),
                now: 0,
                server: 1_700_000_000_000_000_000,
                local: 5_000_000_000_000,
                step: 1,
                seed: 1,
                widened: Vec::new(),
            }
        }

        fn random(&mut self, below: u64) -> u64 {
            self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005) + 1;
            (self.seed >> 33) % below.max(1)
        }

        fn pass(&mut self, millis: u64, (server, local): Fast) {
            self.now += millis;
            self.server += millis * 1_000_000_u64.saturating_add_signed(server);
            self.local += millis * 1_000_000_u64.saturating_add_signed(local);
        }

        fn told(&self) -> Timestamp {
            Timestamp::from_nanos(self.local - self.local % self.step)
        }

        fn set(&mut self, millis: i64) {
            self.server = self.server.saturating_add_signed(millis * 1_000_000);
        }

        /// Simulates replies for this long, with a given interval and a greatest delay.
        fn run(&mut self, long: u64, (every, slow): (u64, u64), fast: Fast) {
            let end = self.now + long;
            while self.now < end {
                let sent = self.told();
                let there = self.random(slow);
                self.pass(there, fast);
                let server = ServerTime::from_micros(self.server / 1_000);
                let back = self.random(slow);
                self.pass(back, fast);
                let received = self.told();
                let mark = Mark {
                    server,
                    sent,
                    received,
                };
                if self.rates.saw(mark) {
                    self.widened.push(self.rates.margin().parts_per_million());
                }
                self.pass(every, fast);
            }
        }
    }

    /// Catches a detector that takes slow or irregular replies for a difference of rates.
    #[test]
    fn clocks_within_the_margin_are_left_alone_whatever_the_network_does() {
        for slow in [1, 5, 80, 1_000, 6_000] {
            for every in [5, 40, 700, 10_000] {
                for rates in [(0, 0), (500, -500), (-900, 900)] {
                    let mut clocks = Clocks::new();
                    clocks.run((every * 2_000).max(MINUTE), (every, slow), rates);
                    assert!(clocks.widened.is_empty(), "{slow} {every} {rates:?}");
                }
            }
        }
    }

    /// Catches a margin that is too small for chrony's slewing, on either machine or on both.
    #[test]
    fn slewing_is_noticed_soon_and_covered_and_reported_a_few_times() {
        let slewing = 83_333;
        for rates in [
            (slewing, 0),
            (-slewing, 0),
            (0, slewing),
            (slewing, -slewing),
        ] {
            for (every, slow, soon) in [(50, 2, 1_500), (50, 80, 15_000), (10_000, 2, 45_000)] {
                let mut clocks = Clocks::new();
                clocks.run(5 * MINUTE, (every, slow), (300, 0));
                assert!(clocks.widened.is_empty());
                clocks.run(soon, (every, slow), rates);
                assert!(
                    !clocks.widened.is_empty(),
                    "{rates:?} {every} {slow}: unnoticed"
                );
                clocks.run(5 * MINUTE, (every, slow), rates);
                let (server, local) = (1_000_000 + rates.0, 1_000_000 + rates.1);
                let apart = 1_000_000 - 1_000_000 * server.min(local) / server.max(local);
                let margin = i64::from(clocks.rates.margin().parts_per_million());
                assert!(
                    margin >= apart,
                    "{rates:?} {every} {slow}: {margin} of {apart}"
                );
                assert!(margin <= apart * 5 / 4 + 1_001, "{margin} of {apart}");
                assert!(clocks.widened.len() <= 4, "{:?}", clocks.widened);
            }
        }
    }

    /// Catches a widened margin that stays a little too small, because no network proves the last thousandth of a difference.
    #[test]
    fn a_difference_just_above_a_widened_margin_is_covered() {
        let mut clocks = Clocks::new();
        clocks.run(10 * MINUTE, (100, 80), (60_000, 0));
        let apart = i64::from(clocks.rates.margin().parts_per_million()) + 20;
        let faster = apart * 1_000_000 / (1_000_000 - apart);
        clocks.run(10 * MINUTE, (100, 80), (faster, 0));
        let margin = i64::from(clocks.rates.margin().parts_per_million());
        assert!(margin >= apart, "{margin} of {apart}");
    }

    #[test]
    fn a_small_difference_is_noticed_in_minutes() {
        let mut clocks = Clocks::new();
        clocks.run(10 * MINUTE, (100, 20), (3_000, 0));
        let margin = clocks.rates.margin().parts_per_million();
        assert!((3_000..5_000).contains(&margin), "{margin}");
    }

    /// Catches a jump that is taken for a rate: a clock that was set, by people or by a discipline that steps
    /// it, or a machine that its hypervisor paused.
    #[test]
    fn a_clock_that_was_set_does_not_count_as_a_rate() {
        for jump in [-3_600_000, -2_000, 40, 2_000, 3_600_000] {
            for every in [50, 300, 5_000] {
                let mut clocks = Clocks::new();
                for _ in 0..2 {
                    clocks.run(2 * MINUTE, (every, 3), (200, -200));
                    clocks.set(jump);
                    clocks.run(every, (every, 3), (200, -200));
                    clocks.set(jump);
                    clocks.run(7 * MINUTE, (every, 3), (200, -200));
                }
                assert!(clocks.widened.is_empty(), "{jump} {every}");
            }
        }
    }

    #[test]
    fn the_margin_has_an_upper_bound_and_never_shrinks() {
        let mut clocks = Clocks::new();
        clocks.run(MINUTE, (50, 2), (800_000, 0));
        assert_eq!(clocks.rates.margin(), Margin::MOST);
        let said = clocks.widened.len();
        clocks.run(5 * MINUTE, (50, 2), (0, 800_000));
        clocks.run(30 * MINUTE, (50, 2), (0, 0));
        assert_eq!(clocks.rates.margin(), Margin::MOST);
        assert_eq!(
            clocks.widened.len(),
            said,
            "the margin is not reported again"
        );
    }

    /// Catches a margin that is widened because the local clock has coarse steps.
    #[test]
    fn a_clock_with_coarse_steps_does_not_count_as_a_rate() {
        for (margin, micros) in [
            (1_000, 1_000),
            (2_000, 5_000),
            (2_000, 16_667),
            (2_000, 100_000),
        ] {
            for (every, slow) in [(50, 2), (100, 20), (1_000, 2)] {
                let mut clocks = Clocks::new();
                clocks.rates = Rates::new(Margin::new(margin));
                clocks.step = micros * 1_000;
                clocks.run(10 * MINUTE, (every, slow), (200, -200));
                assert!(clocks.widened.is_empty(), "{micros} {every} {slow}");
            }
        }
    }

    /// Catches a slow reply that is taken for an exact one.
    #[test]
    fn a_slow_reply_ends_no_stretch() {
        let length = Duration::from_millis(1_600);
        for (millis, ends) in [(100, true), (101, false)] {
            let sent = Timestamp::from_nanos(0);
            let mark = Mark {
                server: ServerTime::from_micros(1),
                sent,
                received: sent + Duration::from_millis(millis),
            };
            assert_eq!(take_in(&mut Vec::new(), mark, length), ends, "{millis}");
        }
    }

    #[test]
    fn another_servers_clock_is_not_compared_with_the_former_one() {
        let mut clocks = Clocks::new();
        for _ in 0..100 {
            clocks.run(400, (20, 2), (0, 0));
            clocks.set(500);
            clocks.rates.forget();
        }
        assert!(clocks.widened.is_empty());
    }
}
