//! What the suites of other locks on several servers try: node-redlock, redsync, Redisson's `RedLock`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::future::join_all;
use leasehold::{Lease, Locker};
use leasehold_tests::{Admin, RedisServer, Stopwatch, crowding, eventually, steady};

use crate::quorum::{TIMEOUT, TTL, held_at, start, urls};
use crate::{LIMIT, lock_key, millis};

use super::BOUND;

/// Somebody else who has the lock at these servers alone, and keeps it.
pub(super) async fn taken(servers: &[RedisServer], which: &[usize], name: &str) -> Vec<Lease> {
    let leases = which.iter().map(async |at| {
        let locker = Locker::connect(servers[*at].url())
            .await
            .expect("it is there");
        let lock = locker.lock(name).expect("valid");
        lock.acquire().await.expect("it is free")
    });
    join_all(leases).await
}

/// When the lease of each server is over, by its clock; `None` where there is none of this token.
async fn expiries(servers: &[RedisServer], name: &str) -> Vec<Option<(String, Duration)>> {
    let found = servers.iter().map(async |server| {
        let mut admin = Admin::connect(server).await;
        let tenure = admin.tenure(&lock_key(name)).await?;
        Some((tenure.client, tenure.expires))
    });
    join_all(found).await
}

async fn locker(servers: &[RedisServer]) -> Locker {
    let builder = Locker::builder().command_timeout(TIMEOUT);
    let locker = builder.quorum(urls(servers)).await;
    locker.expect("a majority is there")
}

/// node-redlock acquires, extends and releases; redsync extends: all servers have it, and for longer.
#[tokio::test]
async fn a_longer_lease_is_longer_at_all_servers_and_gone_from_all() {
    let servers = start(3).await;
    let locker = locker(&servers).await;
    let lease = locker
        .lock("x")
        .expect("valid")
        .acquire()
        .await
        .expect("free");
    let everywhere = async || expiries(&servers, "x").await.iter().all(Option::is_some);
    eventually(LIMIT, "it to be held everywhere", everywhere).await;
    let before = expiries(&servers, "x").await;
    lease.renew_for(millis(50_000)).await.expect("it is held");
    let longer = async || {
        let after = expiries(&servers, "x").await;
        let mut pairs = before.iter().flatten().zip(after.iter().flatten());
        pairs.all(|(before, after)| before.0 == after.0 && before.1 + millis(10_000) < after.1)
    };
    eventually(LIMIT, "it to be longer everywhere", longer).await;
    let refused = locker.lock("x").expect("valid").try_acquire().await;
    assert!(refused.expect("an answer").is_none());
    lease.release().await.expect("it is held");
    let all: Vec<_> = servers.iter().collect();
    let nothing = async || held_at(&all).await == 0;
    eventually(LIMIT, "nothing to be left", nothing).await;
}

/// node-redlock: a minority where somebody else has it is left as it is, and keeps nobody from it.
#[tokio::test]
async fn where_a_minority_is_taken_the_rest_is_enough() {
    let servers = start(3).await;
    let others = taken(&servers, &[2], "x").await;
    let locker = locker(&servers).await;
    let theirs = expiries(&servers, "x").await[2]
        .clone()
        .expect("it is held");
    let lock = locker.lock("x").expect("valid");
    let lease = lock.acquire().await.expect("two are free");
    lease.renew_for(millis(50_000)).await.expect("two have it");
    let found = expiries(&servers, "x").await;
    let (one, other) = (found[0].clone(), found[1].clone());
    assert_eq!(one.expect("held").0, other.expect("held").0);
    assert_eq!(found[2].clone().expect("held").0, theirs.0);
    lease.release().await.expect("two have it");
    let rest = [&servers[0], &servers[1]];
    let nothing = async || held_at(&rest).await == 0;
    eventually(LIMIT, "nothing to be left", nothing).await;
    assert!(others[0].is_valid());
    assert_eq!(
        expiries(&servers, "x").await[2].clone().expect("held").0,
        theirs.0
    );
}

/// redsync: whichever servers are taken, the free ones decide; what falls short leaves nothing behind.
#[tokio::test]
async fn each_majority_is_enough_and_no_minority_is() {
    steady(each_majority_is_enough).await;
}

