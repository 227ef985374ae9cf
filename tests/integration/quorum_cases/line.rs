//! The line of a quorum: all lockers agree on its server, whatever the order of their lists and whichever
//! server is slow.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::TryStreamExt;
use futures::future::join_all;
use leasehold::{LeaseEvent, Locker};
use leasehold_tests::{Stopwatch, crowding, next_event, steady, within};

use super::peers::taken;
use super::{Reach, timed};
use crate::quorum::{Fault, TIMEOUT, TTL, fail, start, urls};
use crate::{LIMIT, millis};

/// The longest that an acquisition may take on a busy machine while one server is slow, refuses, or is held
/// by a dead client.
const BESIDE: Duration = Duration::from_millis(250);

/// A time to live that a busy machine does not exceed between two renewals or heartbeats.
const LONG_TTL: Duration = Duration::from_secs(10);

async fn quorum(urls: Vec<String>) -> Locker {
    let builder = Locker::builder().command_timeout(TIMEOUT);
    builder.quorum(urls).await.expect("all are up")
}

/// Takes the lock again and again until it is over. Returns how often.
async fn turns(locker: Locker, over: Arc<AtomicBool>) -> u64 {
    let lock = locker.lock("x").expect("valid").ttl(TTL);
    let mut turns = 0;
    while !over.load(Ordering::Relaxed) {
        let lease = lock.acquire().await.expect("a majority is up");
        turns += 1;
        lease.release().await.expect("a majority is up");
    }
    turns
}

/// Returns how many turns each of these lockers has within the time.
async fn turns_within(time: Duration, lockers: Vec<Locker>) -> Vec<u64> {
    let over = Arc::new(AtomicBool::new(false));
    let all = lockers
        .into_iter()
        .map(|locker| tokio::spawn(turns(locker, over.clone())));
    let all: Vec<_> = all.collect();
    tokio::time::sleep(time).await;
    over.store(true, Ordering::Relaxed);
    let all = within(LIMIT, join_all(all)).await.expect("in time");
    all.into_iter()
        .map(|turns| turns.expect("no panic"))
        .collect()
}

/// Catches callers that do not wait and that take the lock again and again while others wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_waiters_are_served_while_six_callers_try_all_the_time() {
    let servers = start(3).await;
    let (over, won) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let locks = (0..27).map(|_| async {
        let locker = Locker::quorum(urls(&servers)).await.expect("all are up");
        locker.lock("x").expect("valid").ttl(LONG_TTL)
    });
    let mut locks = join_all(locks).await;
    let first = locks.pop().expect("one of 27");
    let first = first.acquire().await.expect("a free lock");
    let mut joined = Vec::new();
    let waiters = locks.split_off(6).into_iter().map(|lock| {
        joined.push(lock.events());
        tokio::spawn(async move {
            let lease = lock.acquire().await.expect("all are up");
            tokio::time::sleep(millis(5)).await;
            lease.release().await.expect("all are up");
        })
    });
    let waiters: Vec<_> = waiters.collect();
    for events in &mut joined {
        let is_in_line = |event: &_| {
            matches!(
                event,
                LeaseEvent::Waiting {
                    position: Some(_),
                    ..
                }
            )
        };
        next_event(events, LIMIT * 3, is_in_line).await;
    }
    let tries = locks.into_iter().map(|lock| {
        let (over, won) = (over.clone(), won.clone());
        tokio::spawn(async move {
            while !over.load(Ordering::Relaxed) {
                if let Some(lease) = lock.try_acquire().await.expect("all are up") {
                    won.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(millis(5)).await;
                    lease.release().await.expect("all are up");
                }
            }
        })
    });
    let tries: Vec<_> = tries.collect();
    tokio::time::sleep(millis(500)).await;
    let watch = Stopwatch::start();
    first.release().await.expect("all are up");
    let served = within(LIMIT * crowding(), join_all(waiters)).await;
    let (took, won) = (watch.elapsed(), won.load(Ordering::Relaxed));
    println!("twenty waiters were served in {took:?}, and {won} tries won");
    over.store(true, Ordering::Relaxed);
    join_all(tries).await;
    served.expect("all are served in time");
    assert!(won <= 2, "{won} tries won in {took:?}");
}

