//! Acquisitions that get the lock, and those that do not.

use super::host::{Host, LOCK, Net, PATIENCE, SOON, TIMEOUT, TTL, ms};
use crate::engine::{Answer, Wait};
use crate::error::ErrorKind;
use crate::protocol::{Command, LeaseId};

#[test]
fn a_free_lock_is_held_after_one_request() {
    let mut host = Host::new();
    let call = host.acquire(LOCK, Wait::Forever);
    let grant = host.grant(call);
    assert_eq!(grant.token.get(), 1);
    assert_eq!(host.ops(), ["acquire"]);
    assert_eq!(host.told(), ["acquired 1"]);
    assert!(host.is_taken(LOCK));
}

#[test]
fn a_caller_that_does_not_wait_is_told_busy_by_the_first_answer() {
    let mut host = Host::new();
    host.stranger_acquires(LOCK, TTL);
    let call = host.acquire(LOCK, Wait::Never);
    assert_eq!(host.outcome(call), &Answer::Acquire(Ok(None)));
    host.advance(TTL);
    assert_eq!(
        host.ops(),
        ["acquire"],
        "without a doubt, nothing is given back"
    );
    assert_eq!(host.told(), [""; 0], "the caller did not wait");
    assert!(host.engine.is_idle());
}

#[test]
fn a_caller_with_a_timeout_is_told_busy_exactly_at_it() {
    let mut host = Host::new();
    host.stranger_acquires(LOCK, TTL);
    let until = host.now + ms(1_234);
    let call = host.acquire(LOCK, Wait::Until(until));
    host.advance(TTL);
    assert_eq!(host.outcome(call), &Answer::Acquire(Ok(None)));
    assert_eq!(host.answered(call), until);
    assert_eq!(
        host.told(),
        ["waiting 1"],
        "reported once, not at each answer"
    );
    assert_eq!(host.count("release"), 1, "the caller leaves the line");
    assert_eq!(host.waiting(LOCK), 0);
    assert!(host.engine.is_idle());
}

/// Catches a waiter that polls several times a second, and one that learns of the lock's expiry only at its
/// next heartbeat.
#[test]
fn a_waiter_asks_rarely_and_once_at_the_holders_expiry() {
    let mut host = Host::new();
    host.stranger_acquires(LOCK, ms(1_000));
    let (start, expiry) = (host.now, host.now + ms(1_001));
    let call = host.acquire(LOCK, Wait::Forever);
    host.advance(ms(5_000));
    assert_eq!(host.grant(call).token.get(), 2);
    assert_eq!(
        host.answered(call),
        expiry,
        "not at the heartbeat after the expiry"
    );
    assert_eq!(
        host.times_of("acquire"),
        [start, start, expiry],
        "to join the line, when the channel is subscribed, and at the holder's expiry"
    );
    assert_eq!(host.told(), ["waiting 1", "acquired 2"]);
}

/// Catches a handoff that waits for another client's next request.
#[test]
fn a_waiter_gets_the_lock_at_the_moment_it_is_released() {
    let mut host = Host::new();
    host.stranger_acquires(LOCK, TTL);
    let call = host.acquire(LOCK, Wait::Forever);
    host.advance(ms(5_000));
    assert!(host.is_open(call));
    host.stranger_releases(LOCK);
    assert_eq!(host.grant(call).token.get(), 2);
    assert_eq!(host.answered(call), host.now);
}

/// Without pushes the waiter polls every second.
#[test]
fn a_waiter_that_hears_nothing_gets_the_lock_soon_after_it_was_released() {
    let mut host = Host::new();
    host.subscribes = false;
    host.stranger_acquires(LOCK, TTL);
    let call = host.acquire(LOCK, Wait::Forever);
    host.advance(ms(5_000));
    assert!(host.is_open(call));
    host.stranger_releases(LOCK);
    host.advance(ms(1_000));
    assert_eq!(host.grant(call).token.get(), 2);
}

#[test]
fn without_an_answer_a_caller_that_does_not_wait_fails_and_the_lock_is_given_back() {
    let mut host = Host::on(Net::LoseReplies);
    let start = host.now;
    let call = host.acquire(LOCK, Wait::Never);
    assert!(host.is_taken(LOCK), "the store acted");
    host.advance(TIMEOUT);
    assert_eq!(host.error(call), ErrorKind::Timeout);
    assert_eq!(host.answered(call), start + TIMEOUT);
    assert_eq!(host.ops(), ["acquire", "release"]);
    assert!(!host.is_taken(LOCK));
    host.net = Net::Up;
    host.advance(TTL);
    assert!(host.engine.is_idle());
}

#[test]
fn when_the_store_was_silent_the_end_of_the_wait_is_an_error_and_not_busy() {
    for wait in [ms(500), ms(7_000)] {
        let mut host = Host::on(Net::LoseRequests);
        let until = host.now + wait;
        let call = host.acquire(LOCK, Wait::Until(until));
        host.advance(TTL);
        assert_eq!(host.error(call), ErrorKind::Timeout);
        assert_eq!(host.answered(call), until);
    }
}

