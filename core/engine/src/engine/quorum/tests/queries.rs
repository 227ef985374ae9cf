//! Inspections and forced releases.

use super::world::{Host, LOCK, Net, SOON, key, ms, quorum};
use crate::engine::{Answer, Input, Wait};
use crate::error::ErrorKind;
use crate::event::LeaseEvent;
use crate::token::FencingToken;

#[test]
fn a_lock_is_seen_as_a_majority_sees_it() {
    let mut world = quorum(2, 5);
    let lease = world.hold(LOCK);
    world.at(1).acquire(LOCK, Wait::Forever);
    world.servers[3].flush();
    let call = world.at(1).inspect(LOCK);
    world.advance(SOON);
    let Answer::Inspect(Ok(seen)) = world.outcome(call) else {
        panic!("not seen: {:?}", world.outcome(call));
    };
    let holder = seen.holder.as_ref().expect("somebody has the lock");
    assert_eq!(holder.owner.label(), "host 0");
    assert!(holder.token >= lease.token && seen.waiting == 1);
}

#[test]
fn a_lock_that_only_a_minority_has_is_free() {
    let mut world = quorum(1, 5);
    world.hold(LOCK);
    for at in [0, 1, 2] {
        world.servers[at].flush();
    }
    let call = world.inspect(LOCK);
    let seen = world.outcome(call);
    assert!(
        matches!(seen, Answer::Inspect(Ok(seen)) if seen.holder.is_none()),
        "{seen:?}"
    );
}

#[test]
fn a_forced_release_frees_the_lock_for_the_next_waiter() {
    let mut world = quorum(2, 3);
    world.hold(LOCK);
    let waits = world.at(1).acquire(LOCK, Wait::Forever);
    let call = world.at(1).force_release(LOCK);
    world.advance(SOON);
    let freed = world.outcome(call);
    assert!(
        matches!(freed, Answer::ForceRelease(Ok(Some(_)))),
        "{freed:?}"
    );
    assert_eq!(world.story(0).last(), Some(&"lost"));
    world.grant(waits);
}

/// Catches a forced release that frees the next holder.
#[test]
fn a_forced_release_of_a_token_frees_only_that_tenure() {
    let mut world = quorum(2, 3);
    world.hold(LOCK);
    let key = key(LOCK);
    let call = world.at(1).inspect(LOCK);
    world.advance(SOON);
    let Answer::Inspect(Ok(seen)) = world.outcome(call).clone() else {
        panic!("nobody says who has it")
    };
    let token = seen.holder.expect("the lock is held").token;
    let free = |world: &mut Host, token| {
        let call = world.next_call();
        let (key, token) = (key.clone(), Some(token));
        world.at(1).input(Input::ForceRelease { call, key, token });
        world.advance(SOON);
        match world.outcome(call) {
            Answer::ForceRelease(Ok(freed)) => freed.as_ref().map(|freed| freed.token),
            other => panic!("{other:?}"),
        }
    };
    let other = FencingToken::new(token.get() + 1).expect("the token is small");
    assert_eq!(free(&mut world, other), None);
    assert_ne!(world.story(0).last(), Some(&"lost"));
    assert_eq!(free(&mut world, token), Some(token));
    assert_eq!(world.story(0).last(), Some(&"lost"));
    world.at(1).hold(LOCK);
    assert_eq!(free(&mut world, token), None);
    assert_ne!(world.story(1).last(), Some(&"lost"));
}

#[test]
fn a_listing_covers_all_servers() {
    let mut world = quorum(1, 3);
    world.hold(LOCK);
    let (mut cursor, mut steps, mut seen) = (0, 0, 0);
    loop {
        let call = world.list(cursor);
        let Answer::List(Ok(listing)) = world.outcome(call) else {
            panic!("no list");
        };
        (steps, seen) = (steps + 1, seen + listing.names.len());
        match listing.cursor {
            Some(next) => cursor = next,
            None => break,
        }
    }
    assert_eq!((steps, seen), (3, 3));
}

