//! Leaving the line: no entry stays behind without a waiter.

use super::host::{Host, LOCK, Net, PATIENCE, TTL, ms};
use super::line::{LONG, assert_nobody_waits, claims, in_line};
use crate::engine::{Answer, Wait};
use crate::error::ErrorKind;

/// Catches a claim that does not match its place, because its fields changed on the way.
#[test]
fn a_waiter_that_is_canceled_gives_up_exactly_its_claim() {
    let mut host = Host::new();
    host.stranger_acquires(LOCK, LONG);
    let call = host.acquire(LOCK, Wait::Forever);
    host.cancel(call);
    let (asked, left) = claims(&host);
    assert_eq!(left, [asked[0]]);
    assert_eq!(host.waiting(LOCK), 0);
    assert!(host.engine.is_idle() && host.is_taken(LOCK));
    assert_nobody_waits(&host);
}

/// The heartbeat was in flight when the waiter was canceled, and may act after the release.
#[test]
fn a_heartbeat_with_an_unknown_outcome_makes_the_waiter_leave_twice() {
    let mut host = Host::new();
    let call = in_line(&mut host);
    host.net = Net::Hold;
    host.advance(ms(5_000));
    let ghost = host.take();
    host.cancel(call);
    host.answer_next();
    assert_eq!(host.waiting(LOCK), 0);
    host.execute(&ghost);
    assert_eq!(host.waiting(LOCK), 1, "a ghost");
    host.net = Net::Up;
    host.advance(ms(2_000));
    assert_eq!(host.waiting(LOCK), 0);
    assert_eq!(host.ops(), ["acquire", "release", "release"]);
    assert!(host.engine.is_idle());
}

/// The heartbeat's answer settles the doubt. The server may have executed the heartbeat after the release, so
/// the release is sent again.
#[test]
fn a_heartbeat_that_is_answered_late_makes_the_waiter_leave_once_more() {
    let mut host = Host::new();
    let call = in_line(&mut host);
    host.net = Net::Hold;
    host.advance(ms(5_000));
    host.cancel(call);
    host.answer_all();
    host.net = Net::Up;
    host.advance(TTL);
    assert_eq!(host.ops(), ["acquire", "release", "release"]);
    assert_eq!(host.waiting(LOCK), 0);
    assert!(host.engine.is_idle());
}

/// A claim whose first answer was lost may be in line although its caller never got a position.
#[test]
fn a_waiter_that_was_never_told_its_position_leaves_the_line_too() {
    let mut host = Host::new();
    host.stranger_acquires(LOCK, LONG);
    host.net = Net::LoseReplies;
    let call = host.acquire(LOCK, Wait::Until(host.now + ms(1_500)));
    assert_eq!(host.waiting(LOCK), 1);
    host.net = Net::Up;
    host.advance(ms(1_500));
    assert_eq!(host.error(call), ErrorKind::Timeout);
    assert_eq!(host.waiting(LOCK), 0);
    host.advance(TTL);
    assert!(host.engine.is_idle());
}

#[test]
fn a_call_leaves_the_line_at_its_timeout() {
    let mut host = Host::new();
    host.stranger_acquires(LOCK, LONG);
    let until = host.now + ms(7_000);
    let call = host.acquire(LOCK, Wait::Until(until));
    host.advance(ms(6_999));
    assert_eq!(host.waiting(LOCK), 1);
    host.advance(ms(1));
    assert_eq!(
        (host.outcome(call), host.answered(call)),
        (&Answer::Acquire(Ok(None)), until)
    );
    assert_eq!((host.waiting(LOCK), host.count("release")), (0, 1));
    assert_nobody_waits(&host);
}

#[test]
fn a_shutdown_leaves_the_line_and_waits_for_the_confirmation() {
    let mut host = Host::new();
    let waiter = in_line(&mut host);
    host.net = Net::Hold;
    let shutdown = host.shutdown();
    assert_eq!(host.error(waiter), ErrorKind::Shutdown);
    assert!(host.is_open(shutdown));
    assert_nobody_waits(&host);
    host.answer_all();
    assert_eq!(host.outcome(shutdown), &Answer::Shutdown);
    assert_eq!(host.waiting(LOCK), 0);
}

/// When the patience with a silent store ends, the place in line ends too.
#[test]
fn a_waiter_that_gives_up_on_a_silent_store_leaves_when_it_can() {
    let mut host = Host::new();
    host.stranger_acquires(LOCK, LONG);
    let call = host.acquire(LOCK, Wait::Forever);
    host.net = Net::LoseRequests;
    host.advance(ms(5_000) + PATIENCE + ms(3_000));
    assert!(host.outcome(call).error().is_some());
    assert_nobody_waits(&host);
    host.net = Net::Up;
    host.advance(ms(5_000));
    assert_eq!(host.waiting(LOCK), 0);
}

/// Catches a place in line without a waiter: the last caller did not want one.
#[test]
fn the_place_in_line_ends_with_the_last_caller_that_waits() {
    let mut host = Host::new();
    let waiter = in_line(&mut host);
    host.net = Net::Hold;
    let never = host.acquire(LOCK, Wait::Never);
    host.cancel(waiter);
    host.answer_all();
    assert_eq!(host.outcome(never), &Answer::Acquire(Ok(None)));
    assert_eq!(host.waiting(LOCK), 0);
    assert!(host.engine.is_idle());
}

/// The caller that waited is gone, and the last request did not ask to join the line. The earlier entry is
/// given up anyway.
#[test]
fn a_request_without_a_place_in_line_does_not_forget_the_earlier_entry() {
    let mut host = Host::new();
    host.stranger_acquires(LOCK, LONG);
    let waiter = host.acquire(LOCK, Wait::Until(host.now + ms(5_100)));
    host.net = Net::LoseRequests;
    host.advance(ms(5_000));
    let never = host.acquire(LOCK, Wait::Never);
    host.advance(ms(99));
    host.net = Net::Up;
    host.advance(ms(300));
    assert!(!host.is_open(waiter));
    assert_eq!(host.outcome(never), &Answer::Acquire(Ok(None)));
    assert_eq!(host.waiting(LOCK), 0);
    host.advance(TTL);
    assert!(host.engine.is_idle());
}

/// Catches a caller that does not wait and takes the entry of the waiting callers along.
#[test]
fn a_caller_that_does_not_wait_keeps_the_place_in_line_of_others() {
    let mut host = Host::new();
    let waiter = in_line(&mut host);
    for _ in 0..5 {
        host.advance(ms(10));
        let never = host.acquire(LOCK, Wait::Never);
        assert_eq!(host.outcome(never), &Answer::Acquire(Ok(None)));
    }
    assert!(host.is_open(waiter));
    assert_eq!((host.waiting(LOCK), host.count("release")), (1, 0));
    assert_eq!(host.told(), [""; 0]);
}
