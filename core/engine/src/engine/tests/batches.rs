//! What leaves together, and when.

use std::ops::Range;
use std::time::Duration;

use super::host::{Host, Net, lease_of};
use crate::engine::servers::{
    APART, FEW_IN_FLIGHT, LATE, LEAST_HALF, MANY, MAX_BATCH, MAX_IN_FLIGHT, NEAR,
};
use crate::engine::{Input, LockId, Output, Wait};

/// A host whose requests stay under way, on a link of this length.
fn at(round_trip: Duration) -> Host {
    let mut host = Host::unconnected();
    host.net = Net::Hold;
    host.subscribes = false;
    host.connect(0);
    host.sleep(round_trip);
    host.answer_next();
    host
}

/// So many more locks are asked for, one after the other.
fn ask(host: &mut Host, count: usize) {
    for _ in 0..count {
        let lock = LockId(host.next_call().0);
        host.acquire(lock, Wait::Forever);
    }
}

/// Catches a call of the script for every operation, and a store that stands idle while much waits.
#[test]
fn while_batches_are_under_way_operations_leave_when_they_are_half_of_all() {
    let mut host = at(NEAR / 2);
    ask(&mut host, 3);
    assert_eq!(host.sizes(), [1, 1, 1], "so few wait for nothing");
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
fn of_many_callers_a_few_are_enough_to_leave() {
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
fn only_so_many_batches_are_under_way() {
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
        assert_eq!(host.sizes(), vec![MAX_BATCH; left], "only full ones left");
    }
    host.sleep(APART);
    host.answer_next();
    assert_eq!(host.sizes(), [MAX_BATCH, MAX_BATCH, MAX_BATCH, 40]);
}

/// Catches callers who wait for the replies to others for as long as for their own, where that is long.
#[test]
fn on_a_long_way_nothing_waits_for_a_reply() {
    for (times, at_once) in [(3, 4), (6, 7), (7, 8), (60, 8)] {
        let mut host = at(NEAR * times);
        ask(&mut host, MANY - 1);
        assert_eq!(host.sizes(), vec![1; at_once], "{times}");
    }
}

/// Catches a link that is taken for what the one before it was.
#[test]
fn the_length_of_the_way_is_measured_anew_on_each_link() {
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

/// Catches a store that hangs, and is found out the later for it; and one caller who does not take in
/// its reply, and holds up all others.
#[test]
fn nothing_waits_for_a_reply_that_is_late() {
    let mut host = at(NEAR / 2);
    ask(&mut host, 6);
    host.advance(LATE.saturating_sub(Duration::from_nanos(1)));
    assert_eq!(host.sizes(), [1, 1, 1, 2]);
    host.advance(Duration::from_nanos(1));
    assert_eq!(host.sizes(), [1, 1, 1, 2, 1], "without a further input");
    ask(&mut host, MANY);
    assert_eq!(host.pending.len(), MAX_IN_FLIGHT);
}

/// The question of a host of one locker, as it asks before it sends.
fn begins(host: &mut Host, lock: u64) -> bool {
    let (call, spec) = (host.next_call(), host.spec(LockId(lock)).into());
    let input = Input::Acquire {
        call,
        lock: LockId(lock),
        spec,
        lease: lease_of(call),
        wait: Wait::Never,
    };
    let now = host.now;
    host.engine.handle(now, input);
    host.engine.expects_more()
}

/// Catches batches of one and of all others that take turns, and a lone caller that waits for nobody.
#[test]
fn more_is_expected_after_several_left_together() {
    let mut host = at(NEAR / 2);
    for lock in 1..5 {
        assert!(!begins(&mut host, lock), "it is alone");
        host.settle();
        host.answer_next();
    }
    for lock in 11..16 {
        assert!(
            !begins(&mut host, lock),
            "it leaves at once, or cannot leave yet"
        );
        host.settle();
    }
    assert_eq!(host.sizes(), [1, 1, 1, 2]);
    for left in (0..4).rev() {
        let (first, now) = (host.pending.pop_front(), host.now);
        let first = first.expect("it is under way");
        let reply = host.execute(&first);
        host.engine
            .handle(now, Input::reply(first.request, Ok(reply)));
        assert_eq!(host.engine.expects_more(), left == 0, "of who was answered");
        while !matches!(host.engine.poll_unsent(), Output::Wait { .. }) {}
    }
    assert!(begins(&mut host, 21) && begins(&mut host, 22));
    assert!(!begins(&mut host, 23), "the half is there");
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
    assert!(waits[0], "others may come as before");
    assert!(!waits[18], "the last were alone");
}

/// Catches a store and a host that wait for one another: what leaves at once is answered at once.
#[test]
fn of_many_callers_that_ask_at_once_each_half_leaves_while_the_other_is_answered() {
    let half = MANY;
    let mut host = at(NEAR / 2);
    let all_ask = |host: &mut Host, locks: Range<u64>| {
        for lock in locks {
            begins(host, lock);
        }
        host.settle();
    };
    all_ask(&mut host, 1..1 + 2 * half as u64);
    assert_eq!(host.sizes(), [half], "the others wait");
    host.answer_next();
    assert_eq!(host.sizes(), [half], "until the reply");
    all_ask(&mut host, 101..101 + half as u64);
    assert_eq!(host.sizes(), [half], "these would come with those");
    host.sleep(APART);
    all_ask(&mut host, 201..202);
    assert_eq!(host.sizes(), [half, half + 1]);
}

/// Catches calls that are paid for and gain nothing: where the way is long, and where few take turns.
#[test]
fn callers_leave_together_where_halves_gain_nothing() {
    for (way, callers) in [(NEAR * 3, 4 * MANY), (NEAR / 2, 2 * LEAST_HALF - 2)] {
        let mut host = at(way);
        for lock in 1..=callers {
            begins(&mut host, lock as u64);
        }
        host.settle();
        assert_eq!(host.sizes(), [callers]);
    }
}
