//! In-memory stores that a program cuts off and clears.

use std::time::Duration;

use leasehold::{ErrorKind, LeaseEvent, Locker, MemoryStore};
use leasehold_tests::{Stopwatch, next_event, unique_name};

use crate::{LIMIT, millis};

const TTL: Duration = Duration::from_secs(1);

fn store() -> (MemoryStore, String) {
    let name = unique_name("outage");
    (MemoryStore::named(&name), format!("memory://{name}"))
}

async fn connect(url: &str) -> Locker {
    let builder = Locker::builder().command_timeout(millis(100));
    let locker = builder.patience(millis(200)).connect(url).await;
    locker.expect("the server is up")
}

/// Catches a store that is cut off only for some requests, or for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_answers_nothing_while_cut_off_and_recovers() {
    let (store, url) = store();
    let (locker, other) = (connect(&url).await, connect(&url).await);
    let lock = locker.lock("x").expect("valid").ttl(TTL);
    let mut events = lock.events();
    let lease = lock.acquire().await.expect("a free lock");
    let waiting = tokio::spawn({
        let lock = other.lock("x").expect("valid");
        async move { lock.acquire_within(LIMIT).await }
    });
    while locker.inspect("x").await.expect("the server is up").waiting == 0 {
        tokio::task::yield_now().await;
    }
    store.cut_off();
    let error = locker.inspect("x").await.expect_err("the store is cut off");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("cut off"), "{error}");
    let refused = Locker::connect(&url)
        .await
        .expect_err("the store is cut off");
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    let later = Locker::connect_lazily(&url).expect("the URL is valid");
    let at_risk = |event: &LeaseEvent| matches!(event, LeaseEvent::AtRisk { .. });
    next_event(&mut events, LIMIT, at_risk).await;
    store.reconnect();
    let renewed = |event: &LeaseEvent| matches!(event, LeaseEvent::Renewed { .. });
    next_event(&mut events, LIMIT, renewed).await;
    assert!(lease.is_valid());
    assert!(
        later
            .inspect("x")
            .await
            .expect("the server is up")
            .holder
            .is_some()
    );
    let watch = Stopwatch::start();
    lease.release().await.expect("a held lock");
    let next = waiting
        .await
        .expect("no panic")
        .expect("the waiter gets the lock");
    assert!(next.is_some());
    assert!(
        watch.elapsed() < millis(500),
        "the waiter was notified by a push"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_works_without_two_of_five_and_with_a_cleared_one() {
    let stores: Vec<_> = (0..5).map(|_| store()).collect();
    let urls = || stores.iter().map(|(_, url)| url);
    let locker = Locker::quorum(urls()).await.expect("all are up");
    let lock = locker.lock("x").expect("valid").ttl(TTL);
    let mut events = lock.events();
    let lease = lock.acquire().await.expect("a free lock");
    stores[0].0.cut_off();
    stores[3].0.cut_off();
    let at_risk = |event: &LeaseEvent| matches!(event, LeaseEvent::AtRisk { .. });
    next_event(&mut events, LIMIT, at_risk).await;
    let renewed = |event: &LeaseEvent| matches!(event, LeaseEvent::Renewed { .. });
    next_event(&mut events, LIMIT, renewed).await;
    assert!(lease.is_valid());
    // Two servers that are down at the start join later.
    let other = Locker::quorum(urls()).await.expect("three are up");
    let token = lease.token();
    lease.release().await.expect("three are up");
    let next = other.lock("x").expect("valid").ttl(TTL).acquire().await;
    let next = next.expect("three are up");
    assert!(next.token() > token);
    stores[1].0.cut_off();
    let error = Locker::quorum(urls()).await.expect_err("two are too few");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    for at in [0, 1, 3] {
        stores[at].0.reconnect();
    }
    let token = next.token();
    next.release().await.expect("the servers are up");
    stores[4].0.clear();
    let last = lock.acquire().await.expect("the servers are up");
    assert!(last.token() > token);
}
