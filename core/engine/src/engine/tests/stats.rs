//! Statistics. After each step, every test of this engine also checks that no counter falls and that each
//! tenure is counted somewhere.

use std::time::Duration;

use super::host::{Host, LOCK, Locker, Net, SOON, TIMEOUT, TTL, key, ms};
use crate::engine::stats::Counts;
use crate::engine::{Histogram, LockId, Stats, Wait};
use crate::error::ErrorKind;
use crate::event::LossReason;
use crate::time::Timestamp;

impl Locker {
    /// Reads the counts and compares them with those before.
    pub(crate) fn look_at_counts(&mut self) {
        let counts = self.engine.counts();
        assert_none_fell(&self.numbers, counts.numbers());
        self.numbers = counts.numbers().to_vec();
        let stats = Stats::from(counts);
        let (contenders, all) = self.engine.tables();
        let releases = all - contenders;
        assert_eq!(stats.held + stats.waiting, contenders as u64);
        assert_eq!(stats.acquired - stats.held, stats.holding_times.count);
        let over = stats.released + stats.lost.total();
        let ending = stats.holding_times.count - over;
        assert!(ending <= releases as u64, "{ending} of {releases}");
        self.counted = stats;
    }
}

/// Compares all counters. Gauges may fall.
pub(super) fn assert_none_fell(before: &[u64], now: &[u64]) {
    for (at, (before, now)) in before.iter().zip(now).enumerate().skip(2) {
        assert!(now >= before, "number {at} fell from {before} to {now}");
    }
}

const OTHER: LockId = LockId(7);

#[test]
fn nothing_is_counted_before_anything_happens() {
    let host = Host::unconnected();
    assert_eq!(Stats::from(host.engine.counts()), Stats::default());
}

#[test]
fn an_acquisition_and_its_release_are_counted() {
    let mut host = Host::new();
    host.subscribes = false;
    host.back = ms(3);
    let lease = host.hold(LOCK).lease;
    assert_eq!((host.counted.held, host.counted.acquired), (1, 1));
    host.sleep(SOON);
    host.back = Duration::ZERO;
    host.release(lease);
    let stats = &host.counted;
    assert_eq!((stats.held, stats.waiting, stats.released), (0, 0, 1));
    assert_eq!(stats.lost.total(), 0);
    assert_eq!(
        (stats.waiting_times.count, stats.waiting_times.sum),
        (1, ms(3))
    );
    assert_eq!(
        stats.waiting_times.buckets[5], 1,
        "the time is above 2.5 ms and at most 5 ms"
    );
    let held = stats.holding_times.sum;
    assert_eq!((stats.holding_times.count, held), (1, ms(3) + SOON));
}

#[test]
fn script_calls_their_operations_and_round_trips_are_counted() {
    let mut host = Host::new();
    let before = host.counted.clone();
    assert_eq!(
        (before.script_calls, before.operations),
        (1, 0),
        "the request for the clock counts"
    );
    for id in 0..300 {
        host.hold(LockId(id));
    }
    let calls = host.counted.script_calls;
    host.sleep(TTL / 3);
    host.tick();
    let stats = &host.counted;
    assert_eq!(
        stats.script_calls - calls,
        3,
        "the operations leave in batches of 128"
    );
    assert_eq!((stats.operations, stats.renewals), (600, 300));
    assert_eq!(stats.round_trips.count, stats.script_calls);
    assert!(stats.operations_per_call() < 2.0);
}

#[test]
fn busy_calls_are_counted_at_once_and_after_their_wait() {
    let mut host = Host::new();
    host.stranger_acquires(LOCK, TTL * 10);
    host.acquire(LOCK, Wait::Never);
    assert_eq!((host.counted.busy, host.counted.waiting), (1, 0));
    let call = host.acquire(LOCK, Wait::Until(host.now + TTL));
    assert_eq!((host.counted.busy, host.counted.waiting), (1, 1));
    host.advance(TTL + SOON);
    assert!(!host.is_open(call));
    let stats = &host.counted;
    assert_eq!((stats.busy, stats.failed, stats.waiting), (2, 0, 0));
    assert_eq!(stats.waiting_times.count, 0, "no caller got the lock");
}

#[test]
fn a_canceled_call_is_in_no_counter_of_calls() {
    let mut host = Host::new();
    host.stranger_acquires(LOCK, TTL * 10);
    let call = host.acquire(LOCK, Wait::Forever);
    host.cancel(call);
    let stats = &host.counted;
    assert_eq!((stats.waiting, stats.busy, stats.failed), (0, 0, 0));
}

