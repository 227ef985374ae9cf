//! The line of waiters: which positions callers see, and when the waiter asks again.

use std::time::Duration;

use super::host::{Host, LOCK, Net, Pushes, TTL, key, ms};
use crate::engine::{Answer, CallId, Input, LockId, Wait};
use crate::error::ErrorKind;
use crate::protocol::{Claim, Command, Release, Reply};
use crate::time::Timestamp;

/// A time longer than any of these tests takes.
pub(super) const LONG: Duration = Duration::from_secs(3_600);

/// Returns a call that waits in line for a lock that a stranger holds, with an empty log.
pub(super) fn in_line(host: &mut Host) -> CallId {
    host.stranger_acquires(LOCK, LONG);
    let call = host.acquire(LOCK, Wait::Until(host.now + LONG));
    assert_eq!(host.waiting(LOCK), 1);
    host.forget();
    call
}

/// Returns a host that was handed the lock and has not heard of it yet.
pub(super) fn handed() -> (Host, CallId) {
    let mut host = Host::new();
    host.pushes = Pushes::Hold;
    let call = in_line(&mut host);
    host.stranger_releases(LOCK);
    (host, call)
}

/// Checks that no acquisition is left.
pub(super) fn assert_nobody_waits(host: &Host) {
    assert!(host.engine.acquiring().is_none());
}

/// The claims of the acquisitions and of the releases that were sent.
pub(super) fn claims(host: &Host) -> (Vec<&Claim>, Vec<&Claim>) {
    let (mut asked, mut left) = (Vec::new(), Vec::new());
    for op in host.log.iter().flat_map(|sent| &sent.batch) {
        match &op.command {
            Command::Acquire(acquire) => asked.push(&acquire.claim),
            Command::Release(Release { claim, .. }) => left.push(claim),
            _ => {}
        }
    }
    (asked, left)
}

/// Catches an event for each answer, and positions that are never reported.
#[test]
fn the_position_is_reported_when_it_changes_and_only_then() {
    let mut host = Host::new();
    host.stranger_acquires(LOCK, LONG);
    host.stranger_waits(LOCK, 1);
    host.stranger_waits(LOCK, 2);
    host.acquire(LOCK, Wait::Forever);
    assert_eq!(host.told(), ["waiting 3"]);
    host.advance(ms(30_000));
    assert!(host.count("acquire") > 5);
    assert_eq!(host.told(), ["waiting 3"], "nothing changed");
    host.stranger_leaves(LOCK, 1);
    host.advance(ms(5_000));
    assert_eq!(host.told(), ["waiting 3", "waiting 2"]);
    host.stranger_leaves(LOCK, 2);
    host.stranger_releases(LOCK);
    assert_eq!(
        host.told(),
        ["waiting 3", "waiting 2", "acquired 2", "renewed"]
    );
    assert_nobody_waits(&host);
}

/// Catches a stampede when a dead holder's lock expires, and a line that waits for its first waiter, which
/// died too.
#[test]
fn at_the_holders_expiry_waiters_ask_staggered_by_their_positions() {
    for place in 1..=4 {
        let mut host = Host::new();
        host.stranger_acquires(LOCK, ms(2_000));
        for number in 1..place {
            host.stranger_waits(LOCK, number);
        }
        let start = host.now;
        host.acquire(LOCK, Wait::Forever);
        host.forget();
        host.advance(ms(4_000));
        let turn = start + ms(2_001) + ms(100) * (u32::try_from(place).expect("few") - 1);
        assert_eq!(host.times_of("acquire")[0], turn, "position {place}");
    }
}

/// Waiters far behind keep their heartbeat, however late their staggered time is.
#[test]
fn a_waiter_far_behind_keeps_its_heartbeat() {
    let mut host = Host::new();
    host.ttl = ms(2_000);
    host.stranger_acquires(LOCK, ms(500));
    for number in 1..100 {
        host.stranger_waits(LOCK, number);
    }
    host.acquire(LOCK, Wait::Forever);
    host.forget();
    host.advance(ms(1_000));
    assert_eq!(host.count("acquire"), 1);
}

pub(super) fn gaps(times: &[Timestamp]) -> Vec<Duration> {
    times
        .windows(2)
        .map(|pair| pair[1].since(pair[0]))
        .collect()
}

/// Catches a heartbeat that ignores the time to live, and one without jitter.
#[test]
fn a_waiter_asks_at_its_heartbeat_with_jitter() {
    let cases = [
        (10, 1_000),
        (1_500, 1_000),
        (2_600, 1_300),
        (9_000, 4_500),
        (60_000, 5_000),
    ];
    for (ttl, heartbeat) in cases {
        for (subscribes, pause) in [(true, ms(heartbeat)), (false, ms(1_000))] {
            let mut host = Host::new();
            (host.ttl, host.subscribes) = (ms(ttl), subscribes);
            in_line(&mut host);
            host.advance(ms(300_000));
            let gaps = gaps(&host.times_of("acquire"));
            assert!(gaps.len() >= 50, "{} in five minutes", gaps.len());
            let (least, most) = (pause * 85 / 100, pause);
            assert!(
                gaps.iter().all(|gap| *gap >= least && *gap <= most),
                "{ttl} {subscribes}: {gaps:?}"
            );
            let (shortest, longest) = (gaps.iter().min(), gaps.iter().max());
            let spread = longest
                .zip(shortest)
                .map(|(long, short)| long.saturating_sub(*short));
            assert!(spread > Some(pause / 20), "{spread:?} of {pause:?}");
        }
    }
}

