//! All calls of a re-entrant handle share one tenure.

use std::collections::BTreeSet;

use super::host::{Host, LOCK, Net, Pushes, TTL, ms};
use crate::engine::{Acquired, Answer, LockId, Wait};
use crate::error::ErrorKind;

#[test]
fn while_a_lock_is_held_its_handle_shares_the_tenure_without_a_request() {
    let mut host = Host::new();
    let first = host.hold(LOCK);
    let second = host.acquire(LOCK, Wait::Forever);
    assert_eq!(host.grant(second), first);
    assert_eq!(host.ops(), ["acquire"]);
    assert_eq!(host.told(), ["acquired 1"]);
}

#[test]
fn a_tenure_is_shared_without_a_connection_too() {
    let mut host = Host::new();
    let first = host.hold(LOCK);
    host.disconnect();
    let second = host.acquire(LOCK, Wait::Never);
    assert_eq!(host.grant(second), first);
}

#[test]
fn a_shared_tenure_is_freed_with_its_last_lease() {
    let (mut host, lease) = Host::holding();
    host.hold(LOCK);
    let first = host.release(lease);
    assert_eq!(host.outcome(first), &Answer::Release(Ok(())));
    assert!(host.is_taken(LOCK) && host.is_held(LOCK));
    assert_eq!(host.ops(), ["acquire"]);
    let last = host.release(lease);
    assert_eq!(host.outcome(last), &Answer::Release(Ok(())));
    assert!(!host.is_taken(LOCK) && !host.is_held(LOCK));
    assert_eq!(host.told(), ["acquired 1", "released 1"]);
    let more = host.release(lease);
    assert_eq!(host.error(more), ErrorKind::NotHeld);
}

#[test]
fn callers_that_wait_together_share_one_acquisition_and_its_tenure() {
    let mut host = Host::on(Net::Hold);
    let calls = [Wait::Never, Wait::Forever, Wait::Until(host.now + ms(500))];
    let calls = calls.map(|wait| host.acquire(LOCK, wait));
    assert_eq!(host.ops(), ["acquire"]);
    host.answer_next();
    let grants = calls.map(|call| host.grant(call));
    assert!(grants.iter().all(|grant| *grant == grants[0]));
    assert_eq!(host.told(), ["acquired 1"]);
    host.net = Net::Up;
    for left in [2, 1, 0] {
        host.release(grants[0].lease);
        assert_eq!(host.is_taken(LOCK), left > 0);
    }
}

#[test]
fn each_caller_of_one_acquisition_waits_for_as_long_as_it_wanted() {
    let mut host = Host::new();
    host.stranger_acquires(LOCK, TTL);
    let start = host.now;
    let forever = host.acquire(LOCK, Wait::Forever);
    let long = host.acquire(LOCK, Wait::Until(start + ms(777)));
    let short = host.acquire(LOCK, Wait::Until(start + ms(333)));
    host.advance(ms(1_000));
    assert_eq!(host.outcome(short), &Answer::Acquire(Ok(None)));
    assert_eq!(host.answered(short), start + ms(333));
    assert_eq!(host.outcome(long), &Answer::Acquire(Ok(None)));
    assert_eq!(host.answered(long), start + ms(777));
    assert!(host.is_open(forever));
    assert_eq!(host.told(), ["waiting 1"]);
}

/// Otherwise the caller would get an answer from before its call.
#[test]
fn a_caller_that_does_not_wait_asks_again_beside_one_that_does() {
    let mut host = Host::new();
    host.pushes = Pushes::Drop;
    host.stranger_acquires(LOCK, TTL);
    let forever = host.acquire(LOCK, Wait::Forever);
    host.advance(ms(1));
    host.forget();
    let never = host.acquire(LOCK, Wait::Never);
    assert_eq!(host.outcome(never), &Answer::Acquire(Ok(None)));
    assert_eq!(host.ops(), ["acquire"]);
    host.stranger_releases(LOCK);
    host.sleep(ms(1));
    assert!(host.is_open(forever), "the waiting caller was not answered");
    let never = host.acquire(LOCK, Wait::Never);
    let (never, forever) = (host.grant(never), host.grant(forever));
    assert_eq!((never.waited, forever.waited), (ms(0), ms(2)));
    let same = Acquired {
        waited: never.waited,
        ..forever
    };
    assert_eq!(never, same, "both calls share the tenure");
}

