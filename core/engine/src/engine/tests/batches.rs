//! Batching: which operations share a batch, and when it leaves.

use std::ops::Range;
use std::time::Duration;

use super::host::{Host, Net};
use crate::engine::servers::{
    APART, FEW_IN_FLIGHT, LATE, LEAST_HALF, MANY, MAX_BATCH, MAX_IN_FLIGHT, NEAR,
};
use crate::engine::{Input, LockId, Output, Wait};

/// Returns a host whose requests stay in flight, with this round-trip time.
fn at(round_trip: Duration) -> Host {
    let mut host = Host::unconnected();
    host.net = Net::Hold;
    host.subscribes = false;
    host.connect(0);
    host.sleep(round_trip);
    host.answer_next();
    host
}

/// Asks for this many more locks, one after the other.
fn ask(host: &mut Host, count: usize) {
    for _ in 0..count {
        let lock = LockId(host.next_call().0);
        host.acquire(lock, Wait::Forever);
    }
}

/// Catches a script call for every operation, and a store that idles while many operations are pending.
#[test]
fn while_batches_are_in_flight_half_of_the_callers_leave_together() {
    let mut host = at(NEAR / 2);
    ask(&mut host, 3);
    assert_eq!(host.sizes(), [1, 1, 1], "the first batches leave at once");
    ask(&mut host, 1);
    assert_eq!(host.sizes(), [1, 1, 1]);
    ask(&mut host, 1);
    assert_eq!(host.sizes(), [1, 1, 1, 2]);
    assert_eq!(host.pending.len(), FEW_IN_FLIGHT);
    ask(&mut host, MAX_BATCH - 1);
    assert_eq!(host.sizes(), [1, 1, 1, 2]);
    ask(&mut host, 1);
    assert_eq!(host.sizes(), [1, 1, 1, 2, MAX_BATCH]);
}

/// Catches halves that leave so late that the store waits for them.
#[test]
fn with_many_callers_a_few_operations_are_enough_for_a_batch() {
    let mut host = at(NEAR / 2);
    ask(&mut host, 5 + 2 * MAX_BATCH);
    while host.pending.len() > 1 {
        host.answer_next();
    }
    ask(&mut host, MANY - 1);
    host.sleep(APART);
    assert_eq!(host.sizes(), [MAX_BATCH]);
    ask(&mut host, 1);
    assert_eq!(host.sizes(), [MAX_BATCH, MANY]);
}

#[test]
fn the_number_of_batches_in_flight_is_bounded() {
    let mut host = at(NEAR / 2);
    ask(&mut host, 5 + MAX_IN_FLIGHT * MAX_BATCH + 40);
    assert_eq!(host.pending.len(), MAX_IN_FLIGHT);
    for _ in 0..FEW_IN_FLIGHT {
        host.answer_next();
        assert_eq!(host.sizes().last(), Some(&MAX_BATCH));
        assert_eq!(host.pending.len(), MAX_IN_FLIGHT);
    }
    for left in (FEW_IN_FLIGHT..MAX_IN_FLIGHT).rev() {
        host.answer_next();
        assert_eq!(
            host.sizes(),
            vec![MAX_BATCH; left],
            "only full batches left"
        );
    }
    host.sleep(APART);
    host.answer_next();
    assert_eq!(host.sizes(), [MAX_BATCH, MAX_BATCH, MAX_BATCH, 40]);
}

/// Catches callers on a slow network that wait for the replies to others as long as for their own.
#[test]
fn on_a_slow_network_nothing_waits_for_a_reply() {
    for (times, at_once) in [(3, 4), (6, 7), (7, 8), (60, 8)] {
        let mut host = at(NEAR * times);
        ask(&mut host, MANY - 1);
        assert_eq!(host.sizes(), vec![1; at_once], "{times}");
    }
}

/// Catches a connection that inherits the round-trip time of the one before.
#[test]
fn the_round_trip_is_measured_anew_on_each_connection() {
    for (first, then) in [(NEAR * 8, NEAR / 2), (NEAR / 2, NEAR * 8)] {
        let mut host = at(first);
        host.connect(0);
        host.sleep(then);
        host.answer_next();
        ask(&mut host, 8);
        let at_once = if then < NEAR { FEW_IN_FLIGHT } else { 8 };
        assert_eq!(host.pending.len(), at_once);
    }
}

