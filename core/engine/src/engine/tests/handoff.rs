//! Handing the lock to a waiter, which hears of it by a push.

use std::time::Duration;

use super::host::{Host, LEAD, LOCK, Net, Pushes, SOON, Sent, TIMEOUT, TTL, ms};
use super::line::{handed, in_line};
use crate::engine::{Acquired, Answer, CallId, Input, LockId, Wait};
use crate::protocol::{LeaseId, Reply};

/// The time that a claim with [`TTL`] has to take the lock up.
pub(super) const WINDOW: Duration = Duration::from_secs(12);
/// The most that a grant promises.
pub(super) const PROMISE: Duration = Duration::from_secs(6);

/// Returns the waiter's lease.
pub(super) fn lease(host: &Host) -> LeaseId {
    host.engine.acquiring().expect("a waiter is in line")
}

/// Returns a waiter in line whose next request is in flight and not executed yet.
pub(super) fn with_a_question_under_way(host: &mut Host) -> CallId {
    let call = in_line(host);
    host.net = Net::Hold;
    host.advance(ms(5_000));
    assert_eq!((host.ops(), host.pending.len()), (vec!["acquire"], 1));
    call
}

/// Returns a tenure that was handed over while a request of its waiter was in flight, and that request.
pub(super) fn with_a_question_behind(host: &mut Host) -> (Sent, LeaseId) {
    let call = with_a_question_under_way(host);
    let ghost = host.take();
    host.net = Net::Up;
    host.stranger_releases(LOCK);
    (ghost, host.grant(call).lease)
}

#[test]
fn a_waiter_that_is_handed_the_lock_has_it_at_once_and_renews_once() {
    let mut host = Host::new();
    let asked = host.now;
    let call = in_line(&mut host);
    host.advance(ms(7_000));
    host.forget();
    host.net = Net::Hold;
    host.stranger_releases(LOCK);
    let (now, grant) = (host.now, host.grant(call));
    assert_eq!(host.answered(call), now);
    assert_eq!(grant.token.get(), 2);
    assert!(
        grant.deadline <= now + PROMISE,
        "the deadline is within the grant's promise"
    );
    assert!(grant.deadline >= now + PROMISE - ms(100));
    assert_eq!(grant.waited, now.since(asked));
    assert!(grant.began <= now && grant.began + ms(50) >= now);
    assert_eq!(host.told(), ["acquired 2"]);
    assert_eq!(host.last_told().deadline, Some(grant.deadline));
    assert_eq!(host.ops(), ["renew"]);
    host.advance(ms(1_000));
    host.answer_next();
    assert_eq!(host.told(), ["acquired 2", "renewed"]);
    assert!(host.held_until(LOCK) >= now + TTL - ms(100));
    assert!(host.held_until(LOCK) <= now + TTL);
    host.advance(ms(5_000));
    assert_eq!(
        host.ops(),
        ["renew"],
        "the next renewal comes after a third of the time to live"
    );
    host.advance(ms(5_000));
    assert_eq!(host.ops(), ["renew", "renew"]);
}

/// Catches a fixed lock that ends with the time for taking it up, and one that is renewed forever.
#[test]
fn a_fixed_lock_that_is_handed_over_is_renewed_exactly_once() {
    let mut host = Host::new();
    host.fixed = true;
    let call = in_line(&mut host);
    host.stranger_releases(LOCK);
    host.grant(call);
    let (start, deadline) = (host.now, host.held_until(LOCK));
    assert!(deadline >= start + TTL - ms(100) && deadline <= start + TTL);
    host.advance(TTL * 2);
    assert_eq!(host.ops()[..2], ["renew", "release"]);
    assert_eq!(host.told(), ["acquired 2", "renewed", "lost: expired"]);
    assert_eq!(host.last_told().at, deadline - LEAD);
}

