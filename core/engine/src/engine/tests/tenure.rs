//! Held locks: renewals and losses.

use super::host::{Host, LOCK, Net, SOON, TTL, key, ms, remaining};
use super::line::gaps;
use crate::engine::{Answer, LockId, Wait};
use crate::error::ErrorKind;
use crate::protocol::{LeaseId, Reply};

#[test]
fn a_lease_is_renewed_at_a_third_of_its_time_with_jitter() {
    let (mut host, _) = Host::holding();
    host.advance(TTL * 40);
    let times = host.times();
    let gaps = gaps(&times);
    assert!(gaps.len() >= 120);
    assert!(
        gaps.iter()
            .all(|gap| *gap >= TTL * 8 / 30 && *gap <= TTL / 3),
        "{gaps:?}"
    );
    let (least, most) = (gaps.iter().min(), gaps.iter().max());
    assert!(
        most > least.map(|least| *least + TTL / 30).as_ref(),
        "no jitter: {gaps:?}"
    );
    assert_eq!(
        host.told().len(),
        times.len(),
        "acquired, and renewed each time"
    );
    assert!(host.is_held(LOCK));
}

#[test]
fn a_renewal_extends_the_deadline() {
    let mut host = Host::new();
    let first = host.hold(LOCK).deadline;
    host.advance(TTL / 3);
    assert_eq!(host.told(), ["acquired 1", "renewed"]);
    let deadline = host.held_until(LOCK);
    assert!(deadline > first);
    assert_eq!(host.last_told().deadline, Some(deadline));
}

#[test]
fn leases_that_are_due_together_are_renewed_in_batches_of_128_at_the_most() {
    let mut host = Host::new();
    for id in 0..300 {
        host.hold(LockId(id));
    }
    host.forget();
    host.sleep(TTL / 3);
    host.tick();
    let sizes: Vec<_> = host.log.iter().map(|sent| sent.batch.len()).collect();
    assert_eq!(sizes, [128, 128, 44]);
    assert_eq!(host.told().len(), 300);
    assert!(host.told().iter().all(|told| told == "renewed"));
}

#[test]
fn a_fixed_lease_is_not_renewed_by_itself() {
    let mut host = Host::new();
    host.fixed = true;
    let deadline = host.hold(LOCK).deadline;
    host.advance(TTL);
    assert_eq!(host.count("renew"), 0);
    assert_eq!(host.told(), ["acquired 1", "lost: expired"]);
    assert!(host.last_told().at <= deadline);
}

#[test]
fn a_fixed_lease_can_be_renewed_by_hand() {
    let mut host = Host::new();
    host.fixed = true;
    let grant = host.hold(LOCK);
    host.advance(TTL / 2);
    let call = host.renew(grant.lease);
    assert_eq!(host.outcome(call), &Answer::Renew(Ok(())));
    host.advance(TTL / 2);
    assert!(host.is_held(LOCK));
    host.advance(TTL / 2);
    assert!(!host.is_held(LOCK));
    assert_eq!(host.count("renew"), 1);
}

#[test]
fn a_renewal_by_hand_that_fails_is_an_error_and_is_not_repeated() {
    let mut host = Host::new();
    host.fixed = true;
    let grant = host.hold(LOCK);
    host.net = Net::LoseRequests;
    let call = host.renew(grant.lease);
    host.advance(TTL / 2);
    assert_eq!(host.error(call), ErrorKind::Timeout);
    assert_eq!(host.count("renew"), 1);
    assert!(host.is_held(LOCK));
    assert_eq!(host.told(), ["acquired 1", "at risk"]);
}

#[test]
fn renewals_by_hand_join_the_one_in_flight() {
    let (mut host, lease) = Host::holding();
    host.net = Net::Hold;
    let calls = [host.renew(lease), host.renew(lease)];
    assert_eq!(host.pending.len(), 1);
    host.answer_next();
    for call in calls {
        assert_eq!(host.outcome(call), &Answer::Renew(Ok(())));
    }
    let wrong = host.renew(LeaseId(lease.0 + 1));
    assert_eq!(host.error(wrong), ErrorKind::NotHeld);
}

/// A loss needs no answer and no network timer, only the clock.
#[test]
fn without_answers_a_lease_is_at_risk_and_then_lost_before_its_deadline() {
    let mut host = Host::new();
    let deadline = host.hold(LOCK).deadline;
    host.net = Net::LoseRequests;
    host.advance_to(deadline);
    let told = host.told();
    let (last, risks) = told[1..].split_last().expect("events were emitted");
    assert_eq!(last, "lost: expired");
    assert!(
        risks.len() >= 4,
        "retried with growing pauses, not once: {told:?}"
    );
    assert!(risks.iter().all(|told| told == "at risk"));
    let loss = host.last_told().clone();
    assert!(
        loss.at < deadline && loss.at + ms(60) > deadline,
        "at {:?} of {deadline:?}",
        loss.at
    );
    for told in &host.events[1..host.events.len() - 1] {
        assert!(told.at < loss.at);
        assert_eq!(remaining(&told.event), Some(deadline.since(told.at)));
    }
    assert!(host.count("renew") <= 30, "{} in 20 s", host.count("renew"));
    assert!(!host.is_held(LOCK));
}

