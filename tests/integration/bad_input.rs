//! Bad input causes a clear error; unusual input works.

use std::time::Duration;

use leasehold::{ErrorKind, Locker};
use leasehold_tests::within;

use crate::{LIMIT, held, in_line};

/// Catches an overflow: JSON, and so the scenarios of bad options and settings, have no such durations.
#[tokio::test]
async fn the_longest_duration_is_out_of_bounds() {
    let lock = Locker::in_memory().lock("x").expect("a valid name");
    let error = lock.ttl(Duration::MAX).try_acquire().await;
    let error = error.expect_err("a bad time to live");
    assert!(
        error.is_config() && error.to_string().contains("10 ms to 366 days"),
        "{error}"
    );
    for bad in [
        Locker::builder().command_timeout(Duration::MAX),
        Locker::builder().patience(Duration::MAX),
    ] {
        let error = bad.in_memory().expect_err("a bad setting");
        assert!(error.is_config(), "{error}");
    }
}

#[tokio::test]
async fn urls_are_checked() {
    for url in [
        "",
        "x",
        "http://localhost",
        "rediss://",
        "redis-cluster://localhost/1",
        "redis://",
        "redis://h:0x",
    ] {
        let error = Locker::connect(url).await.expect_err("a bad URL");
        assert_eq!(error.kind(), ErrorKind::Config, "{url:?}");
        assert!(
            error.to_string().contains("redis://[user:password@]host"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn waiting_for_no_time_and_for_ever_work_as_asked() {
    let locker = Locker::in_memory();
    let held = held(&locker, "x").await;
    let lock = locker.lock("x").expect("valid");
    assert!(
        lock.acquire_within(Duration::ZERO)
            .await
            .expect("an answer")
            .is_none()
    );
    let waiting = tokio::spawn(async move { lock.acquire_within(Duration::MAX).await });
    in_line(&locker, "x").await;
    held.release().await.expect("a held lock");
    let waited = within(LIMIT, waiting).await.expect("its turn");
    let lease = waited.expect("no panic").expect("an answer");
    assert!(lease.is_some());
}
