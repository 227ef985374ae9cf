//! The longest time that a quorum's lease may be held.

use std::time::Duration;

use super::line::hold_at;
use super::world::{Host, LOCK, LONGEST, Net, SOON, TTL, ms, quorum};
use crate::engine::{Acquired, Answer, Wait};
use crate::error::ErrorKind;
use crate::event::{LeaseEvent, LossReason};

const MOST: Duration = Duration::from_secs(100);

fn holding(servers: usize) -> (Host, Acquired) {
    let mut world = quorum(1, servers);
    world.at_most = Some(MOST);
    let lease = world.hold(LOCK);
    (world, lease)
}

/// Returns the kinds of the errors that the holder was warned with.
fn risks(world: &Host) -> Vec<ErrorKind> {
    let risk = |told: &crate::testing::Told| match &told.event {
        LeaseEvent::AtRisk { error, .. } => Some(error.kind()),
        _ => None,
    };
    world.events.iter().filter_map(risk).collect()
}

fn assert_overheld(world: &Host, lease: &Acquired) {
    let end = lease.began + MOST;
    let LeaseEvent::Lost { reason, .. } = world.last_told().event else {
        panic!("{:?} is not the loss", world.last_told());
    };
    assert_eq!(reason, LossReason::Overheld);
    let at = world.last_told().at;
    assert!(
        at <= end && at + TTL / 8 + ms(60) >= end,
        "{at:?} of {end:?}"
    );
    let late = world.events.iter().filter(|told| told.deadline > Some(end));
    assert_eq!(late.count(), 0);
}

#[test]
fn a_lease_ends_at_its_age_and_the_holder_is_warned_once() {
    for servers in [3, 5] {
        let (mut world, lease) = holding(servers);
        world.advance_to(lease.began + MOST);
        assert_overheld(&world, &lease);
        assert_eq!(risks(&world), [ErrorKind::Overheld]);
        world.advance(SOON);
        assert_eq!(
            world.left(),
            (0, 0),
            "every server has the lock for the next"
        );
    }
}

/// Catches a server that joined late, or was asked again, and keeps the lease for its own longest time.
#[test]
fn servers_that_join_the_lease_later_end_it_with_the_others() {
    let mut world = quorum(1, 3);
    (world.ttl, world.at_most) = (TTL / 3, Some(MOST));
    let lease = world.hold(LOCK);
    for server in [2, 0, 1] {
        world.cut(server);
        world.set(server, Net::LoseRequests);
        world.advance(TTL / 2);
        world.set(server, Net::Up);
        world.connect(server);
        world.advance(TTL / 2);
        assert_eq!(world.left(), (3, 0));
    }
    assert!(world.is_held(LOCK));
    world.advance_to(lease.began + MOST);
    assert_overheld(&world, &lease);
    world.advance(SOON);
    assert_eq!(world.left(), (0, 0));
}

#[test]
fn a_renewal_by_hand_fails_at_the_end() {
    let mut world = quorum(1, 3);
    (world.fixed, world.at_most) = (true, Some(ms(40_000)));
    let lease = world.hold(LOCK);
    world.advance(ms(20_000));
    let call = world.renew(lease.lease);
    assert_eq!(world.outcome(call), &Answer::Renew(Ok(())));
    let again = world.renew_for(lease.lease, LONGEST);
    assert_eq!(world.error(again), ErrorKind::Overheld);
    assert_eq!(world.held_until(LOCK), lease.began + ms(40_000));
    world.advance_to(lease.began + ms(40_000));
    assert_eq!(world.told_last(), "lost: overheld");
}

/// Catches a vote that counts its age before there is a lease: its waiter loses its turn to a later one.
#[test]
fn a_waiter_keeps_its_turn_for_longer_than_its_lease_may_be_held() {
    for free in 0..3 {
        let mut world = quorum(2, 3);
        let others = (0..3).filter(|at| *at != free);
        others.for_each(|at| hold_at(&mut world, at, TTL * 3));
        (world.ttl, world.at_most) = (TTL / 3, Some(TTL / 2));
        let first = world.acquire(LOCK, Wait::Forever);
        world.at_most = None;
        world.advance(SOON);
        let later = world.at(1).acquire(LOCK, Wait::Forever);
        world.advance(TTL * 3);
        let lease = world.grant(first);
        assert!(world.is_open(later), "served out of order");
        assert!(lease.deadline <= lease.began + TTL / 2);
        world.advance_to(lease.began + TTL / 2 - ms(60));
        assert!(world.is_held(LOCK), "the age counts from the first vote");
        world.advance(ms(60) + SOON);
        world.grant(later);
    }
}
