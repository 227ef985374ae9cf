//! Semaphores, quotas, and readers and writers on a real cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use leasehold::{LeaseEvent, Locker, Permit};
use leasehold_tests::{Admin, RedisCluster, eventually, next_event};
use tokio::task::JoinSet;

use crate::shared::within;
use crate::{LIMIT, lock_key, millis};

/// How long replicas may take to agree on a successor: if votes are missed once, they wait for eight seconds.
const FAILOVER: Duration = Duration::from_secs(30);

async fn locker(cluster: &RedisCluster) -> Locker {
    let locker = Locker::connect(cluster.url()).await;
    locker.expect("the cluster can be reached")
}

async fn waiting(locker: &Locker, name: &str, number: u32) {
    let in_line = async || {
        let seen = locker.inspect(name).await;
        seen.is_ok_and(|seen| seen.waiting == number)
    };
    eventually(LIMIT, "waiters in line", in_line).await;
}

/// Waits in line in a task.
fn wait_for_slot(locker: &Locker, name: &str) -> tokio::task::JoinHandle<Permit> {
    let semaphore = locker.semaphore(name, 2).expect("valid");
    tokio::spawn(async move { semaphore.acquire().await.expect("a permit") })
}

/// Catches a key of a shared name in another slot, which a cluster refuses, and waiters that do not hear a master.
#[tokio::test]
async fn shared_names_work_at_every_master() {
    let cluster = RedisCluster::start().await;
    let (one, other) = (locker(&cluster).await, locker(&cluster).await);
    for master in 0..3 {
        let (name, slot) = cluster.name_at(master).await;
        let gpus = one.semaphore(&name, 2).expect("valid");
        let first = gpus.acquire().await.expect("a permit");
        let second = gpus.acquire().await.expect("a permit");
        assert_eq!((first.slot(), second.slot()), (Some(0), Some(1)));
        let waits = wait_for_slot(&other, &name);
        waiting(&one, &name, 1).await;
        let keys = Admin::connect(&cluster.masters[master])
            .await
            .keys(&format!("{}*", lock_key(&name)))
            .await;
        assert!(
            keys.len() > 2,
            "the name, its holders and its line: {keys:?}"
        );
        for key in &keys {
            assert_eq!(cluster.slot(key).await, slot, "{key}");
        }
        let token = first.token();
        first.release().await.expect("it is held");
        let next = within(waits).await.expect("no panic");
        assert_eq!(next.slot(), Some(0));
        assert!(next.token() > token);
        assert_eq!(gpus.resize(3).await.expect("resized"), 2);
        let third = gpus.try_acquire().await.expect("an answer");
        assert_eq!(third.and_then(|permit| permit.slot()), Some(2));

        let quota = one.quota(format!("{name}/rows"), 500).expect("valid");
        let most = quota.acquire_many(400).await.expect("a permit");
        let other = other.quota(format!("{name}/rows"), 500).expect("valid");
        let too_much = other.try_acquire_many(101).await.expect("an answer");
        assert!(too_much.is_none() && most.is_valid());
        assert!(
            other
                .try_acquire_many(100)
                .await
                .expect("an answer")
                .is_some()
        );
    }
}

