//! The longest time that a lease may be held: `at_most`.

use std::time::Duration;

use super::host::{Host, LEAD, LOCK, Net, SOON, TTL, ms, remaining};
use super::line::in_line;
use crate::engine::clock::Margin;
use crate::engine::{Acquired, Answer, Wait};
use crate::error::ErrorKind;
use crate::event::LeaseEvent;
use crate::protocol::Reply;
use crate::token::FencingToken;

const MOST: Duration = Duration::from_secs(100);

/// Returns a host that holds `LOCK` for at most this long, and the lease.
fn holding(most: Duration) -> (Host, Acquired) {
    let mut host = Host::new();
    host.at_most = Some(most);
    let lease = host.hold(LOCK);
    (host, lease)
}

/// Returns a host that holds `LOCK` by a fixed lease for at most 40 s, and the lease.
fn holding_fixed() -> (Host, Acquired) {
    let mut host = Host::new();
    (host.fixed, host.at_most) = (true, Some(ms(40_000)));
    let lease = host.hold(LOCK);
    (host, lease)
}

/// Returns the kinds of the errors that holders were warned with, and when.
fn risks(host: &Host) -> Vec<(ErrorKind, Duration)> {
    let risk = |told: &crate::testing::Told| match &told.event {
        LeaseEvent::AtRisk {
            error, remaining, ..
        } => Some((error.kind(), *remaining)),
        _ => None,
    };
    host.events.iter().filter_map(risk).collect()
}

#[test]
fn a_renewed_lease_ends_at_its_age_and_the_holder_is_warned_once() {
    let (mut host, lease) = holding(MOST);
    let end = lease.began + MOST;
    host.advance_to(end);
    let told = host.told();
    assert_eq!(told.first().map(String::as_str), Some("acquired 1"));
    assert_eq!(told.last().map(String::as_str), Some("lost: overheld"));
    assert_eq!(told[told.len() - 2..], ["at risk", "lost: overheld"]);
    let risks = risks(&host);
    assert!(
        matches!(risks[..], [(ErrorKind::Overheld, left)] if left >= TTL / 3),
        "{risks:?}"
    );
    let loss = host.last_told().at;
    assert!(loss <= end && loss + LEAD + ms(1) >= end, "{loss:?}");
    let renewals = host.count("renew");
    assert_eq!(host.told_times("renewed"), renewals);
    assert!(renewals <= 12, "{renewals} renewals in 100 s");
    assert!(!host.is_taken(LOCK), "the store has the lock for the next");
    host.advance(TTL);
    assert_eq!(host.count("renew"), renewals);
    assert_eq!(host.counted.renewal_failures, 0);
    assert_eq!(host.counted.lost.overheld, 1);
}

/// Catches a deadline that passes the end, with any margin and for the shortest times.
#[test]
fn no_deadline_is_later_than_the_end() {
    let margins = [Margin::LEAST, Margin::DEFAULT, Margin::MOST].map(Margin::parts_per_million);
    for margin in margins {
        for (ttl, most) in [
            (30_000, 30_000),
            (30_000, 61_000),
            (10, 10),
            (10, 37),
            (700, 900),
        ] {
            let mut host = Host::with_margin(margin);
            (host.ttl, host.at_most) = (ms(ttl), Some(ms(most)));
            let lease = host.hold(LOCK);
            let end = lease.began + ms(most);
            for _ in 0..most {
                host.advance(ms(1));
            }
            let last = host.told_last();
            assert_eq!(last, "lost: overheld", "{margin} ppm, {ttl} of {most} ms");
            for told in &host.events {
                assert!(told.deadline.is_none_or(|deadline| deadline <= end));
                let left = remaining(&told.event).unwrap_or_default();
                assert!(told.at + left <= end, "{:?}", told.event);
            }
        }
    }
}

/// Catches a floor that is refused because the deadline cannot move any more, while another renewal is under way.
#[test]
fn a_floor_behind_the_last_renewal_is_raised_all_the_same() {
    let (mut host, lease) = holding_fixed();
    host.advance_to(lease.began + ms(40_000) - TTL / 2);
    host.net = Net::Hold;
    let renewal = host.renew(lease.lease);
    let floor = FencingToken::new(lease.token.get() + 1_000).expect("a valid token");
    let raise = host.raise(lease.lease, floor);
    host.answer_all();
    assert_eq!(host.outcome(renewal), &Answer::Renew(Ok(())));
    host.answer_all();
    assert_eq!(host.outcome(raise), &Answer::Renew(Ok(())));
}

/// Catches renewals that keep the lock at the store although its holder was cut off after the last one.
#[test]
fn the_store_ends_the_lease_at_about_the_same_time() {
    let (mut host, lease) = holding(MOST);
    let end = lease.began + MOST;
    host.advance_to(end - TTL / 2);
    host.net = Net::LoseRequests;
    host.disconnect();
    host.advance_to(end - LEAD);
    assert!(
        host.is_taken(LOCK),
        "the store keeps what the holder counts on"
    );
    host.advance(LEAD + ms(200));
    assert_eq!(host.told_last(), "lost: overheld");
    assert!(!host.is_taken(LOCK));
}

#[test]
fn the_next_waiter_has_the_lock_at_once() {
    let (mut host, lease) = holding(MOST);
    host.advance_to(lease.began + MOST - ms(3_000));
    host.stranger_waits(LOCK, 1);
    host.advance_to(lease.began + MOST);
    let next = host.token_of(LOCK).expect("the waiter has it");
    assert!(next > lease.token);
}

