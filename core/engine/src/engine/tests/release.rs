//! Releases.

use super::handoff::with_a_question_behind;
use super::host::{FAR, Host, LEAD, LOCK, Net, PATIENCE, SOON, TIMEOUT, TTL, key, lease_of, ms};
use crate::engine::{Answer, CallId, Input, Wait};
use crate::error::ErrorKind;
use crate::protocol::{LeaseId, Reply};

#[test]
fn a_release_is_confirmed_by_the_store() {
    let (mut host, lease) = Host::holding();
    host.net = Net::Hold;
    let call = host.release(lease);
    assert!(host.is_open(call) && !host.is_held(LOCK));
    assert_eq!(host.told(), ["acquired 1"]);
    host.answer_next();
    assert_eq!(host.outcome(call), &Answer::Release(Ok(())));
    assert_eq!(host.told(), ["acquired 1", "released 1"]);
    assert!(!host.is_taken(LOCK) && host.engine.is_idle());
}

#[test]
fn a_dropped_lease_is_released_although_no_call_waits() {
    let (mut host, lease) = Host::holding();
    host.input(Input::Release { call: None, lease });
    assert_eq!(host.told(), ["acquired 1", "released 1"]);
    assert!(!host.is_taken(LOCK) && host.done.len() == 1);
}

#[test]
fn a_release_of_a_lost_lease_fails_without_a_request() {
    let (mut host, lease) = Host::holding();
    host.servers[0].delete(&key(LOCK));
    host.advance(TTL / 3);
    host.forget();
    let call = host.release(lease);
    assert_eq!(host.error(call), ErrorKind::NotHeld);
    assert!(host.log.is_empty());
}

#[test]
fn a_release_whose_answer_was_lost_succeeds_when_it_is_repeated() {
    let (mut host, lease) = Host::holding();
    host.net = Net::LoseReplies;
    let call = host.release(lease);
    assert!(!host.is_taken(LOCK));
    // Another client may have the lock by then, which is fine.
    host.stranger_acquires(LOCK, TTL);
    host.advance(TIMEOUT);
    host.net = Net::Up;
    host.advance(SOON);
    assert_eq!(host.outcome(call), &Answer::Release(Ok(())));
    assert_eq!(host.told(), ["acquired 1", "released 1"]);
    assert_eq!(host.count("release"), 2);
    assert!(host.is_taken(LOCK), "the stranger keeps it");
}

#[test]
fn a_release_that_finds_the_lock_gone_or_taken_reports_the_loss() {
    for (taken, reason) in [(false, "lost: deleted"), (true, "lost: superseded")] {
        let (mut host, lease) = Host::holding();
        host.servers[0].delete(&key(LOCK));
        if taken {
            host.stranger_acquires(LOCK, TTL);
        }
        let call = host.release(lease);
        assert_eq!(host.error(call), ErrorKind::NotHeld);
        assert_eq!(host.told(), ["acquired 1", reason]);
        assert_eq!(host.is_taken(LOCK), taken);
    }
}

#[test]
fn a_silent_store_fails_the_call_after_its_patience_and_the_release_at_the_deadline() {
    let mut host = Host::new();
    let grant = host.hold(LOCK);
    host.net = Net::LoseRequests;
    let start = host.now;
    let call = host.release(grant.lease);
    host.advance(TTL);
    assert_eq!(host.error(call), ErrorKind::Timeout);
    assert_eq!(host.answered(call), start + PATIENCE);
    assert_eq!(host.told(), ["acquired 1", "lost: expired"]);
    assert_eq!(host.last_told().at, grant.deadline - LEAD);
    // A renewal in flight may have extended the lock in the store.
    host.advance(TTL);
    assert!(host.engine.is_idle());
}

#[test]
fn a_lease_that_ends_before_the_patience_ends_the_call_too() {
    let mut host = Host::new();
    host.ttl = ms(3_000);
    let grant = host.hold(LOCK);
    host.disconnect();
    let call = host.release(grant.lease);
    host.advance(TTL);
    assert_eq!(host.error(call), ErrorKind::Unavailable);
    assert_eq!(host.answered(call), grant.deadline - LEAD);
    assert_eq!(host.told(), ["acquired 1", "at risk", "lost: expired"]);
}

/// Releases in a batch that arrived too late, so that the store did nothing.
fn too_late(host: &mut Host, lease: LeaseId) -> CallId {
    host.net = Net::Hold;
    let call = host.release(lease);
    host.net = Net::Up;
    host.answer_each(&Ok(Reply::Late));
    call
}