#[test]
fn a_store_that_falls_silent_after_busy_makes_the_end_of_the_wait_an_error() {
    let mut host = Host::new();
    host.stranger_acquires(LOCK, TTL);
    let until = host.now + ms(9_000);
    let call = host.acquire(LOCK, Wait::Until(until));
    host.net = Net::LoseRequests;
    host.advance(TTL);
    assert_eq!(
        host.error(call),
        ErrorKind::Timeout,
        "the lock may be free by now"
    );
    assert_eq!(host.answered(call), until);
}

#[test]
fn a_caller_without_a_timeout_fails_when_patience_with_a_silent_store_ends() {
    let mut host = Host::on(Net::LoseRequests);
    let start = host.now;
    let call = host.acquire(LOCK, Wait::Forever);
    host.advance(TTL);
    assert_eq!(host.error(call), ErrorKind::Timeout);
    let after = host.answered(call).since(start);
    assert!(
        after >= PATIENCE && after <= PATIENCE + TIMEOUT + ms(1_000),
        "{after:?}"
    );
}

#[test]
fn an_answer_in_between_renews_the_patience() {
    let mut host = Host::new();
    host.stranger_acquires(LOCK, TTL * 10);
    let call = host.acquire(LOCK, Wait::Forever);
    for _ in 0..5 {
        host.net = Net::LoseRequests;
        host.advance(PATIENCE / 2);
        host.net = Net::Up;
        host.advance(TIMEOUT + ms(1_000));
        assert!(host.is_open(call), "{:?}", host.outcome(call));
    }
}

#[test]
fn an_acquisition_that_cannot_succeed_fails_at_once() {
    for kind in [
        ErrorKind::WrongType,
        ErrorKind::Auth,
        ErrorKind::Config,
        ErrorKind::Unsupported,
    ] {
        let (mut host, call) = Host::asking();
        host.refuse_next(kind);
        assert_eq!(host.error(call), kind);
        assert!(
            host.engine.is_idle(),
            "the store refused, so there is nothing to give back"
        );
        assert_eq!(host.ops(), ["acquire"]);
    }
}

#[test]
fn a_failed_acquisition_that_may_have_acted_is_given_back() {
    let (mut host, call) = Host::asking();
    host.fail_next(ErrorKind::Store);
    assert_eq!(host.error(call), ErrorKind::Store);
    assert_eq!(host.ops(), ["acquire", "release"]);
}

/// The server was replaced by one whose clock is ahead, and no reply has shown that yet.
#[test]
fn a_request_that_came_late_is_repeated_at_once_with_the_new_clock() {
    let mut host = Host::new();
    host.epoch += 60_000_000;
    let call = host.acquire(LOCK, Wait::Never);
    assert_eq!(host.ops(), ["acquire", "acquire"]);
    assert_eq!(host.grant(call).token.get(), 1);
    assert_eq!(host.log[0].at, host.log[1].at);
}

#[test]
fn requests_that_always_come_late_end_as_a_timeout() {
    let mut host = Host::on(Net::Hold);
    let call = host.acquire(LOCK, Wait::Never);
    for _ in 0..2 {
        host.epoch += 60_000_000;
        host.answer_next();
    }
    assert_eq!(host.error(call), ErrorKind::Timeout);
    assert!(!host.is_taken(LOCK), "the late requests did nothing");
}

/// A retry with a fresh lease ID would wait until its own first attempt expires.
#[test]
fn a_retry_after_a_lost_answer_finds_its_own_lease_and_token() {
    let mut host = Host::on(Net::LoseReplies);
    let call = host.acquire(LOCK, Wait::Forever);
    host.advance(TIMEOUT);
    host.net = Net::Up;
    host.advance(SOON);
    assert_eq!(host.grant(call).token.get(), 1);
    assert_eq!(host.told(), ["acquired 1"]);
    let leases: Vec<_> = host
        .log
        .iter()
        .map(|sent| lease_of(&sent.batch[0].command))
        .collect();
    assert_eq!(leases, [host.grant(call).lease; 2]);
}

/// The lease would last no time at all and be lost at once.
#[test]
fn an_answer_that_took_longer_than_the_lease_lives_does_not_make_it_held() {
    let mut host = Host::new();
    (host.ttl, host.net) = (ms(1_000), Net::Hold);
    let call = host.acquire(LOCK, Wait::Forever);
    let (sent, reply) = host.take_reply();
    host.advance(ms(980));
    host.reply(&sent, Ok(reply));
    assert!(host.is_open(call));
    assert_eq!(host.told(), [""; 0]);
    host.net = Net::Up;
    host.advance(SOON);
    let grant = host.grant(call);
    assert!(grant.deadline > host.now);
    assert_eq!(
        host.told().first().map(String::as_str),
        Some("acquired 2"),
        "the lock begins a new tenure"
    );
}

#[test]
fn an_answer_after_the_attempt_was_given_up_is_ignored() {
    let (mut host, call) = Host::asking();
    let (sent, reply) = host.take_reply();
    host.advance(TIMEOUT);
    host.reply(&sent, Ok(reply));
    assert!(
        host.is_open(call),
        "the deadline would count from the wrong request"
    );
    host.net = Net::Up;
    host.answer_all();
    host.advance(ms(1_000));
    assert!(host.grant(call).deadline > host.now);
}

fn lease_of(command: &Command) -> LeaseId {
    match command {
        Command::Acquire(acquire) => acquire.claim.lease,
        other => panic!("{other:?} is not an acquisition"),
    }
}