/// Catches a store that hangs and is found out later than necessary, and one stuck caller that holds up all
/// others.
#[test]
fn nothing_waits_for_a_late_reply() {
    let mut host = at(NEAR / 2);
    ask(&mut host, 6);
    host.advance(LATE.saturating_sub(Duration::from_nanos(1)));
    assert_eq!(host.sizes(), [1, 1, 1, 2]);
    host.advance(Duration::from_nanos(1));
    assert_eq!(
        host.sizes(),
        [1, 1, 1, 2, 1],
        "the last batch leaves without another input"
    );
    ask(&mut host, MANY);
    assert_eq!(host.pending.len(), MAX_IN_FLIGHT);
}

/// Asks for a lock, and returns what a host checks before it sends: true if more operations are expected.
fn begins(host: &mut Host, lock: u64) -> bool {
    host.begin(LockId(lock));
    host.engine.expects_more()
}

/// Catches batches that alternate between one operation and all others, and a lone caller that waits for no
/// one.
#[test]
fn more_operations_are_expected_after_a_batch_of_several() {
    let mut host = at(NEAR / 2);
    for lock in 1..5 {
        assert!(!begins(&mut host, lock), "the caller is alone");
        host.settle();
        host.answer_next();
    }
    for lock in 11..16 {
        assert!(
            !begins(&mut host, lock),
            "the operation leaves at once, or cannot leave yet"
        );
        host.settle();
    }
    assert_eq!(host.sizes(), [1, 1, 1, 2]);
    for left in (0..4).rev() {
        let (first, now) = (host.pending.pop_front(), host.now);
        let first = first.expect("the batch is in flight");
        let reply = host.execute(&first);
        host.engine
            .handle(now, Input::reply(first.request, Ok(reply)));
        assert_eq!(
            host.engine.expects_more(),
            left == 0,
            "the answered callers may ask again"
        );
        while !matches!(host.engine.poll_unsent(), Output::Wait { .. }) {}
    }
    assert!(begins(&mut host, 21) && begins(&mut host, 22));
    assert!(!begins(&mut host, 23), "half of the callers are pending");
    host.settle();
    assert_eq!(host.sizes(), [3]);
    host.answer_next();
    let expects = |lock| {
        let expects = begins(&mut host, lock);
        host.settle();
        host.answer_next();
        expects
    };
    let waits: Vec<_> = (31..50).map(expects).collect();
    assert!(waits[0], "other callers may come as before");
    assert!(!waits[18], "the last callers were alone");
}

/// Catches a store and a host that wait for each other: operations that leave all at once are answered all at
/// once.
#[test]
fn when_many_callers_ask_at_once_one_half_leaves_while_the_other_is_answered() {
    let half = MANY;
    let mut host = at(NEAR / 2);
    let all_ask = |host: &mut Host, locks: Range<u64>| {
        for lock in locks {
            begins(host, lock);
        }
        host.settle();
    };
    all_ask(&mut host, 1..1 + 2 * half as u64);
    assert_eq!(host.sizes(), [half], "the other half waits");
    host.answer_next();
    assert_eq!(host.sizes(), [half], "the other half leaves at the reply");
    all_ask(&mut host, 101..101 + half as u64);
    assert_eq!(host.sizes(), [half], "two batches would arrive together");
    host.sleep(APART);
    all_ask(&mut host, 201..202);
    assert_eq!(host.sizes(), [half, half + 1]);
}

/// Catches calls that cost more than they gain: on a slow network, and with few callers in turn.
#[test]
fn all_callers_share_a_batch_where_halves_gain_nothing() {
    for (way, callers) in [(NEAR * 3, 4 * MANY), (NEAR / 2, 2 * LEAST_HALF - 2)] {
        let mut host = at(way);
        for lock in 1..=callers {
            begins(&mut host, lock as u64);
        }
        host.settle();
        assert_eq!(host.sizes(), [callers]);
    }
}

/// Catches the second half of a burst that a silent store holds up until its requests time out.
#[test]
fn the_other_half_of_the_callers_does_not_wait_for_a_late_reply() {
    let mut host = at(NEAR / 2);
    for lock in 1..=2 * MANY {
        begins(&mut host, lock as u64);
    }
    host.settle();
    assert_eq!(host.sizes(), [MANY]);
    host.advance(LATE);
    assert_eq!(host.sizes(), [MANY, MANY]);
}
