//! The shortest time that a name stays taken: `at_least`.

use std::time::Duration;

use super::cancel::with_a_ghost;
use super::handoff::with_a_question_behind;
use super::host::{Host, LOCK, Net, Pushes, SOON, TIMEOUT, TTL, ms};
use super::line::in_line;
use crate::engine::clock::Margin;
use crate::engine::{Acquired, Answer, Wait};
use crate::error::ErrorKind;
use crate::name::Owner;
use crate::protocol::{Acquire, Command, Reply, Retire};

const LEAST: Duration = Duration::from_secs(60);

/// Returns a host that holds `LOCK`, whose name stays taken for this long, and the lease.
fn holding() -> (Host, Acquired) {
    let mut host = Host::new();
    host.at_least = Some(LEAST);
    let lease = host.hold(LOCK);
    host.forget();
    (host, lease)
}

/// Advances to the time until which the name is taken by the locker's clock, and a little further.
fn assert_taken_until(host: &mut Host, lease: &Acquired, age: Duration) {
    host.advance_to(lease.began + age);
    assert!(host.is_taken(LOCK), "the name is free too early");
    host.advance(age / 200);
    assert!(!host.is_taken(LOCK), "the name is still taken");
}

#[test]
fn a_release_keeps_the_name_taken_until_its_age() {
    let (mut host, lease) = holding();
    host.advance(ms(5_000));
    let call = host.release(lease.lease);
    assert_eq!(host.outcome(call), &Answer::Release(Ok(())));
    assert_eq!(host.told(), ["released 1"]);
    assert_eq!(host.ops(), ["retire"]);
    assert!(host.engine.is_idle() && !host.is_held(LOCK));
    let holder = host.servers[0].tenure(host.server_now(), &super::host::key(LOCK));
    let holder = holder.expect("the name is taken");
    assert_eq!(
        (holder.lease, holder.token),
        (Retire::NO_LEASE, lease.token)
    );
    let other = host.acquire(LOCK, Wait::Never);
    assert_eq!(host.outcome(other), &Answer::Acquire(Ok(None)));
    assert_taken_until(&mut host, &lease, LEAST);
}

#[test]
fn a_later_release_frees_the_name_at_once() {
    let (mut host, lease) = holding();
    host.advance(LEAST);
    host.forget();
    host.release(lease.lease);
    assert_eq!(host.ops(), ["release"]);
    assert!(!host.is_taken(LOCK));
}

/// Catches a fast server that frees the name before its age, and milliseconds that are rounded down.
#[test]
fn the_name_is_not_free_early_by_the_holders_clock() {
    for (least, held) in [(1_000, 0), (1_000, 999), (40_000, 1), (3, 2)] {
        for rate in [0, 1_000] {
            let mut host = Host::with_margin(Margin::LEAST.parts_per_million());
            host.at_least = Some(ms(least) + Duration::from_micros(500));
            let lease = host.hold(LOCK);
            host.advance(ms(held));
            host.release(lease.lease);
            let until = lease.began + ms(least) + Duration::from_micros(500);
            let rest = until.since(host.now);
            host.advance(rest);
            host.epoch += u64::try_from(rest.as_micros()).expect("it is short") * rate / 1_000_000;
            assert!(host.is_taken(LOCK), "{least} {held} {rate}");
        }
    }
}

/// Catches a repetition that keeps the name taken for longer, or takes it away from the next holder.
#[test]
fn a_repetition_changes_nothing() {
    let (mut host, lease) = holding();
    host.net = Net::LoseReplies;
    let call = host.release(lease.lease);
    let until = host.expiry(LOCK);
    host.advance(TIMEOUT + SOON);
    assert!(host.count("retire") > 1, "it was repeated");
    assert_eq!(host.expiry(LOCK), until);
    host.net = Net::Up;
    host.advance(TIMEOUT);
    assert_eq!(host.outcome(call), &Answer::Release(Ok(())));
    assert_eq!(host.told(), ["released 1"]);
    assert_eq!(host.expiry(LOCK), until);
}

#[test]
fn late_commands_of_the_ended_lease_find_nothing() {
    let (mut host, lease) = holding();
    host.net = Net::Hold;
    host.renew(lease.lease);
    let renewal = host.take();
    host.net = Net::Up;
    host.release(lease.lease);
    let until = host.expiry(LOCK);
    let reply = host.execute(&renewal);
    assert_eq!(reply.replies, [Ok(Reply::Taken)]);
    assert_eq!(host.expiry(LOCK), until);
}

/// Catches an owner that reclaims the name of its own ended lease.
#[test]
fn the_owner_waits_like_everybody() {
    let mut host = Host::new();
    host.at_least = Some(LEAST);
    host.owner = Owner::reclaimable("job-7").expect("a short label is valid");
    let lease = host.hold(LOCK);
    host.release(lease.lease);
    host.join(
        crate::protocol::ClientId(8),
        crate::engine::Engine::new(crate::engine::Settings::new(crate::protocol::ClientId(8))),
        "job-7",
    );
    let mut second = host.at(1);
    second.owner = Owner::reclaimable("job-7").expect("a short label is valid");
    second.connect(0);
    let call = second.acquire(LOCK, Wait::Never);
    assert_eq!(second.outcome(call), &Answer::Acquire(Ok(None)));
}

/// Catches a waiter that is served at the release, and one that learns too late that the name is free.
#[test]
fn waiters_get_the_name_once_it_is_free() {
    let (mut host, lease) = holding();
    host.stranger_waits(LOCK, 1);
    host.release(lease.lease);
    assert_eq!(host.waiting(LOCK), 1, "nobody was served");
    for _ in 0..8 {
        host.stranger_waits(LOCK, 1);
        host.advance(ms(8_000));
    }
    let next = host.token_of(LOCK);
    let reply = host.stranger_waits(LOCK, 1);
    assert!(matches!(reply, Reply::Held(_)), "{next:?} {reply:?}");
}

