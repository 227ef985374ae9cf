//! Further bugs of other libraries, tried with shared names on a real server.

use std::time::{Duration, Instant};

use futures::future::join_all;
use leasehold_tests::{Admin, RedisServer, eventually};
use tokio::time::sleep;

use crate::shared::{NAME, waiting, within};
use crate::{LIMIT, connect, millis};

/// A peer's bug: a weight of 4,000 broke `unpack` in the script.
#[tokio::test]
async fn a_weight_of_4000_is_refused_for_slots_and_fits_a_quota() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let slots = locker.semaphore(NAME, 5_000).expect("valid");
    let error = slots.acquire_many(4_000).await.expect_err("too heavy");
    assert!(
        error.is_config() && error.to_string().contains("from 1 to 64"),
        "{error}"
    );
    let all = slots.acquire_many(64).await.expect("a permit");
    assert_eq!(all.slots().len(), 64);
    let rows = locker.quota("rows", 5_000).expect("valid");
    let heavy = rows.acquire_many(4_000).await.expect("a permit");
    let other = rows.try_acquire_many(1_001).await.expect("an answer");
    assert!(heavy.is_valid() && other.is_none());
}

/// A peer's bug: permits that were held and renewed were lost under contention.
#[tokio::test]
async fn held_permits_are_not_lost_under_contention() {
    let server = RedisServer::start().await;
    let (locker, others) = (connect(&server).await, connect(&server).await);
    let held = locker.semaphore(NAME, 3).expect("valid").ttl(millis(500));
    let (first, second) = (held.acquire().await, held.acquire().await);
    let (first, second) = (first.expect("a permit"), second.expect("a permit"));
    let end = Instant::now() + Duration::from_secs(2);
    let callers = (0..20).map(|_| {
        let semaphore = others.semaphore(NAME, 3).expect("valid").ttl(millis(500));
        tokio::spawn(async move {
            let mut turns = 0;
            while Instant::now() < end {
                let permit = semaphore.acquire().await.expect("a permit");
                assert_eq!(permit.slot(), Some(2), "the others are held");
                permit.release().await.expect("it is held");
                turns += 1;
            }
            turns
        })
    });
    let callers: Vec<_> = callers.collect();
    for turns in within(join_all(callers)).await {
        assert!(turns.expect("no panic") > 0, "each caller has its turn");
    }
    assert!(first.is_valid() && second.is_valid());
    for permit in [first, second] {
        permit.release().await.expect("it is held");
    }
}

/// A peer's bug: a waiter that missed its wake-up hung for ever.
#[tokio::test]
async fn a_waiter_that_misses_its_wake_up_does_not_hang() {
    let server = RedisServer::start().await;
    let (locker, other) = (connect(&server).await, connect(&server).await);
    let mut admin = Admin::connect(&server).await;
    for name in ["one", "two", "three"] {
        let held = locker.semaphore(name, 1).expect("valid").acquire().await;
        let held = held.expect("a permit");
        let semaphore = other.semaphore(name, 1).expect("valid");
        let waiter = tokio::spawn(async move { semaphore.acquire().await });
        let in_line = async || {
            let seen = locker.inspect(name).await;
            seen.is_ok_and(|seen| seen.waiting == 1)
        };
        eventually(LIMIT, "a waiter in line", in_line).await;
        admin.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
        held.release().await.expect("it is held");
        let permit = within(waiter).await.expect("no panic");
        assert_eq!(permit.expect("a permit").slot(), Some(0));
    }
}

/// A peer's bug: reading twice in one process left renewals behind for ever.
#[tokio::test]
async fn reading_twice_leaves_no_renewals_behind() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let mut admin = Admin::connect(&server).await;
    let prices = locker.rw_lock(NAME).expect("valid").ttl(millis(600));
    let prices = prices.owner("worker-7");
    let outer = prices.read().acquire().await.expect("a permit");
    let inner = prices.read().acquire().await.expect("a permit");
    assert_ne!(outer.token(), inner.token());
    inner.release().await.expect("it is held");
    let before = admin.command_calls("evalsha").await;
    sleep(millis(700)).await;
    assert!(outer.is_valid(), "it is renewed after the other's release");
    assert!(admin.command_calls("evalsha").await > before);
    outer.release().await.expect("it is held");
    let after = admin.command_calls("evalsha").await;
    sleep(millis(700)).await;
    assert_eq!(
        admin.command_calls("evalsha").await,
        after,
        "nothing is renewed"
    );
    let writer = prices.write().try_acquire().await.expect("an answer");
    assert!(writer.is_some(), "no reader is left");
}

/// Catches a canceled writer that still holds up the readers behind it.
#[tokio::test]
async fn a_canceled_writer_lets_the_readers_behind_it_in() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let prices = locker.rw_lock(NAME).expect("valid");
    let held = prices.read().acquire().await.expect("a permit");
    let writer = prices.write();
    let writer = tokio::spawn(async move { writer.acquire().await });
    waiting(&locker, 1).await;
    let reader = prices.read();
    let reader = tokio::spawn(async move { reader.acquire().await });
    waiting(&locker, 2).await;
    writer.abort();
    let reader = within(reader).await.expect("no panic");
    assert!(reader.expect("a permit").is_valid() && held.is_valid());
}
