//! Each acquisition through one handle excludes every other one, unless the handle is re-entrant.

use super::host::{Host, LOCK, Net, TTL, lease_of, ms};
use crate::engine::{Answer, LockId, Wait};
use crate::error::ErrorKind;
use crate::event::LeaseEvent;

fn exclusive() -> Host {
    let mut host = Host::new();
    host.reentrant = false;
    host
}

/// Catches a handle that acts as one owner, so that all its acquisitions would hold the lock at once.
#[test]
fn acquisitions_of_one_handle_hold_the_lock_one_after_the_other() {
    let mut host = exclusive();
    let calls = [(); 4].map(|()| host.acquire(LOCK, Wait::Forever));
    let refused = host.acquire(LOCK, Wait::Never);
    assert_eq!(host.outcome(refused), &Answer::Acquire(Ok(None)));
    for (index, call) in calls.into_iter().enumerate() {
        assert!(calls[index + 1..].iter().all(|later| host.is_open(*later)));
        let grant = host.grant(call);
        assert_eq!((grant.lock, grant.lease), (LOCK, lease_of(call)));
        host.advance(ms(10));
        host.release(grant.lease);
    }
    let kept = |told: &&String| !told.starts_with("waiting") && !told.starts_with("renewed");
    let told = host.told();
    let expected = (1..=4).flat_map(|n| [format!("acquired {n}"), format!("released {n}")]);
    assert!(
        told.iter().filter(kept).eq(&expected.collect::<Vec<_>>()),
        "{told:?}"
    );
    assert!(!host.is_taken(LOCK) && host.engine.is_idle());
}

#[test]
fn a_canceled_acquisition_leaves_the_others_of_its_handle_alone() {
    let mut host = exclusive();
    let calls = [(); 3].map(|()| host.acquire(LOCK, Wait::Forever));
    host.cancel(calls[1]);
    let first = host.grant(calls[0]).lease;
    host.release(first);
    host.advance(ms(10));
    assert!(host.is_open(calls[1]));
    assert_eq!(host.grant(calls[2]).token.get(), 2);
}

/// Catches a search through all of a handle's acquisitions for each one, and a request for each.
#[test]
fn many_acquisitions_of_one_handle_send_no_more_than_those_of_many_handles() {
    let asked = |lock_of: fn(u64) -> LockId| {
        let mut host = exclusive();
        let mut calls = Vec::new();
        for number in 0..1_000 {
            calls.push(host.acquire_as(lock_of(number), LOCK, Wait::Forever));
        }
        for call in calls {
            let lease = host.grant(call).lease;
            host.release(lease);
        }
        assert!(host.engine.is_idle());
        host.ops().len()
    };
    assert_eq!(asked(|_| LOCK), asked(|number| LockId(number + 1)));
}

/// The store lost the holder, so two acquisitions of one handle believe that they hold the lock.
#[test]
fn a_reader_of_a_handle_sees_all_its_leases_and_the_loss_of_each() {
    let mut host = exclusive();
    let first = host.acquire(LOCK, Wait::Never);
    host.servers[0].flush();
    let second = host.acquire(LOCK, Wait::Never);
    let leases = [first, second].map(|call| host.grant(call).lease);
    let held: Vec<_> = host.engine.held(host.now, LOCK).collect();
    let mut seen: Vec<_> = held.iter().map(|(lease, _)| *lease).collect();
    seen.sort_unstable();
    assert_eq!(seen, leases);
    assert!(
        held.iter()
            .all(|(_, event)| matches!(event, LeaseEvent::Acquired { .. }))
    );
    host.forget();
    host.advance(TTL / 2);
    let lost = host
        .told()
        .into_iter()
        .filter(|told| told.starts_with("lost"));
    assert_eq!(
        lost.count(),
        1,
        "the first lease is lost, and the second is renewed"
    );
    assert_eq!(host.engine.held(host.now, LOCK).count(), 1);
    let gone = host.release(leases[0]);
    assert_eq!(host.error(gone), ErrorKind::NotHeld);
    host.release(leases[1]);
    assert_eq!(host.engine.held(host.now, LOCK).count(), 0);
}

/// Catches a stream that ends before its last event.
#[test]
fn a_handle_is_closed_after_its_last_release() {
    let mut host = exclusive();
    let first = host.acquire(LOCK, Wait::Never);
    host.servers[0].flush();
    let second = host.acquire(LOCK, Wait::Never);
    host.net = Net::Hold;
    let leases = [first, second].map(|call| host.grant(call).lease);
    for lease in leases {
        host.release(lease);
    }
    host.close(LOCK);
    assert!(host.closed.is_empty());
    host.answer_next();
    assert_eq!(host.closed.is_empty(), !host.pending.is_empty());
    host.answer_all();
    assert_eq!(host.closed, [LOCK]);
    assert!(host.engine.is_idle());
}

/// A reused lease ID would mix up two tenures.
#[test]
fn a_lease_id_that_is_in_use_is_refused() {
    let (mut host, lease) = Host::holding();
    host.reentrant = false;
    let (lock, wait) = (LockId(2), Wait::Never);
    let (call, spec) = (host.next_call(), host.spec(lock).into());
    host.input(crate::engine::Input::Acquire {
        call,
        lock,
        spec,
        lease,
        wait,
    });
    assert_eq!(host.error(call), ErrorKind::Config);
    assert!(host.is_held(LOCK));
}