#[test]
fn several_waiting_calls_and_one_tenure_are_counted() {
    let mut host = Host::on(Net::Hold);
    for _ in 0..3 {
        host.acquire(LOCK, Wait::Forever);
    }
    assert_eq!(host.counted.waiting, 1, "the handle is re-entrant");
    host.net = Net::Up;
    host.answer_all();
    host.look_at_counts();
    assert_eq!((host.counted.acquired, host.counted.held), (1, 1));
    assert_eq!(host.counted.waiting_times.count, 3);
    host.hold(LOCK);
    assert_eq!(
        host.counted.waiting_times.count, 3,
        "the caller did not wait"
    );
}

#[test]
fn timeouts_are_counted() {
    let mut host = Host::on(Net::LoseRequests);
    let call = host.acquire(LOCK, Wait::Never);
    host.advance(TIMEOUT * 3);
    assert_eq!(host.error(call), ErrorKind::Timeout);
    assert_eq!(host.counted.failed, 1);
    // The next request shows that the one before it had no answer.
    host.acquire(OTHER, Wait::Never);
    assert!(host.counted.timeouts >= 1, "{:?}", host.counted);
    assert_eq!(
        host.counted.round_trips.count, 1,
        "the request for the clock counts"
    );
}

#[test]
fn a_failed_renewal_is_counted() {
    let (mut host, _) = Host::holding();
    host.disconnect();
    assert_eq!(
        (host.counted.renewal_failures, host.counted.renewals),
        (1, 0)
    );
    host.connect(0);
    assert_eq!(host.counted.renewals, 1);
}

/// Each reason occurs once.
#[test]
fn losses_are_counted_by_their_reasons() {
    let mut host = Host::new();
    host.fixed = true;
    host.hold(LOCK);
    host.advance(TTL);
    host.fixed = false;
    assert_eq!(host.counted.lost.expired, 1);
    host.hold(LOCK);
    host.servers[0].delete(&key(LOCK));
    host.advance(TTL / 2);
    assert_eq!(host.counted.lost.deleted, 1);
    host.hold(LOCK);
    host.servers[0].delete(&key(LOCK));
    host.stranger_acquires(LOCK, TTL);
    host.advance(TTL / 2);
    assert_eq!(host.counted.lost.superseded, 1);
    let pushes = host.counted.pushes;
    host.advance(TTL);
    host.hold(LOCK);
    host.force_release(LOCK);
    assert_eq!(
        (host.counted.lost.revoked, host.counted.pushes),
        (1, pushes + 1)
    );
    host.at_most = Some(TTL);
    host.hold(LOCK);
    host.advance(TTL);
    assert_eq!(host.counted.lost.overheld, 1);
    host.at_most = None;
    host.hold(LOCK);
    host.shutdown();
    assert_eq!(host.counted.lost.shutdown, 1);
    assert_eq!(host.counted.lost.total(), LossReason::ALL.len() as u64);
    assert_eq!(host.counted.acquired, LossReason::ALL.len() as u64);
    assert!(
        LossReason::ALL
            .iter()
            .all(|reason| host.counted.lost.of(*reason) == 1)
    );
    host.acquire(LOCK, Wait::Never);
    assert_eq!(host.counted.failed, 1, "the shutdown failed the call");
}

/// Catches a bound that belongs to the next bucket, and a time that is in no bucket.
#[test]
fn each_time_is_in_the_first_bucket_that_has_room_for_it() {
    let zero = Timestamp::from_nanos(0);
    for (at, bound) in Histogram::BOUNDS.into_iter().enumerate() {
        let mut counts = Counts::new();
        counts.replied(zero + bound, zero);
        counts.replied(zero + bound + Duration::from_micros(1), zero);
        let histogram = Stats::from(counts).round_trips;
        assert_eq!((histogram.buckets[at], histogram.buckets[at + 1]), (1, 1));
        assert_eq!(histogram.sum, bound * 2 + Duration::from_micros(1));
    }
    assert!(Histogram::BOUNDS.is_sorted());
    let mut counts = Counts::new();
    counts.replied(Timestamp::NEVER, zero);
    counts.replied(zero, Timestamp::NEVER);
    let buckets = Stats::from(counts).round_trips.buckets;
    assert_eq!((buckets[0], buckets.last()), (1, Some(&1)));
}

#[derive(serde::Deserialize)]
struct Vectors {
    numbers: Vec<u64>,
    stats: serde_json::Value,
}

/// The shared vectors: every language names the same numbers in the same way.
#[test]
fn the_numbers_have_their_names() {
    let text = crate::vectors("stats.json");
    let Vectors { numbers, stats } =
        serde_json::from_str(&text).expect("the vectors have this shape");
    let json = serde_json::to_value(Stats::from(Counts::of(&numbers)));
    // JSON does not tell integers from floating-point numbers.
    let same = |json: &serde_json::Value| {
        let text = json.to_string();
        text.replace(".0,", ",").replace(".0]", "]")
    };
    assert_eq!(same(&json.expect("the counts are numbers")), same(&stats));
}
