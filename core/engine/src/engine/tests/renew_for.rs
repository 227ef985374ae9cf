//! Renewals for another time to live.

use std::time::Duration;

use super::host::{Host, LOCK, Net, TTL, ms};
use crate::engine::clock::Margin;
use crate::engine::{Answer, LockSpec};
use crate::error::ErrorKind;
use crate::protocol::{Command, Renew, Reply};

const MINUTE: Duration = Duration::from_secs(60);
const ALMOST_A_MINUTE: Duration = Duration::from_millis(59_800);

/// Returns the times that the sent renewals asked the store for.
fn asked(host: &Host) -> Vec<Duration> {
    let ops = host.log.iter().flat_map(|sent| &sent.batch);
    let ttl = |op: &crate::protocol::Op| match &op.command {
        Command::Renew(Renew { ttl, .. }) => Some(*ttl),
        _ => None,
    };
    ops.filter_map(ttl).collect()
}

#[test]
fn a_new_time_to_live_counts_for_this_renewal_and_later_ones() {
    let (mut host, lease) = Host::holding();
    let call = host.renew_for(lease, MINUTE);
    assert_eq!(host.outcome(call), &Answer::Renew(Ok(())));
    assert!(host.held_until(LOCK).since(host.now) > ALMOST_A_MINUTE);
    host.advance(ms(15_000));
    assert_eq!(
        asked(&host),
        [MINUTE],
        "the next renewal is due after a third of a minute"
    );
    host.advance(ms(10_000));
    assert_eq!(asked(&host), [MINUTE, MINUTE]);
    let plain = host.renew(lease);
    assert_eq!(host.outcome(plain), &Answer::Renew(Ok(())));
    assert_eq!(asked(&host), [MINUTE; 3]);
    host.release(lease);
    let again = host.hold(LOCK);
    assert!(
        again.deadline.since(host.now) <= TTL,
        "the next tenure has the lock's own time to live"
    );
}

/// Catches a renewal for the lock's own time that counts on the longer one before it, whose answer was lost.
#[test]
fn a_lease_lasts_no_longer_than_the_last_renewal_asked_for() {
    let (mut host, lease) = Host::holding();
    host.net = Net::LoseReplies;
    let longer = host.renew_for(lease, MINUTE);
    host.advance(ms(2_100));
    assert_eq!(host.error(longer), ErrorKind::Timeout);
    host.net = Net::Up;
    let own = host.renew_for(lease, TTL);
    host.advance(ms(3_000));
    assert_eq!(host.outcome(own), &Answer::Renew(Ok(())));
    assert!(host.held_until(LOCK) <= host.now + TTL);
}

/// Catches a shorter renewal that acts at the store while the holder counts on the longer one.
#[test]
fn the_rest_of_a_lease_is_never_cut_short() {
    let mut host = Host::new();
    host.fixed = true;
    let grant = host.hold(LOCK);
    host.net = Net::LoseReplies;
    host.renew_for(grant.lease, ms(100));
    host.advance_to(grant.deadline - ms(1_000));
    assert!(
        host.is_held(LOCK),
        "without an answer, the lock is held by the old promise"
    );
    assert!(host.is_taken(LOCK), "the store keeps the lock as long");
    host.net = Net::Up;
    let call = host.renew_for(grant.lease, ms(2_000));
    assert_eq!(host.outcome(call), &Answer::Renew(Ok(())));
    host.advance(ms(1_900));
    assert!(host.is_held(LOCK));
    host.advance(ms(200));
    assert!(
        !host.is_held(LOCK),
        "the shorter time counts once the rest has passed"
    );
}

/// Catches the answer to an earlier renewal that is taken for the answer to this one.
#[test]
fn a_renewal_for_another_time_waits_for_the_one_in_flight() {
    let (mut host, lease) = Host::holding();
    host.net = Net::Hold;
    let (plain, longer) = (host.renew(lease), host.renew_for(lease, MINUTE));
    host.answer_next();
    assert_eq!(host.outcome(plain), &Answer::Renew(Ok(())));
    assert!(host.is_open(longer));
    assert!(host.held_until(LOCK).since(host.now) <= TTL);
    host.answer_next();
    assert_eq!(host.outcome(longer), &Answer::Renew(Ok(())));
    assert!(host.held_until(LOCK).since(host.now) > ALMOST_A_MINUTE);
    assert_eq!(asked(&host), [TTL, MINUTE]);
}

#[test]
fn a_renewal_for_another_time_waits_for_one_that_fails_too() {
    let (mut host, lease) = Host::holding();
    host.net = Net::LoseRequests;
    let (plain, longer) = (host.renew(lease), host.renew_for(lease, MINUTE));
    host.net = Net::Up;
    host.advance(ms(2_100));
    assert_eq!(host.error(plain), ErrorKind::Timeout);
    assert_eq!(host.outcome(longer), &Answer::Renew(Ok(())));
}