#[test]
fn without_a_connection_a_lease_is_lost_before_its_deadline() {
    let mut host = Host::new();
    let deadline = host.hold(LOCK).deadline;
    host.disconnect();
    host.forget();
    host.advance_to(deadline);
    assert!(host.log.is_empty());
    assert_eq!(host.told_last(), "lost: expired");
    assert!(host.last_told().at < deadline);
}

/// A host that slept learns of the loss before it can do anything else.
#[test]
fn a_host_that_slept_past_the_deadline_finds_the_lease_lost() {
    for answered in [false, true] {
        let mut host = Host::new();
        let deadline = host.hold(LOCK).deadline;
        host.net = Net::Hold;
        host.advance(TTL / 3);
        let (renewal, reply) = host.take_reply();
        host.now = deadline;
        assert!(
            !host.is_held(LOCK),
            "the lease is over even before the next tick"
        );
        if answered {
            host.reply(&renewal, Ok(reply));
        } else {
            let call = host.acquire(LOCK, Wait::Never);
            assert!(host.is_open(call), "the call must not get the old tenure");
        }
        assert_eq!(host.told(), ["acquired 1", "lost: expired"]);
    }
}

#[test]
fn a_failed_renewal_is_retried_soon_and_then_succeeds() {
    let (mut host, _) = Host::holding();
    host.net = Net::Hold;
    host.advance(TTL / 3);
    host.fail_next(ErrorKind::Unavailable);
    assert_eq!(host.told(), ["acquired 1", "at risk"]);
    host.net = Net::Up;
    host.advance(SOON);
    assert_eq!(host.told(), ["acquired 1", "at risk", "renewed"]);
    host.forget();
    host.advance(TTL / 6);
    assert!(
        host.log.is_empty(),
        "the next renewal comes at its normal time"
    );
}

/// Catches a risk that is reported only because the last reply is long ago: with a wide margin `not_after` is
/// then too early, and the refusal corrects the clock.
#[test]
fn a_renewal_that_comes_too_late_is_repeated_at_once() {
    let mut host = Host::with_margin(170_000);
    host.ttl = ms(60_000);
    host.hold(LOCK);
    host.advance(ms(60_000));
    assert!(host.is_held(LOCK));
    let told = host.told();
    assert!(told[1..].iter().all(|told| told == "renewed"), "{told:?}");
    assert!(
        host.count("renew") >= told.len(),
        "at least one renewal came too late"
    );
}

#[test]
fn a_lease_whose_key_is_gone_is_lost_and_not_taken_again() {
    let (mut host, _) = Host::holding();
    host.servers[0].delete(&key(LOCK));
    host.advance(TTL * 3);
    assert_eq!(host.told(), ["acquired 1", "lost: deleted"]);
    assert_eq!(host.ops(), ["acquire", "renew"]);
    assert!(host.engine.is_idle());
}

/// Catches a doubt about an attempt that outlives the time in which it can act: a release of nothing would follow the loss.
#[test]
fn an_attempt_that_can_act_no_longer_leaves_the_tenure_no_doubt() {
    let mut host = Host::on(Net::LoseRequests);
    host.acquire(LOCK, Wait::Forever);
    host.advance(ms(2_100));
    host.net = Net::Up;
    host.advance(ms(3_000));
    assert!(host.is_held(LOCK));
    host.forget();
    host.servers[0].delete(&key(LOCK));
    host.advance(TTL * 3);
    assert_eq!(host.ops(), ["renew"]);
    assert!(host.engine.is_idle());
}

#[test]
fn a_lease_whose_lock_another_client_took_is_superseded() {
    let (mut host, _) = Host::holding();
    host.servers[0].delete(&key(LOCK));
    host.stranger_acquires(LOCK, TTL * 2);
    host.advance(TTL * 3);
    assert_eq!(host.told(), ["acquired 1", "lost: superseded"]);
    assert_eq!(host.ops(), ["acquire", "renew"]);
}

#[test]
fn a_lease_whose_key_has_another_type_is_superseded() {
    let (mut host, _) = Host::holding();
    host.net = Net::Hold;
    host.advance(TTL / 3);
    host.refuse_next(ErrorKind::WrongType);
    assert_eq!(host.told(), ["acquired 1", "lost: superseded"]);
}

#[test]
fn a_call_that_waits_for_a_renewal_hears_of_the_loss() {
    let (mut host, lease) = Host::holding();
    host.servers[0].delete(&key(LOCK));
    let call = host.renew(lease);
    assert_eq!(host.error(call), ErrorKind::NotHeld);
    let again = host.renew(lease);
    assert_eq!(host.error(again), ErrorKind::NotHeld);
}

