//! The host's inputs to a quorum's engine, and the questions that a host asks it.

use std::time::Duration;

use super::world::{LOCK, Net, SOON, id_of, key, ms, quorum};
use crate::engine::{Answer, Input, LockId, Output, ServerId, Wait};
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
    let now = world.now;
    assert!(!world.engine.has_unsent());
    world.begin(LockId(2));
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
