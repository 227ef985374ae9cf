//! What a quorum says to its host, and what the host tells it.

use std::time::Duration;

use super::world::{LOCK, LONGEST, Net, SOON, TTL, fresh, id_of, key, lease_of, ms, quorum};
use crate::engine::{Answer, Input, LockId, Output, ServerId, Wait};
use crate::error::ErrorKind;
use crate::event::LeaseEvent;
use crate::protocol::{Command, ForceRelease};

/// Catches a shutdown that is over before the servers have the releases.
#[test]
fn a_shutdown_is_complete_when_all_servers_have_confirmed() {
    let mut world = quorum(1, 3);
    world.hold(LOCK);
    world.set_all(0..3, Net::Hold);
    let call = world.shutdown();
    for _ in 0..3 {
        assert!(world.is_open(call));
        world.answer_next();
    }
    assert_eq!(world.outcome(call), &Answer::Shutdown);
    assert_eq!(world.left(), (0, 0));
    assert!(world.engine.is_idle());
}

/// Catches a host that sends no command, or that sends each of many alone.
#[test]
fn a_host_is_asked_to_send_and_to_wait_for_more() {
    let mut world = quorum(1, 3);
    world.set_all(0..3, Net::Hold);
    let spec = |world: &super::world::Host, lock| world.spec(LockId(lock)).into();
    let first = Input::Acquire {
        call: world.next_call(),
        lock: LockId(2),
        spec: spec(&world, 2),
        lease: lease_of(world.next_call()),
        wait: Wait::Never,
    };
    let now = world.now;
    assert!(!world.engine.has_unsent());
    world.engine.handle(now, first);
    assert!(world.engine.has_unsent());
    assert!(!world.engine.expects_more(), "the caller is alone");
    world.settle();
    assert!(!world.engine.has_unsent());
    let calls: Vec<_> = (3..40)
        .map(|lock| world.acquire(LockId(lock), Wait::Never))
        .collect();
    // The answers to the second batch of each server, which has several operations.
    while calls.iter().all(|call| world.is_open(*call)) {
        let (sent, reply) = world.take_reply();
        let input = Input::Reply {
            server: sent.server,
            request: sent.request,
            result: Ok(reply),
        };
        world.engine.handle(now, input);
        let expects = world.engine.expects_more();
        while !matches!(world.engine.poll_unsent(), Output::Wait { .. }) {}
        if expects {
            return;
        }
        world.settle();
    }
    panic!("nothing is expected of callers that have just been answered");
}

#[test]
fn inputs_of_an_unknown_server_are_ignored() {
    let mut world = quorum(1, 3);
    let server = ServerId(3);
    world.input(Input::Connected { server });
    world.input(Input::Watching { server });
    world.hold(LOCK);
    assert_eq!(world.left(), (3, 0));
}

/// Catches a change that is passed on to no server.
#[test]
fn a_lock_that_changed_is_checked_at_all_servers() {
    let mut world = quorum(1, 3);
    for server in 0..3 {
        let server = id_of(server);
        world.input(Input::Watching { server });
    }
    let token = world.hold(LOCK).token;
    // By then, the lock's keys have been read.
    world.advance(SOON);
    for server in 0..3 {
        world.deafen(server);
        let key = key(LOCK);
        world.ask_at(server, Command::ForceRelease(ForceRelease { key, token }));
    }
    world.advance(ms(1));
    let key = Some(key(LOCK));
    world.input(Input::Changed { key });
    assert_eq!(world.story(0).last(), Some(&"lost"));
}

#[test]
fn a_lease_is_held_up_to_its_deadline_whether_or_not_the_host_ticks() {
    let mut world = quorum(1, 3);
    world.hold(LOCK);
    let until = world.held_until(LOCK);
    world.now = until - ms(1);
    assert!(world.is_held(LOCK));
    world.now = until;
    assert!(!world.is_held(LOCK));
}

/// Catches a locker that waits for servers that it knows to be disconnected.
#[test]
fn a_new_locker_without_a_majority_is_told_at_once_and_why() {
    let mut world = fresh(1, 3);
    for server in [0, 2] {
        world.cut(server);
    }
    let call = world.acquire(LOCK, Wait::Never);
    world.advance(ms(200));
    let error = world.failure(call);
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let says = error.to_string();
    let why = "server 1: the cable was pulled";
    assert!(says.contains(why) && says.contains("server 3"), "{says}");
}