/// Catches a missing confirmation that is not reported, and a fixed lock that tries only once to confirm.
#[test]
fn without_a_confirmation_a_lock_is_at_risk_and_lost_when_the_promise_ends() {
    for fixed in [true, false] {
        let mut host = Host::new();
        host.fixed = fixed;
        let call = in_line(&mut host);
        host.net = Net::LoseRequests;
        host.stranger_releases(LOCK);
        let (granted, deadline) = (host.now, host.grant(call).deadline);
        host.advance(PROMISE);
        let told = host.told();
        assert_eq!(told[..2], ["acquired 2", "at risk"]);
        assert_eq!(told.last().map(String::as_str), Some("lost: expired"));
        assert_eq!(host.last_told().at, deadline - LEAD);
        assert!(deadline <= granted + PROMISE);
        assert!(host.count("renew") >= 2, "{:?}", host.ops());
    }
}

/// The renewal of a fixed lock stops once the store confirms it, and not before.
#[test]
fn a_fixed_lock_is_confirmed_after_a_reconnect() {
    let mut host = Host::new();
    host.fixed = true;
    let call = in_line(&mut host);
    host.net = Net::Hold;
    host.stranger_releases(LOCK);
    host.grant(call);
    host.disconnect();
    host.advance(ms(2_000));
    (host.net, host.log) = (Net::Up, Vec::new());
    host.connect(0);
    assert_eq!(host.ops(), ["renew"]);
    assert!(host.held_until(LOCK) > host.now + WINDOW);
    host.advance(ms(20_000));
    assert_eq!(host.ops(), ["renew"]);
}

/// The time to live is shorter than the window, and the push took longer than that: the store still keeps the
/// lock for the waiter.
#[test]
fn a_late_grant_is_checked_and_may_still_be_valid() {
    let mut host = Host::new();
    (host.ttl, host.pushes) = (ms(200), Pushes::Hold);
    let call = in_line(&mut host);
    host.stranger_releases(LOCK);
    host.sleep(ms(250));
    host.push_next();
    assert_eq!(host.ops(), ["acquire"]);
    assert_eq!(host.grant(call).token.get(), 2);
    assert!(host.held_until(LOCK) <= host.now + ms(200));
    assert_eq!(host.told(), ["acquired 2"]);
}

/// The machine slept through the window, and another client has the lock since.
#[test]
fn a_waiter_whose_grant_comes_after_its_window_rejoins_the_line() {
    let (mut host, call) = handed();
    host.sleep(WINDOW + ms(1));
    host.stranger_acquires(LOCK, TTL);
    host.push_next();
    host.advance(ms(0));
    assert!(host.is_open(call) && !host.is_held(LOCK));
    assert_eq!(host.waiting(LOCK), 1);
    host.pushes = Pushes::Deliver;
    host.stranger_releases(LOCK);
    assert_eq!(host.grant(call).token.get(), 4);
}

/// After a reconnect the server may be a different one, and its clock is not known.
#[test]
fn a_grant_without_a_known_clock_is_checked() {
    let (mut host, call) = handed();
    host.net = Net::Hold;
    host.connect(0);
    host.push_next();
    assert!(host.is_open(call) && !host.is_held(LOCK));
    assert_eq!(host.ops(), [""; 0], "the probe comes first");
    host.net = Net::Up;
    host.answer_all();
    assert_eq!(host.grant(call).token.get(), 2);
    assert_eq!(host.ops(), ["acquire"]);
}

#[test]
fn a_grant_without_a_connection_is_checked_after_a_reconnect() {
    let (mut host, call) = handed();
    host.disconnect();
    host.push_next();
    assert!(host.is_open(call) && !host.is_held(LOCK));
    host.connect(0);
    assert_eq!(host.grant(call).token.get(), 2);
}

/// The push and the answers use different connections, so the push may arrive first.
#[test]
fn a_late_answer_to_a_request_from_before_the_grant_changes_nothing() {
    for granted_first in [false, true] {
        let mut host = Host::new();
        let call = with_a_question_under_way(&mut host);
        let sent = host.take();
        if granted_first {
            host.stranger_releases(LOCK);
        }
        let reply = host.execute(&sent);
        if !granted_first {
            host.stranger_releases(LOCK);
        }
        assert_eq!(
            matches!(reply.replies[..], [Ok(Reply::Held(_))]),
            granted_first
        );
        let grant = host.grant(call);
        let before = (host.held_until(LOCK), host.told());
        assert_eq!(host.ops(), ["acquire", "renew"]);
        host.reply(&sent, Ok(reply));
        assert_eq!((host.held_until(LOCK), host.told()), before);
        host.net = Net::Up;
        host.answer_all();
        host.release(grant.lease);
        host.advance(TTL);
        let ops = host.ops();
        assert_eq!(
            ops,
            ["acquire", "renew", "release"],
            "the acquisition left no doubt"
        );
        assert!(!host.is_taken(LOCK) && host.engine.is_idle());
    }
}

