//! What leaves together, and when.

use std::time::Duration;

use super::host::{Host, Net, lease_of};
use crate::engine::servers::{LATE, MANY, MAX_BATCH, MAX_IN_FLIGHT, NEAR};
use crate::engine::{Input, LockId, Output, Wait};

/// How many operations each batch has that is under way.
fn sizes(host: &Host) -> Vec<usize> {
    host.pending.iter().map(|sent| sent.batch.len()).collect()
}

/// A host whose requests stay under way, on a link of this length.
fn at(round_trip: Duration) -> Host {
    let mut host = Host::unconnected();
    host.net = Net::Hold;
    host.subscribes = false;
    host.input(Input::CONNECTED);
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
fn while_a_batch_is_under_way_operations_leave_when_they_are_many() {
    let mut host = at(NEAR / 2);
    ask(&mut host, 1);
    assert_eq!(sizes(&host), [1], "the first waits for nothing");
    ask(&mut host, MANY - 1);
    assert_eq!(sizes(&host), [1]);
    ask(&mut host, 1);
    assert_eq!(sizes(&host), [1, MANY]);
    ask(&mut host, MAX_BATCH - 1);
    assert_eq!(sizes(&host), [1, MANY]);
    ask(&mut host, 1);
    assert_eq!(sizes(&host), [1, MANY, MAX_BATCH]);
}

#[test]
fn only_so_many_batches_are_under_way() {
    let mut host = at(NEAR / 2);
    ask(&mut host, 1 + MANY + MAX_IN_FLIGHT * MAX_BATCH + 40);
    assert_eq!(host.pending.len(), MAX_IN_FLIGHT);
    for _ in 0..2 {
        host.answer_next();
        assert_eq!(sizes(&host).last(), Some(&MAX_BATCH));
        assert_eq!(host.pending.len(), MAX_IN_FLIGHT);
    }
    for left in (1..MAX_IN_FLIGHT).rev() {
        assert!(!sizes(&host).contains(&40));
        host.answer_next();
        assert_eq!(host.pending.len(), left.max(2), "full ones left");
    }
    assert_eq!(sizes(&host), [MAX_BATCH, 40]);
}

/// Catches callers who wait for the replies to others for as long as for their own, where that is long.
#[test]
fn on_a_long_way_nothing_waits_for_a_reply() {
    for (times, at_once) in [(0, 1), (1, 2), (2, 3), (6, 7), (7, 8), (60, 8)] {
        let mut host = at(NEAR * times);
        ask(&mut host, MANY - 1);
        assert_eq!(sizes(&host), vec![1; at_once], "{times}");
    }
}

/// Catches a link that is taken for what the one before it was.
#[test]
fn the_length_of_the_way_is_measured_anew_on_each_link() {
    for (first, then) in [(NEAR * 8, NEAR / 2), (NEAR / 2, NEAR * 8)] {
        let mut host = at(first);
        host.input(Input::CONNECTED);
        host.sleep(then);
        host.answer_next();
        ask(&mut host, 3);
        assert_eq!(host.pending.len(), if then < NEAR { 1 } else { 3 });
    }
}

/// Catches a store that hangs, and is found out the later for it; and one caller who does not take in
/// its reply, and holds up all others.
#[test]
fn nothing_waits_for_a_reply_that_is_late() {
    let mut host = at(NEAR / 2);
    ask(&mut host, 2);
    host.advance(LATE.saturating_sub(Duration::from_nanos(1)));
    assert_eq!(sizes(&host), [1]);
    host.advance(Duration::from_nanos(1));
    assert_eq!(sizes(&host), [1, 1], "without a further input");
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
    host.engine.handle(host.now, input);
    host.engine.expects_more()
}

/// Catches batches of one and of all others that take turns, and a lone caller that waits for nobody.
#[test]
fn more_is_expected_after_several_left_together() {
    let mut host = at(NEAR / 2);
    for lock in 1..5 {
        assert!(!begins(&mut host, lock), "it is alone");
        host.drain();
        host.answer_next();
    }
    assert!(!begins(&mut host, 11));
    host.drain();
    assert!(!begins(&mut host, 12), "it cannot leave yet");
    host.drain();
    assert_eq!(sizes(&host), [1]);
    let (first, now) = (host.pending.pop_front(), host.now);
    let first = first.expect("it is under way");
    let reply = host.execute(&first);
    host.engine
        .handle(now, Input::reply(first.request, Ok(reply)));
    assert!(host.engine.expects_more(), "of who was answered");
    while !matches!(host.engine.poll_unsent(), Output::Wait { .. }) {}
    assert!(begins(&mut host, 13));
    host.drain();
    assert_eq!(sizes(&host), [2]);
    host.answer_next();
    for lock in 14..14 + MANY as u64 - 1 {
        assert!(begins(&mut host, lock), "{lock}");
    }
    assert!(!begins(&mut host, 99), "these are many already");
    host.drain();
    host.answer_next();
    assert!(begins(&mut host, 100));
    host.drain();
    host.answer_next();
    assert!(!begins(&mut host, 101), "the last was alone");
}
