//! Waiters that die or are paused delay others by a bounded time and change no order.
//!
//! The delays take seconds, so the cases run side by side.

use std::time::Duration;

use leasehold_tests::{Admin, RedisServer, Stopwatch};

use crate::processes::{Granted, Process, Then, by_token, longest_gap, now};
use crate::{LIMIT, SLACK, connect, held, in_line, line, lock, millis, subscribed};

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_secs(2);
/// How long a claim counts as alive after a request, and how long a grant is reserved.
const LONG_WINDOW: Duration = Duration::from_secs(12);
const SHORT_WINDOW: Duration = Duration::from_millis(2_400);
/// The reserved time of a long lock if the push reached no client: half of the window.
const UNHEARD: Duration = Duration::from_secs(6);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_waiters_delay_others_by_a_bounded_time() {
    tokio::join!(
        a_killed_holder(),
        a_killed_head(),
        a_killed_half(LONG, LONG_WINDOW),
        a_killed_half(SHORT, SHORT_WINDOW),
        a_stopped_head(LONG, LONG_WINDOW),
        a_stopped_head(SHORT, SHORT_WINDOW),
    );
}

/// Prints a delay, and checks that it is within its bound plus the time in which the machine stood still.
fn bounded(what: &str, delay: Duration, bound: Duration, watch: Stopwatch) {
    println!("{what}: delayed by {delay:.1?}, of {bound:?}");
    let most = bound + SLACK + watch.stalled();
    assert!(delay <= most, "{what}: {delay:?}, not {bound:?}");
}

/// Checks that the others follow the first without a delay.
fn follow(grants: &[Granted], watch: Stopwatch) {
    let (gap, most) = (longest_gap(grants), millis(1_000) + watch.stalled());
    assert!(gap < most, "the rest follow at once: {gap:?}");
}

/// The lock expires with its time to live, and then the line goes on.
async fn a_killed_holder() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    // Long enough to survive if the machine stands still for two seconds before the kill.
    let ttl = millis(6_000);
    let mut holder = Process::start(&server, 1).await;
    holder.ask("holder", "x", ttl, Then::Hold);
    holder.granted(LIMIT).await;
    let mut others = Process::start(&server, 3).await;
    for i in 0..6 {
        others.ask(&format!("w{i}"), "x", ttl, Then::Pass);
        in_line(&mut admin, "x", i + 1).await;
    }
    let order = line(&mut admin, "x").await;
    let watch = Stopwatch::start();
    holder.0.kill9();
    let killed = now();
    let mut grants = others.grants(6, LIMIT * 2).await;
    assert_eq!(by_token(&mut grants), order);
    let delay = grants[0].at.saturating_sub(killed);
    bounded("a killed holder", delay, ttl, watch);
    assert!(delay > ttl / 3, "the lock was taken from a live holder");
    follow(&grants, watch);
}

async fn a_killed_head() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let locker = connect(&server).await;
    let holder = held(&lock(&locker, "x", "holder")).await;
    let mut head = Process::start(&server, 1).await;
    head.ask("head", "x", LONG, Then::Pass);
    in_line(&mut admin, "x", 1).await;
    let mut others = Process::start(&server, 2).await;
    for i in 0..4 {
        others.ask(&format!("w{i}"), "x", LONG, Then::Pass);
        in_line(&mut admin, "x", i + 2).await;
    }
    subscribed(&mut admin, 4).await;
    let order = line(&mut admin, "x").await;
    head.0.kill9();
    subscribed(&mut admin, 3).await;
    let watch = Stopwatch::start();
    holder.release().await.expect("a held lock");
    let released = now();
    let mut grants = others.grants(4, LIMIT * 2).await;
    assert_eq!(by_token(&mut grants), order[1..]);
    let delay = grants[0].at.saturating_sub(released);
    // The next waiter gets no push; it asks when the dead waiter's grant should be over.
    bounded("a killed head", delay, UNHEARD, watch);
    assert!(
        delay > UNHEARD / 2,
        "the dead waiter did not get its time: {delay:?}"
    );
    follow(&grants, watch);
}

/// Kills every other one of twenty. After a window the dead claims no longer count as alive; the last dead
/// waiter that got the lock before that keeps it for half a window more.
async fn a_killed_half(ttl: Duration, window: Duration) {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let locker = connect(&server).await;
    let holder = held(&lock(&locker, "x", "holder")).await;
    let mut processes = Process::start_all(&server, 2, 10).await;
    for i in 0..20 {
        processes[i % 2].ask(&format!("w{i}"), "x", ttl, Then::Pass);
        in_line(&mut admin, "x", i + 1).await;
    }
    subscribed(&mut admin, 21).await;
    processes[0].0.kill9();
    let watch = Stopwatch::start();
    holder.release().await.expect("a held lock");
    let released = now();
    let mut grants = processes[1].grants(10, LIMIT * 4).await;
    let alive: Vec<_> = (1..20).step_by(2).map(|i| format!("w{i}")).collect();
    let order = by_token(&mut grants);
    // If the machine stood still just then, a live waiter may rightly have been skipped.
    assert!(order == alive || watch.stalled() > window / 4, "{order:?}");
    let last = grants.last().expect("there are ten");
    let what = format!("ten of twenty killed, time to live {ttl:?}");
    let delay = last.at.saturating_sub(released);
    bounded(&what, delay, window + window / 2, watch);
}

/// Stops the first waiter. Its connection stays open, so the server believes that it hears.
async fn a_stopped_head(ttl: Duration, window: Duration) {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let locker = connect(&server).await;
    let holder = held(&lock(&locker, "x", "holder")).await;
    let mut head = Process::start(&server, 1).await;
    head.ask("head", "x", ttl, Then::Pass);
    in_line(&mut admin, "x", 1).await;
    let mut others = Process::start(&server, 2).await;
    for i in 0..4 {
        others.ask(&format!("w{i}"), "x", ttl, Then::Pass);
        in_line(&mut admin, "x", i + 2).await;
    }
    subscribed(&mut admin, 4).await;
    head.0.pause();
    let watch = Stopwatch::start();
    holder.release().await.expect("a held lock");
    let released = now();
    let mut grants = others.grants(4, LIMIT * 3).await;
    let expected: Vec<_> = (0..4).map(|i| format!("w{i}")).collect();
    let order = by_token(&mut grants);
    assert!(
        order == expected || watch.stalled() > window / 4,
        "{order:?}"
    );
    let what = format!("a stopped head, time to live {ttl:?}");
    let delay = grants[0].at.saturating_sub(released);
    bounded(&what, delay, window, watch);

    // It wakes too late for its grant, and waits in line again.
    head.0.resume();
    let late: Granted = head.granted(LIMIT).await;
    assert!(late.token > grants[3].token, "{late:?} after {grants:?}");
}
