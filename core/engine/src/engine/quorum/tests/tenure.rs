//! Keeping a lock, and losing it.

use super::world::{LOCK, LONGEST, SOON, State, TIMEOUT, TTL, World};
use crate::engine::{Answer, Input, Wait};
use crate::event::{LeaseEvent, LossReason};

/// Catches a lease that ends with its first time to live, or whose renewals are told five times.
#[test]
fn a_lease_is_renewed_and_each_renewal_is_told_once() {
    let mut world = World::new(1, 5);
    world.hold(0);
    world.advance(TTL * 10);
    assert_eq!(world.left(), (5, 0));
    let renewed = world
        .story(0)
        .iter()
        .filter(|event| **event == "renewed")
        .count();
    assert!(
        (25..=45).contains(&renewed),
        "{renewed} in 10 times to live"
    );
    assert_eq!(world.story(0).len(), 1 + renewed);
}

#[test]
fn it_outlives_a_minority_and_is_lost_with_the_majority() {
    let mut world = World::new(1, 5);
    world.hold(0);
    world.cut(0, 1);
    world.set(1, State::Away);
    world.advance(TTL * 2);
    assert!(
        !world.story(0).contains(&"at risk"),
        "four are more than enough"
    );
    world.cut(0, 3);
    world.set(3, State::Away);
    let risk = world.hosts[0]
        .events
        .iter()
        .find_map(|(event, _)| match event {
            LeaseEvent::AtRisk { error, .. } => Some(error.to_string()),
            _ => None,
        });
    let risk = risk.expect("it stands on a bare majority");
    assert!(
        risk.contains("server 2:") && risk.contains("server 4:"),
        "{risk}"
    );
    world.advance(TTL * 2);
    assert!(!world.story(0).contains(&"lost"));
    world.cut(0, 0);
    world.set(0, State::Away);
    let (_, told) = world.hosts[0]
        .events
        .iter()
        .rfind(|(event, deadline)| deadline.is_some() && !matches!(event, LeaseEvent::Lost { .. }))
        .expect("it was told");
    let told = told.expect("it has a deadline");
    world.advance(told.since(world.now));
    assert_eq!(world.story(0).last(), Some(&"lost"), "by its deadline");
}

/// Catches a lease that counts on a server that took it away.
#[test]
fn what_a_majority_forgot_is_lost_at_the_next_renewal() {
    let mut world = World::new(1, 3);
    world.hold(0);
    world.servers[1].flush();
    world.servers[2].flush();
    world.advance(TTL / 2);
    let lost = world.hosts[0].events.last().map(|(event, _)| event.clone());
    let reason = LossReason::Deleted;
    assert!(
        matches!(lost, Some(LeaseEvent::Lost { reason: why, .. }) if why == reason),
        "{lost:?}"
    );
    world.advance(SOON);
    assert_eq!(world.left(), (0, 0), "the third is given back");
}

#[test]
fn a_server_that_is_back_is_taken_in_again() {
    let mut world = World::new(1, 3);
    world.cut(0, 2);
    world.set(2, State::Away);
    let call = world.acquire(0, Wait::Never);
    world.advance(SOON);
    world.got(0, call);
    world.advance(TIMEOUT);
    assert_eq!(
        world.story(0),
        ["acquired", "at risk"],
        "of a bare majority"
    );
    world.set(2, State::Up);
    world.connect(0, 2);
    world.advance(TTL);
    assert_eq!(world.left(), (3, 0));
    world.cut(0, 0);
    world.set(0, State::Away);
    world.advance(TTL * 3);
    assert!(!world.story(0).contains(&"lost"), "{:?}", world.story(0));
}

#[test]
fn it_is_renewed_by_hand_at_a_majority() {
    let mut world = World::new(1, 5);
    let lease = world.hold(0);
    world.set(4, State::Away);
    let call = world.next_call(0);
    let ttl = Some(TTL * 4);
    world.input(
        0,
        Input::Renew {
            call,
            lease: lease.lease,
            ttl,
            floor: None,
        },
    );
    assert_eq!(world.answer(0, call), Some(&Answer::Renew(Ok(()))));
    let (event, deadline) = world.hosts[0].events.last().expect("it was told").clone();
    assert!(matches!(event, LeaseEvent::Renewed { .. }), "{event:?}");
    assert!(deadline.is_some_and(|at| at > world.now + TTL * 3));
}

/// Catches a lease that outlives the quarantine of servers that forgot it: with a wide margin each renewal for a
/// shorter time made it longer.
#[test]
fn renewals_for_a_shorter_time_never_make_it_longer() {
    for margin in [2_000, 90_000, 170_000, 250_000] {
        let mut world = World::with_margin(1, 3, margin);
        world.ttl = LONGEST;
        let lease = world.hold(0);
        let shorter = LONGEST / 100;
        let call = world.next_call(0);
        let renew = Input::Renew {
            call,
            lease: lease.lease,
            ttl: Some(shorter),
            floor: None,
        };
        world.input(0, renew);
        assert_eq!(world.answer(0, call), Some(&Answer::Renew(Ok(()))));
        let mut told = 0;
        for _ in 0..300 {
            world.advance(LONGEST / 200);
            let events = &world.hosts[0].events;
            for deadline in events[told..].iter().filter_map(|(_, deadline)| *deadline) {
                let most = world.now + shorter;
                assert!(deadline <= lease.deadline.max(most), "{margin} ppm");
            }
            told = events.len();
        }
        assert!(!world.story(0).contains(&"lost"), "{:?}", world.story(0));
    }
}

#[test]
fn a_re_entrant_handle_shares_one_tenure() {
    let mut world = World::new(1, 3);
    let first = world.acquire_with(0, Wait::Never, true);
    let first = world.got(0, first);
    let before = world.sent;
    let second = world.acquire_with(0, Wait::Never, true);
    let second = world.got(0, second);
    assert_eq!((second.token, second.lease), (first.token, first.lease));
    assert_eq!(world.sent, before);
    world.release(0, first.lease);
    assert_eq!(world.left(), (3, 0));
    world.release(0, first.lease);
    assert_eq!(world.left(), (0, 0));
    let held = world.hosts[0].quorum.held(world.now, LOCK).count();
    assert_eq!(held, 0);
}

#[test]
fn shutting_down_frees_all() {
    let mut world = World::new(2, 3);
    world.hold(0);
    let waits = world.acquire(1, Wait::Forever);
    let call = world.next_call(0);
    world.input(0, Input::Shutdown { call });
    assert_eq!(world.answer(0, call), Some(&Answer::Shutdown));
    assert_eq!(world.story(0), ["acquired", "lost"]);
    world.advance(SOON);
    world.got(1, waits);
    let late = world.acquire(0, Wait::Never);
    assert_eq!(world.error(0, late).kind(), crate::ErrorKind::Shutdown);
}
