//! Holding a lock, and losing it.

use super::line::hold_at;
use super::world::{LOCK, LONGEST, Net, SOON, TIMEOUT, TTL, ms, quorum, with_margin};
use crate::engine::{Answer, LockId, Wait};
use crate::error::{Error, ErrorKind};
use crate::event::{LeaseEvent, LossReason};
use crate::memory::MemoryServer;

/// Catches a lease that ends with its first time to live, or whose renewals are reported once for each
/// server.
#[test]
fn a_lease_is_renewed_and_each_renewal_is_reported_once() {
    let mut world = quorum(1, 5);
    world.hold(LOCK);
    world.advance(TTL * 10);
    assert_eq!(world.left(), (5, 0));
    let renewed = world.told_times("renewed");
    assert!(
        (25..=45).contains(&renewed),
        "{renewed} in 10 times to live"
    );
    assert_eq!(world.story(0).len(), 1 + renewed);
}

#[test]
fn a_lease_outlives_a_minority_and_is_lost_with_the_majority() {
    let mut world = quorum(1, 5);
    world.hold(LOCK);
    world.cut(1);
    world.set(1, Net::LoseRequests);
    world.advance(TTL * 2);
    assert!(
        !world.story(0).contains(&"at risk"),
        "four servers are more than a majority"
    );
    world.cut(3);
    world.set(3, Net::LoseRequests);
    let risk = world.lockers[0]
        .events
        .iter()
        .find_map(|told| match &told.event {
            LeaseEvent::AtRisk { error, .. } => Some(error.to_string()),
            _ => None,
        });
    let risk = risk.expect("the lease stands on a bare majority");
    assert!(
        risk.contains("server 2:") && risk.contains("server 4:"),
        "{risk}"
    );
    world.advance(TTL * 2);
    assert!(!world.story(0).contains(&"lost"));
    world.cut(0);
    world.set(0, Net::LoseRequests);
    let told = world.events.iter().rev();
    let mut deadlines = told
        .filter(|told| !matches!(told.event, LeaseEvent::Lost { .. }))
        .filter_map(|told| told.deadline);
    let deadline = deadlines.next().expect("an event had a deadline");
    world.advance_to(deadline);
    assert_eq!(
        world.story(0).last(),
        Some(&"lost"),
        "the loss is reported by the deadline"
    );
}

/// Catches a lease that counts on a server that no longer has it.
#[test]
fn a_lease_that_a_majority_forgot_is_lost_at_the_next_renewal() {
    let mut world = quorum(1, 3);
    world.hold(LOCK);
    world.servers[1].flush();
    world.servers[2].flush();
    world.advance(TTL / 2);
    let lost = &world.last_told().event;
    let reason = LossReason::Deleted;
    assert!(
        matches!(lost, LeaseEvent::Lost { reason: why, .. } if *why == reason),
        "{lost:?}"
    );
    world.advance(SOON);
    assert_eq!(
        world.left(),
        (0, 0),
        "the third server's grant is given back"
    );
}

#[test]
fn a_server_that_is_back_joins_the_lease_again() {
    let mut world = quorum(1, 3);
    world.cut(2);
    world.set(2, Net::LoseRequests);
    let call = world.acquire(LOCK, Wait::Never);
    world.advance(SOON);
    world.grant(call);
    world.advance(TIMEOUT);
    assert_eq!(
        world.story(0),
        ["acquired", "at risk"],
        "of a bare majority"
    );
    world.set(2, Net::Up);
    world.connect(2);
    world.advance(TTL);
    assert_eq!(world.left(), (3, 0));
    world.cut(0);
    world.set(0, Net::LoseRequests);
    world.advance(TTL * 3);
    assert!(!world.story(0).contains(&"lost"), "{:?}", world.story(0));
}

#[test]
fn a_manual_renewal_needs_a_majority() {
    let mut world = quorum(1, 5);
    let lease = world.hold(LOCK);
    world.set(4, Net::LoseRequests);
    let call = world.renew_for(lease.lease, TTL * 4);
    assert_eq!(world.outcome(call), &Answer::Renew(Ok(())));
    let told = world.last_told();
    assert!(matches!(told.event, LeaseEvent::Renewed { .. }), "{told:?}");
    assert!(told.deadline.is_some_and(|at| at > world.now + TTL * 3));
    world.set_all([2, 3], Net::LoseRequests);
    let call = world.renew_for(lease.lease, TTL * 3);
    assert!(world.is_open(call), "two of five have renewed it");
    world.advance(crate::testing::PATIENCE + SOON);
    assert_eq!(world.error(call), crate::ErrorKind::Timeout);
}

