//! The line of waiters, and where all lockers agree that it stands.

use std::time::Duration;

use super::world::{Host, LOCK, Net, SOON, TIMEOUT, TTL, key, key_of, lease_of, quorum};
use crate::engine::{Answer, Wait};
use crate::name::Name;
use crate::protocol::{Acquire, Claim, ClientId, Command, LeaseId, Reclaim};

/// Longer than an acquisition may take because a server is slow or fails.
const SHORTLY: Duration = Duration::from_millis(100);

/// Catches `try_` calls that take the lock from a waiter that has its turn and does not know yet.
#[test]
fn a_try_overtakes_no_waiter_that_has_its_turn() {
    for servers in [3, 5] {
        let mut world = quorum(3, servers);
        let first = world.hold(LOCK);
        let waits = world.at(1).acquire(LOCK, Wait::Forever);
        (0..servers).for_each(|server| world.at(1).deafen(server));
        world.release(first.lease);
        for _ in 0..5 {
            let tries = world.at(2).acquire(LOCK, Wait::Never);
            world.advance(SHORTLY);
            assert_eq!(world.outcome(tries), &Answer::Acquire(Ok(None)));
        }
        world.advance(SOON * 5);
        world.grant(waits);
    }
}

/// Catches an acquisition that waits for its turn at certain servers although a majority of others gave the
/// lock.
#[test]
fn dead_clients_that_hold_a_minority_keep_nobody_waiting() {
    for (servers, dead) in [(3, 1), (5, 1), (5, 2)] {
        let sets = (0..1_u32 << servers).filter(|set| set.count_ones() == dead);
        for set in sets {
            for wait in [Wait::Never, Wait::Forever] {
                let mut world = quorum(1, servers);
                let held = (0..servers).filter(|at| set & (1 << at) != 0);
                held.for_each(|at| hold_at(&mut world, at, TTL));
                for _ in 0..3 {
                    let call = world.acquire(LOCK, wait);
                    world.advance(SHORTLY);
                    world.grant(call);
                    world.release(lease_of(call));
                }
            }
        }
    }
}

/// Catches a waiter that stands in line only where a dead client has the lock, because its old lease was
/// still being released elsewhere.
#[test]
fn a_waiter_asks_again_where_it_could_not_stand_in_line() {
    for dead in 0..3 {
        for late in (0..3).filter(|late| *late != dead) {
            let mut world = quorum(1, 3);
            let before = world.hold(LOCK);
            world.set(late, Net::Frozen);
            world.release(before.lease);
            hold_at(&mut world, dead, TTL);
            let call = world.acquire(LOCK, Wait::Forever);
            world.advance(SHORTLY);
            world.set(late, Net::Up);
            world.advance(SOON * 5);
            world.grant(call);
        }
    }
}

/// Gives the lock at this server to a client that is never heard of again.
pub(super) fn hold_at(world: &mut Host, at: usize, ttl: Duration) {
    let claim = Claim {
        lease: LeaseId(9 << 64),
        client: ClientId(99),
        owner: world.owner.clone(),
        counter: world.counter,
        ttl,
        window: TTL,
    };
    let command = Command::Acquire(Acquire {
        key: key(LOCK),
        claim,
        waits: false,
        reclaims: Reclaim::Never,
    });
    world.ask_at(at, command);
}

/// Catches a waiter that takes the lock by its turns at later servers, although another one is before it at
/// the first.
#[test]
fn a_waiter_with_turns_at_later_servers_yields_to_the_one_at_the_first() {
    let is_yielded_to = |missed: usize| {
        let mut world = quorum(3, 3);
        let first = world.hold(LOCK);
        world.at(2).cut(missed);
        let later = world.at(2).acquire(LOCK, Wait::Forever);
        world.advance(SHORTLY);
        let call = world.at(1).acquire(LOCK, Wait::Forever);
        world.advance(SHORTLY);
        world.at(2).connect(missed);
        world.advance(SOON);
        world.release(first.lease);
        world.advance(SHORTLY);
        let has_it = [call, later].map(|call| !world.is_open(call));
        assert!(has_it[0] != has_it[1], "one of them has the lock");
        has_it[0]
    };
    // `later` came first everywhere except at the server that it missed, which is the first one once.
    assert_eq!((0..3).filter(|at| is_yielded_to(*at)).count(), 1);
}