/// Catches lockers that join lines at different servers because they list them in different orders.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lockers_that_list_the_servers_in_different_orders_take_turns() {
    let servers = start(5).await;
    let lists = (0..5).map(|at| {
        let mut list = urls(&servers);
        list.rotate_left(at);
        quorum(list)
    });
    let time = Duration::from_secs(3) * crowding();
    let turns = turns_within(time, join_all(lists).await).await;
    println!("turns with lists in different orders: {turns:?}");
    let (least, most) = (turns.iter().min(), turns.iter().max());
    let (least, most) = (*least.expect("five"), *most.expect("five"));
    assert!(least >= 10 && most <= 3 * least, "{turns:?}");
}

/// Catches an acquisition that waits for one server although the others granted the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_single_server_delays_an_acquisition() {
    for at in 0..3 {
        steady(async || delays_no_acquisition(at).await).await;
    }
}

async fn delays_no_acquisition(at: usize) {
    for fault in [None, Some(Fault::ReadOnly)] {
        let mut servers = start(3).await;
        let reach = Reach::of(&servers).await;
        let lock = reach.locker().await.lock("x").expect("valid").ttl(TTL);
        let lease = lock.acquire().await.expect("all are up");
        lease.release().await.expect("all are up");
        match fault {
            Some(fault) => fail(&mut servers[at], fault).await,
            None => reach.slow(&[at], millis(200)),
        }
        for round in 0..3 {
            let what = format!("acquire beside server {at} with {fault:?}, round {round}");
            let lease = timed(&what, BESIDE, lock.acquire()).await;
            let lease = lease.expect("two are up");
            lease.release().await.expect("two are up");
        }
    }
    let servers = start(3).await;
    let locker = quorum(urls(&servers)).await;
    let lock = locker.lock("x").expect("valid").ttl(TTL);
    let lease = lock.acquire().await.expect("all are up");
    lease.release().await.expect("all are up");
    let strangers = taken(&servers, &[at], "x").await;
    for round in 0..3 {
        let what = format!("beside a stranger at server {at}, round {round}");
        let lease = timed(&format!("acquire {what}"), BESIDE, lock.acquire()).await;
        let lease = lease.expect("two servers are free");
        lease.release().await.expect("two servers have the lock");
        // One of the two may still be about to execute the earlier release.
        let tries = async {
            loop {
                if let Some(lease) = lock.try_acquire().await.expect("two answer") {
                    break lease;
                }
            }
        };
        let lease = timed(&format!("try {what}"), BESIDE, tries).await;
        lease.release().await.expect("two servers have the lock");
    }
    drop(strangers);
}

/// Catches a locker that cannot reach the server with the line and is served before the waiters there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locker_that_cannot_reach_one_server_hardly_overtakes() {
    for missing in 0..3 {
        let servers = start(3).await;
        let reach = Reach::of(&servers).await;
        let mut lockers = join_all((0..4).map(|_| quorum(urls(&servers)))).await;
        lockers.push(reach.locker().await);
        // This locker knows all servers before.
        let lock = lockers[4].lock("x").expect("valid").ttl(TTL);
        let lease = lock.acquire().await.expect("all are up");
        lease.release().await.expect("all are up");
        reach.lose(&[missing]).await;
        let turns = turns_within(Duration::from_secs(2), lockers).await;
        println!("turns; the last cannot reach server {missing}: {turns:?}");
        let average = turns[..4].iter().sum::<u64>() / 4;
        assert!(turns[4] <= average + average / 2, "{turns:?}");
    }
}

/// Catches a list that waits for a silent server for the locker's whole patience.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_waits_for_a_silent_server_for_one_command() {
    let servers = start(3).await;
    let locker = quorum(urls(&servers)).await;
    let lock = locker
        .lock("x")
        .expect("valid")
        .ttl(Duration::from_secs(30));
    let lease = lock.acquire().await.expect("all are up");
    servers[1].pause();
    let watch = Stopwatch::start();
    let names: Vec<_> = locker.list("*").try_collect().await.expect("two are up");
    let took = watch.elapsed();
    servers[1].resume();
    println!("a list beside a silent server: {took:?}");
    assert!(!names.is_empty());
    assert!(took < TIMEOUT * 2, "{took:?}");
    drop(lease);
}