#[test]
fn an_answer_after_the_loss_is_ignored() {
    let mut host = Host::new();
    host.ttl = ms(3_000);
    let deadline = host.hold(LOCK).deadline;
    host.net = Net::Hold;
    host.advance_to(deadline - ms(100));
    let renewal = host.pending.pop_back().expect("a renewal is in flight");
    let reply = host.execute(&renewal);
    host.advance(ms(200));
    host.reply(&renewal, Ok(reply));
    assert_eq!(host.told_last(), "lost: expired");
    assert!(!host.is_held(LOCK));
}

/// The store may keep an expired lock for a moment, and waiters need not wait for it.
#[test]
fn a_lease_that_expired_is_given_back() {
    let mut host = Host::new();
    host.fixed = true;
    host.hold(LOCK);
    host.advance(ms(29_890));
    assert_eq!(host.ops(), ["acquire", "release"]);
    assert!(!host.is_taken(LOCK));
    assert_eq!(
        host.told(),
        ["acquired 1", "lost: expired"],
        "the release emits no event"
    );
    assert!(host.engine.is_idle());
}

#[test]
fn a_released_lease_is_not_renewed() {
    let (mut host, lease) = Host::holding();
    host.advance(TTL);
    host.release(lease);
    host.forget();
    host.advance(TTL * 2);
    assert!(host.log.is_empty());
    assert_eq!(host.wake, None);
}

#[test]
fn the_shortest_lease_can_be_kept() {
    let mut host = Host::new();
    host.ttl = crate::engine::LockSpec::MIN_TTL;
    host.hold(LOCK);
    host.advance(ms(1_000));
    assert!(host.is_held(LOCK));
    assert!(host.told()[1..].iter().all(|told| told == "renewed"));
}

/// Catches a timer that a large locker loses or fires late, also while renewals fail and after a reconnect.
#[test]
fn each_of_many_leases_is_renewed() {
    const LEASES: u64 = 3_000;
    let mut host = Host::new();
    host.ttl = ms(9_000);
    for lock in 1..=LEASES {
        host.hold(LockId(lock));
        if lock % 3 == 0 {
            host.advance(ms(1));
        }
    }
    host.advance(ms(30_000));
    host.net = Net::LoseReplies;
    host.advance(ms(4_000));
    host.net = Net::Up;
    host.disconnect();
    host.connect(0);
    host.advance(ms(30_000));
    let told = host.told();
    let lost = told.iter().find(|told| told.starts_with("lost"));
    assert_eq!(lost, None);
    let renewed = told.iter().filter(|told| *told == "renewed").count();
    assert!(renewed > 18 * 3_000 && renewed < 30 * 3_000, "{renewed}");
    for lock in 1..=LEASES {
        assert!(host.is_held(LockId(lock)), "{lock}");
    }
}

/// Catches a server whose clock runs away from the renewal's `not_after`, and which is asked again and again at once.
#[test]
fn a_renewal_that_always_comes_late_is_repeated_at_once_only_once() {
    let (mut host, _) = Host::holding();
    host.net = Net::Hold;
    host.advance(TTL / 3);
    host.answer_each(&Ok(Reply::Late));
    assert_eq!(host.pending.len(), 1, "with the new clock");
    host.answer_each(&Ok(Reply::Late));
    assert_eq!(host.pending.len(), 0, "the next one after a pause");
    assert_eq!(host.told_last(), "at risk");
    host.advance(ms(200));
    assert_eq!(host.pending.len(), 1);
}

/// Returns a host with a lease of 600 ms, and this network from then on.
fn briefly_on(net: Net) -> Host {
    let mut host = Host::new();
    host.ttl = ms(600);
    host.hold(LOCK);
    host.forget();
    host.net = net;
    host
}

/// Catches a short lease with a single renewal: the limit of a command is longer than the lease.
#[test]
fn a_short_lease_waits_for_a_renewal_for_a_third_of_its_time() {
    let mut host = briefly_on(Net::LoseRequests);
    host.advance(host.ttl);
    assert!((2..=3).contains(&host.count("renew")), "{:?}", host.ops());
}

/// Catches pauses of a long lease after failed renewals of a short one.
#[test]
fn failed_renewals_of_a_short_lease_are_repeated_soon() {
    let mut host = briefly_on(Net::Hold);
    for millis in 0..600 {
        host.advance(ms(1));
        if !host.pending.is_empty() {
            host.refuse_next(ErrorKind::Unavailable);
        }
        assert!(host.is_held(LOCK) || millis > 500);
    }
    let gaps = gaps(&host.times());
    assert!(gaps.len() >= 5, "{gaps:?}");
    assert!(gaps[0] <= host.ttl / 30 + ms(1), "{gaps:?}");
    assert!(
        gaps.iter().all(|gap| *gap <= host.ttl / 6 + ms(1)),
        "{gaps:?}"
    );
}

/// Catches a fixed lease that a new connection renews, as it does all others.
#[test]
fn a_new_connection_renews_no_fixed_lease() {
    for (fixed, renewals) in [(true, 0), (false, 1)] {
        let mut host = Host::new();
        host.fixed = fixed;
        host.hold(LOCK);
        host.forget();
        host.cut(0);
        host.connect(0);
        assert_eq!(host.count("renew"), renewals);
    }
}