/// The request from before the grant arrives at the store after the release.
#[test]
fn a_request_that_outlives_the_tenure_leaves_no_ghost_in_line() {
    for next in [false, true] {
        let mut host = Host::new();
        let (ghost, lease) = with_a_question_behind(&mut host);
        host.release(lease);
        if next {
            host.stranger_acquires(LOCK, TTL);
        }
        host.execute(&ghost);
        assert_eq!(
            (host.is_taken(LOCK), host.waiting(LOCK)),
            (true, usize::from(next))
        );
        host.advance(TIMEOUT);
        assert_eq!((host.is_taken(LOCK), host.waiting(LOCK)), (next, 0));
        assert!(host.engine.is_idle());
    }
}

/// The release of a canceled waiter was in flight when the lock was handed to it.
#[test]
fn a_grant_after_a_cancel_goes_on_to_the_next() {
    let mut host = Host::new();
    let call = in_line(&mut host);
    host.stranger_waits(LOCK, 1);
    host.net = Net::Hold;
    host.cancel(call);
    host.stranger_releases(LOCK);
    assert_eq!(host.ops(), ["release"]);
    assert_eq!(host.told(), [""; 0]);
    assert!(!host.is_held(LOCK));
    host.answer_all();
    assert_eq!(
        host.stranger_leaves(LOCK, 1),
        Reply::Released,
        "the lease had the lock"
    );
    assert!(!host.is_taken(LOCK) && host.engine.is_idle());
}

/// A late request joins the line again after its place was given up. It gets the lock while others wait.
#[test]
fn a_grant_to_a_ghost_is_given_back_at_once() {
    let mut host = Host::new();
    let call = with_a_question_under_way(&mut host);
    let ghost = host.take();
    host.cancel(call);
    host.answer_next();
    host.net = Net::Up;
    host.execute(&ghost);
    host.stranger_waits(LOCK, 1);
    host.forget();
    let start = host.now;
    host.stranger_releases(LOCK);
    assert_eq!(
        host.times_of("release"),
        [start],
        "the release does not wait for the end of the doubt"
    );
    assert_eq!(
        host.stranger_leaves(LOCK, 1),
        Reply::Released,
        "the lease had the lock"
    );
    host.advance(TTL);
    assert!(!host.is_taken(LOCK) && host.engine.is_idle());
    assert_eq!(host.told(), [""; 0]);
}

/// Catches a wait that is measured for the acquisition instead of for each caller.
#[test]
fn each_caller_is_told_its_own_waiting_time() {
    let mut host = Host::new();
    let start = host.now;
    let first = in_line(&mut host);
    host.advance(ms(2_500));
    let second = host.acquire(LOCK, Wait::Forever);
    host.advance(ms(1_500));
    host.stranger_releases(LOCK);
    let late = host.acquire(LOCK, Wait::Never);
    let waited = [first, second, late].map(|call| host.grant(call).waited);
    assert_eq!(waited, [ms(4_000), ms(1_500), ms(0)]);
    let began = [first, second, late].map(|call| host.grant(call).began);
    assert!(began.iter().all(|one| one == &began[0]));
    assert!(began[0] <= host.now && began[0] > start + ms(3_900));
    host.release(host.grant(first).lease);
    assert!(host.is_taken(LOCK), "three leases share it");
}

/// A tenure from an answer began when its request was sent, or later.
#[test]
fn a_tenure_from_an_answer_began_with_its_request() {
    let mut host = Host::on(Net::Hold);
    let sent = host.now;
    let call = host.acquire(LOCK, Wait::Forever);
    host.advance(ms(300));
    host.answer_next();
    let grant = host.grant(call);
    assert_eq!((grant.began, grant.waited), (sent, ms(300)));
}