async fn each_majority_is_enough() {
    let servers = start(5).await;
    // It is about servers that refuse, not about slow ones.
    let builder = Locker::builder().command_timeout(LIMIT);
    let locker = builder.quorum(urls(&servers)).await.expect("all are there");
    for mask in 0..32_u32 {
        let name = format!("mask-{mask}");
        let clogged: Vec<_> = (0..5).filter(|at| mask & (1 << at) != 0).collect();
        let others = taken(&servers, &clogged, &name).await;
        let lease = locker.lock(&name).expect("valid").try_acquire().await;
        let lease = lease.expect("all are there");
        assert_eq!(lease.is_some(), clogged.len() <= 2, "{clogged:?}");
        let held = lease.as_ref().map_or(0, |_| 5 - clogged.len());
        let other_clients = async || {
            let found = expiries(&servers, &name).await;
            found.into_iter().flatten().count() - clogged.len() == held
        };
        eventually(LIMIT, "what it holds, and no more", other_clients).await;
        if let Some(lease) = lease {
            lease.release().await.expect("a majority has it");
        }
        assert!(others.iter().all(Lease::is_valid));
    }
}

/// node-redlock: when most of the servers hang, an acquisition ends nevertheless.
#[tokio::test]
async fn a_majority_that_hangs_is_no_reason_to_hang() {
    let servers = start(3).await;
    let locker = locker(&servers).await;
    servers[..2].iter().for_each(RedisServer::pause);
    let watch = Stopwatch::start();
    let lock = locker.lock("x").expect("valid");
    let error = lock.try_acquire().await.expect_err("one is too few");
    assert!(watch.elapsed() < BOUND, "{:?}: {error}", watch.elapsed());
    servers[..2].iter().for_each(RedisServer::resume);
    let lease = lock.acquire_within(LIMIT).await.expect("all are back");
    lease
        .expect("it is free")
        .release()
        .await
        .expect("all are back");
}

/// Redisson: a majority is somebody else's, one waits for it without end, and who does not wait is refused; both
/// get it once it is free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_a_majority_is_taken_one_waits_and_one_is_refused() {
    let servers = start(3).await;
    let others = taken(&servers, &[1, 2], "x").await;
    let (one, other) = (locker(&servers).await, locker(&servers).await);
    let waits = tokio::spawn(async move {
        let lease = one.lock("x").expect("valid").acquire().await;
        lease.expect("it is free in the end").release().await
    });
    let lock = other.lock("x").expect("valid");
    for _ in 0..5 {
        assert!(lock.try_acquire().await.expect("an answer").is_none());
        tokio::time::sleep(millis(50)).await;
    }
    let none = lock.acquire_within(millis(200)).await;
    assert!(none.expect("an answer").is_none());
    assert!(!waits.is_finished());
    for lease in others {
        lease.release().await.expect("it is held");
    }
    waits.await.expect("no panic").expect("all are there");
    let lease = lock.acquire_within(LIMIT).await.expect("all are there");
    assert!(lease.is_some());
}

/// Redisson: a lease that is not renewed, a crowd that takes turns, each with a limit to its waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_with_fixed_leases_counts_right() {
    let servers = start(3).await;
    let counter = Arc::new(AtomicU32::new(0));
    let crowd = (0..10).map(|_| {
        let (urls, counter) = (urls(&servers), counter.clone());
        tokio::spawn(async move {
            let builder = Locker::builder().command_timeout(LIMIT);
            let locker = builder.quorum(urls).await.expect("all are there");
            let lock = locker.lock("x").expect("valid").fixed().ttl(TTL * 15);
            let mut turns = 0;
            while turns < 5 {
                let lease = lock.acquire_within(millis(400) * crowding()).await;
                let Some(lease) = lease.expect("all are there") else {
                    continue;
                };
                let next = counter.load(Ordering::Relaxed) + 1;
                tokio::time::sleep(millis(10)).await;
                assert!(lease.is_valid());
                counter.store(next, Ordering::Relaxed);
                lease.release().await.expect("all are there");
                turns += 1;
            }
        })
    });
    for one in join_all(crowd.collect::<Vec<_>>()).await {
        one.expect("no panic");
    }
    assert_eq!(counter.load(Ordering::Relaxed), 50);
}

/// Redisson: with a server gone, one has it for a while, and another gets it then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_server_gone_it_goes_from_one_to_the_other() {
    let mut servers = start(3).await;
    let (one, other) = (locker(&servers).await, locker(&servers).await);
    servers[2].kill();
    let first = one.lock("x").expect("valid").acquire().await;
    let first = first.expect("two are there");
    let waits = tokio::spawn(async move {
        let lease = other.lock("x").expect("valid").acquire().await;
        lease.expect("two are there")
    });
    tokio::time::sleep(millis(300)).await;
    assert!(!waits.is_finished());
    let token = first.token();
    first.release().await.expect("two are there");
    let second = waits.await.expect("no panic");
    assert!(second.token() > token);
}
