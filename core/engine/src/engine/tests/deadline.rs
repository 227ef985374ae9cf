//! Deadlines, and the times after which the store does nothing.

use std::time::Duration;

use super::host::{Host, LEAD, LOCK, Net, SOON, TIMEOUT, TTL, ms, remaining};
use crate::engine::{Answer, CallId, LockId, Wait};
use crate::error::{Error, ErrorKind};
use crate::protocol::{BatchReply, LeaseId, Reply};

#[test]
fn the_deadline_counts_from_before_the_request_and_leaves_a_margin() {
    let mut host = Host::on(Net::Hold);
    let sent_at = host.now;
    let call = host.acquire(LOCK, Wait::Never);
    let sent = host.take();
    host.advance(ms(700));
    let reply = host.execute(&sent);
    host.advance(ms(700));
    host.reply(&sent, Ok(reply));
    let deadline = host.grant(call).deadline;
    assert_eq!(deadline, sent_at + TTL - TTL / 500);
    assert_eq!(host.last_told().deadline, Some(deadline));
    let left = remaining(&host.last_told().event);
    assert_eq!(left, Some(deadline.since(host.now)));
}

#[test]
fn a_renewed_deadline_counts_from_before_the_renewal() {
    let (mut host, lease) = Host::holding();
    host.net = Net::Hold;
    host.advance(ms(1_000));
    let sent_at = host.now;
    let call = host.renew(lease);
    host.advance(ms(700));
    host.answer_next();
    assert_eq!(host.outcome(call), &Answer::Renew(Ok(())));
    assert_eq!(host.last_told().deadline, Some(sent_at + TTL - TTL / 500));
}

/// The retry got the lock, so the first attempt's start does not count.
#[test]
fn the_deadline_counts_from_the_attempt_that_was_answered() {
    let mut host = Host::on(Net::LoseReplies);
    let call = host.acquire(LOCK, Wait::Forever);
    host.advance(TIMEOUT);
    host.net = Net::Up;
    host.advance(ms(100));
    let retried_at = host.log[1].at;
    let deadline = host.grant(call).deadline;
    let expected = retried_at + TTL - TTL / 500;
    // The store counts in whole milliseconds, rounded down.
    assert!(deadline <= expected && deadline + ms(1) >= expected);
}

/// Catches a renewal that the store may execute after the holder was told of the loss.
#[test]
fn a_renewal_can_no_longer_act_once_its_lease_is_lost() {
    let mut host = Host::new();
    host.fixed = true;
    let grant = host.hold(LOCK);
    let lost = grant.deadline - LEAD;
    host.advance_to(lost - ms(500));
    host.net = Net::LoseRequests;
    host.renew(grant.lease);
    let renewal = host.lost.last().expect("a renewal was sent");
    assert_eq!(renewal.give_up, lost);
}

type Ask = fn(&mut Host, LeaseId) -> CallId;

/// Whatever the delays, the store reaches `not_after` no later than the host gives up.
#[test]
fn each_operation_has_a_not_after_within_its_callers_time() {
    let asks: [(Ask, Duration); 6] = [
        (|host, _| host.acquire(LockId(2), Wait::Never), TIMEOUT),
        (
            |host, _| host.acquire(LockId(3), Wait::Until(host.now + ms(300))),
            ms(300),
        ),
        (|host, lease| host.renew(lease), TIMEOUT),
        (|host, lease| host.release(lease), TIMEOUT),
        (|host, _| host.inspect(LOCK), TIMEOUT),
        (|host, _| host.force_release(LOCK), TIMEOUT),
    ];
    for (ask, wanted) in asks {
        for answer_after in [ms(0), ms(400)] {
            let mut host = Host::on(Net::Hold);
            host.subscribes = false;
            let first = host.acquire(LOCK, Wait::Never);
            let (sent, reply) = host.take_reply();
            host.advance(answer_after);
            host.reply(&sent, Ok(reply));
            let lease = host.grant(first).lease;
            host.advance(ms(100));
            ask(&mut host, lease);
            let wanted_until = host.server_now() + wanted;
            let sent = &host.pending[0];
            let not_after = sent.batch[0].not_after;
            assert_eq!(sent.give_up, host.now + wanted);
            assert!(
                not_after <= wanted_until,
                "the server may act after the caller's timeout"
            );
            let margin = answer_after + (wanted + ms(100)) / 500;
            let far_too_early = not_after + margin + ms(1) < wanted_until;
            assert!(!far_too_early);
        }
    }
}

#[test]
fn a_short_lease_is_not_asked_for_longer_than_it_lives() {
    let mut host = Host::new();
    (host.ttl, host.net) = (ms(900), Net::Hold);
    host.acquire(LOCK, Wait::Forever);
    assert_eq!(host.pending[0].give_up, host.now + ms(900));
}

/// A request that the host gave up on arrives late.
#[test]
fn a_request_that_is_delayed_past_its_time_changes_nothing_in_the_store() {
    let mut host = Host::on(Net::Hold);
    host.acquire(LOCK, Wait::Never);
    let sent = host.take();
    host.advance(TIMEOUT);
    host.sleep(ms(1));
    let reply = host.execute(&sent);
    assert_eq!(reply.replies, [Ok(Reply::Late)]);
    assert!(!host.is_taken(LOCK));
}

/// Catches a last attempt without enough time that hides why the earlier ones failed.
#[test]
fn a_call_that_ends_gets_the_stores_last_error() {
    let mut host = Host::on(Net::Hold);
    let call = host.acquire(LOCK, Wait::Until(host.now + ms(700)));
    let full = Error::new(ErrorKind::Unavailable, "OOM command not allowed");
    for reply in [Err(full.clone()), Ok(Reply::Late)] {
        let time = Some(host.server_now());
        let replies = vec![reply];
        let sent = host.take();
        host.reply(&sent, Ok(BatchReply { time, replies }));
        host.advance(SOON);
    }
    host.advance(ms(700));
    assert_eq!(host.failure(call), &full);
}

#[test]
fn a_renewal_that_is_delayed_past_its_time_extends_nothing() {
    let (mut host, lease) = Host::holding();
    let expires = host.expiry(LOCK);
    host.net = Net::Hold;
    host.renew(lease);
    let sent = host.take();
    host.advance(TIMEOUT);
    assert_eq!(host.execute(&sent).replies, [Ok(Reply::Late)]);
    assert_eq!(host.expiry(LOCK), expires);
}

#[test]
fn a_clock_that_goes_back_is_harmless() {
    let mut host = Host::new();
    let grant = host.hold(LOCK);
    host.advance(ms(5_000));
    host.tick();
    let latest = host.now;
    host.now = latest - ms(4_000);
    let call = host.acquire(LockId(2), Wait::Never);
    let deadline = host.grant(call).deadline;
    assert!(
        deadline >= latest + TTL - TTL / 500,
        "the deadline counts from the latest time seen"
    );
    assert!(host.is_held(LOCK));
    host.now = latest;
    host.net = Net::LoseRequests;
    host.disconnect();
    host.advance_to(grant.deadline);
    assert!(host.told().contains(&"lost: expired".to_owned()));
}

/// Catches a request that is sent although its caller has no time left.
#[test]
fn a_call_without_time_asks_for_nothing() {
    let mut host = Host::new();
    let call = host.acquire(LOCK, Wait::Until(host.now));
    assert_eq!(host.error(call), ErrorKind::Timeout);
    assert!(host.log.is_empty() && host.engine.is_idle());
}
