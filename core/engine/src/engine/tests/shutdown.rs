//! Shutting a locker down.

use super::host::{FAR, Host, LOCK, Net, PATIENCE, TTL, ms};
use crate::engine::{Answer, LockId, Wait};
use crate::error::ErrorKind;
use crate::share::Sharing;

#[test]
fn shutting_down_frees_held_locks_and_fails_waiting_calls() {
    let (mut host, _) = Host::holding();
    host.stranger_acquires(LockId(2), TTL);
    let waiter = host.acquire(LockId(2), Wait::Forever);
    host.forget();
    let call = host.shutdown();
    assert_eq!(host.error(waiter), ErrorKind::Shutdown);
    assert_eq!(host.told(), ["lost: shutdown"]);
    assert_eq!(host.outcome(call), &Answer::Shutdown);
    assert_eq!(
        host.ops(),
        ["release", "release"],
        "one release for the lease and one for the place in line"
    );
    assert!(!host.is_taken(LOCK) && host.is_taken(LockId(2)));
    assert_eq!(host.waiting(LockId(2)), 0);
    assert!(host.engine.is_idle());
    assert_eq!(host.wake, None);
}

#[test]
fn shutting_down_with_nothing_to_do_is_done_at_once() {
    for mut host in [Host::new(), Host::unconnected()] {
        let call = host.shutdown();
        assert_eq!(host.outcome(call), &Answer::Shutdown);
        let again = host.shutdown();
        assert_eq!(host.outcome(again), &Answer::Shutdown);
    }
}

#[test]
fn a_shutdown_is_complete_when_the_store_has_confirmed() {
    let mut host = Host::new();
    host.back = FAR;
    host.hold(LOCK);
    let released = host.hold(LockId(2)).lease;
    host.net = Net::Hold;
    let acquiring = host.acquire(LockId(3), Wait::Forever);
    let release = host.release(released);
    let query = host.inspect(LOCK);
    let call = host.shutdown();
    assert_eq!(host.error(acquiring), ErrorKind::Shutdown);
    assert_eq!(host.error(query), ErrorKind::Shutdown);
    assert!(host.is_open(call) && host.is_open(release));
    while host.pending.len() > 1 {
        host.answer_next();
        assert!(host.is_open(call));
    }
    host.answer_next();
    assert_eq!(host.outcome(release), &Answer::Release(Ok(())));
    assert_eq!(host.outcome(call), &Answer::Shutdown);
    assert!(
        [LOCK, LockId(2), LockId(3)]
            .iter()
            .all(|id| !host.is_taken(*id))
    );
}

#[test]
fn a_shutdown_is_complete_after_the_patience_in_any_case() {
    for connected in [true, false] {
        let (mut host, _) = Host::holding();
        host.net = Net::LoseRequests;
        if !connected {
            host.disconnect();
        }
        let start = host.now;
        let call = host.shutdown();
        host.advance(ms(9_999));
        assert!(host.is_open(call));
        host.advance(ms(1));
        assert_eq!(host.outcome(call), &Answer::Shutdown);
        assert_eq!(host.answered(call), start + PATIENCE);
        host.advance(TTL);
        assert!(host.engine.is_idle(), "the attempts end with the lease");
    }
}

#[test]
fn calls_after_a_shutdown_are_refused() {
    let (mut host, lease) = Host::holding();
    host.shutdown();
    host.forget();
    for call in [
        host.acquire(LOCK, Wait::Forever),
        host.acquire(LockId(2), Wait::Never),
        host.renew(lease),
        host.pass(lease),
        host.inspect(LOCK),
        host.list(0),
        host.force_release(LOCK),
        host.request_yield(LOCK, "deploy", TTL),
        host.resize(LOCK, Sharing::Slots, 2),
    ] {
        assert_eq!(host.error(call), ErrorKind::Shutdown);
    }
    let release = host.release(lease);
    assert_eq!(
        host.error(release),
        ErrorKind::NotHeld,
        "the lease was lost by the shutdown"
    );
    assert!(host.log.is_empty() && host.events.is_empty());
}

#[test]
fn a_reconnect_during_a_shutdown_lets_the_releases_through() {
    let (mut host, _) = Host::holding();
    host.disconnect();
    let call = host.shutdown();
    host.advance(ms(3_000));
    assert!(host.is_open(call));
    host.connect(0);
    assert_eq!(host.outcome(call), &Answer::Shutdown);
    assert!(!host.is_taken(LOCK));
}
