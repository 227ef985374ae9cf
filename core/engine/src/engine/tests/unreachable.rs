//! Calls while the store cannot be reached: they wait within their own timeouts, and their errors say why
//! they failed.

use super::host::{Host, LOCK, Net, PATIENCE, TIMEOUT, ms};
use crate::engine::{Answer, LockId, Wait};
use crate::error::{Error, ErrorKind};

/// The error of each probe, as reported by a host whose client connects lazily.
fn refused() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "the store cannot be reached: ECONNREFUSED",
    )
}

fn wrong_password() -> Error {
    Error::new(ErrorKind::Auth, "the server refused the password")
}

/// Lets time pass while each probe fails.
fn advance_without_a_store(host: &mut Host, millis: u64, error: &Error) {
    for _ in 0..millis / 50 {
        while let Some(sent) = host.pending.pop_front() {
            host.reply(&sent, Err(error.clone()));
        }
        host.advance(ms(50));
    }
}

/// Catches "too many pending requests" and "whether it acted is unknown" for operations that were never sent:
/// the reason was known from the first probe, and was dropped.
#[test]
fn a_store_that_is_never_reached_is_unavailable_for_the_reason_of_its_probe() {
    let mut host = Host::connecting(Net::Hold);
    let until = host.now + ms(1_500);
    let calls = [
        host.acquire(LOCK, Wait::Never),
        host.acquire(LockId(2), Wait::Until(until)),
        host.acquire(LockId(3), Wait::Forever),
        host.inspect(LOCK),
        host.force_release(LOCK),
    ];
    advance_without_a_store(&mut host, 15_000, &refused());
    for call in calls {
        assert_eq!(host.failure(call), &refused(), "{call:?}");
    }
    assert_eq!(host.ops(), [""; 0], "nothing was sent");
}

/// A store that accepts connections and never replies cannot be reached either.
#[test]
fn a_store_that_never_answers_is_unavailable() {
    let mut host = Host::connecting(Net::LoseRequests);
    let calls = [
        host.acquire(LOCK, Wait::Never),
        host.acquire(LockId(2), Wait::Forever),
        host.inspect(LOCK),
    ];
    host.advance(ms(15_000));
    for call in calls {
        assert_eq!(host.error(call), ErrorKind::Unavailable, "{call:?}");
    }
    assert_eq!(host.ops(), [""; 0], "nothing was sent");
}

/// Catches calls that fail at once while the connection is remade: servers close idle connections.
#[test]
fn calls_that_do_not_wait_for_a_lock_wait_for_the_connection() {
    let mut host = Host::new();
    host.fixed = true;
    let held = host.hold(LOCK);
    host.disconnect();
    let acquire = host.acquire(LockId(2), Wait::Never);
    let renew = host.renew(held.lease);
    let inspect = host.inspect(LOCK);
    host.forget();
    host.advance(TIMEOUT / 2);
    assert!(host.log.is_empty());
    host.connect(0);
    host.grant(acquire);
    assert_eq!(host.outcome(renew), &Answer::Renew(Ok(())));
    assert!(matches!(host.outcome(inspect), Answer::Inspect(Ok(_))));
    assert_eq!(host.log.len(), 2, "a probe, and one batch");
}

/// Catches an error that names the first of several reasons, which may be over by now.
#[test]
fn a_call_without_an_answer_fails_with_the_last_reason() {
    let mut host = Host::on(Net::Hold);
    let call = host.acquire(LOCK, Wait::Forever);
    host.refuse_next(ErrorKind::Unavailable);
    host.net = Net::LoseRequests;
    host.advance(PATIENCE + TIMEOUT * 2);
    assert_eq!(host.error(call), ErrorKind::Timeout);
}

#[test]
fn without_a_connection_a_call_ends_at_its_timeout() {
    let mut host = Host::new();
    host.fixed = true;
    let held = host.hold(LOCK);
    host.disconnect();
    let begin = host.now;
    let acquire = host.acquire(LockId(2), Wait::Never);
    let renew = host.renew(held.lease);
    let inspect = host.inspect(LOCK);
    host.advance(PATIENCE * 2);
    for (call, time) in [(acquire, TIMEOUT), (renew, TIMEOUT), (inspect, PATIENCE)] {
        let error = host.failure(call);
        assert_eq!(error.to_string(), "the cable was pulled");
        assert_eq!(host.answered(call).since(begin), time, "{call:?}");
    }
}

/// Its effect at the server is not known, and asking again with the same lease ID is harmless.
#[test]
fn an_acquisition_lost_with_its_connection_is_retried_on_the_next() {
    let mut host = Host::on(Net::Hold);
    let call = host.acquire(LOCK, Wait::Never);
    host.take();
    host.disconnect();
    host.advance(ms(500));
    assert!(host.is_open(call));
    host.net = Net::Up;
    host.connect(0);
    host.grant(call);
}

/// Catches a call that never ends while connections keep breaking.
#[test]
fn connections_that_keep_breaking_end_the_call() {
    let mut host = Host::new();
    let begin = host.now;
    host.net = Net::Hold;
    let call = host.acquire(LOCK, Wait::Never);
    for _ in 0..100 {
        host.pending.clear();
        host.disconnect();
        host.advance(ms(100));
        host.connect(0);
        if let Some(probe) = host.pending.pop_front() {
            host.answer(&probe);
        }
    }
    assert_eq!(host.error(call), ErrorKind::Unavailable);
    assert!(host.answered(call).since(begin) <= TIMEOUT * 2);
}

/// Catches calls that fail at once and repeatedly, even when the password is right again.
#[test]
fn credentials_refused_on_a_later_connection_may_work_again() {
    let mut host = Host::new();
    let error = wrong_password();
    host.disconnected(0, error);
    let long = host.acquire(LOCK, Wait::Until(host.now + ms(8_000)));
    let short = host.acquire(LockId(2), Wait::Until(host.now + ms(1_000)));
    host.advance(ms(5_000));
    let told = host.failure(short);
    assert_eq!(told.kind(), ErrorKind::Unavailable);
    let text = "the store cannot be reached: the server refused the password";
    assert_eq!(told.to_string(), text);
    assert!(host.is_open(long));
    host.connect(0);
    host.grant(long);
}

/// The first connection decides whether the password is right.
#[test]
fn credentials_refused_on_the_first_connection_are_wrong() {
    let mut host = Host::unconnected();
    let early = host.acquire(LOCK, Wait::Forever);
    let error = wrong_password();
    host.disconnected(0, error);
    let late = host.acquire(LockId(2), Wait::Never);
    for call in [early, late] {
        assert_eq!(host.failure(call), &wrong_password(), "at once");
    }
    // The engine probes again anyway.
    host.net = Net::Hold;
    host.connect(0);
    let waits = host.acquire(LOCK, Wait::Never);
    host.net = Net::Up;
    host.answer_all();
    host.grant(waits);
}

/// The host learns of the refusal from a probe instead of a failed connection.
#[test]
fn a_store_that_served_this_client_before_is_retried_after_a_refusal() {
    let mut host = Host::on(Net::Hold);
    host.connect(0);
    let call = host.acquire(LOCK, Wait::Until(host.now + ms(8_000)));
    advance_without_a_store(&mut host, 5_000, &wrong_password());
    assert!(host.is_open(call));
    host.net = Net::Up;
    host.answer_all();
    host.advance(ms(1_500));
    host.grant(call);
}