/// The caller whose wait ends first ends the attempt that the others share.
#[test]
fn a_caller_that_joins_gives_the_store_its_full_time() {
    let mut host = Host::on(Net::Hold);
    let short = host.acquire(LOCK, Wait::Until(host.now + ms(100)));
    let never = host.acquire(LOCK, Wait::Never);
    host.advance(ms(200));
    assert!(host.outcome(short).error().is_some());
    assert!(
        host.is_open(never),
        "one attempt may take 2 s: {:?}",
        host.outcome(never)
    );
}

/// Catches a second request for what the one under way does already: it takes the place in line of both calls.
#[test]
fn a_caller_that_joins_one_that_waits_asks_nothing_of_its_own() {
    let mut host = Host::new();
    // It hears pushes from now on.
    host.hold(LockId(2));
    host.stranger_acquires(LOCK, TTL);
    host.forget();
    host.net = Net::Hold;
    host.acquire(LOCK, Wait::Forever);
    host.acquire(LOCK, Wait::Forever);
    host.answer_next();
    host.advance(ms(1));
    assert_eq!(host.ops(), ["acquire"]);
}

#[test]
fn locks_of_different_names_are_independent() {
    let mut host = Host::new();
    let first = host.hold(LOCK);
    let second = host.hold(LockId(2));
    assert_ne!(first.lease, second.lease);
    host.release(first.lease);
    assert!(!host.is_held(LOCK) && host.is_held(LockId(2)));
    let wrong = host.release(first.lease);
    assert_eq!(
        host.error(wrong),
        ErrorKind::NotHeld,
        "the lease belongs to another tenure"
    );
}

/// Two owners of one name in one locker exclude each other like two programs.
#[test]
fn another_owner_of_the_same_name_waits() {
    let mut host = Host::new();
    let grant = host.hold(LOCK);
    let call = host.acquire_as(LockId(2), LOCK, Wait::Forever);
    host.advance(ms(100));
    assert!(host.is_open(call));
    host.release(grant.lease);
    host.advance(ms(300));
    assert!(host.grant(call).token > grant.token);
}

#[test]
fn too_many_callers_of_one_lock_are_refused_visibly() {
    let (mut host, first) = Host::asking();
    for _ in 0..65_534 {
        host.acquire(LOCK, Wait::Forever);
    }
    let last = host.acquire(LOCK, Wait::Forever);
    let one_more = host.acquire(LOCK, Wait::Forever);
    assert_eq!(host.error(one_more), ErrorKind::Overloaded);
    assert!(host.is_open(first) && host.is_open(last));
    assert_eq!(host.ops(), ["acquire"]);
}

#[test]
fn held_locks_are_listed_with_their_remaining_times() {
    let mut host = Host::new();
    host.fixed = true;
    assert_eq!(host.engine.all_held(host.now).count(), 0);
    for id in [3, 5, 9] {
        host.hold(LockId(id));
        host.sleep(ms(1_000));
    }
    let released = host.held_until(LockId(5));
    host.stranger_acquires(LockId(4), TTL);
    host.acquire(LockId(4), Wait::Forever);
    let held = host.engine.all_held(host.now);
    let named = held.map(|(_, event)| event.name().map(|name| name.as_str().to_owned()));
    let expected = [3, 5, 9].map(|id: u64| Some(format!("lock-{id}")));
    assert_eq!(named.collect::<BTreeSet<_>>(), expected.into());
    assert!(!host.is_held(LockId(4)) && !host.is_held(LockId(6)) && !host.is_held(LockId(0)));
    assert!(
        host.engine.held(released, LockId(5)).next().is_none(),
        "the lease is over, although no tick came"
    );
}
