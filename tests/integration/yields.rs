//! Asking a holder to yield, waiting until a lock is wanted, and how long the lock takes to change hands.

use std::future::IntoFuture as _;
use std::time::{Duration, Instant};

use leasehold::{ErrorKind, Lease, LeaseEvent, Lock, Locker, LossReason};
use leasehold_tests::{RedisServer, within};
use tokio::time::{sleep, timeout};
use tokio_stream::StreamExt;

use crate::{LIMIT, connect, held, in_line, millis};

const TTL: Duration = Duration::from_secs(5);

/// The most that a handover may take when the holder is asked. An expiry takes about fifty times as long.
const HANDOVER: Duration = Duration::from_millis(100);

async fn acquired(lock: Lock) -> Lease {
    lock.acquire().await.expect("a lease")
}

/// Catches a request that the holder hears only at its next renewal, and a release that does not serve the line.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_changes_hands_at_once_when_its_holder_is_asked() {
    let server = RedisServer::start().await;
    let deploy = connect(&server).await;
    let new = async || {
        let locker = connect(&server).await;
        locker.lock("leader").expect("valid").ttl(TTL)
    };
    let mut lock = new().await;
    let mut lease = acquired(lock.clone()).await;
    let mut took = Vec::new();
    for _ in 0..9 {
        // A waiter alone would do, too, with the next renewal.
        let mut events = lock.events();
        lock = new().await;
        let next = tokio::spawn(acquired(lock.clone()));
        in_line(&deploy, "leader").await;
        let leader = tokio::spawn(async move {
            while !matches!(events.next().await, Some(LeaseEvent::Wanted { .. })) {}
            lease.release().await
        });
        let asked = Instant::now();
        let request = tokio::spawn(deploy.request_yield("leader", LIMIT).into_future());
        lease = next.await.expect("no panic");
        took.push(asked.elapsed());
        leader.await.expect("no panic").expect("it held the lock");
        assert_eq!(request.await.expect("no panic"), Ok(true));
    }
    took.sort();
    assert!(took[4] < HANDOVER, "{took:?}");

    // For comparison: a holder that is silent.
    let silent = deploy.lock("silent").expect("valid").ttl(TTL).fixed();
    let (kept, began) = (acquired(silent.clone()).await, Instant::now());
    let next = within(TTL * 2, silent.acquire()).await;
    let expired = began.elapsed();
    assert!(next.is_some_and(|next| next.is_ok()));
    assert!(expired > took[4] * 20, "{expired:?}, {took:?}");
    assert_eq!(kept.lost().await.reason, LossReason::Expired);
}

/// Catches a call that resolves although nobody waits, later than the next renewal, or not at all for a fixed lease.
#[tokio::test(start_paused = true)]
async fn a_waiter_is_noticed_with_the_next_renewal() {
    for fixed in [false, true] {
        let locker = Locker::in_memory();
        let lock = locker
            .lock("x")
            .expect("valid")
            .ttl(Duration::from_secs(30));
        let lock = if fixed { lock.fixed() } else { lock };
        let lease = acquired(lock.clone()).await;
        let early = timeout(Duration::from_secs(15), lease.wanted()).await;
        assert!(early.is_err(), "nobody waits: {early:?}");
        let other = locker.lock("x").expect("valid");
        let waits = tokio::spawn(async {
            sleep(millis(100)).await;
            acquired(other).await
        });
        let noticed = timeout(Duration::from_secs(11), lease.wanted()).await;
        assert_eq!(noticed, Ok(Ok(())), "fixed: {fixed}");
        drop(lease);
        drop(waits.await.expect("no panic"));
    }
}

/// Catches a call that goes on after the lease is lost, and one that gives no reason.
#[tokio::test]
async fn the_loss_of_the_lease_ends_the_wait() {
    let server = RedisServer::start().await;
    let (holder, operator) = (connect(&server).await, connect(&server).await);
    let lease = held(&holder, "x").await;
    let freed = async {
        sleep(millis(100)).await;
        operator.force_release("x").await.expect("an answer")
    };
    let (wanted, freed) = tokio::join!(lease.wanted(), freed);
    let error = wanted.expect_err("the lease was lost");
    assert!(freed.is_some() && error.is_not_held(), "{error}");
    assert!(error.to_string().contains("force-released"), "{error}");
}

/// Catches a dropped request that frees the lock by force all the same.
#[tokio::test]
async fn a_dropped_request_forces_nothing() {
    let server = RedisServer::start().await;
    let (holder, operator) = (connect(&server).await, connect(&server).await);
    let lease = held(&holder, "x").await;
    let request = operator.request_yield("x", millis(200)).force();
    let dropped = timeout(millis(100), request.into_future()).await;
    assert!(dropped.is_err());
    // The request stays for the holder.
    assert_eq!(within(LIMIT, lease.wanted()).await, Some(Ok(())));
    sleep(millis(300)).await;
    assert!(lease.is_valid());
    assert_eq!(operator.request_yield("x", millis(50)).await, Ok(false));
    assert_eq!(
        operator.request_yield("x", millis(50)).force().await,
        Ok(true)
    );
    let error = operator.request_yield("", TTL).await.expect_err("no name");
    assert_eq!(error.kind(), ErrorKind::Config);
}

/// Catches a request that is dropped because the one before it, which was answered, has not quite ended at the store.
#[tokio::test]
async fn a_request_right_after_a_refused_one_reaches_the_holder() {
    let server = RedisServer::start().await;
    let (holder, operator) = (connect(&server).await, connect(&server).await);
    for turn in 0..10 {
        let name = format!("x {turn}");
        let lease = held(&holder, &name).await;
        assert_eq!(operator.request_yield(&name, millis(20)).await, Ok(false));
        let again = tokio::spawn(operator.request_yield(&name, LIMIT).into_future());
        sleep(millis(100)).await;
        let seen = operator.inspect(&name).await.expect("it can be inspected");
        assert!(
            seen.wanted.is_some(),
            "turn {turn}: the second request was dropped"
        );
        lease.release().await.expect("it is held");
        assert_eq!(again.await.expect("no panic"), Ok(true));
    }
}