#[test]
fn a_release_that_came_late_is_repeated() {
    let (mut host, lease) = Host::holding();
    let call = too_late(&mut host, lease);
    assert!(host.is_open(call) && host.is_taken(LOCK));
    host.advance(SOON);
    assert_eq!(host.outcome(call), &Answer::Release(Ok(())));
}

/// A release that arrives late does nothing. If the lock is gone then, it was lost and not released.
#[test]
fn a_release_that_came_late_does_not_hide_a_loss() {
    let (mut host, lease) = Host::holding();
    let call = too_late(&mut host, lease);
    host.servers[0].delete(&key(LOCK));
    host.advance(SOON);
    assert_eq!(host.error(call), ErrorKind::NotHeld);
    assert_eq!(host.told(), ["acquired 1", "lost: deleted"]);
}

/// A release that was never sent did nothing either.
#[test]
fn a_release_without_a_connection_does_not_hide_a_loss() {
    let (mut host, lease) = Host::holding();
    host.disconnect();
    let call = host.release(lease);
    host.servers[0].delete(&key(LOCK));
    host.connect(0);
    assert_eq!(host.error(call), ErrorKind::NotHeld);
    assert_eq!(host.told(), ["acquired 1", "at risk", "lost: deleted"]);
}

/// By then there is nothing left to free, and no caller waits for it.
#[test]
fn a_release_that_ended_before_it_could_leave_is_not_sent() {
    let (mut host, lease) = Host::holding();
    host.disconnect();
    let call = host.release(lease);
    host.advance(TTL * 3);
    assert_eq!(host.error(call), ErrorKind::Unavailable);
    assert!(host.engine.is_idle());
    host.connect(0);
    host.advance(SOON);
    assert_eq!(host.count("release"), 0);
}

#[test]
fn an_acquisition_first_confirms_a_release_without_an_answer() {
    let mut host = Host::new();
    host.back = FAR;
    let grant = host.hold(LOCK);
    host.net = Net::Hold;
    let release = host.release(grant.lease);
    let acquire = host.acquire(LOCK, Wait::Forever);
    let lost_answer = host.take();
    host.execute(&lost_answer);
    host.answer_next();
    assert_eq!(host.grant(acquire).token.get(), 2);
    assert_eq!(host.outcome(release), &Answer::Release(Ok(())));
    assert_eq!(host.told(), ["acquired 1", "released 1", "acquired 2"]);
    host.net = Net::Up;
    host.advance(TTL * 2);
    assert!(host.is_held(LOCK) && host.count("release") == 1);
}

#[test]
fn an_acquisition_right_behind_a_release_succeeds() {
    let mut host = Host::new();
    let grant = host.hold(LOCK);
    host.net = Net::Hold;
    let release = host.release(grant.lease);
    let acquire = host.acquire(LOCK, Wait::Never);
    host.answer_all();
    assert_eq!(host.outcome(release), &Answer::Release(Ok(())));
    assert_eq!(host.grant(acquire).token.get(), 2);
    assert_eq!(host.told(), ["acquired 1", "released 1", "acquired 2"]);
}

#[test]
fn a_renewal_in_flight_does_not_revive_a_released_lease() {
    let (mut host, lease) = Host::holding();
    host.net = Net::Hold;
    let renewal = host.renew(lease);
    host.release(lease);
    assert_eq!(host.error(renewal), ErrorKind::NotHeld);
    host.answer_all();
    assert_eq!(host.told(), ["acquired 1", "released 1"]);
    assert!(!host.is_taken(LOCK) && host.engine.is_idle());
}

/// The host was connected, and the server's clock was not known yet, so the release stayed pending.
#[test]
fn a_release_that_was_never_sent_does_not_hide_a_loss() {
    let (mut host, lease) = Host::holding();
    host.net = Net::LoseRequests;
    host.connect(0);
    let call = host.release(lease);
    host.servers[0].delete(&key(LOCK));
    host.net = Net::Up;
    host.advance(TIMEOUT + ms(1_000));
    assert_eq!(host.error(call), ErrorKind::NotHeld);
    assert_eq!(host.told(), ["acquired 1", "lost: deleted"]);
}

/// A renewal that finds another type of value ends the tenure at once, too.
#[test]
fn a_release_that_finds_another_type_of_value_reports_the_loss() {
    let (mut host, lease) = Host::holding();
    host.net = Net::Hold;
    let call = host.release(lease);
    host.refuse_next(ErrorKind::WrongType);
    assert_eq!(host.error(call), ErrorKind::NotHeld);
    assert_eq!(host.told(), ["acquired 1", "lost: superseded"]);
}