/// Catches holders, a line or the last tokens that stay behind when a slot moves: a slot would have two holders, or its
/// tokens would fall.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_semaphore_keeps_its_holders_while_its_slot_moves() {
    let cluster = RedisCluster::start().await;
    let lockers = [locker(&cluster).await, locker(&cluster).await];
    let (name, slot) = cluster.name_at(0).await;
    let first = lockers[0].semaphore(&name, 3).expect("valid");
    let first = first.ttl(millis(1_500));
    // It is held all the time.
    let held = first.acquire().await.expect("a permit");
    let others = Arc::new([const { (AtomicU32::new(0), std::sync::Mutex::new(0)) }; 3]);
    let is_over = Arc::new(AtomicBool::new(false));
    let mut callers = JoinSet::new();
    for number in 0..8 {
        let semaphore = lockers[number % 2].semaphore(&name, 3).expect("valid");
        let (others, is_over) = (others.clone(), is_over.clone());
        callers.spawn(async move {
            let mut turns = 0;
            while !is_over.load(Ordering::SeqCst) {
                let permit = semaphore.acquire().await.expect("a permit");
                let slot = usize::from(permit.slot().expect("a slot"));
                assert_ne!(slot, 0, "it is held");
                let (holders, token) = &others[slot];
                assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "{permit:?}");
                let now = permit.token().get();
                let before = std::mem::replace(&mut *token.lock().expect("no panic"), now);
                assert!(before < now, "{now} after {before}");
                tokio::task::yield_now().await;
                holders.fetch_sub(1, Ordering::SeqCst);
                permit.release().await.expect("it is held");
                turns += 1;
            }
            turns
        });
    }
    let mut events = first.events();
    for (from, to) in [(0, 1), (1, 2), (2, 0), (0, 1)] {
        cluster.move_slot(slot, from, to).await;
        let renewed = |event: &LeaseEvent| matches!(event, LeaseEvent::Renewed { .. });
        next_event(&mut events, LIMIT, renewed).await;
    }
    assert!(held.is_valid());
    is_over.store(true, Ordering::SeqCst);
    let turns: Vec<usize> = within(callers.join_all()).await;
    assert!(turns.iter().all(|turns| *turns > 0), "{turns:?}");
    held.release().await.expect("it is held");
}

/// Catches a generation that is lost when a slot moves, and readers that are let in beside a waiting writer then.
#[tokio::test]
async fn readers_and_writers_keep_their_order_while_their_slot_moves() {
    let cluster = RedisCluster::start().await;
    let (one, other) = (locker(&cluster).await, locker(&cluster).await);
    let (name, slot) = cluster.name_at(1).await;
    let (prices, others) = (one.rw_lock(&name), other.rw_lock(&name));
    let (prices, others) = (prices.expect("valid"), others.expect("valid"));
    let writer = prices.write().acquire().await.expect("a permit");
    let token = writer.token();
    writer.release().await.expect("it is held");
    let reader = prices.read().acquire().await.expect("a permit");
    let part = others.write();
    let writer = tokio::spawn(async move { part.acquire().await.expect("a permit") });
    waiting(&one, &name, 1).await;
    cluster.move_slot(slot, 1, 2).await;
    let late = prices.read().try_acquire().await.expect("an answer");
    assert!(late.is_none(), "a writer waits");
    assert_eq!(reader.generation(), Some(token));
    reader.release().await.expect("it is held");
    let writer = within(writer).await.expect("no panic");
    assert!(writer.token() > token);
    cluster.move_slot(slot, 2, 0).await;
    writer.downgrade().await.expect("it is a writer's");
    let reader = prices.read().acquire().await.expect("a permit");
    assert_eq!(reader.generation(), Some(writer.token()));
}

/// Catches a capacity, holders or a line that the replica does not have, and a locker that stays with a dead master.
#[tokio::test]
async fn a_replica_takes_over_with_the_holders_of_a_semaphore() {
    let mut cluster = RedisCluster::with_replicas().await;
    let (one, other) = (locker(&cluster).await, locker(&cluster).await);
    let (name, _) = cluster.name_at(1).await;
    let gpus = one.semaphore(&name, 1).expect("valid").ttl(FAILOVER * 2);
    gpus.resize(2).await.expect("resized");
    let first = gpus.acquire().await.expect("a permit");
    let second = gpus.acquire().await.expect("a permit");
    let waits = wait_for_slot(&other, &name);
    waiting(&one, &name, 1).await;
    cluster.replicas[1].has_all_of(&cluster.masters[1]).await;
    cluster.masters[1].kill();
    cluster.allow_failover().await;
    let mut admin = Admin::connect(&cluster.replicas[1]).await;
    let leads = async || admin.info("replication", "role").await.as_deref() == Some("master");
    eventually(FAILOVER, "the replica takes over", leads).await;
    let renewed = async || first.renew().await.is_ok() && second.renew().await.is_ok();
    eventually(FAILOVER, "both permits are renewed", renewed).await;
    let token = second.token();
    second.release().await.expect("it is held");
    let next = tokio::time::timeout(FAILOVER, waits)
        .await
        .expect("in time");
    let next = next.expect("no panic");
    assert_eq!((next.slot(), next.capacity()), (Some(1), 2));
    assert!(next.token() > token && first.is_valid());
}