#[test]
fn a_renewal_by_hand_extends_up_to_the_end_and_then_fails() {
    let (mut host, lease) = holding_fixed();
    let end = lease.began + ms(40_000);
    host.advance(ms(20_000));
    let call = host.renew(lease.lease);
    assert_eq!(host.outcome(call), &Answer::Renew(Ok(())));
    assert_eq!(host.held_until(LOCK), end);
    assert_eq!(risks(&host), [(ErrorKind::Overheld, end.since(host.now))]);
    let sent = host.count("renew");
    for again in [host.renew(lease.lease), host.renew_for(lease.lease, MOST)] {
        assert_eq!(host.error(again), ErrorKind::Overheld);
    }
    assert_eq!(host.count("renew"), sent, "the store was not asked");
    host.advance_to(end);
    assert_eq!(host.told_last(), "lost: overheld");
    assert_eq!(risks(&host).len(), 1);
}

/// Catches a call that is told of an extension that gained nothing.
#[test]
fn a_renewal_that_waited_for_the_last_one_fails() {
    let (mut host, lease) = holding_fixed();
    host.advance(ms(20_000));
    host.net = Net::Hold;
    let (first, later) = (
        host.renew(lease.lease),
        host.renew_for(lease.lease, TTL * 2),
    );
    host.answer_next();
    assert_eq!(host.outcome(first), &Answer::Renew(Ok(())));
    assert_eq!(host.error(later), ErrorKind::Overheld);
}

/// Catches a counter that is said not to be raised, although the renewal that repeated a late one raised it.
#[test]
fn a_floor_that_waited_for_a_late_renewal_is_confirmed_by_the_next() {
    let (mut host, lease) = holding(TTL + ms(1_000));
    host.advance_to(lease.began + TTL / 4);
    host.net = Net::Hold;
    while host.count("renew") == 0 {
        host.advance(ms(100));
    }
    let floor = FencingToken::new(1_000).expect("the token is above 0");
    let raise = host.raise(lease.lease, floor);
    host.answer_each(&Ok(Reply::Late));
    host.answer_next();
    assert_eq!(host.outcome(raise), &Answer::Renew(Ok(())));
    assert_eq!(host.count("renew"), 2);
}

/// Catches a second warning of the end, by a renewal that only raises the counter.
#[test]
fn a_counter_that_is_raised_after_the_warning_repeats_no_warning() {
    let (mut host, lease) = holding_fixed();
    host.advance(ms(20_000));
    host.renew(lease.lease);
    assert_eq!(risks(&host).len(), 1);
    let floor = FencingToken::new(1_000).expect("the token is above 0");
    let raise = host.raise(lease.lease, floor);
    assert_eq!(host.outcome(raise), &Answer::Renew(Ok(())));
    assert_eq!(risks(&host).len(), 1);
}

#[test]
fn a_lease_whose_last_renewal_never_came_through_expired() {
    let (mut host, lease) = holding(MOST);
    host.advance_to(lease.began + MOST / 2);
    host.net = Net::LoseRequests;
    host.advance_to(lease.began + MOST);
    assert_eq!(host.told_last(), "lost: expired");
    assert!(
        risks(&host)
            .iter()
            .all(|(kind, _)| *kind == ErrorKind::Timeout)
    );
}

/// Catches a handed-over lock whose age counts from its confirmation, or that is never confirmed.
#[test]
fn the_age_of_a_lock_that_was_handed_over_counts_from_the_grant() {
    let mut host = Host::new();
    host.at_most = Some(TTL);
    let call = in_line(&mut host);
    let granted = host.now;
    host.stranger_releases(LOCK);
    host.advance(ms(10));
    let lease = host.grant(call);
    assert!(lease.began >= granted - ms(1) && lease.began <= host.now);
    assert_eq!(host.count("renew"), 1, "it was confirmed");
    host.advance_to(lease.began + TTL);
    assert_eq!(host.told_last(), "lost: overheld");
}

#[test]
fn the_bounds_are_checked() {
    let cases = [
        (Some(ms(29_999)), None, "at_most"),
        (Some(Duration::MAX), None, "at_most"),
        (Some(ms(60_000)), Some(ms(60_001)), "at_least"),
        (None, Some(Duration::MAX), "at_least"),
    ];
    let mut host = Host::new();
    for (most, least, culprit) in cases {
        (host.at_most, host.at_least) = (most, least);
        let error = host.spec(LOCK).check().expect_err(culprit);
        assert_eq!(error.option(), Some(culprit), "{error}");
    }
    for (most, least) in [(Some(TTL), Some(TTL)), (None, Some(ms(1))), (None, None)] {
        (host.at_most, host.at_least) = (most, least);
        assert_eq!(host.spec(LOCK).check(), Ok(()));
    }
}

/// Catches a lease of one tenure that a re-entrant call extends.
#[test]
fn a_shared_tenure_has_one_end() {
    let (mut host, lease) = holding(MOST);
    host.advance_to(lease.began + MOST / 2);
    let again = host.acquire(LOCK, Wait::Never);
    assert_eq!(host.grant(again).began, lease.began);
    host.advance_to(lease.began + MOST - LEAD - ms(5));
    assert!(host.is_held(LOCK));
    host.advance(SOON);
    assert_eq!(host.told_times("lost: overheld"), 1);
}