/// Catches a window that is too short for two lost heartbeats.
#[test]
fn the_claim_counts_as_alive_for_more_than_two_heartbeats() {
    for (ttl, window) in [
        (10, 2_400),
        (2_000, 2_400),
        (6_000, 7_200),
        (30_000, 12_000),
        (600_000, 12_000),
    ] {
        let mut host = Host::new();
        host.ttl = ms(ttl);
        host.acquire(LOCK, Wait::Forever);
        assert_eq!(claims(&host).0[0].window, ms(window), "ttl {ttl}");
    }
}

/// Returns true if the waiter counts as alive all the time, although some of its requests are lost.
fn stays_alive(host: &mut Host, lost: usize) -> bool {
    host.net = Net::LoseRequests;
    for _ in 0..2_000 {
        host.advance(ms(10));
        if host.count("acquire") >= lost {
            host.net = Net::Up;
        }
        let line = host.servers[0].line_value(host.server_now(), &key(LOCK));
        let (members, _) = line.expect("a waiter is in line");
        if members[0].2 < host.server_now() {
            return false;
        }
    }
    true
}

/// Catches an attempt that waits for its answer so long that its place in line expires.
#[test]
fn a_lost_heartbeat_does_not_cost_the_place() {
    for ttl in [500, 1_000, 2_000, 2_500, 4_000, 30_000] {
        for subscribes in [true, false] {
            let mut host = Host::new();
            (host.ttl, host.subscribes) = (ms(ttl), subscribes);
            in_line(&mut host);
            assert!(stays_alive(&mut host, 1), "ttl {ttl}, heard: {subscribes}");
        }
    }
}

/// Catches a waiter that trusts pushes which no longer arrive, and one that keeps polling every second
/// although they arrive again.
#[test]
fn losing_and_regaining_the_channel_changes_the_pace() {
    let mut host = Host::new();
    in_line(&mut host);
    for (input, first, pause) in [
        (Input::UNSUBSCRIBED, ms(1_000), ms(1_000)),
        (Input::UNSUBSCRIBED, ms(1_000), ms(1_000)),
        (Input::SUBSCRIBED, ms(0), ms(5_000)),
        (Input::SUBSCRIBED, ms(0), ms(5_000)),
    ] {
        host.advance(ms(100));
        host.forget();
        let start = host.now;
        host.input(input);
        host.advance(ms(30_000));
        let times = host.times_of("acquire");
        assert!(times[0].since(start) <= first, "{times:?}");
        let gaps = gaps(&times);
        assert!(
            gaps.iter()
                .all(|gap| *gap >= pause * 85 / 100 && *gap <= pause),
            "{gaps:?}"
        );
    }
}

/// The server sent the grant while the channel had no subscriber.
#[test]
fn missed_grants_are_found_when_the_channel_is_heard_again() {
    let mut host = Host::new();
    let call = in_line(&mut host);
    host.servers[0].unsubscribe(super::host::CLIENT);
    host.stranger_releases(LOCK);
    assert!(host.is_open(call));
    host.subscribe();
    assert_eq!(host.grant(call).token.get(), 2);
    assert_eq!(host.ops(), ["acquire"]);
}

/// The answer may be from before the subscription, so a grant in between would be missed.
#[test]
fn a_request_in_flight_at_the_subscription_is_repeated() {
    let mut host = Host::new();
    (host.subscribes, host.net) = (false, Net::Hold);
    host.stranger_acquires(LOCK, TTL);
    let call = host.acquire(LOCK, Wait::Forever);
    let (first, reply) = host.take_reply();
    // The grant has no subscriber.
    host.stranger_releases(LOCK);
    host.subscribe();
    assert_eq!(host.count("acquire"), 1, "one request is in flight");
    host.reply(&first, Ok(reply));
    host.advance(ms(0));
    assert_eq!(host.count("acquire"), 2);
    host.answer_next();
    assert_eq!(host.grant(call).token.get(), 2);
}

/// Catches a request that repeats forever after one subscription.
#[test]
fn a_request_in_flight_at_the_subscription_is_repeated_only_once() {
    let mut host = Host::new();
    host.subscribes = false;
    host.stranger_acquires(LOCK, LONG);
    host.net = Net::Hold;
    host.acquire(LOCK, Wait::Forever);
    host.subscribe();
    host.answer_next();
    host.advance(ms(0));
    host.answer_next();
    host.advance(ms(4_000));
    assert_eq!(host.count("acquire"), 2);
}