/// Catches a lock that is said to be out of reach because a minority is, although a majority said that somebody
/// has it.
#[test]
fn a_lock_that_a_majority_refuses_is_taken_and_not_out_of_reach() {
    for (servers, away) in [(3, 1), (5, 2), (7, 3)] {
        let mut world = quorum(2, servers);
        world.hold(LOCK);
        world.set_all(0..servers, Net::Hold);
        let call = world.at(1).acquire(LOCK, Wait::Never);
        for _ in 0..away {
            world.refuse_next(ErrorKind::Store);
        }
        world.answer_all();
        let taken = Answer::Acquire(Ok(None));
        assert_eq!(world.outcome(call), &taken, "{away} of {servers}");
    }
}

/// Catches a margin for clocks that a server of the quorum has left, of which readers who come later hear nothing.
#[test]
fn the_host_is_told_that_a_clock_of_a_server_drifts() {
    let mut world = quorum(1, 3);
    world.back = Duration::from_micros(200);
    world.ttl = ms(500);
    world.hold(LOCK);
    assert_eq!(world.engine.clock_drift(), None);
    for _ in 0..400 {
        world.advance(ms(10));
        world.ahead[1] += 1_000;
    }
    let told = world.engine.clock_drift();
    assert!(
        matches!(told, Some(LeaseEvent::ClockDrift { .. })),
        "{told:?}"
    );
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

/// Catches an error of a server that may have forgotten locks that does not say how long it does not vote.
#[test]
fn an_error_says_when_a_server_that_forgot_votes_again() {
    let mut world = quorum(1, 3);
    world.hold(LOCK);
    for server in [0, 1] {
        world.servers[server].flush();
    }
    // The first attempt finds out.
    let [_, call] = [(); 2].map(|()| {
        let call = world.acquire(LockId(2), Wait::Never);
        world.advance(ms(200));
        call
    });
    let says = world.failure(call).to_string();
    // With the margin for its clock.
    let left = LONGEST.as_secs() + 1;
    let why = format!("came back 0 s ago, may have forgotten locks, and votes again in {left} s");
    assert!(says.contains(&why), "{says}");
}

/// Catches a release that goes on being repeated, and a caller that waits for it, when the name is held again.
#[test]
fn a_release_ends_once_the_name_is_held_again() {
    let mut world = quorum(1, 3);
    let lease = world.hold(LOCK).lease;
    world.set_all(0..3, Net::LoseReplies);
    let release = world.release(lease);
    assert!(world.is_open(release));
    world.set_all(0..3, Net::Up);
    let again = world.acquire_as(LockId(2), LOCK, Wait::Forever);
    world.advance(TTL);
    world.grant(again);
    assert!(world.answered(release) <= world.answered(again));
}

/// Catches a new attempt that gives up before the servers have answered, because they were silent before.
#[test]
fn servers_that_were_silent_are_asked_again() {
    let mut world = quorum(1, 3);
    world.set_all(0..3, Net::LoseRequests);
    let call = world.acquire(LOCK, Wait::Never);
    world.advance(SOON * 4);
    assert_eq!(world.error(call), ErrorKind::Unavailable);
    world.set_all(0..3, Net::Up);
    let again = world.acquire(LOCK, Wait::Never);
    world.advance(SOON);
    world.grant(again);
}

/// Catches counters that are raised later than necessary, and sooner than a slow answer may make it unnecessary.
#[test]
fn counters_are_raised_once_no_answer_is_due() {
    let mut world = quorum(1, 3);
    world.cut(2);
    world.ahead[2] += 3_600_000_000;
    world.connect(2);
    world.set(0, Net::Hold);
    let call = world.acquire(LOCK, Wait::Never);
    assert!(world.is_open(call) && !world.ops().contains(&"renew"));
    world.refuse_next(ErrorKind::Store);
    assert_eq!(world.ops().last(), Some(&"renew"));
    world.grant(call);
}
