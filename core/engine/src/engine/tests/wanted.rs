//! Asking a holder to yield.

use std::time::Duration;

use super::host::{Host, LOCK, Net, Pushes, SOON, TIMEOUT, TTL, key, ms};
use super::line::in_line;
use crate::engine::{Answer, Input};
use crate::error::ErrorKind;
use crate::event::LeaseEvent;
use crate::protocol::{LeaseId, News, Push};
use crate::time::YEAR;

const WITHIN: Duration = Duration::from_secs(20);

/// Returns by whom and within which times the locker's lease was wanted.
fn wanted(host: &Host) -> Vec<(&str, Duration)> {
    let events = host.events.iter().filter_map(|told| match &told.event {
        LeaseEvent::Wanted { by, within, .. } => Some((&**by, *within)),
        _ => None,
    });
    events.collect()
}

/// Catches a request that is emitted again at each renewal, and a renewal that the request makes fail.
#[test]
fn a_holder_hears_at_once_and_once_that_it_is_wanted() {
    let mut host = Host::new();
    let grant = host.hold(LOCK);
    host.forget();
    let call = host.request_yield(LOCK, "deploy", WITHIN);
    assert!(matches!(
        host.outcome(call),
        Answer::RequestYield(Ok(Some(holder))) if holder.token == grant.token
    ));
    assert_eq!(wanted(&host), [("deploy", WITHIN)]);
    assert_eq!(
        host.told(),
        ["wanted by deploy"],
        "the check emits no renewal"
    );
    host.advance(TTL * 3);
    assert_eq!(wanted(&host).len(), 1);
    assert!(host.is_held(LOCK) && host.told().contains(&"renewed".to_owned()));
}

#[test]
fn a_holder_that_missed_the_push_hears_with_its_next_renewal() {
    let mut host = Host::new();
    host.hold(LOCK);
    host.pushes = Pushes::Drop;
    host.request_yield(LOCK, "deploy", WITHIN);
    assert!(wanted(&host).is_empty());
    host.advance(TTL / 2);
    let [("deploy", within)] = wanted(&host)[..] else {
        panic!("{:?}", host.told());
    };
    assert!(within < WITHIN && within + TTL / 2 > WITHIN);
    // It hears even of a request that is over by then.
    host.request_yield(LOCK, "late", ms(100));
    host.advance(TTL / 2);
    assert_eq!(wanted(&host)[1..], [("late", Duration::ZERO)]);
}

/// Catches a check that renews a fixed lease.
#[test]
fn a_fixed_lease_is_wanted_and_not_extended() {
    let mut host = Host::new();
    host.fixed = true;
    let grant = host.hold(LOCK);
    host.sleep(ms(4_000));
    host.request_yield(LOCK, "deploy", WITHIN);
    assert_eq!(wanted(&host), [("deploy", WITHIN)]);
    assert_eq!(host.held_until(LOCK), grant.deadline);
    host.advance(TTL);
    assert!(!host.is_held(LOCK));
}

/// Catches a retry or a second asker that gives the holder more time, or makes it hear twice.
#[test]
fn only_a_request_that_ends_sooner_replaces_a_pending_one() {
    let mut host = Host::new();
    host.hold(LOCK);
    host.request_yield(LOCK, "first", WITHIN);
    host.request_yield(LOCK, "patient", WITHIN * 2);
    assert_eq!(wanted(&host), [("first", WITHIN)]);
    host.request_yield(LOCK, "hasty", WITHIN / 2);
    assert_eq!(wanted(&host)[1..], [("hasty", WITHIN / 2)]);
    host.advance(WITHIN);
    host.request_yield(LOCK, "patient", WITHIN * 2);
    assert_eq!(wanted(&host)[2..], [("patient", WITHIN * 2)]);
}

/// Catches a retry that asks whichever tenure holds the lock by then: the holder that just got it would give it
/// up at once.
#[test]
fn a_request_that_is_repeated_or_runs_twice_spares_the_next_holder() {
    let mut host = Host::new();
    host.stranger_acquires(LOCK, TTL);
    host.net = Net::Hold;
    let call = host.request_yield(LOCK, "deploy", WITHIN);
    host.answer_next();
    let asks = host.take();
    host.execute(&asks);
    host.stranger_releases(LOCK);
    host.stranger_acquires(LOCK, TTL);
    host.execute(&asks);
    host.advance(TIMEOUT + SOON);
    host.answer_all();
    assert!(matches!(
        host.outcome(call),
        Answer::RequestYield(Ok(Some(_)))
    ));
    let now = host.server_now();
    let tenure = host.servers[0].tenure(now, &key(LOCK)).expect("it is held");
    assert_eq!(tenure.request, None);
}

#[test]
fn a_free_lock_has_nobody_to_ask() {
    let mut host = Host::new();
    let call = host.request_yield(LOCK, "deploy", WITHIN);
    assert_eq!(host.outcome(call), &Answer::RequestYield(Ok(None)));
    let call = host.request_yield(LOCK, "deploy", YEAR + ms(1));
    assert_eq!(host.error(call), ErrorKind::Config);
}

/// Catches a request that outlives its tenure, or keeps a release from serving the line.
#[test]
fn a_wanted_lease_is_handed_over_and_the_next_is_not_wanted() {
    let mut host = Host::new();
    let waits = in_line(&mut host);
    host.request_yield(LOCK, "deploy", WITHIN);
    host.stranger_releases(LOCK);
    let grant = host.grant(waits);
    host.advance(TTL * 2);
    assert!(wanted(&host).is_empty() && host.is_held(LOCK));
    let call = host.inspect(LOCK);
    let Answer::Inspect(Ok(seen)) = host.outcome(call) else {
        panic!("{:?}", host.outcome(call));
    };
    assert_eq!((&seen.wanted, seen.last_token), (&None, Some(grant.token)));
}

#[test]
fn an_inspection_shows_a_request_until_its_time_is_over() {
    let mut host = Host::new();
    host.hold(LOCK);
    host.request_yield(LOCK, "deploy", WITHIN);
    host.advance(ms(5_000));
    let seen = |host: &mut Host| {
        let call = host.inspect(LOCK);
        match host.outcome(call) {
            Answer::Inspect(Ok(seen)) => seen.wanted.clone(),
            other => panic!("{other:?}"),
        }
    };
    let shown = seen(&mut host).expect("the request is pending");
    assert_eq!((&*shown.by, shown.remaining), ("deploy", ms(15_000)));
    host.advance(WITHIN);
    assert_eq!(seen(&mut host), None);
}

/// Catches a push of a stranger, or of an earlier tenure, that makes the holder ask the store.
#[test]
fn a_push_that_is_not_for_the_tenure_is_ignored() {
    let mut host = Host::new();
    let grant = host.hold(LOCK);
    host.forget();
    let later = crate::FencingToken::new(grant.token.get() + 1).expect("it is small");
    let (stranger, token) = (LeaseId(grant.lease.0 + 1), grant.token);
    host.input(Input::push(Push::new(stranger, News::Wanted { token })));
    host.input(Input::push(Push::new(
        grant.lease,
        News::Wanted { token: later },
    )));
    assert!(host.ops().is_empty());
    host.input(Input::push(Push::new(grant.lease, News::Wanted { token })));
    assert_eq!(host.ops(), ["renew"]);
    assert!(wanted(&host).is_empty(), "the store has no request");
}