/// Catches a waiter that has its turn at the first server, has not heard of it, and yields all the same to
/// later waiters until it takes the lock from its turns at other servers.
#[test]
fn a_waiter_that_yields_asks_whether_it_has_its_turn_at_the_first_server() {
    for deaf in 0..5 {
        let mut world = quorum(3, 5);
        let first = world.hold(LOCK);
        let call = world.at(1).acquire(LOCK, Wait::Forever);
        let later = world.at(2).acquire(LOCK, Wait::Forever);
        world.at(1).deafen(deaf);
        world.advance(SHORTLY);
        world.release(first.lease);
        // It yields once, for 20 ms.
        world.advance(Duration::from_millis(25));
        world.grant(call);
        assert!(world.is_open(later));
    }
}

/// Catches a waiter that keeps the lock of a server, which is no majority, from another that could get one.
#[test]
fn a_waiter_that_cannot_get_a_majority_keeps_nothing() {
    for dead in 0..3 {
        for missed in (0..3).filter(|missed| *missed != dead) {
            let mut world = quorum(2, 3);
            hold_at(&mut world, dead, TTL * 4);
            world.cut(missed);
            let short = world.acquire(LOCK, Wait::Forever);
            world.advance(SHORTLY);
            let call = world.at(1).acquire(LOCK, Wait::Forever);
            world.advance(TTL);
            assert!(world.is_open(short));
            world.grant(call);
        }
    }
}

/// Catches an acquisition that waits for the answer of one particular server.
#[test]
fn a_server_that_does_not_answer_holds_up_nobody() {
    for at in 0..3 {
        let mut world = quorum(2, 3);
        world.set(at, Net::Frozen);
        let first = world.acquire(LOCK, Wait::Forever);
        world.advance(SHORTLY);
        world.grant(first);
        let next = world.at(1).acquire(LOCK, Wait::Forever);
        world.advance(SHORTLY);
        world.release(lease_of(first));
        world.advance(SHORTLY);
        world.grant(next);
    }
}

/// Catches a waiter that asks no server any more because all servers were silent.
#[test]
fn a_waiter_goes_on_after_all_servers_were_silent() {
    let mut world = quorum(2, 3);
    let first = world.hold(LOCK);
    world.set_all(0..3, Net::Frozen);
    let until = world.now + TTL * 3;
    let waits = world.at(1).acquire(LOCK, Wait::Until(until));
    world.advance(TTL);
    world.set_all(0..3, Net::Up);
    world.release(first.lease);
    world.advance(TTL);
    world.grant(waits);
}

/// Catches lines that all stand at the same server.
#[test]
fn waiters_of_different_names_stand_in_line_at_different_servers() {
    let mut world = quorum(2, 3);
    let mut at = [0; 3];
    for name in 0..30 {
        let name = Name::new(format!("lock {name}")).expect("a short name is valid");
        let key = key_of(&name);
        for server in 0..3 {
            world.servers[server].delete(&key);
        }
        world.acquire_name(&name, Wait::Never);
        let call = world.at(1).acquire_name(&name, Wait::Forever);
        assert!(world.is_open(call));
        let lines = (0..3).map(|at| world.servers[at].line_value(world.time(at), &key).is_some());
        let lines: Vec<_> = lines.collect();
        assert_eq!(lines.iter().filter(|stands| **stands).count(), 2);
        for (at, stands) in at.iter_mut().zip(lines) {
            *at += usize::from(stands);
        }
    }
    assert!(at.iter().all(|lines| (10..30).contains(lines)), "{at:?}");
}

/// Catches a listing that waits for a silent server as long as the locker's patience.
#[test]
fn a_listing_waits_for_a_silent_server_for_one_command() {
    let mut world = quorum(1, 3);
    world.hold(LOCK);
    world.set(1, Net::Frozen);
    let from = world.now;
    let (mut cursor, mut names) = (0, 0);
    loop {
        let call = world.list(cursor);
        if world.is_open(call) {
            world.advance(TIMEOUT);
        }
        let Answer::List(Ok(listing)) = world.outcome(call) else {
            panic!("no list: {:?}", world.outcome(call));
        };
        names += listing.names.len();
        match listing.cursor {
            Some(next) => cursor = next,
            None => break,
        }
    }
    assert_eq!((names, world.now.since(from)), (2, TIMEOUT));
}
