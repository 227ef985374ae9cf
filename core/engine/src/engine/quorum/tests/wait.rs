//! Standing in line.

use super::world::{SOON, State, TIMEOUT, TTL, World, lease_of};
use crate::engine::{Answer, Input, Wait};

/// Catches waiters that are forgotten, served out of turn, or live-locked against each other.
#[test]
fn sixteen_hosts_are_served_one_after_another_in_order() {
    let mut world = World::new(16, 5);
    let first = world.hold(0);
    let calls: Vec<_> = (1..16)
        .map(|host| (host, world.acquire(host, Wait::Forever)))
        .collect();
    let mut last = (0, first.lease, first.token);
    for (host, call) in calls {
        assert!(world.answer(host, call).is_none());
        world.release(last.0, last.1);
        world.advance(SOON);
        let next = world.got(host, call);
        assert!(next.token > last.2, "{} after {}", next.token, last.2);
        last = (host, next.lease, next.token);
    }
    world.release(last.0, last.1);
    assert_eq!(world.left(), (0, 0));
}

/// Catches a waiter that waits for a pause although it has its turn.
#[test]
fn a_handover_takes_no_time_but_that_of_the_messages() {
    let mut world = World::new(2, 3);
    let first = world.hold(0);
    let call = world.acquire(1, Wait::Forever);
    assert!(world.story(1).contains(&"waiting"));
    world.advance(TTL / 2);
    world.release(0, first.lease);
    let next = world.got(1, call);
    assert!(next.token > first.token);
}

#[test]
fn who_waits_until_then_waits_no_longer() {
    let mut world = World::new(2, 3);
    world.hold(0);
    let until = world.now + SOON;
    let call = world.acquire(1, Wait::Until(until));
    world.advance(SOON);
    assert_eq!(world.answer(1, call), Some(&Answer::Acquire(Ok(None))));
    world.advance(SOON);
    assert_eq!(world.left(), (3, 0));
}

#[test]
fn a_server_of_the_line_that_goes_away_is_left_for_the_next() {
    for (at, frozen) in (0..5).flat_map(|at| [(at, false), (at, true)]) {
        let mut world = World::new(2, 5);
        let first = world.hold(0);
        let call = world.acquire(1, Wait::Forever);
        let state = if frozen { State::Frozen } else { State::Away };
        world.set(at, state);
        if !frozen {
            world.cut(0, at);
            world.cut(1, at);
        }
        world.advance(TTL);
        assert!(!world.story(0).contains(&"lost"));
        world.release(0, first.lease);
        world.advance(TIMEOUT * 3);
        world.got(1, call);
    }
}

/// Catches one who waits for members that are away until they time out, although the others have answered.
#[test]
fn who_is_refused_by_all_that_are_there_waits_for_no_others() {
    let mut world = World::new(2, 5);
    world.cut(0, 0);
    let call = world.acquire(0, Wait::Never);
    world.advance(SOON);
    let first = world.got(0, call);
    world.cut(1, 3);
    world.cut(1, 4);
    let call = world.acquire(1, Wait::Never);
    assert_eq!(world.answer(1, call), Some(&Answer::Acquire(Ok(None))));
    let call = world.acquire(1, Wait::Forever);
    world.release(0, first.lease);
    world.advance(TIMEOUT / 2);
    world.got(1, call);
}

/// Catches two who each keep what the other needs.
#[test]
fn lockers_that_miss_different_servers_do_not_wait_for_each_other() {
    let mut world = World::new(3, 3);
    // Each cannot reach another one.
    for (host, server) in [(0, 0), (1, 1), (2, 2)] {
        world.cut(host, server);
    }
    let calls: Vec<_> = (0..3)
        .map(|host| (host, world.acquire(host, Wait::Forever)))
        .collect();
    let mut waits: Vec<_> = calls;
    let mut last = 0;
    for _ in 0..3 {
        world.advance(TIMEOUT * 4);
        let place = waits
            .iter()
            .position(|(host, call)| world.answer(*host, *call).is_some());
        let (host, call) = waits.remove(place.expect("somebody is served"));
        let lease = world.got(host, call);
        assert!(lease.token.get() > last);
        last = lease.token.get();
        world.release(host, lease_of(call));
    }
    world.advance(TTL);
    assert_eq!(world.left(), (0, 0));
}

#[test]
fn who_gives_up_a_place_leaves_none() {
    let mut world = World::new(3, 3);
    let first = world.hold(0);
    let [gone, stays] = [1, 2].map(|host| world.acquire(host, Wait::Forever));
    let of = Some((super::world::LOCK, lease_of(gone)));
    world.input(1, Input::Cancel { call: gone, of });
    world.release(0, first.lease);
    world.got(2, stays);
    assert_eq!(world.left(), (3, 0));
}