#[test]
fn an_error_names_the_missing_servers() {
    let mut world = quorum(1, 3);
    for at in [0, 1] {
        world.cut(at);
        world.set(at, Net::LoseRequests);
    }
    let call = world.inspect(LOCK);
    world.advance(SOON * 10);
    let error = world.failure(call);
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        error.to_string().contains("2 of 3 servers are missing"),
        "{error}"
    );
}

/// Catches a request that the holder hears once for each server, and one that a majority cannot hear.
#[test]
fn a_holder_is_told_once_that_it_is_wanted() {
    let mut world = quorum(2, 5);
    let lease = world.hold(LOCK);
    world.deafen(0);
    world.set(1, Net::LoseRequests);
    let within = SOON * 20;
    let call = world.at(1).request_yield(LOCK, "deploy", within);
    world.advance(SOON);
    world.set(1, Net::Up);
    assert!(
        matches!(world.outcome(call), Answer::RequestYield(Ok(Some(_)))),
        "{:?}",
        world.outcome(call)
    );
    world.advance(within * 2);
    let wanted = world.events.iter().filter_map(|told| match &told.event {
        LeaseEvent::Wanted { token, by, .. } => Some((*token, &**by)),
        _ => None,
    });
    assert_eq!(wanted.collect::<Vec<_>>(), [(lease.token, "deploy")]);
    let call = world.at(1).request_yield(LOCK, "again", within);
    let call = (call, world.at(1).inspect(LOCK));
    world.advance(SOON);
    let Answer::Inspect(Ok(seen)) = world.outcome(call.1) else {
        panic!("{:?}", world.outcome(call.1));
    };
    assert_eq!(seen.wanted.as_ref().map(|seen| &*seen.by), Some("again"));
}

/// Catches a query that waits for all servers, one that counts a server twice, and one whose majority does not suffice.
#[test]
fn a_query_is_answered_once_a_majority_has_answered_and_the_others_had_time() {
    let mut world = quorum(1, 3);
    world.hold(LOCK);
    world.set_all(0..3, Net::Hold);
    let call = world.inspect(LOCK);
    world.answer_next();
    world.answer_next();
    world.advance(ms(4));
    assert!(world.is_open(call), "the third server may still answer");
    world.advance(SOON);
    let Answer::Inspect(Ok(seen)) = world.outcome(call) else {
        panic!("{:?}", world.outcome(call));
    };
    assert!(seen.holder.is_some());
}

#[test]
fn a_query_fails_once_so_many_servers_refuse_that_no_majority_is_left() {
    let mut world = quorum(1, 5);
    world.set_all(0..5, Net::Hold);
    let call = world.inspect(LOCK);
    for _ in 0..3 {
        assert!(world.is_open(call));
        world.refuse_next(ErrorKind::Store);
    }
    assert_eq!(world.error(call), ErrorKind::Unavailable);
}

/// Catches a late reply to the inspection that counts as one to the release which follows it.
#[test]
fn a_late_inspection_is_no_part_of_a_forced_release() {
    let mut world = quorum(1, 3);
    let token = world.hold(LOCK).token;
    world.set_all(0..3, Net::Hold);
    let call = world.force_release_token(LOCK, Some(token));
    world.answer_next();
    world.answer_next();
    world.advance(SOON);
    world.answer_all();
    let freed = world.outcome(call);
    assert!(
        matches!(freed, Answer::ForceRelease(Ok(Some(_)))),
        "{freed:?}"
    );
}

/// Catches a listing that ends with an error because one server is away, and one that silently leaves out a majority.
#[test]
fn a_listing_skips_a_server_that_is_away_if_the_others_are_a_majority() {
    for (away, succeeds) in [(1, true), (2, false)] {
        let mut world = quorum(1, 3);
        world.hold(LOCK);
        for server in 0..away {
            world.cut(server);
            world.set(server, Net::LoseRequests);
        }
        let call = world.list(0);
        world.advance(SOON * 10);
        match world.outcome(call) {
            Answer::List(Ok(step)) => {
                assert!(succeeds && step.names.is_empty() && step.cursor.is_some());
            }
            other => assert!(!succeeds, "{other:?}"),
        }
    }
}
