//! The program's view of waiting: its place in line, and how long it waited.

use std::time::{Instant, SystemTime};

use leasehold::LeaseEvent;
use leasehold_tests::{Admin, RedisServer, eventually, within};
use tokio_stream::StreamExt;

use crate::{LIMIT, connect, held, in_line, lock, millis, served, subscribed, waiting};

/// Catches missing or wrong places. The event comes when a place is taken, and when a heartbeat finds a
/// change: every three seconds for a time to live of six, which survives if the machine stands still for two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn places_count_down() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let (one, other) = (connect(&server).await, connect(&server).await);
    let mut holder = held(&lock(&one, "x", "holder")).await;
    let mut ahead = Vec::new();
    for i in 0..2 {
        let lock = lock(&one, "x", &format!("w{i}")).ttl(millis(6_000));
        ahead.push(waiting(&lock));
        in_line(&mut admin, "x", i + 1).await;
    }
    let last = lock(&other, "x", "last").ttl(millis(6_000));
    let mut events = last.events();
    let lease = waiting(&last);
    let mut position = async || {
        let event = within(LIMIT, events.next()).await;
        match event.expect("in time").expect("the lock has handles") {
            LeaseEvent::Waiting { name, position } => {
                assert_eq!(name.as_str(), "x");
                position
            }
            LeaseEvent::Acquired { token, .. } => {
                assert!(token.get() > 0);
                None
            }
            event => panic!("{event:?} came"),
        }
    };
    assert_eq!(position().await, Some(3));
    for (place, next) in [2, 1].into_iter().zip(ahead) {
        holder.release().await.expect("a held lock");
        holder = served(next, LIMIT).await;
        assert_eq!(position().await, Some(place));
    }
    holder.release().await.expect("a held lock");
    let lease = served(lease, LIMIT).await;
    assert_eq!(position().await, None, "the lock is acquired");
    assert!(lease.is_valid());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_has_the_time_it_waited_and_when_it_began() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let (one, other) = (connect(&server).await, connect(&server).await);
    let before = SystemTime::now();
    let holder = held(&lock(&one, "x", "holder")).await;
    assert!(holder.waited() < millis(2_000), "{:?}", holder.waited());
    // Tenures are measured by another clock than the wall clock, which may differ slightly.
    assert!(holder.began() + millis(20) >= before);
    let asked = Instant::now();
    let next = waiting(&lock(&other, "x", "next"));
    in_line(&mut admin, "x", 1).await;
    subscribed(&mut admin, 2).await;
    tokio::time::sleep(millis(700)).await;
    // The time of a handoff is known as exactly as the quickest reply has shown the server's clock.
    let quick = async || {
        let begin = Instant::now();
        other.inspect("x").await.expect("an answer");
        begin.elapsed() < millis(10)
    };
    eventually(LIMIT, "a quick reply arrives", quick).await;
    let (waited_at_least, released) = (millis(700), SystemTime::now());
    holder.release().await.expect("a held lock");
    let lease = served(next, LIMIT).await;
    let waited = lease.waited();
    assert!(
        waited >= waited_at_least && waited <= asked.elapsed(),
        "{waited:?}"
    );
    let began = lease.began();
    assert!(
        began + millis(20) >= released,
        "{began:?} before {released:?}"
    );
    assert!(began <= SystemTime::now());
    let held_for = began.elapsed().expect("the tenure began before");
    assert!(held_for < LIMIT, "{held_for:?}");
}