#[test]
fn a_forced_release_frees_the_name() {
    let (mut host, lease) = holding();
    host.release(lease.lease);
    let call = host.force_release(LOCK);
    assert!(matches!(
        host.outcome(call),
        Answer::ForceRelease(Ok(Some(_)))
    ));
    assert!(!host.is_taken(LOCK));
}

#[test]
fn a_lost_lease_frees_the_name() {
    let (mut host, lease) = holding();
    host.shutdown();
    assert_eq!(host.told(), ["lost: shutdown"]);
    assert!(!host.is_taken(LOCK));
    let (mut host, _) = (holding(), lease);
    host.0.net = Net::LoseRequests;
    host.0.advance(TTL + SOON);
    assert_eq!(host.0.told_last(), "lost: expired");
    assert!(!host.0.is_taken(LOCK));
}

/// Catches a place in line that a late attempt took and that the release leaves behind.
#[test]
fn a_release_of_a_lease_that_was_lost_leaves_the_line() {
    let mut host = Host::new();
    (host.at_least, host.pushes) = (Some(LEAST), Pushes::Drop);
    let lease = host.hold(LOCK).lease;
    let Command::Acquire(asked) = host.log[0].batch[0].command.clone() else {
        panic!("{:?} is no acquisition", host.log[0]);
    };
    host.stranger_force_releases(LOCK);
    host.stranger_acquires(LOCK, TTL);
    let waits = true;
    host.ask(Command::Acquire(Acquire { waits, ..asked }));
    assert_eq!(host.waiting(LOCK), 1);
    host.forget();
    host.release(lease);
    assert_eq!(host.ops(), ["retire", "release"]);
    assert_eq!(host.told(), ["lost: superseded"]);
    assert_eq!(host.waiting(LOCK), 0);
}

/// Catches a late attempt that stays in line for the name that its own release keeps taken.
#[test]
fn an_attempt_that_outlives_its_tenure_does_not_wait_for_the_name() {
    for net in [Net::Up, Net::LoseReplies] {
        let mut host = Host::new();
        host.at_least = Some(LEAST);
        let (ghost, lease) = with_a_ghost(&mut host);
        host.net = net;
        host.release(lease);
        host.execute(&ghost);
        assert_eq!(host.waiting(LOCK), 1, "a ghost");
        host.advance(TIMEOUT);
        host.net = Net::Up;
        host.advance(TIMEOUT + SOON);
        assert_eq!(host.waiting(LOCK), 0);
        assert!(host.is_taken(LOCK) && host.engine.is_idle());
    }
}

/// Catches a release that forgets the line as soon as the late attempt that joined it is answered.
#[test]
fn an_answered_attempt_that_outlives_its_tenure_does_not_wait_for_the_name() {
    let mut host = Host::new();
    host.at_least = Some(LEAST);
    let (ghost, lease) = with_a_question_behind(&mut host);
    host.net = Net::LoseReplies;
    host.release(lease);
    host.answer(&ghost);
    assert_eq!(host.waiting(LOCK), 1, "a ghost");
    host.net = Net::Up;
    host.advance(TIMEOUT + SOON);
    assert_eq!(host.waiting(LOCK), 0);
    assert!(host.is_taken(LOCK) && host.engine.is_idle());
}

/// Catches an acquisition that was canceled and keeps the name taken.
#[test]
fn a_call_that_is_given_up_keeps_nothing() {
    let mut host = Host::new();
    (host.at_least, host.pushes) = (Some(LEAST), Pushes::Hold);
    let call = in_line(&mut host);
    host.stranger_releases(LOCK);
    assert!(host.is_taken(LOCK), "it was handed over");
    host.cancel(call);
    host.advance(TIMEOUT);
    assert!(!host.is_taken(LOCK));
    assert_eq!(host.count("retire"), 0);
}

#[test]
fn only_the_last_lease_of_a_tenure_ends_it() {
    let (mut host, lease) = holding();
    let again = host.acquire(LOCK, Wait::Never);
    host.grant(again);
    host.release(lease.lease);
    assert_eq!(host.ops(), [""; 0]);
    host.release(lease.lease);
    assert_eq!(host.ops(), ["retire"]);
}

/// Catches a release that nobody confirmed and that is told as done.
#[test]
fn a_release_without_an_answer_is_a_loss() {
    let (mut host, lease) = holding();
    host.net = Net::LoseRequests;
    let call = host.release(lease.lease);
    host.advance(TTL);
    assert_eq!(host.error(call), ErrorKind::Timeout);
    assert_eq!(host.told(), ["lost: expired"]);
    let renews = |op: &crate::protocol::Op| matches!(op.command, Command::Renew(_));
    assert!(!host.log.iter().flat_map(|sent| &sent.batch).any(renews));
}

/// Catches pauses that make each attempt late: with a wide margin, `not_after` is early by a part of the pause.
#[test]
fn a_release_comes_in_time_whatever_the_margin() {
    let mut host = Host::with_margin(Margin::MOST.parts_per_million());
    host.engine.single_mut().env.cx.settings.command_timeout = ms(150);
    host.at_least = Some(LEAST);
    let lease = host.hold(LOCK).lease;
    host.net = Net::LoseRequests;
    let call = host.release(lease);
    host.advance(ms(5_000));
    host.net = Net::Up;
    host.advance(ms(3_000));
    assert_eq!(host.outcome(call), &Answer::Release(Ok(())));
}
