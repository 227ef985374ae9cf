//! Looking at locks, and freeing them.

use super::world::{SOON, State, World, key};
use crate::engine::{Answer, Input, Wait};
use crate::error::ErrorKind;
use crate::protocol::Pattern;
use crate::token::FencingToken;

#[test]
fn a_lock_is_seen_as_a_majority_sees_it() {
    let mut world = World::new(2, 5);
    let lease = world.hold(0);
    world.acquire(1, Wait::Forever);
    world.servers[3].flush();
    let call = world.next_call(1);
    world.input(1, Input::Inspect { call, key: key() });
    world.advance(SOON);
    let Some(Answer::Inspect(Ok(seen))) = world.answer(1, call) else {
        panic!("not seen: {:?}", world.answer(1, call));
    };
    let holder = seen.holder.as_ref().expect("somebody has it");
    assert_eq!(holder.owner.label(), "host 0");
    assert!(holder.token >= lease.token && seen.waiting == 1);
}

#[test]
fn what_only_a_minority_has_nobody_has() {
    let mut world = World::new(1, 5);
    world.hold(0);
    for at in [0, 1, 2] {
        world.servers[at].flush();
    }
    let call = world.next_call(0);
    world.input(0, Input::Inspect { call, key: key() });
    let seen = world.answer(0, call);
    assert!(
        matches!(seen, Some(Answer::Inspect(Ok(seen))) if seen.holder.is_none()),
        "{seen:?}"
    );
}

#[test]
fn a_forced_release_frees_it_for_the_next() {
    let mut world = World::new(2, 3);
    world.hold(0);
    let waits = world.acquire(1, Wait::Forever);
    let call = world.next_call(1);
    world.input(
        1,
        Input::ForceRelease {
            call,
            key: key(),
            token: None,
        },
    );
    world.advance(SOON);
    let freed = world.answer(1, call);
    assert!(
        matches!(freed, Some(Answer::ForceRelease(Ok(Some(_))))),
        "{freed:?}"
    );
    assert_eq!(world.story(0).last(), Some(&"lost"));
    world.got(1, waits);
}

/// Catches one that frees the next holder.
#[test]
fn a_forced_release_of_a_token_frees_that_tenure_alone() {
    let mut world = World::new(2, 3);
    world.hold(0);
    let key = key();
    let call = world.next_call(1);
    world.input(
        1,
        Input::Inspect {
            call,
            key: key.clone(),
        },
    );
    world.advance(SOON);
    let Some(Answer::Inspect(Ok(seen))) = world.answer(1, call).cloned() else {
        panic!("nobody says who has it")
    };
    let token = seen.holder.expect("it is held").token;
    let free = |world: &mut World, token| {
        let call = world.next_call(1);
        let (key, token) = (key.clone(), Some(token));
        world.input(1, Input::ForceRelease { call, key, token });
        world.advance(SOON);
        match world.answer(1, call) {
            Some(Answer::ForceRelease(Ok(freed))) => freed.as_ref().map(|freed| freed.token),
            other => panic!("{other:?}"),
        }
    };
    let other = FencingToken::new(token.get() + 1).expect("it is small");
    assert_eq!(free(&mut world, other), None);
    assert_ne!(world.story(0).last(), Some(&"lost"));
    assert_eq!(free(&mut world, token), Some(token));
    assert_eq!(world.story(0).last(), Some(&"lost"));
    world.hold(1);
    assert_eq!(free(&mut world, token), None);
    assert_ne!(world.story(1).last(), Some(&"lost"));
}

#[test]
fn a_walk_goes_through_all_servers() {
    let mut world = World::new(1, 3);
    world.hold(0);
    let (mut cursor, mut steps, mut seen) = (0, 0, 0);
    loop {
        let call = world.next_call(0);
        let pattern = Pattern::new("test", "*").expect("it is valid");
        world.input(
            0,
            Input::List {
                call,
                pattern,
                cursor,
            },
        );
        let Some(Answer::List(Ok(listing))) = world.answer(0, call) else {
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
fn too_few_servers_say_which_are_missing() {
    let mut world = World::new(1, 3);
    for at in [0, 1] {
        world.cut(0, at);
        world.set(at, State::Away);
    }
    let call = world.next_call(0);
    world.input(0, Input::Inspect { call, key: key() });
    world.advance(SOON * 10);
    let error = world.error(0, call);
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        error.to_string().contains("2 of 3 servers are missing"),
        "{error}"
    );
}
