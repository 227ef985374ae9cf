//! The connection: what is sent when, and which answers count.

use super::host::{Host, LOCK, Net, SOON, TIMEOUT, ms};
use crate::engine::{Answer, CallId, Input, LockId, Wait};
use crate::error::ErrorKind;

#[test]
fn nothing_is_sent_before_the_store_can_be_reached() {
    let mut host = Host::unconnected();
    let never = host.acquire(LOCK, Wait::Never);
    let forever = host.acquire(LockId(2), Wait::Forever);
    host.advance(ms(5_000));
    assert_eq!(host.error(never), ErrorKind::Unavailable);
    assert!(host.is_open(forever));
    assert!(host.log.is_empty());
    host.connect(0);
    assert_eq!(
        host.grant(forever).token.get(),
        1,
        "at once, not at the next retry"
    );
}

#[test]
fn only_an_empty_probe_is_sent_before_the_servers_clock_is_known() {
    let mut host = Host::connecting(Net::Hold);
    let call = host.acquire(LOCK, Wait::Never);
    let other = host.acquire(LockId(2), Wait::Never);
    host.advance(ms(100));
    assert_eq!(host.log.len(), 1);
    assert!(host.log[0].batch.is_empty());
    host.answer_next();
    assert_eq!(host.ops(), ["acquire", "acquire"]);
    assert_eq!(host.log.len(), 2, "pending operations leave together");
    host.answer_next();
    host.grant(call);
    host.grant(other);
}

#[test]
fn a_probe_that_failed_is_sent_again_with_pauses() {
    let mut host = Host::connecting(Net::Hold);
    for _ in 0..10 {
        host.fail_next(ErrorKind::Unavailable);
        assert!(host.pending.is_empty(), "the probe is not repeated at once");
        host.advance(ms(1_000));
        assert_eq!(host.pending.len(), 1);
    }
    host.answer_next();
    host.net = Net::Up;
    host.hold(LOCK);
    host.forget();
    host.advance(ms(5_000));
    assert!(
        host.log.is_empty(),
        "with the clock known there are no probes"
    );
}

/// Catches a wrong password that is reported as a timeout.
#[test]
fn a_refused_probe_fails_the_calls_that_wait_for_it() {
    let mut host = Host::connecting(Net::Hold);
    let call = host.acquire(LOCK, Wait::Forever);
    host.fail_next(ErrorKind::Auth);
    assert_eq!(host.error(call), ErrorKind::Auth);
    host.advance(ms(1_000));
    assert_eq!(host.pending.len(), 1, "the engine probes again anyway");
}

#[test]
fn a_probe_without_an_answer_is_sent_again() {
    let mut host = Host::connecting(Net::LoseRequests);
    host.advance(ms(60_000));
    assert!(
        host.log.len() > 20 && host.log.len() < 80,
        "{} in a minute",
        host.log.len()
    );
    assert!(host.log.iter().all(|sent| sent.batch.is_empty()));
    host.net = Net::Up;
    host.advance(TIMEOUT + ms(1_000));
    host.hold(LOCK);
}

#[test]
fn a_disconnect_ends_every_attempt_at_once_and_sends_nothing() {
    let (mut host, lease) = Host::holding();
    host.net = Net::Hold;
    let forever = host.acquire(LockId(3), Wait::Forever);
    let renewal = host.renew(lease);
    host.forget();
    host.disconnect();
    assert_eq!(host.error(renewal), ErrorKind::Unavailable);
    assert!(host.is_open(forever));
    assert_eq!(host.told(), ["at risk"]);
    host.advance(ms(2_000));
    assert!(host.log.is_empty());
}

#[test]
fn after_a_reconnect_everything_is_tried_again_at_once() {
    let mut host = Host::new();
    let held = host.hold(LOCK);
    let released = host.hold(LockId(2));
    host.net = Net::Hold;
    host.renew(held.lease);
    host.disconnect();
    let release = host.release(released.lease);
    let acquire = host.acquire(LockId(3), Wait::Forever);
    host.advance(ms(5_000));
    host.net = Net::Up;
    host.forget();
    host.connect(0);
    assert_eq!(host.outcome(release), &Answer::Release(Ok(())));
    host.grant(acquire);
    let mut ops = host.ops();
    ops.sort_unstable();
    assert_eq!(ops, ["acquire", "release", "renew"]);
    assert_eq!(host.log.len(), 2, "a probe, and one batch");
    assert!(host.told().contains(&"renewed".to_owned()));
    assert!(host.held_until(LOCK) > held.deadline);
}

#[test]
fn a_holder_learns_at_once_that_the_store_cannot_be_reached() {
    let (mut host, _) = Host::holding();
    host.disconnect();
    assert_eq!(host.told(), ["acquired 1", "at risk"]);
}

/// The server may have lost its data, or may be a different one.
#[test]
fn every_lease_is_renewed_after_a_reconnect() {
    let (mut host, _) = Host::holding();
    host.hold(LockId(2));
    host.servers[0].flush();
    host.connect(0);
    assert_eq!(host.count("renew"), 2);
    assert_eq!(host.told()[2..], ["lost: deleted", "lost: deleted"]);
}