/// Catches a subscription for programs that never need one, and one for each lock.
#[test]
fn the_host_is_asked_to_subscribe_once_and_only_if_needed() {
    let mut host = Host::new();
    host.stranger_acquires(LOCK, LONG);
    host.acquire(LOCK, Wait::Never);
    host.inspect(LOCK);
    assert_eq!(
        host.asked_to_subscribe.len(),
        0,
        "no push could concern this locker"
    );
    host.acquire(LOCK, Wait::Forever);
    assert_eq!(host.asked_to_subscribe.len(), 1);
    host.hold(LockId(2));
    host.input(Input::UNSUBSCRIBED);
    host.connect(0);
    host.acquire_as(LockId(3), LOCK, Wait::Forever);
    assert_eq!(host.asked_to_subscribe.len(), 1);

    let (host, _) = Host::holding();
    assert_eq!(host.asked_to_subscribe.len(), 1, "a holder may be revoked");
}

/// All pushes to the waiter are lost, although the store counts them as heard.
#[test]
fn a_waiter_that_misses_its_push_gets_the_lock_and_token_at_its_next_request() {
    let mut host = Host::new();
    host.pushes = Pushes::Drop;
    let call = in_line(&mut host);
    host.advance(ms(1_000));
    host.stranger_releases(LOCK);
    let granted = host.now;
    assert!(host.is_open(call) && host.is_taken(LOCK));
    host.advance(ms(5_000));
    let grant = host.grant(call);
    assert_eq!(
        grant.token.get(),
        2,
        "the token is the one that the store granted"
    );
    assert!(grant.began > granted && grant.began <= granted + ms(5_000));
    assert_eq!(host.told(), ["acquired 2"]);
    assert_nobody_waits(&host);
}

const FULL: Reply = Reply::Full { waiting: 65_536 };

#[test]
fn a_full_line_fails_the_call_visibly() {
    let mut host = Host::new();
    host.stranger_acquires(LOCK, LONG);
    host.net = Net::Hold;
    let call = host.acquire(LOCK, Wait::Forever);
    host.answer_each(&Ok(FULL));
    assert_eq!(host.error(call), ErrorKind::Overloaded);
    let error = host.failure(call);
    assert!(error.to_string().contains("65536"), "{error}");
    assert_nobody_waits(&host);
}

/// The store did nothing and said so.
#[test]
fn a_full_line_leaves_nothing_to_give_back() {
    let mut host = Host::new();
    host.stranger_acquires(LOCK, LONG);
    host.net = Net::Hold;
    host.acquire(LOCK, Wait::Forever);
    host.answer_each(&Ok(FULL));
    host.net = Net::Up;
    host.advance(TTL);
    assert_eq!(host.ops(), ["acquire"]);
    assert!(host.engine.is_idle());
}

/// Catches a caller that shares the request of one that does not wait, and so joins the line only at its
/// next heartbeat.
#[test]
fn a_caller_that_joins_one_that_does_not_wait_joins_the_line_at_once() {
    let mut host = Host::new();
    host.stranger_acquires(LOCK, LONG);
    host.net = Net::Hold;
    let never = host.acquire(LOCK, Wait::Never);
    let forever = host.acquire(LOCK, Wait::Forever);
    host.net = Net::Up;
    host.answer_all();
    host.advance(ms(0));
    assert_eq!(host.outcome(never), &Answer::Acquire(Ok(None)));
    assert!(host.is_open(forever));
    assert_eq!(
        (host.waiting(LOCK), host.told()),
        (1, vec!["waiting 1".to_owned()])
    );
}

/// Redis keeps a key alive through the millisecond in which it expires. A request in that millisecond gets an
/// expiry that is not later than now.
#[test]
fn a_waiter_that_asks_in_the_millisecond_of_the_expiry_asks_again_soon() {
    let mut host = Host::new();
    host.stranger_acquires(LOCK, ms(2_000));
    host.epoch += 300;
    host.advance(ms(2_000));
    assert!(host.is_taken(LOCK), "the lock is in its last millisecond");
    let call = host.acquire(LOCK, Wait::Forever);
    host.advance(ms(200));
    assert_eq!(host.grant(call).token.get(), 2);
}

/// Two owners of one name in one locker wait like two programs.
#[test]
fn owners_of_one_locker_wait_in_the_order_of_their_calls() {
    let mut host = Host::new();
    let held = host.hold(LOCK);
    let calls = [2, 3, 4].map(|id| host.acquire_as(LockId(id), LOCK, Wait::Forever));
    assert_eq!(host.told()[1..], ["waiting 1", "waiting 2", "waiting 3"]);
    let mut lease = held.lease;
    for (call, id) in calls.into_iter().zip([2, 3, 4]) {
        host.advance(ms(700));
        host.release(lease);
        let grant = host.grant(call);
        lease = grant.lease;
        assert_eq!((grant.token.get(), host.answered(call)), (id, host.now));
    }
    host.release(lease);
    assert!(!host.is_taken(LOCK) && host.engine.is_idle());
    assert_nobody_waits(&host);
}
