//! The shortest time that a name stays taken at a quorum.

use std::time::Duration;

use super::world::{Host, LOCK, Net, SOON, TTL, ms, quorum};
use crate::engine::{Answer, Wait};

const LEAST: Duration = Duration::from_secs(60);

/// Returns true if the second locker gets the lock.
fn is_free(world: &mut Host) -> bool {
    let mut second = world.at(1);
    let call = second.acquire(LOCK, Wait::Never);
    second.advance(ms(50));
    let Answer::Acquire(Ok(got)) = second.outcome(call).clone() else {
        panic!("{:?} is no answer", second.outcome(call));
    };
    let got = got.map(|lease| second.release(lease.lease));
    got.is_some()
}

/// Catches a server that joined late and keeps the name for longer, and servers that disagree.
#[test]
fn a_release_keeps_the_name_taken_until_its_age() {
    let mut world = quorum(2, 3);
    world.at_least = Some(LEAST);
    let lease = world.hold(LOCK);
    world.cut(2);
    world.set(2, Net::LoseRequests);
    world.advance(ms(31_000));
    world.set(2, Net::Up);
    world.connect(2);
    world.advance(ms(15_000));
    assert_eq!(world.left(), (3, 0));
    world.at_least = None;
    let call = world.release(lease.lease);
    assert_eq!(world.outcome(call), &Answer::Release(Ok(())));
    world.advance(SOON);
    assert_eq!(world.left(), (3, 0));
    world.advance_to(lease.began + LEAST - ms(60));
    assert!(!is_free(&mut world));
    world.advance_to(lease.began + LEAST + ms(300));
    assert_eq!(world.left(), (0, 0));
    assert!(is_free(&mut world));
}

/// Catches a vote that is given back and keeps the name taken, although nobody held the lease.
#[test]
fn an_acquisition_that_falls_short_keeps_nothing() {
    let mut world = quorum(2, 3);
    let lease = world.hold(LOCK);
    world.servers[0].delete(&super::world::key(LOCK));
    let mut second = world.at(1);
    second.at_least = Some(LEAST);
    let call = second.acquire(LOCK, Wait::Never);
    second.advance(SOON);
    assert_eq!(second.outcome(call), &Answer::Acquire(Ok(None)));
    assert_eq!(second.count("retire"), 0);
    second.at_least = None;
    drop(second);
    world.release(lease.lease);
    world.advance(SOON);
    assert_eq!(world.left(), (0, 0));
}

/// Catches a release that is confirmed although less than a majority keeps the name taken.
#[test]
fn a_release_is_confirmed_once_a_majority_keeps_the_name() {
    for away in [1, 2] {
        let mut world = quorum(1, 3);
        world.at_least = Some(LEAST);
        world.ttl = TTL / 3;
        let lease = world.hold(LOCK);
        // The lease does not stand on the last server any more.
        world.cut(2);
        world.set(2, Net::LoseRequests);
        world.advance(TTL / 2);
        if away == 2 {
            world.cut(1);
            world.set(1, Net::LoseRequests);
        }
        let call = world.release(lease.lease);
        world.advance(SOON);
        assert_eq!(world.is_open(call), away == 2);
        world.advance(TTL);
        let is_kept = away == 1;
        assert_eq!(world.outcome(call) == &Answer::Release(Ok(())), is_kept);
        let told = if is_kept { "released" } else { "lost: expired" };
        assert!(world.told_last().starts_with(told));
        assert_eq!(world.left().0, 3 - away);
    }
}
