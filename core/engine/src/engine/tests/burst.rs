//! Bursts: more operations at once than the store executes within one attempt's time.

use super::host::{FAR, Host, LOCK, Net, PATIENCE, TIMEOUT, TTL, ms};
use crate::engine::servers::{MAX_BATCH, MAX_IN_FLIGHT};
use crate::engine::{CallId, LockId, Wait};
use crate::error::ErrorKind;

/// The operations in flight: the first ones leave one by one, and the next batches are full.
const UNDER_WAY: usize = MAX_IN_FLIGHT;

/// Asks for this many locks. The first batches stay in flight.
fn burst(host: &mut Host, count: usize, wait: Wait) -> Vec<CallId> {
    host.net = Net::Hold;
    host.subscribes = false;
    let locks = (0..count as u64).map(|number| LockId(1_000 + number));
    locks.map(|lock| host.acquire(lock, wait)).collect()
}

/// Catches operations that lose their place: one that did not leave in time went to the end of the queue.
#[test]
fn an_operation_that_did_not_leave_in_time_keeps_its_place() {
    let mut host = Host::new();
    let calls = burst(&mut host, UNDER_WAY + 12 * MAX_BATCH, Wait::Forever);
    // The first batches are lost, and the rest waits longer than one attempt's time.
    host.advance(TIMEOUT);
    host.pending.drain(..UNDER_WAY);
    assert_eq!(
        host.pending.len(),
        MAX_IN_FLIGHT,
        "the next batches leave at once"
    );
    host.advance(ms(500));
    host.answer_all();
    host.net = Net::Up;
    host.advance(TIMEOUT);
    for call in &calls {
        host.grant(*call);
    }
    let again = host.ops().len() - calls.len();
    assert_eq!(again, UNDER_WAY, "the others were sent once");
}

/// Catches leases that have expired on arrival, because their time began while they were queued.
#[test]
fn the_time_of_a_lease_begins_when_the_request_leaves() {
    let mut host = Host::new();
    host.ttl = ms(1_500);
    let calls = burst(&mut host, UNDER_WAY + 1, Wait::Forever);
    host.advance(ms(1_000));
    host.answer_next();
    host.answer_all();
    let last = host.grant(calls[UNDER_WAY]);
    assert!(last.deadline > host.now + ms(1_400));
    assert!(host.grant(calls[0]).deadline < host.now + ms(500));
}

#[test]
fn a_silent_store_is_waited_for_no_longer_than_the_patience() {
    let mut host = Host::new();
    let calls = burst(&mut host, UNDER_WAY + 5 * MAX_BATCH, Wait::Forever);
    host.advance(PATIENCE.saturating_sub(ms(1)));
    assert!(host.is_open(calls[calls.len() - 1]));
    host.advance(TIMEOUT + ms(1));
    for call in &calls {
        assert_eq!(host.error(*call), ErrorKind::Timeout);
    }
}

/// A call that does not wait gets its answer within one attempt's time. An operation that never left leaves
/// no doubt.
#[test]
fn a_try_that_did_not_leave_fails_after_one_attempt_and_did_nothing() {
    let mut host = Host::new();
    let calls = burst(&mut host, UNDER_WAY + 2, Wait::Never);
    host.advance(TIMEOUT);
    let last = calls[UNDER_WAY + 1];
    assert_eq!(host.error(last), ErrorKind::Timeout);
    let error = host.failure(last).to_string();
    assert!(error.contains("before it was sent"), "{error}");
    host.net = Net::Up;
    host.forget();
    host.advance(TTL);
    assert!(
        host.ops().len() <= UNDER_WAY,
        "an operation that never left needs no release"
    );
}

/// Catches leases that are lost because their renewals wait behind a burst of acquisitions.
#[test]
fn a_renewal_leaves_before_operations_that_were_queued_earlier() {
    let mut host = Host::new();
    host.back = FAR;
    let lease = host.hold(LOCK).lease;
    burst(&mut host, UNDER_WAY + 4 * MAX_BATCH, Wait::Forever);
    let renewal = host.renew(lease);
    host.answer_next();
    let next = host.pending.pop_back().expect("a batch left");
    host.answer(&next);
    assert!(host.outcome(renewal).error().is_none());
}

/// A release also keeps its place, and reports no error for it.
#[test]
fn a_release_that_did_not_leave_in_time_keeps_its_place() {
    let mut host = Host::new();
    host.back = FAR;
    let lease = host.hold(LOCK).lease;
    burst(&mut host, UNDER_WAY, Wait::Forever);
    let release = host.release(lease);
    for _ in 0..2 {
        host.advance(ms(1_900));
        assert!(host.is_open(release));
    }
    host.net = Net::Up;
    host.answer_all();
    host.advance(TIMEOUT);
    assert!(host.outcome(release).error().is_none());
    assert_eq!(host.ops().iter().filter(|op| **op == "release").count(), 1);
}
