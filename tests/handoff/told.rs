//! How long a program is told that a waiter waited.

use std::time::{Instant, SystemTime};

use leasehold_tests::{Admin, RedisServer, eventually};

use crate::{LIMIT, connect, held, in_line, lock, millis, served, subscribed, waiting};

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
    let seen = one.inspect("x").await.expect("an answer");
    let (shown, most) = (seen.line[0].waited, asked.elapsed());
    assert!(shown >= millis(600) && shown <= most, "{shown:?}");
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
