//! A quorum of real servers of which some fail: how long calls take, and who holds.

mod crowds;
mod line;
mod peers;
mod reach;
mod tls;

use std::future::Future;
use std::time::Duration;

use futures::future::join_all;
use leasehold::{ErrorKind, LeaseEvent, Locker};
use leasehold_tests::{Proxy, RedisServer, Stopwatch, eventually, next_event, steady};

use crate::quorum::{Fault, TIMEOUT, TTL, fail, held_at, start};
use crate::{LIMIT, in_line, millis};

/// The documented bound while a minority does not answer: a call takes one timeout longer. The rest allows
/// for a busy machine.
const BOUND: Duration = TIMEOUT.saturating_add(Duration::from_millis(700));
/// The bound for a waiter at a server that falls silent. It notices when it next confirms its place: within 1
/// s for leases of this time to live.
const LINE_BOUND: Duration = BOUND.saturating_add(Duration::from_secs(1));

/// The bound for a waiter at a server that only returns errors. It leaves when its patience is over, and
/// tries twice more.
const ERRORS_BOUND: Duration = LINE_BOUND.saturating_add(PATIENCE).saturating_add(PATIENCE);
const PATIENCE: Duration = Duration::from_millis(1_500);

/// Servers behind proxies, as one client reaches them.
struct Reach(Vec<Proxy>);

impl Reach {
    async fn of(servers: &[RedisServer]) -> Self {
        Self(join_all(servers.iter().map(|server| Proxy::start(server.port()))).await)
    }

    async fn locker(&self) -> Locker {
        let builder = Locker::builder().command_timeout(TIMEOUT);
        let urls: Vec<_> = self.0.iter().map(Proxy::url).collect();
        let locker = builder.patience(PATIENCE).quorum(urls).await;
        locker.expect("a majority is up")
    }

    /// Makes these servers unreachable from now on.
    async fn lose(&self, which: &[usize]) {
        for at in which {
            self.0[*at].refuse(true);
            self.0[*at].cut().await;
        }
    }

    fn regain(&self) {
        for proxy in &self.0 {
            proxy.refuse(false);
        }
    }

    fn slow(&self, which: &[usize], latency: Duration) {
        for at in which {
            self.0[*at].latency(latency);
        }
    }
}

/// Runs a call and checks that it takes no longer than the bound.
async fn timed<T>(what: &str, bound: Duration, call: impl Future<Output = T>) -> T {
    let watch = Stopwatch::start();
    let done = call.await;
    let took = watch.elapsed();
    println!("{what}: {took:?}");
    assert!(took <= bound, "{what}: {took:?}");
    done
}

/// Catches a minority that delays calls for longer than the documentation says.
async fn is_delayed_by(name: &str, first: bool, fault: Option<Fault>) {
    let mut servers = start(5).await;
    // Whichever two of five fail, the line may be at one of them.
    let failing = if first { [0, 1] } else { [3, 4] };
    let reach = Reach::of(&servers).await;
    let (one, other) = (reach.locker().await, reach.locker().await);
    let (lock, next) = (one.lock("x"), other.lock("x"));
    let (lock, next) = (lock.expect("valid").ttl(TTL), next.expect("valid").ttl(TTL));
    let what = |call: &str| format!("two of five, {name} (first: {first}), {call}");
    let mut events = lock.events();
    let lease = lock.acquire().await.expect("all are up");
    let waiter = tokio::spawn({
        let next = next.clone();
        async move { next.acquire().await }
    });
    in_line(&one, "x").await;
    match fault {
        Some(fault) => {
            for at in failing {
                fail(&mut servers[at], fault).await;
            }
        }
        None => reach.slow(&failing, millis(1_500)),
    }
    timed(&what("renew"), BOUND, lease.renew())
        .await
        .expect("three are up");
    let renewed = |event: &LeaseEvent| matches!(event, LeaseEvent::Renewed { .. });
    next_event(&mut events, LIMIT, renewed).await;
    let token = lease.token();
    timed(&what("release"), BOUND, lease.release())
        .await
        .expect("three are up");
    let bound = match fault {
        Some(Fault::ReadOnly) => ERRORS_BOUND,
        _ => LINE_BOUND,
    };
    let lease = timed(&what("handoff"), bound, waiter)
        .await
        .expect("no panic")
        .unwrap_or_else(|error| panic!("{}: {error}", what("handoff")));
    assert!(lease.token() > token && lease.is_valid());
    let refused = timed(&what("refusal"), BOUND, lock.try_acquire()).await;
    assert!(refused.expect("three are up").is_none());
    timed(&what("release"), BOUND, lease.release())
        .await
        .expect("three are up");
    let lease = timed(&what("acquire"), BOUND, lock.acquire()).await;
    let lease = lease.expect("three are up");
    lease.release().await.expect("three are up");
    if let Some(Fault::Paused) = fault {
        servers.iter().for_each(RedisServer::resume);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_that_are_down_delay_no_call() {
    is_delayed_by("down", true, Some(Fault::Down)).await;
    is_delayed_by("down", false, Some(Fault::Down)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_paused_servers_delay_calls_by_one_timeout() {
    is_delayed_by("paused", true, Some(Fault::Paused)).await;
    is_delayed_by("paused", false, Some(Fault::Paused)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_slow_servers_delay_calls_by_one_timeout() {
    for first in [true, false] {
        steady(async || is_delayed_by("slowed", first, None).await).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_replicas_delay_calls_by_the_patience() {
    is_delayed_by("read-only", true, Some(Fault::ReadOnly)).await;
    is_delayed_by("read-only", false, Some(Fault::ReadOnly)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_emptied_servers_delay_no_call() {
    is_delayed_by("emptied", true, Some(Fault::Emptied)).await;
    is_delayed_by("emptied", false, Some(Fault::Emptied)).await;
}

/// Catches a late execution, by servers that return, of a call that failed long ago.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_missing_servers_are_an_error_in_time_and_keep_nothing() {
    for paused in [true, false] {
        let servers = start(5).await;
        let reach = Reach::of(&servers).await;
        let locker = reach.locker().await;
        let lock = locker.lock("x").expect("valid");
        let away = [0, 2, 4];
        if paused {
            for at in away {
                servers[at].pause();
            }
        } else {
            reach.slow(&away, millis(1_500));
        }
        let what = format!("three of five away (paused: {paused})");
        let error = timed(&what, BOUND, lock.try_acquire()).await;
        let error = error.expect_err("two are too few");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let text = error.to_string();
        for says in [
            "3 of 5 servers are missing",
            "server 1:",
            "server 3:",
            "server 5:",
        ] {
            assert!(text.contains(says), "{text}");
        }
        // A waiting call goes on for its whole patience.
        let bound = PATIENCE + BOUND;
        let waited = timed(&format!("{what}, waiting"), bound, lock.acquire()).await;
        assert_eq!(waited.expect_err("as above").kind(), ErrorKind::Unavailable);
        if paused {
            for at in away {
                servers[at].resume();
            }
        } else {
            reach.slow(&away, Duration::ZERO);
        }
        // The time to live is longer than the limit: no lease has expired by itself.
        let nothing = async || held_at(&servers).await == 0;
        eventually(LIMIT, "nothing is left", nothing).await;
        let again = lock.acquire_within(LIMIT).await.expect("all are back");
        again
            .expect("a free lock")
            .release()
            .await
            .expect("all are back");
    }
}
