//! Passing a lease on to another locker.

use std::time::Duration;

use super::host::{CLIENT, Host, LOCK, Net, SOON, TIMEOUT, TTL, key, ms, stranger};
use super::line::in_line;
use crate::engine::{Acquired, Answer, CallId, Engine, LockId, Settings, Wait};
use crate::error::ErrorKind;
use crate::event::LeaseEvent;
use crate::name::Owner;
use crate::protocol::{Claim, ClientId, Command, LeaseId, Release, Renew, Reply};
use crate::tick::Tick;
use crate::ticket::Passed;

/// The handle of whoever accepts.
const OTHER: LockId = LockId(2);

/// Returns a host with two lockers, the first of which holds `LOCK`, and the lease.
fn two() -> (Host, Acquired) {
    two_of(Host::new())
}

fn two_of(mut host: Host) -> (Host, Acquired) {
    let client = ClientId(CLIENT.0 + 1);
    host.join(client, Engine::new(Settings::new(client)), "other");
    host.at(1).connect(0);
    let lease = host.hold(LOCK);
    (host, lease)
}

fn passed(host: &Host, call: CallId) -> Passed {
    match host.outcome(call) {
        Answer::Pass(Ok(passed)) => (**passed).clone(),
        other => panic!("{other:?}"),
    }
}

fn pass(host: &mut Host, lease: LeaseId) -> Passed {
    let call = host.pass(lease);
    passed(host, call)
}

#[test]
fn a_passed_lease_ends_at_once_and_stays_at_the_store() {
    let (mut host, lease) = two();
    let renewal = host.renew(lease.lease);
    host.answer_all();
    host.forget();
    let ticket = pass(&mut host, lease.lease);
    assert_eq!((ticket.lease, ticket.token), (lease.lease, lease.token));
    assert_eq!((ticket.ttl, ticket.ends), (TTL, None));
    assert_eq!(host.told(), ["passed 1"]);
    assert!(!host.is_held(LOCK) && host.is_taken(LOCK));
    assert_eq!(host.engine.tables(), (0, 0));
    host.advance(TTL / 2);
    assert!(host.ops().is_empty(), "{:?}: {renewal:?}", host.ops());
    assert_eq!((host.counted.held, host.counted.released), (0, 1));
    // Whatever the program does with the lease now, it is over.
    let calls = [
        host.renew(lease.lease),
        host.release(lease.lease),
        host.pass(lease.lease),
    ];
    for call in calls {
        assert_eq!(host.error(call), ErrorKind::NotHeld);
    }
    host.shutdown();
    assert!(host.is_taken(LOCK), "a shutdown gives nothing back");
}

#[test]
fn a_ticket_becomes_a_lease_with_the_next_token_ahead_of_the_line() {
    let (mut host, lease) = two();
    host.stranger_waits(LOCK, 1);
    let ticket = pass(&mut host, lease.lease);
    let call = host.at(1).accept(OTHER, &ticket);
    let accepted = host.grant(call);
    assert_eq!(accepted.token.get(), lease.token.get() + 1);
    assert_eq!(host.token_of(LOCK), Some(accepted.token));
    assert_eq!(host.at(1).told(), ["acquired 2"]);
    host.advance(TTL * 2);
    assert!(host.engine.held(host.now, LOCK).next().is_none());
    assert_eq!(host.token_of(LOCK), Some(accepted.token), "it is renewed");
    host.at(1).release(accepted.lease);
    assert!(!matches!(host.stranger_waits(LOCK, 1), Reply::Busy { .. }));
}

