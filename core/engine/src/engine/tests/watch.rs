//! Watched locks: a holder notices at once that another client changed its lock, if the server reports it.

use super::host::{Host, LOCK, Net, SOON, TTL, key, ms};
use crate::engine::single::{MOST_CHECKS, MOST_KEYS};
use crate::engine::{Input, LockId, Wait};
use crate::protocol::LeaseId;

/// The time within which a pending read of a key happens.
const READ: std::time::Duration = ms(50);

impl Host {
    fn watching() -> Self {
        let mut host = Self::new();
        host.input(Input::WATCHING);
        host
    }

    /// The number of keys read since the last call.
    fn read(&mut self) -> usize {
        let reads = std::mem::take(&mut self.reads);
        reads.iter().map(|(_, keys)| keys.len()).sum()
    }

    fn watched(&self) -> usize {
        self.engine.single().env.watch.len()
    }
}

/// Catches a loss that waits for the next renewal.
#[test]
fn a_deleted_lock_is_lost_at_once() {
    for fixed in [false, true] {
        let mut host = Host::watching();
        host.fixed = fixed;
        host.hold(LOCK);
        host.advance(READ);
        assert_eq!(host.read(), 1);
        host.servers[0].delete(&key(LOCK));
        host.input(Input::changed(LOCK));
        assert_eq!(host.told(), ["acquired 1", "lost: deleted"]);
        assert_eq!((host.watched(), host.ops()), (0, vec!["acquire", "renew"]));
    }
}

#[test]
fn a_taken_lock_is_lost_at_once() {
    let mut host = Host::watching();
    host.hold(LOCK);
    host.advance(READ);
    host.servers[0].delete(&key(LOCK));
    host.stranger_acquires(LOCK, TTL);
    host.input(Input::changed(LOCK));
    let reason = "lost: superseded";
    assert_eq!(host.told(), ["acquired 1", reason]);
}

/// The negative control: a host without this feature.
#[test]
fn without_a_watch_a_holder_learns_of_a_change_at_its_next_renewal() {
    let (mut host, _) = Host::holding();
    host.advance(READ);
    assert_eq!(host.read(), 0);
    host.servers[0].delete(&key(LOCK));
    host.input(Input::changed(LOCK));
    host.advance(TTL / 4);
    assert!(host.is_held(LOCK));
    host.advance(TTL / 3);
    assert!(!host.is_held(LOCK));
}

/// The holder's own write ends the watch.
#[test]
fn a_key_is_read_again_after_each_renewal() {
    let mut host = Host::watching();
    let lease = host.hold(LOCK).lease;
    host.advance(READ);
    assert_eq!(host.read(), 1);
    host.advance(TTL * 3);
    assert_eq!(host.read(), host.count("renew"));
    host.renew(lease);
    host.advance(READ);
    assert_eq!((host.read(), host.watched()), (1, 1));
    host.servers[0].delete(&key(LOCK));
    host.input(Input::changed(LOCK));
    assert!(!host.is_held(LOCK));
}

#[test]
fn short_leases_and_those_released_soon_are_not_read() {
    let mut host = Host::watching();
    for (ttl, pause) in [(ms(999), ms(900)), (TTL, ms(10))] {
        host.ttl = ttl;
        for _ in 0..10 {
            let lease = host.hold(LOCK).lease;
            host.advance(pause);
            host.release(lease);
            host.advance(READ);
        }
    }
    assert_eq!((host.read(), host.watched()), (0, 0));
}

/// Catches a watch that outlives its lease: a locker would collect one for each lock that it ever held.
#[test]
fn a_watch_ends_with_its_lease() {
    let ends: [fn(&mut Host, LeaseId); 3] = [
        |host, lease| {
            host.release(lease);
        },
        |host, lease| {
            host.pass(lease);
        },
        |host, _| {
            host.disconnect();
            host.advance(TTL);
        },
    ];
    for end in ends {
        let mut host = Host::watching();
        let lease = host.hold(LOCK).lease;
        host.advance(READ);
        assert_eq!(host.watched(), 1);
        end(&mut host, lease);
        assert_eq!((host.is_held(LOCK), host.watched()), (false, 0));
    }
}

#[test]
fn keys_of_locks_held_together_are_read_together() {
    let mut host = Host::watching();
    for lock in 0..300 {
        host.hold(LockId(lock));
        host.advance(ms(1) / 20);
    }
    host.advance(READ);
    let sizes: Vec<_> = host.reads.iter().map(|(_, keys)| keys.len()).collect();
    assert_eq!(sizes, [MOST_KEYS, MOST_KEYS, 300 - 2 * MOST_KEYS]);
    assert_eq!(host.watched(), 300);
}