/// A repeated push, as after a proxy's retry.
#[test]
fn a_grant_that_is_told_twice_counts_once() {
    let (mut host, call) = handed();
    let push = host.take_push();
    host.input(Input::push(push));
    host.input(Input::push(push));
    let lease = host.grant(call).lease;
    host.release(lease);
    host.input(Input::push(push));
    assert_eq!(host.told(), ["acquired 2", "renewed", "released 2"]);
    assert_eq!(host.ops(), ["renew", "release"]);
    assert!(!host.is_taken(LOCK) && host.engine.is_idle());
}

/// Losing a reply that names the next waiter loses nothing.
#[test]
fn a_handover_whose_reply_is_lost_is_noticed() {
    let mut host = Host::new();
    let first = host.hold(LOCK);
    let other = host.acquire_as(LockId(2), LOCK, Wait::Forever);
    host.net = Net::LoseReplies;
    let release = host.release(first.lease);
    host.net = Net::Up;
    host.advance(TIMEOUT + SOON);
    host.advance(TTL / 5);
    let lease = host.grant(other).lease;
    assert_eq!(
        host.outcome(release),
        &Answer::Release(Ok(())),
        "the retry finds the lock taken"
    );
    assert!(host.is_held(LockId(2)));
    host.release(lease);
    assert!(!host.is_taken(LOCK));
}

/// The waiter needs neither a push nor a renewal: the reply to the release grants the whole time to live.
#[test]
fn the_reply_to_a_release_hands_the_lock_to_a_waiter_of_the_same_locker() {
    let mut host = Host::new();
    host.pushes = Pushes::Drop;
    let first = host.hold(LOCK);
    let other = host.acquire_as(LockId(2), LOCK, Wait::Forever);
    let before = host.ops().len();
    let release = host.release(first.lease);
    assert_eq!(host.outcome(release), &Answer::Release(Ok(())));
    let next = host.grant(other);
    assert!(next.token > first.token);
    assert_eq!(host.ops()[before..], ["release"]);
    assert!(host.held_until(LockId(2)) > host.now + TTL - TTL / 100);
    assert!(host.held_until(LockId(2)) <= host.now + TTL);
}

/// Returns the holder's tenure, the next waiter's call, and the release, which has not arrived yet.
fn released_with_one_in_line(host: &mut Host) -> (Acquired, CallId, Sent) {
    let first = host.hold(LOCK);
    let other = host.acquire_as(LockId(2), LOCK, Wait::Forever);
    host.net = Net::Hold;
    host.release(first.lease);
    (first, other, host.take())
}

/// A stale reply hands over nothing: the server later reported another holder.
#[test]
fn an_outdated_handover_is_not_trusted() {
    let mut host = Host::new();
    host.ttl = ms(1_800);
    let (_, other, release) = released_with_one_in_line(&mut host);
    let handed = host.execute(&release);
    // Another client frees the lock by force, and a stranger takes it, before the reply arrives. The waiter asks
    // again while the handover would still count.
    host.stranger_force_releases(LOCK);
    host.stranger_acquires(LOCK, TTL);
    host.advance(ms(1_100));
    host.net = Net::Up;
    host.answer_all();
    host.reply(&release, Ok(handed));
    assert!(!host.is_held(LockId(2)));
    assert!(host.is_open(other));
}

/// The renewal finds the lock gone, so the waiter does not keep a grant that the store did not keep.
#[test]
fn a_grant_that_the_store_did_not_keep_is_lost_at_its_confirmation() {
    let mut host = Host::new();
    let call = in_line(&mut host);
    host.net = Net::Hold;
    host.stranger_releases(LOCK);
    host.grant(call);
    host.servers[0].flush();
    host.answer_next();
    assert_eq!(host.told(), ["acquired 2", "lost: deleted"]);
}

/// The release was given up by then, and its request forgotten. The next waiter learns of the handover
/// anyway. It asks, because the time at which the request left is no longer known.
#[test]
fn a_late_handover_is_taken_up() {
    let mut host = Host::new();
    let (first, other, release) = released_with_one_in_line(&mut host);
    host.net = Net::Up;
    host.advance(TIMEOUT + ms(1));
    let handed = host.execute(&release);
    host.reply(&release, Ok(handed));
    assert!(host.grant(other).token > first.token);
}