/// Catches a late request of the former holder that renews, frees or takes the lock of its successor.
#[test]
fn nothing_that_the_sender_sent_before_or_after_changes_the_accepted_lease() {
    let (mut host, lease) = two();
    host.net = Net::Hold;
    let renewal = host.renew(lease.lease);
    let ticket = pass(&mut host, lease.lease);
    assert_eq!(host.error(renewal), ErrorKind::NotHeld);
    let under_way = host.take();
    host.net = Net::Up;
    let call = host.at(1).accept(OTHER, &ticket);
    let accepted = host.grant(call);
    let before = host.servers[0].lock_value(host.server_now(), &key(LOCK));
    let reply = host.execute(&under_way);
    assert_eq!(reply.replies, [Ok(Reply::Taken)]);
    host.reply(&under_way, Ok(reply));
    let spec = host.spec(LOCK);
    let late = [
        Command::Renew(Renew {
            key: key(LOCK),
            lease: lease.lease,
            token: lease.token,
            counter: spec.counter,
            ttl: TTL,
            floor: None,
        }),
        Command::Release(Release {
            key: key(LOCK),
            claim: Claim {
                lease: lease.lease,
                client: CLIENT,
                ..stranger(0)
            },
            token: Some(lease.token),
            completes: false,
        }),
    ];
    for command in late {
        assert_eq!(host.ask(command), Reply::Taken);
    }
    let after = host.servers[0].lock_value(host.server_now(), &key(LOCK));
    assert_eq!(before, after);
    assert!(host.at(1).is_held(OTHER), "{accepted:?}");
    assert_eq!(host.told_last(), "passed 1");
}

/// Catches a renewal that was not sent yet when the lease was passed on: it must not leave any more.
#[test]
fn a_renewal_that_has_not_left_is_taken_back() {
    let (mut host, lease) = two();
    host.cut(0);
    host.advance(ms(20));
    host.renew(lease.lease);
    host.forget();
    pass(&mut host, lease.lease);
    host.connect(0);
    host.advance(SOON);
    assert!(!host.ops().contains(&"renew"), "{:?}", host.ops());
}

#[test]
fn a_ticket_is_used_once() {
    let (mut host, lease) = two();
    let ticket = pass(&mut host, lease.lease);
    let call = host.at(1).accept(OTHER, &ticket);
    let accepted = host.grant(call);
    for locker in [0, 1] {
        let again = host.at(locker).accept(LockId(3), &ticket);
        assert_eq!(host.error(again), ErrorKind::NotHeld);
    }
    let again = host.accept(LockId(4), &ticket);
    assert!(host.failure(again).to_string().contains("was accepted"));
    assert_eq!(host.token_of(LOCK), Some(accepted.token));
    assert_eq!(host.engine.tables(), (0, 0));
}

/// Catches a ticket that outlives its lease, and a waiter that is not served after it.
#[test]
fn a_ticket_that_nobody_accepts_ends_at_its_deadline() {
    let (mut host, lease) = two();
    let ticket = pass(&mut host, lease.lease);
    let waiter = in_line(&mut host.at(1));
    host.advance(ms(29_900));
    assert!(host.is_open(waiter));
    host.advance(ms(200));
    assert!(host.grant(waiter).token > lease.token);
    let call = host.accept(OTHER, &ticket);
    assert_eq!(host.error(call), ErrorKind::NotHeld);
}

#[test]
fn a_ticket_of_a_lock_that_was_freed_is_refused() {
    let (mut host, lease) = two();
    let ticket = pass(&mut host, lease.lease);
    host.stranger_force_releases(LOCK);
    let call = host.at(1).accept(OTHER, &ticket);
    assert_eq!(host.error(call), ErrorKind::NotHeld);
    // A guess that has only what is public proves nothing.
    let lease = host.hold(LOCK);
    let guess = Passed {
        lease: LeaseId(lease.lease.0 ^ 1),
        token: lease.token,
        ..ticket
    };
    let call = host.at(1).accept(OTHER, &guess);
    assert_eq!(host.error(call), ErrorKind::NotHeld);
    assert!(host.is_held(LOCK));
}