#[test]
fn an_unanswered_request_is_repeated_when_the_connection_was_replaced() {
    let (mut host, call) = Host::asking();
    host.take();
    host.net = Net::Up;
    host.connect(0);
    assert_eq!(host.grant(call).token.get(), 1);
}

/// A late answer would give the new server the old one's anchor.
#[test]
fn answers_from_before_a_reconnect_are_ignored() {
    let (mut host, call) = Host::asking();
    let (old, reply) = host.take_reply();
    host.connect(0);
    host.reply(&old, Ok(reply));
    assert!(host.is_open(call));
    assert_eq!(
        host.log.len(),
        2,
        "the acquisition and the probe: there is no anchor yet"
    );
    host.answer_all();
    assert_eq!(host.grant(call).token.get(), 1);
}

#[test]
fn the_answer_to_a_probe_from_before_a_disconnect_is_ignored() {
    let mut host = Host::connecting(Net::Hold);
    let (old, reply) = host.take_reply();
    host.disconnect();
    host.reply(&old, Ok(reply));
    let call = host.acquire(LOCK, Wait::Never);
    host.advance(TIMEOUT);
    assert_eq!(host.error(call), ErrorKind::Unavailable);
    assert_eq!(host.ops(), [""; 0]);
}

/// A timer without a connection would make the host spin or send into nowhere.
#[test]
fn without_a_connection_an_idle_engine_sets_no_timer() {
    let mut host = Host::unconnected();
    assert_eq!(host.wake, None);
    host.net = Net::Hold;
    host.connect(0);
    assert!(host.wake.is_some());
    host.disconnect();
    assert_eq!(host.wake, None);
    host.net = Net::Up;
    host.connect(0);
    assert_eq!(host.wake, None);
}

#[test]
fn an_answer_to_an_unknown_request_is_ignored() {
    let (mut host, call) = Host::asking();
    let mut sent = host.take();
    let reply = host.execute(&sent);
    sent.request.0 += 1_000;
    host.reply(&sent, Ok(reply.clone()));
    assert!(host.is_open(call));
    sent.request.0 -= 1_000;
    host.reply(&sent, Ok(reply.clone()));
    host.grant(call);
    host.reply(&sent, Ok(reply));
    assert_eq!(
        host.told(),
        ["acquired 1"],
        "an answer does not count twice"
    );
}

#[test]
fn an_answer_that_is_too_short_or_does_not_match_is_an_error() {
    let mut host = Host::on(Net::Hold);
    let short = host.acquire(LOCK, Wait::Never);
    let sent = host.take();
    let mut reply = host.execute(&sent);
    reply.replies.clear();
    host.reply(&sent, Ok(reply));
    assert_eq!(host.error(short), ErrorKind::Store);

    let mut host = Host::on(Net::Hold);
    let wrong = host.acquire(LOCK, Wait::Never);
    let sent = host.take();
    let mut reply = host.execute(&sent);
    reply.replies = vec![Ok(crate::protocol::Reply::Released)];
    host.reply(&sent, Ok(reply));
    assert_eq!(host.error(wrong), ErrorKind::Store);
}

/// The engine only knows its host's call numbers from the calls themselves.
#[test]
fn canceling_an_unknown_call_does_nothing() {
    let mut host = Host::new();
    let of = None;
    host.input(Input::Cancel {
        call: CallId(77),
        of,
    });
    host.cancel(CallId(77));
    host.hold(LOCK);
    host.cancel(CallId(77));
    assert_eq!(host.told(), ["acquired 1"]);
    host.advance(SOON);
    assert_eq!(host.ops(), ["acquire"]);
}

/// A slow answer is old when it arrives. An anchor made of it alone would make the next requests late,
/// although an older answer had better bounds.
#[test]
fn a_slow_answer_does_not_make_the_next_request_come_late() {
    let mut host = Host::on(Net::Hold);
    host.subscribes = false;
    let slow = host.acquire(LOCK, Wait::Never);
    let (sent, reply) = host.take_reply();
    host.advance(ms(1_900));
    host.reply(&sent, Ok(reply));
    host.grant(slow);
    let next = host.acquire(LockId(2), Wait::Never);
    host.advance(ms(200));
    host.answer_next();
    host.grant(next);
}

/// Otherwise the program's own released lease blocks its acquisition.
#[test]
fn after_a_reconnect_releases_leave_before_acquisitions() {
    let mut host = Host::new();
    let grant = host.hold(LOCK);
    host.disconnect();
    host.release(grant.lease);
    let call = host.acquire(LOCK, Wait::Forever);
    host.forget();
    host.advance(ms(1_000));
    host.connect(0);
    assert_eq!(
        host.told(),
        ["released 1", "acquired 2"],
        "the acquisition did not wait for another holder"
    );
    host.grant(call);
}
