//! A holder hears at once that somebody else changed its lock, if the server says so.

use super::host::{Host, LOCK, Net, SOON, TTL, key, ms};
use crate::engine::single::{MOST_KEYS, MOST_LOOKS};
use crate::engine::{Input, LockId, Wait};

/// Within this a key is read that is to be.
const READ: std::time::Duration = ms(50);

impl Host {
    fn watching() -> Self {
        let mut host = Self::new();
        host.input(Input::WATCHING);
        host
    }

    /// How many keys were read since this was last asked.
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

/// The negative control, and what a host gets that does not support it.
#[test]
fn who_is_not_told_learns_at_the_next_renewal() {
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

#[test]
fn what_is_held_together_is_read_together() {
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

/// A write by somebody else that leaves the lock to its holder. Catches a deadline or a renewal that
/// comes at another time than it would have, and a holder that works for every stranger's write.
#[test]
fn a_change_that_takes_nothing_changes_nothing_and_costs_little() {
    for fixed in [false, true] {
        let mut host = Host::watching();
        host.fixed = fixed;
        host.hold(LOCK);
        let deadline = host.held_until(LOCK);
        let expiry = host.expiry(LOCK).expect("it is held");
        let wake = || (TTL / 4).as_nanos();
        let (mut reads, began) = (0, host.now);
        while host.now.since(began).as_nanos() < wake() {
            host.input(Input::changed(LOCK));
            host.advance(ms(10));
            reads += host.read();
        }
        let looks = usize::from(MOST_LOOKS);
        assert_eq!((host.count("renew"), reads), (looks, looks));
        assert_eq!(host.told(), ["acquired 1"]);
        assert_eq!(host.held_until(LOCK), deadline);
        if fixed {
            let later = host.expiry(LOCK).expect("it is held");
            assert!(later <= expiry + TTL / 200, "others need not wait for long");
            continue;
        }
        // The next renewal gives it new ones.
        host.advance(TTL / 3);
        assert_eq!(host.told(), ["acquired 1", "renewed"]);
        assert_eq!((host.read(), host.watched()), (1, 1));
    }
}

#[test]
fn everything_looks_once_when_everything_may_have_changed() {
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

/// The renewal may have been executed before the change, and the look with it.
#[test]
fn a_change_while_it_is_renewed_is_looked_at_after_it() {
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

/// Catches a look that a renewal by hand joins, and that asks for no more than the rest of the lease.
#[test]
fn a_fixed_lease_that_looks_is_renewed_by_hand_all_the_same() {
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

/// After a new connection nothing that was read before counts.
#[test]
fn everything_is_read_when_the_server_says_so_anew() {
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

/// What is heard of a lock that nobody holds any more, or that somebody else of this locker does.
#[test]
fn a_change_that_comes_late_does_no_harm() {
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