/// Catches an accept whose retry finds the lock taken, by itself.
#[test]
fn a_lost_reply_does_not_lose_the_lease() {
    let (mut host, lease) = two();
    let ticket = pass(&mut host, lease.lease);
    host.net = Net::LoseReplies;
    let call = host.at(1).accept(OTHER, &ticket);
    let token = host.token_of(LOCK).expect("the first request did it");
    assert!(token > lease.token && host.is_open(call));
    host.advance(TIMEOUT + ms(1));
    host.net = Net::Up;
    host.advance(TIMEOUT + SOON);
    assert_eq!(host.grant(call).token, token);
    assert!(host.count("accept") > 1);
    // The same for a request that arrives twice, however late.
    let asked = host
        .log
        .iter()
        .rfind(|sent| !sent.batch.is_empty())
        .cloned();
    let before = host.token_of(LOCK);
    host.execute(&asked.expect("it was sent"));
    assert_eq!(host.token_of(LOCK), before);
}

/// Catches an answer that took longer than the lease lives and is told as the end of its age, although it has none.
#[test]
fn an_accept_whose_answer_is_late_asks_again() {
    let (mut host, lease) = two();
    let ticket = pass(&mut host, lease.lease);
    (host.ttl, host.net) = (ms(500), Net::Hold);
    let call = host.at(1).accept(OTHER, &ticket);
    let sent = host.take();
    let reply = host.execute(&sent);
    host.advance(ms(498));
    host.reply(&sent, Ok(reply));
    host.net = Net::Up;
    host.advance(TIMEOUT);
    assert_eq!(host.error(call), ErrorKind::NotHeld);
}

/// Catches a store that stays away forever, and an accept that leaves the lock behind.
#[test]
fn an_accept_that_is_given_up_frees_what_it_may_have_got() {
    for canceled in [true, false] {
        let (mut host, lease) = two();
        let ticket = pass(&mut host, lease.lease);
        host.net = Net::LoseReplies;
        let call = host.at(1).accept(OTHER, &ticket);
        if canceled {
            let accepting = host.at(1).engine.acquiring().expect("it is under way");
            let of = Some((OTHER, accepting));
            host.at(1).input(crate::engine::Input::Cancel { call, of });
        } else {
            host.advance(TTL / 2);
            assert_eq!(host.error(call), ErrorKind::Timeout);
        }
        host.net = Net::Up;
        host.advance(TIMEOUT * 3);
        assert!(!host.is_taken(LOCK), "canceled: {canceled}");
    }
}

/// Catches a handle whose lease belongs to several parts of a program, or one that takes a ticket for a place in line.
#[test]
fn a_shared_tenure_stays_and_a_handle_in_use_takes_no_ticket() {
    let (mut host, lease) = two();
    let second = host.acquire(LOCK, Wait::Never);
    host.grant(second);
    let refused = host.pass(lease.lease);
    assert_eq!(host.error(refused), ErrorKind::Config);
    assert!(host.is_held(LOCK));
    host.release(lease.lease);
    let ticket = pass(&mut host, lease.lease);
    host.hold(OTHER);
    let refused = host.accept(OTHER, &ticket);
    assert_eq!(host.error(refused), ErrorKind::Config);
    let call = host.accept(LOCK, &ticket);
    assert!(
        host.grant(call).token > lease.token,
        "its own handle is free again"
    );
}

#[test]
fn a_turn_is_not_passed_on() {
    let (mut host, _) = two();
    let turn = Owner::runner("me", Tick::new(5).expect("a tick")).expect("a short label");
    (host.owner, host.reentrant) = (turn, false);
    let lease = host.hold(OTHER);
    let call = host.pass(lease.lease);
    assert_eq!(host.error(call), ErrorKind::Config);
    assert!(host.is_held(OTHER));
}

