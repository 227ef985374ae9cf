//! Clocks whose rates differ.

use std::task::Poll;
use std::time::Duration;

use super::host::{Host, LOCK, TTL, ms};
use crate::engine::{Hub, LockId, ReaderId, Settings};
use crate::event::LeaseEvent;
use crate::protocol::ClientId;
use crate::time::{ServerTime, Timestamp};

/// The rate at which chrony slews by default, in parts per million.
const SLEWING: u64 = 83_333;

/// Returns a host with regular traffic: it renews a lock of half a second.
fn busy() -> Host {
    let mut host = Host::new();
    host.back = Duration::from_micros(200);
    host.hold(LOCK);
    host.ttl = ms(500);
    host.hold(LockId(2));
    host
}

/// Lets time pass while the store's clock runs fast.
fn slew(host: &mut Host, time: Duration) {
    let end = host.now + time;
    while host.now < end {
        host.advance(ms(10));
        host.epoch += 10_000 * SLEWING / 1_000_000;
    }
}

/// The server's time at a later local time, at the current rates.
fn server_at(host: &Host, moment: Timestamp) -> ServerTime {
    let left = moment.since(host.now);
    let nanos = u64::try_from(left.as_nanos()).expect("a short time");
    host.server_now() + left + Duration::from_nanos(nanos * SLEWING / 1_000_000)
}

/// Catches a margin that stays the same, and holders that count on its promises: the store would free their
/// lock two seconds before they stop using it.
#[test]
fn once_slewing_is_noticed_leases_end_before_the_store_frees_them() {
    let mut host = busy();
    let is_safe = |host: &Host| {
        server_at(host, host.held_until(LOCK)) <= host.expiry(LOCK).expect("the lock is held")
    };
    host.advance(TTL / 2);
    assert!(host.notices.is_empty());
    slew(&mut host, ms(100));
    assert!(!is_safe(&host), "no one can know yet");
    slew(&mut host, ms(1_900));
    assert_eq!(host.notices.len(), 1, "{:?}", host.notices);
    assert!(is_safe(&host));
    slew(&mut host, TTL);
    assert_eq!(host.notices.len(), 1, "{:?}", host.notices);
    assert!(is_safe(&host) && host.is_held(LOCK));
}

/// Another server's clock may show any time, and run at another rate.
#[test]
fn the_clocks_of_a_cluster_are_not_compared() {
    let mut host = Host::new();
    host.engine.single_mut().env.cx.settings.clustered = true;
    host.ttl = ms(500);
    host.hold(LOCK);
    slew(&mut host, TTL);
    assert!(host.notices.is_empty());
}

#[test]
fn the_margin_is_what_deadlines_leave() {
    let mut host = Host::with_margin(100_000);
    let deadline = host.hold(LOCK).deadline;
    assert_eq!(deadline.since(host.now), TTL * 9 / 10);
}

#[test]
fn a_margin_out_of_bounds_is_refused_with_its_name_and_the_bounds() {
    for margin in [0, 999, 250_001, u32::MAX] {
        let mut settings = Settings::new(ClientId(7));
        settings.drift_margin = margin;
        let error = settings.checked().expect_err("the margin is out of bounds");
        assert!(error.is_config());
        let says = error.to_string();
        assert!(
            says.contains("drift_margin must be from 1000 to 250000"),
            "{says}"
        );
    }
}

/// Catches an event that a reader misses for good because it subscribed later, or was slow.
#[test]
fn readers_of_all_locks_are_told_whenever_they_subscribe() {
    let (one, all, late) = (ReaderId(1), ReaderId(2), ReaderId(3));
    let mut host = busy();
    let mut hub = Hub::<()>::default();
    hub.subscribe(one, Some(LOCK), &host.engine, host.now);
    hub.subscribe(all, None, &host.engine, host.now);
    slew(&mut host, ms(2_000));
    for notice in &host.notices {
        hub.notify(notice);
    }
    hub.subscribe(late, None, &host.engine, host.now);
    let mut drifts = |reader| {
        let mut count = 0;
        while let Poll::Ready(Some(event)) = hub.poll(reader, &host.engine, host.now, &mut None) {
            count += usize::from(matches!(event, LeaseEvent::ClockDrift { .. }));
        }
        count
    };
    assert_eq!([one, all, late].map(&mut drifts), [0, 1, 1]);
}