/// Another client's write leaves the lock to its holder. Catches a change of the deadline or of the next
/// renewal, and a holder that does work for every such write.
#[test]
fn a_change_that_keeps_the_holder_changes_nothing_and_costs_little() {
    for fixed in [false, true] {
        let mut host = Host::watching();
        host.fixed = fixed;
        host.hold(LOCK);
        let deadline = host.held_until(LOCK);
        let expiry = host.expiry(LOCK).expect("the lock is held");
        let wake = || (TTL / 4).as_nanos();
        let (mut reads, began) = (0, host.now);
        while host.now.since(began).as_nanos() < wake() {
            host.input(Input::changed(LOCK));
            host.advance(ms(10));
            reads += host.read();
        }
        let checks = usize::from(MOST_CHECKS);
        assert_eq!((host.count("renew"), reads), (checks, checks));
        assert_eq!(host.told(), ["acquired 1"]);
        assert_eq!(host.held_until(LOCK), deadline);
        if fixed {
            let later = host.expiry(LOCK).expect("the lock is held");
            assert!(
                later <= expiry + TTL / 200,
                "waiters need not wait for long"
            );
            continue;
        }
        // The next renewal allows more checks.
        host.advance(TTL / 3);
        assert_eq!(host.told(), ["acquired 1", "renewed"]);
        assert_eq!((host.read(), host.watched()), (1, 1));
    }
}

#[test]
fn every_holder_checks_once_when_any_lock_may_have_changed() {
    let mut host = Host::watching();
    for lock in 1..=5 {
        host.hold(LockId(lock));
    }
    host.advance(READ);
    host.servers[0].delete(&key(LockId(3)));
    for _ in 0..10 {
        host.input(Input::Changed { key: None });
    }
    assert_eq!(host.count("renew"), 5);
    let held = (1..=5).filter(|lock| host.is_held(LockId(*lock)));
    assert_eq!(held.collect::<Vec<_>>(), [1, 2, 4, 5]);
}

/// The server may have executed the renewal before the change, and a check that joined it too.
#[test]
fn a_change_during_a_renewal_is_checked_after_it() {
    let mut host = Host::watching();
    let lease = host.hold(LOCK).lease;
    host.advance(READ);
    host.net = Net::Hold;
    host.renew(lease);
    let (sent, reply) = host.take_reply();
    host.servers[0].delete(&key(LOCK));
    host.input(Input::changed(LOCK));
    host.net = Net::Up;
    host.reply(&sent, Ok(reply));
    assert_eq!(host.told(), ["acquired 1", "renewed", "lost: deleted"]);
}

/// Catches a manual renewal that joins a check which asks only for the rest of the lease.
#[test]
fn a_fixed_lease_that_is_being_checked_can_be_renewed_by_hand() {
    let mut host = Host::watching();
    host.fixed = true;
    let lease = host.hold(LOCK).lease;
    host.advance(TTL / 2);
    host.net = Net::Hold;
    host.input(Input::changed(LOCK));
    let renewal = host.renew(lease);
    host.answer_next();
    assert!(host.is_open(renewal));
    host.answer_next();
    assert!(host.outcome(renewal).error().is_none());
    assert!(host.held_until(LOCK).since(host.now) + SOON > TTL);
}

/// A new connection invalidates all earlier reads.
#[test]
fn every_key_is_read_again_on_a_new_connection() {
    let mut host = Host::new();
    for lock in 1..=3 {
        host.hold(LockId(lock));
    }
    host.advance(READ);
    assert_eq!(host.read(), 0);
    for _ in 0..2 {
        host.input(Input::WATCHING);
        host.input(Input::WATCHING);
        host.advance(READ);
        assert_eq!(host.read(), 3);
    }
}

/// The lock of a late change has no holder any more, or another holder of this locker.
#[test]
fn a_late_change_does_no_harm() {
    let mut host = Host::watching();
    let lease = host.hold(LOCK).lease;
    let waits = host.acquire_as(LockId(2), LOCK, Wait::Forever);
    host.advance(READ);
    host.release(lease);
    host.input(Input::changed(LOCK));
    host.input(Input::Changed { key: None });
    host.advance(READ);
    host.input(Input::changed(LOCK));
    assert!(host.is_held(LockId(2)) && !host.is_open(waits));
    let told = ["acquired 1", "waiting 1", "released 1", "acquired 2"];
    assert_eq!(host.told(), told);
}