/// Catches a release that gives up soon after its lease expires. An unanswered attempt to acquire may have
/// joined the line since, and its entry lasts longer.
#[test]
fn a_place_in_line_of_an_old_attempt_is_given_back_on_the_next_connection() {
    let mut host = Host::new();
    host.ttl = ms(300);
    host.net = Net::Hold;
    let lease = lease_of(host.acquire(LOCK, Wait::Forever));
    let old = host.take();
    host.connect(0);
    host.answer_all();
    assert!(host.is_held(LOCK));
    host.net = Net::LoseReplies;
    host.release(lease);
    host.stranger_acquires(LOCK, ms(60_000));
    host.execute(&old);
    let waits = |host: &Host| {
        host.servers[0]
            .line_value(host.server_now(), &key(LOCK))
            .is_some()
    };
    assert!(waits(&host), "the old attempt joined the line");
    host.disconnect();
    host.advance(ms(1_000));
    (host.net, host.back) = (Net::Up, ms(5));
    host.connect(0);
    host.advance(SOON);
    assert!(!waits(&host));
}

/// Catches a release that ends with the tenure although an unanswered attempt to acquire has joined the line: the
/// lock would be handed to nobody. The next tenure confirms the release after that attempt can no longer act.
#[test]
fn a_later_tenure_does_not_settle_the_doubt_about_an_old_attempt() {
    let mut host = Host::on(Net::Hold);
    let lease = lease_of(host.acquire(LOCK, Wait::Forever));
    let old = host.take();
    host.connect(0);
    host.answer_all();
    host.advance(ms(1_900));
    host.release(lease);
    let release = host.take();
    let next = host.acquire(LOCK, Wait::Forever);
    let again = host.take();
    host.execute(&release);
    let reply = host.execute(&again);
    host.execute(&old);
    assert_eq!(host.waiting(LOCK), 1, "the old attempt joined the line");
    host.advance(ms(200));
    host.net = Net::Up;
    host.reply(&again, Ok(reply));
    assert_eq!(host.grant(next).token.get(), 2);
    host.advance(SOON);
    assert!(host.is_held(LOCK));
    assert_eq!(host.waiting(LOCK), 0);
}

/// Catches a late attempt that joined the line, and that is forgotten once the next tenure confirms the release.
#[test]
fn a_later_tenure_does_not_hide_an_answered_attempt_in_line() {
    let mut host = Host::new();
    let (ghost, lease) = with_a_question_behind(&mut host);
    host.net = Net::LoseRequests;
    host.release(lease);
    host.stranger_force_releases(LOCK);
    host.stranger_acquires(LOCK, TTL);
    host.net = Net::Up;
    let next = host.acquire(LOCK, Wait::Forever);
    host.answer(&ghost);
    assert_eq!(host.waiting(LOCK), 2, "the old attempt joined the line");
    host.stranger_releases(LOCK);
    host.grant(next);
    host.advance(SOON);
    assert!(host.is_held(LOCK));
    assert_eq!(host.waiting(LOCK), 0);
}

/// Catches a lock without a holder: a host with several threads sent the release first, and received its reply last.
#[test]
fn a_release_that_overtook_an_attempt_frees_what_that_took() {
    let mut host = Host::new();
    let (ghost, lease) = with_a_question_behind(&mut host);
    host.net = Net::Hold;
    host.release(lease);
    let release = host.take();
    host.advance(ms(1));
    let released = host.execute(&release);
    let retaken = host.execute(&ghost);
    assert!(host.is_taken(LOCK), "the old attempt took the lock");
    host.net = Net::Up;
    host.reply(&ghost, Ok(retaken));
    host.reply(&release, Ok(released));
    assert!(!host.is_taken(LOCK) && host.engine.is_idle());
    assert_eq!(host.told_last(), "released 2");
}

/// Catches a release that waits out its pause although the server can be reached again.
#[test]
fn a_new_connection_repeats_a_release_at_once() {
    let (mut host, lease) = Host::holding();
    host.net = Net::LoseRequests;
    let call = host.release(lease);
    // After several failures the pause is long.
    host.advance(ms(7_000));
    assert!(host.is_open(call));
    host.cut(0);
    host.net = Net::Up;
    host.advance(ms(1));
    host.forget();
    host.connect(0);
    assert_eq!(host.count("release"), 1);
    assert_eq!(host.outcome(call), &Answer::Release(Ok(())));
}