/// Catches an age that begins anew with each holder, and a store that keeps the lock for longer.
#[test]
fn the_age_goes_on_with_the_ticket() {
    let mut host = Host::new();
    host.at_most = Some(TTL * 2);
    let (mut host, lease) = two_of(host);
    let end = lease.began + TTL * 2;
    host.at_most = None;
    let mut token = lease.token;
    let mut holder = (0, lease.lease);
    // Each passes it on to the other after a while, and each time it travels for a while.
    for turn in 1..4 {
        host.advance(TTL / 3);
        let (from, lease) = holder;
        let ticket = {
            let mut at = host.at(from);
            pass(&mut at, lease)
        };
        assert!(ticket.ends.is_some());
        host.advance(ms(2_000));
        let call = host.at(turn % 2).accept(LockId(10 + turn as u64), &ticket);
        let accepted = host.grant(call);
        assert!(accepted.token > token);
        (token, holder) = (accepted.token, (turn % 2, accepted.lease));
    }
    host.advance_to(end);
    let last = host.at(1).told_last();
    assert_eq!(last, "lost: overheld");
    let at = host.at(1).last_told().at;
    // Each handover takes twice the drift margin off.
    assert!(at + ms(600) > end, "{at:?} is long before {end:?}");
    assert!(!host.is_taken(LOCK));
    let risks = host
        .at(1)
        .events
        .iter()
        .filter(|told| {
            matches!(&told.event,
        LeaseEvent::AtRisk { error, .. } if error.kind() == ErrorKind::Overheld)
        })
        .count();
    assert_eq!(risks, 1);
}

/// Catches a holder that is not warned because its lease begins at the end of its age, and a store that keeps the lock of
/// a holder that was cut off.
#[test]
fn little_is_left_of_an_age() {
    let mut host = Host::new();
    host.at_most = Some(TTL);
    let (mut host, lease) = two_of(host);
    let end = host.server_now() + TTL;
    host.advance(TTL / 2);
    let ticket = pass(&mut host, lease.lease);
    host.at_most = None;
    let call = host.at(1).accept(OTHER, &ticket);
    host.grant(call);
    assert_eq!(host.at(1).told(), ["acquired 2", "at risk"]);
    let kept = host.expiry(LOCK).expect("it is held");
    assert!(
        kept <= end + ms(100),
        "the store keeps it until {kept:?}, and the age ends at {end:?}"
    );
}

/// Catches an accepting side that cannot set its own age, and one whose lease begins when it is over.
#[test]
fn the_accepting_side_may_set_an_age_of_its_own() {
    let mut host = Host::new();
    host.at_most = Some(TTL);
    let (mut host, lease) = two_of(host);
    host.advance(TTL / 2);
    let ticket = pass(&mut host, lease.lease);
    host.at_most = Some(TTL * 3);
    let call = host.at(1).accept(OTHER, &ticket);
    let accepted = host.grant(call);
    host.advance(TTL * 2);
    assert!(host.at(1).is_held(OTHER));
    host.advance_to(accepted.began + TTL * 3);
    assert_eq!(host.at(1).told_last(), "lost: overheld");
    // With nothing left, the lock is freed.
    host.at_most = Some(TTL);
    let lease = host.hold(LOCK);
    host.advance(ms(29_930));
    host.at_most = None;
    let ticket = pass(&mut host, lease.lease);
    host.sleep(ms(40));
    let call = host.at(1).accept(OTHER, &ticket);
    assert_eq!(host.error(call), ErrorKind::Overheld);
    assert!(!host.is_taken(LOCK));
}

/// Catches a ticket without the age's end, which would let its lease live on.
#[test]
fn an_age_needs_the_servers_clock() {
    let mut host = Host::new();
    host.at_most = Some(TTL * 2);
    let (mut host, lease) = two_of(host);
    let ends = pass(&mut host, lease.lease).ends.expect("it has an age");
    let exact = host.server_now() + Duration::from_secs(60);
    assert!(ends <= exact && ends + Duration::from_secs(1) >= exact);
    host.advance(TTL + ms(100));
    let lease = host.hold(LOCK);
    host.cut(0);
    let call = host.pass(lease.lease);
    assert_eq!(host.error(call), ErrorKind::Unavailable);
    assert!(host.is_held(LOCK));
}
