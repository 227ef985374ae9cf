//! Canceled acquisitions leave nothing behind.

use super::host::{Host, LOCK, Net, Pushes, SOON, Sent, TIMEOUT, TTL, ms};

use crate::engine::{LockId, Wait};
use crate::protocol::{Command, LeaseId, Release, Reply};

#[test]
fn a_canceled_acquisition_is_followed_by_a_release_of_the_same_lease() {
    let (mut host, call) = Host::asking();
    host.cancel(call);
    assert_eq!(host.ops(), ["acquire", "release"]);
    let commands = host.log.iter().map(|sent| &sent.batch[0].command);
    let leases: Vec<_> = commands
        .map(|command| match command {
            Command::Acquire(acquire) => acquire.claim.lease,
            Command::Release(Release { claim, .. }) => claim.lease,
            other => panic!("{other:?} is neither"),
        })
        .collect();
    assert_eq!(leases[0], leases[1]);
    host.answer_all();
    assert!(!host.is_taken(LOCK));
    assert!(host.is_open(call), "a canceled call is not answered");
    assert_eq!(host.told(), [""; 0]);
}

/// The release overtook the acquisition, which then took a lock that no one wants.
#[test]
fn an_acquisition_that_may_still_act_is_given_back_again_once_it_cannot() {
    let mut host = Host::on(Net::Hold);
    let start = host.now;
    let call = host.acquire(LOCK, Wait::Forever);
    let ghost = host.take();
    host.cancel(call);
    host.answer_next();
    host.net = Net::Up;
    host.advance(ms(1_000));
    host.execute(&ghost);
    assert!(host.is_taken(LOCK));
    host.advance(TIMEOUT);
    assert!(!host.is_taken(LOCK));
    assert_eq!(host.times_of("release"), [start, start + TIMEOUT]);
    assert!(host.engine.is_idle());
}

/// Catches a lock without a holder until its time to live ends: a host with several threads sent the release
/// first, and received its reply last.
#[test]
fn a_lock_is_given_back_again_if_the_release_overtook_the_acquisition() {
    let (mut host, call) = Host::asking();
    host.cancel(call);
    let [acquire, release] = [host.take(), host.take()];
    let gone = host.execute(&release);
    let held = host.execute(&acquire);
    assert!(host.is_taken(LOCK));
    host.net = Net::Up;
    host.reply(&acquire, Ok(held));
    host.reply(&release, Ok(gone));
    assert!(!host.is_taken(LOCK));
    assert_eq!(host.ops(), ["acquire", "release", "release"]);
    assert!(host.engine.is_idle());
}

#[test]
fn a_lock_is_given_back_once_if_the_answer_came_in_between() {
    let (mut host, call) = Host::asking();
    host.cancel(call);
    host.answer_all();
    assert!(host.engine.is_idle());
    host.advance(TTL * 2);
    assert_eq!(host.ops(), ["acquire", "release"]);
}

/// The answer to the last attempt does not settle the doubt about earlier ones.
#[test]
fn an_earlier_attempt_without_an_answer_keeps_the_doubt() {
    let (mut host, call) = Host::asking();
    let ghost = host.take();
    host.connect(0);
    host.answer_next();
    assert_eq!(host.ops(), ["acquire", "acquire"]);
    host.cancel(call);
    host.answer_all();
    host.net = Net::Up;
    host.advance(ms(500));
    let ghosts_answer = host.execute(&ghost);
    assert!(matches!(ghosts_answer.replies[..], [Ok(Reply::Held(_))]));
    host.advance(TIMEOUT);
    assert!(!host.is_taken(LOCK));
}

/// Catches a refusal that settles an earlier attempt, which can still act: it was sent before the refused one, over a
/// connection that broke.
#[test]
fn a_refused_attempt_does_not_settle_an_earlier_one_that_can_still_act() {
    let mut host = Host::new();
    host.stranger_acquires(LOCK, ms(300));
    host.net = Net::Hold;
    let call = host.acquire(LOCK, Wait::Forever);
    let ghost = host.take();
    host.net = Net::Up;
    host.connect(0);
    assert_eq!(host.waiting(LOCK), 1, "the second attempt was refused");
    host.cancel(call);
    assert_eq!(host.waiting(LOCK), 0);
    host.advance(ms(500));
    host.execute(&ghost);
    assert!(host.is_taken(LOCK));
    host.advance(TIMEOUT);
    assert!(!host.is_taken(LOCK));
    assert!(host.engine.is_idle());
}

/// Catches an entry that stays in line, and a release that is sent twice although every answer arrived.
#[test]
fn a_waiter_canceled_between_requests_leaves_the_line_and_sends_nothing_more() {
    let mut host = Host::new();
    host.stranger_acquires(LOCK, TTL);
    let call = host.acquire(LOCK, Wait::Forever);
    host.advance(ms(1_000));
    assert_eq!(host.waiting(LOCK), 1);
    host.forget();
    host.cancel(call);
    assert_eq!((host.ops(), host.waiting(LOCK)), (vec!["release"], 0));
    assert!(host.engine.is_idle());
    host.advance(TTL);
    assert_eq!(host.ops(), ["release"]);
}

