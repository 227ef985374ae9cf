//! Leaving the line: nobody keeps a place that nobody waits in.

use super::host::{Host, LOCK, Net, PATIENCE, TTL, ms};
use super::line::{LONG, assert_nobody_waits, claims, in_line};
use crate::engine::{Answer, Wait};
use crate::error::ErrorKind;

/// Catches a claim that does not match its place, because its fields changed on the way.
#[test]
fn a_waiter_that_is_cancelled_gives_up_exactly_its_claim() {
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

/// The heartbeat was under way when the waiter was cancelled, and may act after its release.
#[test]
fn a_question_of_unknown_outcome_makes_it_leave_twice() {
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

/// The heartbeat's answer settles it; but the heartbeat may have been executed after the release, which is
/// why that is sent once more.
#[test]
fn a_question_that_is_answered_after_all_makes_it_leave_once_more() {
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

/// A claim whose first answer was lost may be in line though nobody was told a place.
#[test]
fn a_waiter_that_was_never_told_its_place_leaves_it_too() {
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
fn a_call_whose_time_is_over_leaves_the_line_at_that_moment() {
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
fn a_shutdown_leaves_the_line_and_waits_for_it() {
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

/// A patience that ends while the store is silent ends the place as well.
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

/// Catches a place that nobody waits in any more: the last caller did not want one.
#[test]
fn the_place_goes_with_the_last_who_wanted_it() {
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

/// The one who waited is gone, and the question that ends the story asked for no place: the one
/// from before is left all the same.
#[test]
fn a_question_without_a_place_does_not_forget_the_one_before() {
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

/// Catches a caller that does not wait and takes the place of those who do along.
#[test]
fn a_caller_that_does_not_wait_joins_and_leaves_the_place_alone() {
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
