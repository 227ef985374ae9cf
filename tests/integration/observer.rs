//! Following the holders of a lock.

use std::time::Duration;

use fred::interfaces::KeysInterface;
use futures::TryStreamExt;
use leasehold::{ErrorKind, Locker, Observer};
use leasehold_tests::{RedisServer, within};
use tokio::time::{Instant, sleep, timeout};

use crate::{LIMIT, connect, connect_with, held, lock_key, millis, own_client};

const SECOND: Duration = Duration::from_secs(1);

/// Returns the label of the next holder, or an empty text if the lock is free.
async fn next(observer: &mut Observer) -> String {
    let next = within(LIMIT, observer.try_next()).await.expect("in time");
    let holder = next.expect("no error").expect("it goes on");
    holder.map_or_else(String::new, |holder| holder.owner.label().to_owned())
}

/// Catches a change that comes later than promised, a renewal that counts as a change, a tenure that is missed because
/// its owner is that of the one before, and the same change twice.
#[tokio::test(start_paused = true)]
async fn each_change_comes_within_the_pause_and_renewals_are_none() {
    let locker = Locker::in_memory();
    let lock = locker.lock("leader").expect("valid").owner("one");
    let mut observer = locker.observe("leader");
    assert_eq!(next(&mut observer).await, "", "at first it is free");
    for _ in 0..2 {
        let (lease, began) = (lock.acquire().await.expect("it is free"), Instant::now());
        assert_eq!(next(&mut observer).await, "one");
        assert!(began.elapsed() <= SECOND, "{:?}", began.elapsed());
        let more = timeout(Duration::from_secs(100), observer.try_next()).await;
        assert!(more.is_err(), "it is only renewed: {more:?}");
        lease.release().await.expect("it is held");
    }
    let lease = lock.acquire().await.expect("it is free");
    let token = lease.token();
    let seen = observer.try_next().await.expect("no error").flatten();
    assert_eq!(seen.map(|holder| holder.token), Some(token));
    drop(lease);
    assert_eq!(next(&mut observer).await, "");
}

/// Catches an observer that goes on looking while nobody reads it, and one that queues what it saw.
#[tokio::test(start_paused = true)]
async fn a_late_reader_gets_the_holder_of_now() {
    let locker = Locker::in_memory();
    let lock = locker.lock("leader").expect("valid");
    let mut observer = locker.observe("leader").every(millis(10));
    assert_eq!(next(&mut observer).await, "");
    for owner in ["one", "two", "three"] {
        let lease = lock.clone().owner(owner).acquire().await.expect("free");
        sleep(SECOND).await;
        if owner == "three" {
            assert_eq!(next(&mut observer).await, "three");
        }
        drop(lease);
    }
}

/// Catches an observer that ends with the store, or that reports a holder it did not see.
#[tokio::test(flavor = "multi_thread")]
async fn it_goes_on_when_the_store_is_back() {
    let mut server = RedisServer::start().await;
    let builder = Locker::builder().command_timeout(millis(100));
    let locker = connect_with(builder.patience(millis(200)), &server.url()).await;
    let mut observer = locker.observe("leader").every(millis(20));
    let lease = held(&connect(&server).await, "leader").await;
    let first = next(&mut observer).await;
    assert!(!first.is_empty());
    server.kill();
    let away = timeout(SECOND, observer.try_next()).await;
    assert!(away.is_err(), "it waits: {away:?}");
    server.restart().await;
    // The server has lost its data.
    assert_eq!(next(&mut observer).await, "");
    drop(lease);
}

/// Catches a semaphore that is held, and of which an observer says that nobody has it.
#[tokio::test]
async fn a_shared_name_has_no_single_holder() {
    let locker = Locker::in_memory();
    let gpus = locker.semaphore("gpus", 2).expect("valid");
    let permit = gpus.acquire().await.expect("it is free");
    let mut observer = locker.observe("gpus");
    let error = observer.try_next().await.expect_err("it is shared");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let message = error.to_string();
    assert!(
        message.starts_with("lock \"gpus\": a shared name"),
        "{message}"
    );
    assert!(observer.try_next().await.expect("the end").is_none());
    permit.release().await.expect("it is held");
}

/// Catches an observer that retries for ever what no retry fixes, and one that does not end with its locker.
#[tokio::test]
async fn it_ends_with_an_error_and_with_the_locker() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let raw = own_client(&server).await;
    let _: () = raw
        .set(lock_key("other"), "text", None, None, false)
        .await
        .expect("it replies");
    let refused = [
        (locker.observe("other"), ErrorKind::WrongType),
        (locker.observe(""), ErrorKind::Config),
        (locker.observe("x").every(millis(9)), ErrorKind::Config),
        (locker.observe("x").every(Duration::MAX), ErrorKind::Config),
    ];
    for (mut observer, kind) in refused {
        let error = observer.try_next().await.expect_err("it is refused");
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!(observer.try_next().await, Ok(None), "it has ended");
    }
    let mut observer = locker.observe("x").every(millis(10));
    assert_eq!(observer.try_next().await, Ok(Some(None)));
    locker.shutdown().await;
    assert_eq!(within(LIMIT, observer.try_next()).await, Some(Ok(None)));
}

/// Catches a tenure that is yielded again with each look at a quorum whose servers gave different tokens.
#[tokio::test]
async fn a_quorum_shows_a_tenure_once() {
    let urls = ["a", "b", "c"].map(|name| format!("memory://observed-{name}"));
    let locker = Locker::quorum(urls).await.expect("all are up");
    let lock = locker.lock("leader").expect("valid").owner("node-7");
    let _lease = lock.acquire().await.expect("it is free");
    let mut observer = locker.observe("leader").every(millis(10));
    assert_eq!(next(&mut observer).await, "node-7");
    let more = timeout(millis(300), observer.try_next()).await;
    assert!(more.is_err(), "{more:?}");
}
