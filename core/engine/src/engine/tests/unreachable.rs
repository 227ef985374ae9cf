//! Calls while the store cannot be reached: they wait for it within their own time, and say why not.

use super::host::{Host, LOCK, Net, PATIENCE, TIMEOUT, ms};
use crate::engine::{Answer, LockId, Wait};
use crate::error::{Error, ErrorKind};

/// As the host of a client that connects lazily says of each probe.
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

/// Catches "too much else waits for the store" and "whether it acted is unknown" of what was never
/// sent: the reason was known from the first probe on, and was dropped.
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

/// As above, of a store that takes connections and says nothing.
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

/// Catches calls that fail at once since the link is being made anew: a server closes idle links.
#[test]
fn what_does_not_wait_for_a_lock_waits_for_the_link() {
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

#[test]
fn without_a_link_a_call_ends_with_its_own_time() {
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

/// What the broken link did with it is not known, and asking again as the same lease is harmless.
#[test]
fn an_acquisition_that_a_broken_link_took_with_it_is_tried_on_the_next() {
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

/// Catches a call that a link which breaks again and again keeps for ever.
#[test]
fn links_that_break_again_and_again_end_the_call() {
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

/// Catches calls that fail at once, and again and again, also when the password is right again.
#[test]
fn credentials_that_a_new_link_is_refused_may_be_right_soon() {
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

/// The first link decides whether the password is right.
#[test]
fn credentials_that_the_first_link_is_refused_are_wrong() {
    let mut host = Host::unconnected();
    let early = host.acquire(LOCK, Wait::Forever);
    let error = wrong_password();
    host.disconnected(0, error);
    let late = host.acquire(LockId(2), Wait::Never);
    for call in [early, late] {
        assert_eq!(host.failure(call), &wrong_password(), "at once");
    }
    // It is asked again all the same.
    host.net = Net::Hold;
    host.connect(0);
    let waits = host.acquire(LOCK, Wait::Never);
    host.net = Net::Up;
    host.answer_all();
    host.grant(waits);
}

/// As above, of a host that learns of it by the probe.
#[test]
fn a_store_that_did_serve_this_client_is_not_given_up_when_it_refuses_it() {
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