#[test]
fn a_waiter_with_an_unanswered_attempt_behind_it_is_given_back() {
    let mut host = Host::on(Net::LoseRequests);
    let call = host.acquire(LOCK, Wait::Forever);
    host.connect(0);
    host.advance(ms(500));
    host.disconnect();
    host.cancel(call);
    host.net = Net::Up;
    host.forget();
    host.connect(0);
    assert_eq!(host.ops(), ["release"]);
    host.advance(TTL * 2);
    assert!(host.engine.is_idle());
}

#[test]
fn canceling_one_caller_leaves_the_others_waiting() {
    let (mut host, first) = Host::asking();
    let second = host.acquire(LOCK, Wait::Forever);
    host.cancel(first);
    host.answer_all();
    let lease = host.grant(second).lease;
    assert_eq!(host.ops(), ["acquire"]);
    host.net = Net::Up;
    host.release(lease);
    assert!(
        !host.is_taken(LOCK),
        "the canceled call has no share in the tenure"
    );
}

#[test]
fn an_acquisition_after_a_canceled_one_gets_its_own_tenure() {
    let (mut host, first) = Host::asking();
    host.cancel(first);
    let second = host.acquire(LOCK, Wait::Never);
    assert_eq!(host.ops(), ["acquire", "release", "acquire"]);
    host.answer_all();
    assert_eq!(host.grant(second).token.get(), 2);
    host.net = Net::Up;
    host.advance(TTL);
    assert!(
        host.is_held(LOCK),
        "the ghost's release does not free this tenure"
    );
}

#[test]
fn a_canceled_renewal_still_extends_the_lease() {
    let (mut host, lease) = Host::holding();
    host.net = Net::Hold;
    let call = host.renew(lease);
    host.cancel(call);
    host.answer_all();
    assert!(host.is_open(call) && host.is_held(LOCK));
    assert_eq!(host.told(), ["acquired 1", "renewed"]);
}

/// A release after a cancellation is not retried forever, because the lock expires by itself.
#[test]
fn a_release_that_never_arrives_ends_when_the_lock_would_have_expired() {
    let mut host = Host::on(Net::LoseRequests);
    let call = host.acquire(LOCK, Wait::Forever);
    host.cancel(call);
    host.advance(TIMEOUT + TTL + SOON);
    assert!(host.engine.is_idle());
    assert_eq!(host.wake, None);
}

/// Returns a tenure whose acquisition has an earlier attempt still on its way to the store.
pub(super) fn with_a_ghost(host: &mut Host) -> (Sent, LeaseId) {
    host.net = Net::Hold;
    let call = host.acquire(LOCK, Wait::Forever);
    let ghost = host.take();
    host.net = Net::Up;
    host.connect(0);
    (ghost, host.grant(call).lease)
}

/// The first attempt arrives after the lock of the second was released.
#[test]
fn an_attempt_that_outlives_its_tenure_is_given_back_too() {
    let mut host = Host::new();
    let (ghost, lease) = with_a_ghost(&mut host);
    host.release(lease);
    host.execute(&ghost);
    assert!(host.is_taken(LOCK));
    host.advance(TIMEOUT + SOON);
    assert!(!host.is_taken(LOCK), "no one holds the lock");
    assert!(host.engine.is_idle());
}

/// The first attempt arrives after the lock of the second was lost. No holder may rely on what it takes.
#[test]
fn an_attempt_that_takes_the_lock_again_does_not_hide_a_loss() {
    let mut host = Host::new();
    let (ghost, _) = with_a_ghost(&mut host);
    host.pushes = Pushes::Drop;
    host.stranger_force_releases(LOCK);
    host.execute(&ghost);
    host.advance(TTL / 3);
    assert_eq!(host.told_last(), "lost: superseded");
    host.advance(TTL * 2);
    assert!(!host.is_taken(LOCK));
}

/// Catches a request that may act after its last caller has timed out.
#[test]
fn the_timeout_of_a_canceled_call_does_not_count() {
    let (mut host, canceled) = Host::asking();
    let until = host.now + ms(500);
    host.acquire(LOCK, Wait::Until(until));
    host.cancel(canceled);
    host.answer_each(&Ok(Reply::Late));
    let again = host.take();
    assert_eq!(again.give_up, until);
}

/// Catches late answers that are taken for those to other attempts, so that a lock stays taken that nobody wants.
#[test]
fn each_late_answer_gives_back_its_own_lock() {
    let mut host = Host::on(Net::Hold);
    let locks = [LOCK, LockId(2)];
    let calls = locks.map(|lock| host.acquire(lock, Wait::Forever));
    let late = [host.take(), host.take()];
    for call in calls {
        host.cancel(call);
    }
    host.answer_all();
    host.net = Net::Up;
    for attempt in &late {
        host.answer(attempt);
    }
    assert!(!locks.iter().any(|lock| host.is_taken(*lock)));
}
