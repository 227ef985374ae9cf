//! Locks whose handle the program has dropped.

use super::host::{Host, LEAD, LOCK, Net, TTL, ms};
use crate::engine::{LockId, Wait};

#[test]
fn an_idle_lock_closes_at_once() {
    let mut host = Host::new();
    host.close(LOCK);
    assert_eq!(host.closed, [LOCK]);
}

#[test]
fn a_held_lock_closes_when_its_release_is_confirmed() {
    let (mut host, lease) = Host::holding();
    host.close(LOCK);
    assert!(host.closed.is_empty());
    host.net = Net::Hold;
    host.release(lease);
    assert!(host.closed.is_empty());
    host.answer_next();
    assert_eq!(host.closed, [LOCK]);
    assert!(host.engine.is_idle());
}

#[test]
fn a_held_lock_closes_when_it_is_lost() {
    let (mut host, _) = Host::holding();
    host.close(LOCK);
    host.servers[0].delete(&super::host::key(LOCK));
    host.advance(TTL / 3);
    assert_eq!(host.closed, [LOCK]);
}

#[test]
fn a_release_without_an_answer_closes_the_lock_at_the_deadline() {
    let mut host = Host::new();
    let grant = host.hold(LOCK);
    host.net = Net::LoseRequests;
    host.release(grant.lease);
    host.close(LOCK);
    host.advance_to(grant.deadline - LEAD - ms(1));
    assert!(host.closed.is_empty());
    host.advance(ms(1));
    assert_eq!(host.closed, [LOCK]);
    assert_eq!(host.told(), ["acquired 1", "lost: expired"]);
}

#[test]
fn a_canceled_acquisition_closes_once_and_emits_nothing_after() {
    let (mut host, call) = Host::asking();
    host.close(LOCK);
    assert!(host.closed.is_empty());
    host.cancel(call);
    assert_eq!(host.closed, [LOCK]);
    assert!(!host.engine.is_idle(), "its release is in flight");
    host.net = Net::Up;
    host.answer_all();
    host.advance(TTL * 2);
    assert_eq!(
        (host.closed.as_slice(), host.events.len()),
        ([LOCK].as_slice(), 0)
    );
    assert!(host.engine.is_idle());
}

#[test]
fn a_lock_that_is_acquired_again_stays_open_after_its_earlier_release() {
    let mut host = Host::new();
    let first = host.hold(LOCK).lease;
    host.net = Net::Hold;
    host.release(first);
    let call = host.acquire(LOCK, Wait::Forever);
    host.close(LOCK);
    host.answer_all();
    assert!(host.closed.is_empty(), "a lease is held");
    let second = host.grant(call).lease;
    host.release(second);
    host.answer_all();
    assert_eq!(host.closed, [LOCK]);
}

#[test]
fn a_shutdown_closes_the_locks_that_were_dropped() {
    let (mut host, _) = Host::holding();
    host.hold(LockId(2));
    host.close(LOCK);
    host.shutdown();
    assert_eq!(host.closed, [LOCK]);
}

#[test]
fn an_engine_is_idle_between_tenures_and_never_during_one() {
    let mut host = Host::new();
    assert!(host.engine.is_idle());
    let lease = host.hold(LOCK).lease;
    assert!(!host.engine.is_idle());
    host.release(lease);
    assert!(host.engine.is_idle());
    host.net = Net::Hold;
    host.inspect(LOCK);
    assert!(!host.engine.is_idle());
    host.answer_all();
    assert!(host.engine.is_idle());
}
