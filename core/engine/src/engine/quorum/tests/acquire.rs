//! Getting a lock, or not.

use super::world::{SOON, State, TIMEOUT, TTL, World, lease_of};
use crate::engine::{Answer, Wait};
use crate::error::ErrorKind;

/// After this time a server of the line is passed over that does not answer, although all others did at once.
const PASSED_OVER: std::time::Duration = std::time::Duration::from_millis(10);

#[test]
fn all_that_are_asked_give_the_lock_in_one_round() {
    for servers in [3, 5, 7] {
        let mut world = World::new(1, servers);
        let before = world.sent;
        let lease = world.hold(0);
        assert_eq!(world.sent - before, servers, "one operation each");
        assert_eq!(world.left(), (servers, 0));
        assert_eq!(world.story(0), ["acquired"]);
        let call = world.release(0, lease.lease);
        assert_eq!(world.answer(0, call), Some(&Answer::Release(Ok(()))));
        assert_eq!(world.sent - before, 2 * servers);
        assert_eq!(
            (world.left(), world.story(0)),
            ((0, 0), vec!["acquired", "released"])
        );
        assert!(world.hosts[0].quorum.is_idle());
    }
}

/// Catches a wait for all answers, or a round more, where the servers' clocks differ as they do.
#[test]
fn a_majority_is_enough_without_a_further_round() {
    for (servers, frozen) in [(3, 1), (5, 2), (7, 3)] {
        for wait in [Wait::Never, Wait::Forever] {
            let mut world = World::new(2, servers);
            for host in [0, 1, 0] {
                let (before, at) = (world.sent, world.now);
                for server in servers - frozen..servers {
                    world.set(server, State::Frozen);
                }
                let call = world.acquire(host, wait);
                if world.answer(host, call).is_none() {
                    // The line stands at a server that is frozen, which is passed over soon.
                    world.advance(PASSED_OVER);
                }
                let lease = world.got(host, call);
                assert!(world.now <= at + PASSED_OVER);
                assert_eq!(world.sent - before, servers);
                for server in servers - frozen..servers {
                    world.set(server, State::Up);
                }
                assert_eq!(world.left(), (servers, 0));
                let tokens = world.last_tokens();
                assert_eq!(tokens, vec![Some(lease.token.get()); servers]);
                world.release(host, lease.lease);
                assert_eq!(world.left(), (0, 0));
            }
        }
    }
}

/// Catches a token that is that of one server alone, which a later majority may not know of.
#[test]
fn tokens_grow_whichever_majority_gives_them() {
    let mut world = World::new(2, 5);
    world.ahead = vec![9_000_000, 0, 5_000_000, 1_000_000, 3_000_000];
    let mut last = 0;
    for round in 0..40 {
        let away = [round % 5, (round * 3 + 1) % 5];
        for at in away {
            world.set(at, State::Away);
        }
        let call = world.acquire(round % 2, Wait::Never);
        world.advance(SOON);
        let lease = world.got(round % 2, call);
        assert!(
            lease.token.get() > last,
            "{} after {last}, without {away:?}",
            lease.token
        );
        last = lease.token.get();
        let known = world.last_tokens();
        let at_least = known
            .iter()
            .flatten()
            .filter(|token| **token >= last)
            .count();
        assert!(at_least >= 3, "{known:?} of {last}");
        world.release(round % 2, lease.lease);
        world.advance(TTL);
        for at in away {
            world.set(at, State::Up);
        }
        world.advance(TTL);
    }
}

#[test]
fn one_of_two_who_ask_for_it_gets_it() {
    let mut world = World::new(2, 3);
    world.hold(0);
    let call = world.acquire(1, Wait::Never);
    assert_eq!(world.answer(1, call), Some(&Answer::Acquire(Ok(None))));
    assert_eq!(world.left(), (3, 0));
}

/// Catches a minority that is counted as enough, or kept.
#[test]
fn without_a_majority_nothing_is_kept() {
    let mut world = World::new(1, 5);
    for at in [0, 2, 4] {
        world.cut(0, at);
        world.set(at, State::Away);
    }
    let call = world.acquire(0, Wait::Never);
    world.advance(TIMEOUT + SOON);
    let error = world.error(0, call);
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    assert!(
        text.contains("3 of 5 servers are missing, and 3 are needed"),
        "{text}"
    );
    for server in ["server 1:", "server 3:", "server 5:"] {
        assert!(text.contains(server), "{text}");
    }
    world.advance(SOON);
    assert_eq!(world.left(), (0, 0));
}

/// Catches what a server did late, and nobody gave back.
#[test]
fn what_frozen_servers_give_later_is_given_back() {
    let mut world = World::new(1, 3);
    world.set(1, State::Frozen);
    world.set(2, State::Frozen);
    let call = world.acquire(0, Wait::Never);
    world.advance(TIMEOUT * 2);
    assert_eq!(world.error(0, call).kind(), ErrorKind::Unavailable);
    world.set(1, State::Up);
    world.set(2, State::Up);
    world.advance(SOON);
    assert_eq!(world.left(), (0, 0));
    world.hold(0);
}

/// Catches a call that waits for a server which a majority does not need.
#[test]
fn a_minority_that_is_frozen_is_not_waited_for() {
    let mut world = World::new(1, 5);
    world.set(3, State::Frozen);
    world.set(4, State::Frozen);
    let before = world.now;
    let call = world.acquire(0, Wait::Never);
    world.advance(SOON);
    let lease = world.got(0, call);
    assert!(lease.deadline <= before + TTL + SOON);
    world.set(3, State::Up);
    world.set(4, State::Up);
    world.advance(TTL / 2);
    assert_eq!(world.left(), (5, 0), "they were taken in");
    world.release(0, lease.lease);
    assert_eq!(world.left(), (0, 0));
}

#[test]
fn a_cancelled_acquisition_leaves_nothing() {
    let mut world = World::new(1, 3);
    for at in 0..3 {
        world.set(at, State::Frozen);
    }
    let call = world.acquire(0, Wait::Forever);
    let of = Some((super::world::LOCK, lease_of(call)));
    world.input(0, crate::engine::Input::Cancel { call, of });
    for at in 0..3 {
        world.set(at, State::Up);
    }
    world.advance(SOON);
    assert_eq!((world.left(), world.answer(0, call)), ((0, 0), None));
    assert!(world.hosts[0].quorum.is_idle());
}