#[test]
fn a_renewal_that_is_given_up_changes_no_promise() {
    let (mut host, lease) = Host::holding();
    host.net = Net::Hold;
    host.renew(lease);
    let longer = host.renew_for(lease, MINUTE);
    host.cancel_of(longer, lease);
    host.answer_next();
    assert!(host.is_open(longer) && host.pending.is_empty());
    assert!(host.is_held(LOCK));
}

#[test]
fn a_time_out_of_bounds_is_refused() {
    let (mut host, lease) = Host::holding();
    for ttl in [Duration::ZERO, LockSpec::MIN_TTL / 2, LockSpec::MAX_TTL * 2] {
        let call = host.renew_for(lease, ttl);
        assert_eq!(host.error(call), ErrorKind::Config);
    }
    assert_eq!(asked(&host), []);
}

/// Catches a holder that counts on the longest time it ever asked for. The store claims a longer time than it
/// was last asked for.
#[test]
fn the_holder_counts_on_no_more_than_this_renewal_asked_for() {
    let (mut host, lease) = Host::holding();
    host.advance(ms(25_000));
    host.net = Net::Hold;
    host.renew_for(lease, ms(10_000));
    let sent = host.take();
    let asked = *asked(&host).last().expect("a renewal was sent");
    assert!(asked < TTL);
    let mut reply = host.execute(&sent);
    for reply in &mut reply.replies {
        if let Ok(Reply::Renewed { expires }) = reply {
            *expires = *expires + MINUTE;
        }
    }
    host.reply(&sent, Ok(reply));
    let until = host.held_until(LOCK);
    assert!(until.since(host.now) <= asked, "{until:?}");
}

/// Catches a lease that grows because each renewal asks for a little more than is left, and the answer
/// counts.
#[test]
fn a_shorter_time_never_moves_the_deadline() {
    let margins = [Margin::LEAST, Margin::DEFAULT, Margin::MOST].map(Margin::parts_per_million);
    for (margin, longer, shorter) in
        margins
            .into_iter()
            .chain([90_000, 170_000])
            .flat_map(|margin| {
                [
                    (margin, 30_000, 100),
                    (margin, 60_000, 3_000),
                    (margin, 500, 400),
                ]
            })
    {
        let mut host = Host::with_margin(margin);
        host.ttl = ms(longer);
        let grant = host.hold(LOCK);
        let call = host.renew_for(grant.lease, ms(shorter));
        assert_eq!(host.outcome(call), &Answer::Renew(Ok(())));
        assert_eq!(host.held_until(LOCK), grant.deadline, "{margin} ppm");
        let rest = grant.deadline.since(host.now);
        for _ in 0..400 {
            host.advance((rest + ms(shorter) * 4) / 400);
            let left = host.held_until(LOCK).since(host.now);
            let most = grant.deadline.since(host.now).max(ms(shorter));
            assert!(left <= most, "{margin} ppm: {left:?} of {longer} ms");
            assert!(host.is_held(LOCK), "{margin} ppm: lost at {:?}", host.now);
        }
    }
}

/// Catches renewals at the pace of the shorter time while the longer one lasts.
#[test]
fn a_shorter_time_is_renewed_once_less_than_it_is_left() {
    let mut host = Host::with_margin(250_000);
    let grant = host.hold(LOCK);
    host.renew_for(grant.lease, ms(1_000));
    let before = asked(&host).len();
    host.advance_to(grant.deadline - ms(1_000));
    assert_eq!(asked(&host).len(), before);
    host.advance_to(grant.deadline);
    let asked = &asked(&host)[before..];
    let is_wanted = asked.iter().all(|ttl| *ttl == ms(1_000));
    assert!(!asked.is_empty() && is_wanted, "{asked:?}");
    assert!(host.is_held(LOCK));
}

/// Catches a store that frees the lock while the holder counts on the longer time.
#[test]
fn the_store_keeps_what_the_holder_was_promised_before() {
    let mut host = Host::with_margin(170_000);
    host.fixed = true;
    let grant = host.hold(LOCK);
    host.advance(ms(1_000));
    for _ in 0..50 {
        host.renew_for(grant.lease, ms(100));
        host.advance(ms(100));
    }
    assert_eq!(host.held_until(LOCK), grant.deadline);
    host.advance_to(grant.deadline - ms(100));
    assert!(host.is_held(LOCK) && host.is_taken(LOCK));
}

/// Catches a release that gives up while the store may keep the lock, for the longest time that a renewal asked
/// for.
#[test]
fn the_lock_is_freed_for_as_long_as_the_store_may_keep_it() {
    for releases in [true, false] {
        let (mut host, lease) = Host::holding();
        host.net = Net::LoseReplies;
        host.renew_for(lease, MINUTE * 5);
        host.net = Net::LoseRequests;
        host.renew_for(lease, TTL);
        host.advance(ms(2_100));
        if releases {
            host.release(lease);
        }
        host.advance(TTL * 3);
        assert!(!host.is_held(LOCK) && host.is_taken(LOCK));
        host.net = Net::Up;
        host.advance(ms(2_100));
        assert!(!host.is_taken(LOCK));
    }
}
