//! Bad input causes a clear error; unusual input works.

use std::time::Duration;

use leasehold::{ErrorKind, Locker};
use leasehold_tests::{Admin, RedisServer, eventually, within};

use crate::{LIMIT, connect, millis};

#[tokio::test]
async fn names_options_and_settings_are_checked() {
    let locker = Locker::in_memory();
    for name in [String::new(), "x".repeat(513)] {
        let error = locker.lock(&name).expect_err("a bad name");
        assert!(
            error.is_config() && error.to_string().contains("512"),
            "{error}"
        );
        assert!(
            locker
                .inspect(&name)
                .await
                .expect_err("a bad name")
                .is_config()
        );
        assert!(
            locker
                .force_release(&name)
                .await
                .expect_err("a bad name")
                .is_config()
        );
    }
    let lock = || locker.lock("x").expect("a valid name");
    let year = Duration::from_secs(366 * 24 * 60 * 60);
    for ttl in [Duration::ZERO, millis(9), year + millis(1), Duration::MAX] {
        let error = lock()
            .ttl(ttl)
            .try_acquire()
            .await
            .expect_err("a bad time to live");
        assert!(
            error.is_config() && error.to_string().contains("10 ms to 366 days"),
            "{error}"
        );
    }
    for ttl in [millis(10), year] {
        let lease = lock()
            .ttl(ttl)
            .try_acquire()
            .await
            .expect("a good time to live");
        drop(lease.expect("the lock is free"));
    }
    for owner in [String::new(), "x".repeat(129)] {
        let error = lock()
            .owner(&owner)
            .acquire()
            .await
            .expect_err("a bad owner");
        assert!(
            error.is_config() && error.to_string().contains("128"),
            "{error}"
        );
        let error = Locker::builder()
            .owner(&*owner)
            .in_memory()
            .expect_err("a bad owner");
        assert!(error.is_config(), "{error}");
    }
    let builder = Locker::builder;
    for bad in [
        builder().namespace(""),
        builder().namespace("n".repeat(129)),
        builder().command_timeout(Duration::ZERO),
        builder().command_timeout(Duration::MAX),
        builder().patience(Duration::MAX),
        builder().token_retention(Duration::ZERO),
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
    let held = locker
        .lock("x")
        .expect("valid")
        .acquire()
        .await
        .expect("the lock is free");
    let lock = locker.lock("x").expect("valid");
    assert!(
        lock.acquire_within(Duration::ZERO)
            .await
            .expect("the store answers")
            .is_none()
    );
    let waiting = tokio::spawn(async move { lock.acquire_within(Duration::MAX).await });
    let in_line = async || {
        locker
            .inspect("x")
            .await
            .expect("the store answers")
            .waiting
            == 1
    };
    eventually(LIMIT, "the waiter is in line", in_line).await;
    held.release().await.expect("the lock is held");
    let waited = within(LIMIT, waiting)
        .await
        .expect("the waiter gets its turn");
    let lease = waited
        .expect("the task does not panic")
        .expect("the store answers");
    assert!(lease.is_some());
}

#[tokio::test]
async fn odd_names_work_and_stay_on_one_slot() {
    let server = RedisServer::config()
        .args(["--cluster-enabled", "yes"])
        .start()
        .await;
    let plain = RedisServer::start().await;
    let (locker, mut admin) = (connect(&plain).await, Admin::connect(&plain).await);
    let mut cluster = Admin::connect(&server).await;
    let long = "€".repeat(170);
    let names = [
        "{", "}", "{}", "}{", "a b", "🔒", "a\nb", "a\0b", "%7D", "*?[a]", ":", &long,
    ];
    let mut leases = Vec::new();
    for name in names {
        let lock = locker.lock(name).expect("a valid name");
        leases.push(
            lock.acquire()
                .await
                .unwrap_or_else(|error| panic!("{name:?}: {error}")),
        );
        let rival = locker.lock(name).expect("a valid name");
        assert!(
            rival
                .try_acquire()
                .await
                .expect("the store answers")
                .is_none(),
            "{name:?}"
        );
        let holder = locker
            .inspect(name)
            .await
            .expect("the store answers")
            .holder;
        assert!(holder.is_some(), "{name:?}");
    }
    let keys = admin.keys("*").await;
    assert_eq!(keys.len(), names.len(), "no two names share a key");
    for key in keys {
        let slot_of_lock = cluster.int(&["CLUSTER", "KEYSLOT", &key]).await;
        let line = format!("{key}:line");
        assert_eq!(
            slot_of_lock,
            cluster.int(&["CLUSTER", "KEYSLOT", &line]).await
        );
    }
    for lease in leases {
        lease.release().await.expect("the lock is held");
    }
}

#[tokio::test]
async fn namespaces_are_separate() {
    let server = RedisServer::start().await;
    let one = Locker::builder()
        .namespace("a")
        .connect(server.url())
        .await
        .expect("the server is up");
    let two = Locker::builder()
        .namespace("a:b")
        .connect(server.url())
        .await
        .expect("the server is up");
    let _held = one
        .lock("b:x")
        .expect("valid")
        .acquire()
        .await
        .expect("the lock is free");
    assert!(
        two.lock("x")
            .expect("valid")
            .try_acquire()
            .await
            .expect("the store answers")
            .is_some()
    );
}
