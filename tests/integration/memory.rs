//! Other stores: in memory, by a Unix socket, and by a client of the program.

use leasehold::{LeaseEvent, Locker, LossReason};
use leasehold_tests::{RedisServer, unique_name};
use tokio_stream::StreamExt;

use crate::{connect, held, millis};

#[tokio::test]
async fn memory_urls_share_a_store_by_name_and_in_memory_does_not() {
    let url = format!("memory://{}", unique_name("store"));
    let one = Locker::connect(&url)
        .await
        .expect("an in-memory store is always up");
    let other = Locker::connect(&url)
        .await
        .expect("an in-memory store is always up");
    let alone = Locker::in_memory();
    let held = held(&one, "x").await;
    let rival = other.lock("x").expect("valid");
    assert!(rival.try_acquire().await.expect("an answer").is_none());
    assert!(
        alone
            .lock("x")
            .expect("valid")
            .try_acquire()
            .await
            .expect("an answer")
            .is_some()
    );
    let token = held.token();
    held.release().await.expect("a held lock");
    assert!(rival.acquire().await.expect("a free lock").token() > token);
}

#[tokio::test]
async fn a_unix_socket_works() {
    let server = RedisServer::config().unix_socket().start().await;
    let path = server.socket_path().display().to_string();
    let by_socket = Locker::connect(format!("unix://{path}"))
        .await
        .expect("the server is up");
    let by_port = connect(&server).await;
    let _held = held(&by_socket, "x").await;
    assert!(
        by_port
            .lock("x")
            .expect("valid")
            .try_acquire()
            .await
            .expect("an answer")
            .is_none()
    );
}

#[tokio::test]
async fn events_begin_with_the_state_and_end_with_the_handles() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    // The lease is renewed every two seconds: even on a slow machine it is neither lost nor renewed more
    // often than expected.
    let lock = locker.lock("x").expect("valid").ttl(millis(6_000));
    let all = locker.events();
    let lease = lock.acquire().await.expect("a free lock");
    let mut late = lock.events();
    let token = lease.token();
    let first = late.next().await.expect("the state");
    assert!(
        matches!(first, LeaseEvent::Acquired { token: t, .. } if t == token),
        "{first:?}"
    );
    let next = late.next().await.expect("a renewal");
    assert!(matches!(next, LeaseEvent::Renewed { .. }), "{next:?}");
    drop(lock);
    drop(lease);
    let rest: Vec<_> = late.collect().await;
    let told = LeaseEvent::Released {
        name: "x".to_owned().try_into().expect("valid"),
        token,
    };
    assert_eq!(rest, std::slice::from_ref(&told));

    drop(locker);
    let all: Vec<_> = all.collect().await;
    assert!(
        matches!(all.first(), Some(LeaseEvent::Acquired { .. })),
        "{all:?}"
    );
    assert_eq!(all.last(), Some(&told));
}

/// Catches a dropped locker handle that shuts down: leases keep the locker going.
#[tokio::test]
async fn a_lease_outlives_its_locker_handle() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let lease = locker
        .lock("x")
        .expect("valid")
        .ttl(millis(3_000))
        .acquire()
        .await;
    let lease = lease.expect("a free lock");
    drop(locker);
    tokio::time::sleep(millis(3_500)).await;
    assert!(lease.is_valid(), "the lease is renewed");
    lease.release().await.expect("a held lock");
}

/// Catches work that counts as done under the lease though it blocked its thread past the deadline, so that
/// nothing checked the clock after it.
#[tokio::test]
async fn work_that_ends_past_the_deadline_fails() {
    let locker = Locker::in_memory();
    let lock = locker.lock("x").expect("valid").ttl(millis(100)).fixed();
    let lease = lock.acquire().await.expect("a free lock");
    let late = lease.run(async { std::thread::sleep(millis(150)) }).await;
    let lost = late.expect_err("the lease was over");
    assert_eq!(lost.reason, LossReason::Expired);
    // Control: work that ends in time counts.
    let lease = lock.acquire().await.expect("a free lock");
    assert_eq!(lease.run(async { 42 }).await, Ok(42));
}

/// Catches work that goes on after the loss, and a lock that stays held after its work. The future can be
/// spawned.
#[tokio::test]
async fn work_under_a_lock_is_dropped_at_the_loss_and_the_lock_released() {
    let locker = Locker::in_memory();
    let lock = locker.lock("x").expect("a valid name");
    let using = {
        let lock = lock.clone();
        async move { lock.using(async |lease| lease.token()).await }
    };
    let token = tokio::spawn(using).await.expect("no panic");
    assert!(token.is_ok() && !lock.is_held());

    let fixed = lock.clone().ttl(millis(50)).fixed();
    let work = async |_: &leasehold::Lease| std::future::pending::<()>().await;
    let error = fixed.using(work).await.expect_err("a lost lease");
    assert!(error.is_not_held(), "{error}");
    let source = std::error::Error::source(&error).expect("the error has the loss as its source");
    let lost = source.downcast_ref::<leasehold::Lost>();
    assert_eq!(
        lost.map(|lost| lost.reason),
        Some(leasehold::LossReason::Expired)
    );
    assert!(!fixed.is_held());
}
