//! Cases from the test suites of other locks on several servers: node-redlock, redsync, Redisson's `RedLock`.

use std::time::Duration;

use futures::future::join_all;
use leasehold::{Lease, Locker};
use leasehold_tests::{Admin, RedisServer, eventually};

use crate::quorum::{TIMEOUT, held_at, start, urls};
use crate::{LIMIT, held, lock_key, millis};

/// Takes the lock at these servers alone, as another client, and keeps it.
pub(super) async fn taken(servers: &[RedisServer], which: &[usize], name: &str) -> Vec<Lease> {
    let leases = which.iter().map(async |at| {
        let locker = Locker::connect(servers[*at].url())
            .await
            .expect("the server is up");
        let lock = locker.lock(name).expect("valid");
        lock.acquire().await.expect("a free lock")
    });
    join_all(leases).await
}

/// Returns the lease of each server and when it expires by the server's clock; `None` if the server has none.
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
    locker.expect("a majority is up")
}

/// From node-redlock (acquire, extend, release) and redsync (extend): all servers extend the lease.
#[tokio::test]
async fn a_longer_lease_is_longer_at_all_servers_and_gone_from_all() {
    let servers = start(3).await;
    let locker = locker(&servers).await;
    let lease = held(&locker, "x").await;
    let everywhere = async || expiries(&servers, "x").await.iter().all(Option::is_some);
    eventually(LIMIT, "all servers have the lock", everywhere).await;
    let before = expiries(&servers, "x").await;
    lease.renew_for(millis(50_000)).await.expect("a held lock");
    let longer = async || {
        let after = expiries(&servers, "x").await;
        let mut pairs = before.iter().flatten().zip(after.iter().flatten());
        pairs.all(|(before, after)| before.0 == after.0 && before.1 + millis(10_000) < after.1)
    };
    eventually(LIMIT, "all servers extend the lease", longer).await;
    let refused = locker.lock("x").expect("valid").try_acquire().await;
    assert!(refused.expect("an answer").is_none());
    lease.release().await.expect("a held lock");
    let nothing = async || held_at(&servers).await == 0;
    eventually(LIMIT, "nothing is left", nothing).await;
}

/// From redsync: whichever servers are taken, a free majority suffices, and a failed attempt leaves nothing
/// behind.
#[tokio::test]
async fn each_majority_is_enough_and_no_minority_is() {
    let servers = start(5).await;
    // The test is about servers that refuse, not about slow ones.
    let builder = Locker::builder().command_timeout(LIMIT);
    let locker = builder.quorum(urls(&servers)).await.expect("all are up");
    for mask in 0..32_u32 {
        let name = format!("mask-{mask}");
        let clogged: Vec<_> = (0..5).filter(|at| mask & (1 << at) != 0).collect();
        let others = taken(&servers, &clogged, &name).await;
        let lock = locker.lock(&name).expect("valid");
        let mut lease = None;
        let mut tries = async || {
            lease = lock.try_acquire().await.expect("all are up");
            lease.is_some()
        };
        if clogged.len() <= 2 {
            // On a busy machine a try may end before the servers that are free have answered.
            eventually(LIMIT, &format!("{clogged:?} do not matter"), tries).await;
        } else {
            assert!(!tries().await, "{clogged:?}");
        }
        let held = lease.as_ref().map_or(0, |_| 5 - clogged.len());
        let other_clients = async || {
            let found = expiries(&servers, &name).await;
            found.into_iter().flatten().count() - clogged.len() == held
        };
        eventually(LIMIT, "only its own votes are left", other_clients).await;
        if let Some(lease) = lease {
            lease.release().await.expect("a majority has it");
        }
        assert!(others.iter().all(Lease::is_valid));
    }
}

/// From Redisson: while another client holds a majority, one caller waits without end, and one that does not
/// wait is refused. Both get the lock once it is free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_majority_is_held_one_caller_waits_and_one_is_refused() {
    let servers = start(3).await;
    let others = taken(&servers, &[1, 2], "x").await;
    let (one, other) = (locker(&servers).await, locker(&servers).await);
    let waits = tokio::spawn(async move {
        let lease = one.lock("x").expect("valid").acquire().await;
        lease.expect("the lock is free in the end").release().await
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
        lease.release().await.expect("a held lock");
    }
    waits.await.expect("no panic").expect("all are up");
    let lease = lock.acquire_within(LIMIT).await.expect("all are up");
    assert!(lease.is_some());
}