/// Catches a lease that outlives the quarantine of servers that forgot it: with a wide margin, each renewal
/// for a shorter time once extended it.
#[test]
fn renewals_for_a_shorter_time_never_extend_the_lease() {
    for margin in [2_000, 90_000, 170_000, 250_000] {
        let mut world = with_margin(1, 3, margin);
        world.ttl = LONGEST;
        let lease = world.hold(LOCK);
        let shorter = LONGEST / 100;
        let call = world.renew_for(lease.lease, shorter);
        assert_eq!(world.outcome(call), &Answer::Renew(Ok(())));
        let mut told = 0;
        for _ in 0..300 {
            world.advance(LONGEST / 200);
            let events = &world.events;
            for deadline in events[told..].iter().filter_map(|told| told.deadline) {
                let most = world.now + shorter;
                assert!(deadline <= lease.deadline.max(most), "{margin} ppm");
            }
            told = events.len();
        }
        assert!(!world.story(0).contains(&"lost"), "{:?}", world.story(0));
    }
}

#[test]
fn a_re_entrant_handle_shares_one_tenure() {
    let mut world = quorum(1, 3);
    world.reentrant = true;
    let first = world.hold(LOCK);
    let before = world.sent();
    let second = world.hold(LOCK);
    assert_eq!((second.token, second.lease), (first.token, first.lease));
    assert_eq!(world.sent(), before);
    world.release(first.lease);
    assert_eq!(world.left(), (3, 0));
    world.release(first.lease);
    assert_eq!(world.left(), (0, 0));
    let held = world.is_held(LOCK);
    assert!(!held);
}

#[test]
fn a_shutdown_frees_all_locks() {
    let mut world = quorum(2, 3);
    world.hold(LOCK);
    let waits = world.at(1).acquire(LOCK, Wait::Forever);
    let call = world.shutdown();
    assert_eq!(world.outcome(call), &Answer::Shutdown);
    assert_eq!(world.story(0), ["acquired", "lost"]);
    world.advance(SOON);
    world.grant(waits);
    let late = world.acquire(LOCK, Wait::Never);
    assert_eq!(world.error(late), crate::ErrorKind::Shutdown);
}

/// Catches a release that is reported although a majority did not confirm it.
#[test]
fn a_release_that_a_minority_confirms_fails() {
    let mut world = quorum(1, 3);
    let lease = world.hold(LOCK).lease;
    world.set_all([1, 2], Net::LoseRequests);
    let call = world.release(lease);
    world.advance(TTL * 2);
    assert!(!world.failure(call).is_not_held());
    assert_eq!(world.story(0).last(), Some(&"lost"));
}

/// Catches a request to a server under the lease ID of an earlier one: the release of that may arrive very
/// late, and would free what the server granted since.
#[test]
fn a_late_release_of_an_earlier_request_frees_nothing() {
    let mut world = quorum(1, 3);
    world.set(2, Net::Hold);
    let call = world.acquire(LOCK, Wait::Never);
    world.advance(SOON);
    world.grant(call);
    world.fail_next(ErrorKind::Timeout);
    let release = world.take();
    assert_eq!(world.ops().last(), Some(&"release"));
    world.reply(&release, Err(Error::no_answer()));
    while world.left() != (3, 0) {
        while !world.pending.is_empty() {
            world.answer_next();
        }
        world.advance(SOON / 100);
    }
    world.execute(&release);
    assert_eq!(world.left(), (3, 0));
}

/// Catches a lease that stands on two servers that do not know each other, so neither would notice that the
/// other forgot it.
#[test]
fn a_server_is_not_asked_while_one_that_does_not_know_it_has_the_lease() {
    let mut world = quorum(1, 3);
    hold_at(&mut world, 2, SOON);
    let call = world.acquire(LOCK, Wait::Never);
    world.advance(TTL / 4);
    world.grant(call);
    world.cut(1);
    world.set(1, Net::Hold);
    world.servers[1] = MemoryServer::new();
    world.servers[1].begin_anew(u64::from(u32::MAX));
    world.connect(1);
    world.answer_next();
    let (sent, mut reply) = world.take_reply();
    reply.replies[0] = Err(Error::no_answer());
    world.reply(&sent, Ok(reply));
    world.advance(TTL / 3);
    assert_eq!(world.left(), (1, 0), "only the first server has the lease");
    assert!(!world.story(0).contains(&"lost"));
}

#[test]
fn a_lease_is_held_up_to_its_deadline_whether_or_not_the_host_ticks() {
    let mut world = quorum(1, 3);
    world.hold(LOCK);
    let until = world.held_until(LOCK);
    world.now = until - ms(1);
    assert!(world.is_held(LOCK));
    world.now = until;
    assert!(!world.is_held(LOCK));
}

/// Catches a release that goes on being repeated, and a caller that waits for it, when the name is held again.
#[test]
fn a_release_ends_once_the_name_is_held_again() {
    let mut world = quorum(1, 3);
    let lease = world.hold(LOCK).lease;
    world.set_all(0..3, Net::LoseReplies);
    let release = world.release(lease);
    assert!(world.is_open(release));
    world.set_all(0..3, Net::Up);
    let again = world.acquire_as(LockId(2), LOCK, Wait::Forever);
    world.advance(TTL);
    world.grant(again);
    assert!(world.answered(release) <= world.answered(again));
}
