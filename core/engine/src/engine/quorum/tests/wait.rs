//! Waiting in line.

use super::world::{LOCK, Net, SOON, TIMEOUT, TTL, lease_of, quorum};
use crate::engine::{Answer, Wait};

/// Catches waiters that are forgotten, served out of order, or in a livelock.
#[test]
fn sixteen_hosts_are_served_one_after_another_in_order() {
    let mut world = quorum(16, 5);
    let first = world.hold(LOCK);
    let calls: Vec<_> = (1..16)
        .map(|host| (host, world.at(host).acquire(LOCK, Wait::Forever)))
        .collect();
    let mut last = (0, first.lease, first.token);
    for (host, call) in calls {
        assert!(world.is_open(call));
        world.at(last.0).release(last.1);
        world.advance(SOON);
        let next = world.grant(call);
        assert!(next.token > last.2, "{} after {}", next.token, last.2);
        last = (host, next.lease, next.token);
    }
    world.at(last.0).release(last.1);
    assert_eq!(world.left(), (0, 0));
}

/// Catches a waiter that pauses although it has its turn.
#[test]
fn a_handover_takes_only_the_time_of_its_messages() {
    let mut world = quorum(2, 3);
    let first = world.hold(LOCK);
    let call = world.at(1).acquire(LOCK, Wait::Forever);
    assert!(world.story(1).contains(&"waiting"));
    world.advance(TTL / 2);
    world.release(first.lease);
    let next = world.grant(call);
    assert!(next.token > first.token);
}

#[test]
fn a_waiter_gives_up_at_its_timeout() {
    let mut world = quorum(2, 3);
    world.hold(LOCK);
    let until = world.now + SOON;
    let call = world.at(1).acquire(LOCK, Wait::Until(until));
    world.advance(SOON);
    assert_eq!(world.outcome(call), &Answer::Acquire(Ok(None)));
    world.advance(SOON);
    assert_eq!(world.left(), (3, 0));
}

#[test]
fn waiters_leave_a_server_of_the_line_that_goes_away() {
    for (at, frozen) in (0..5).flat_map(|at| [(at, false), (at, true)]) {
        let mut world = quorum(2, 5);
        let first = world.hold(LOCK);
        let call = world.at(1).acquire(LOCK, Wait::Forever);
        let state = if frozen {
            Net::Frozen
        } else {
            Net::LoseRequests
        };
        world.set(at, state);
        if !frozen {
            world.cut(at);
            world.at(1).cut(at);
        }
        world.advance(TTL);
        assert!(!world.story(0).contains(&"lost"));
        world.release(first.lease);
        world.advance(TIMEOUT * 3);
        world.grant(call);
    }
}

/// Catches a waiter that waits until unreachable members time out, although the others have answered.
#[test]
fn a_waiter_refused_by_all_reachable_servers_does_not_wait_for_others() {
    let mut world = quorum(2, 5);
    world.cut(0);
    let call = world.acquire(LOCK, Wait::Never);
    world.advance(SOON);
    let first = world.grant(call);
    world.at(1).cut(3);
    world.at(1).cut(4);
    let call = world.at(1).acquire(LOCK, Wait::Never);
    assert_eq!(world.outcome(call), &Answer::Acquire(Ok(None)));
    let call = world.at(1).acquire(LOCK, Wait::Forever);
    world.release(first.lease);
    world.advance(TIMEOUT / 2);
    world.grant(call);
}

/// Catches two lockers that each keep what the other needs.
#[test]
fn lockers_that_miss_different_servers_do_not_wait_for_each_other() {
    let mut world = quorum(3, 3);
    // Each locker misses a different server.
    for (host, server) in [(0, 0), (1, 1), (2, 2)] {
        world.at(host).cut(server);
    }
    let calls: Vec<_> = (0..3)
        .map(|host| (host, world.at(host).acquire(LOCK, Wait::Forever)))
        .collect();
    let mut waits: Vec<_> = calls;
    let mut last = 0;
    for _ in 0..3 {
        world.advance(TIMEOUT * 4);
        let place = waits.iter().position(|(_, call)| !world.is_open(*call));
        let (host, call) = waits.remove(place.expect("somebody is served"));
        let lease = world.grant(call);
        assert!(lease.token.get() > last);
        last = lease.token.get();
        world.at(host).release(lease_of(call));
    }
    world.advance(TTL);
    assert_eq!(world.left(), (0, 0));
}

#[test]
fn a_canceled_waiter_leaves_no_place() {
    let mut world = quorum(3, 3);
    let first = world.hold(LOCK);
    let [gone, stays] = [1, 2].map(|host| world.at(host).acquire(LOCK, Wait::Forever));
    world.at(1).cancel(gone);
    world.release(first.lease);
    world.grant(stays);
    assert_eq!(world.left(), (3, 0));
}

/// Catches a waiter that reports its place at each server.
#[test]
fn a_waiter_has_one_place() {
    let mut world = quorum(3, 5);
    world.hold(LOCK);
    for locker in [1, 2] {
        world.at(locker).acquire(LOCK, Wait::Forever);
    }
    world.advance(SOON);
    assert_eq!(world.story(1), ["waiting"]);
    assert_eq!(world.story(2), ["waiting"]);
}
