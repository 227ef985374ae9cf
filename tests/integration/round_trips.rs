//! What calls cost, as the server counts it.

use leasehold::{Lock, Locker};
use leasehold_tests::{Admin, RedisServer};

use crate::{connect, millis};

async fn calls_of(admin: &mut Admin, work: impl AsyncFnOnce()) -> u64 {
    let before = admin.script_calls().await;
    work().await;
    admin.script_calls().await - before
}

fn lock(locker: &Locker, name: &str) -> Lock {
    locker.lock(name).expect("a valid name")
}

#[tokio::test]
async fn acquire_renew_and_release_are_one_script_call_each() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let locker = connect(&server).await;
    let lock = lock(&locker, "x");

    let mut lease = None;
    let acquire = async || lease = Some(lock.acquire().await.expect("it is free"));
    assert_eq!(calls_of(&mut admin, acquire).await, 1);
    let lease = lease.expect("it was acquired");
    let renew = async || lease.renew().await.expect("it is held");
    assert_eq!(calls_of(&mut admin, renew).await, 1);
    let again = async || drop(lock.acquire().await.expect("it is held by this owner"));
    assert_eq!(calls_of(&mut admin, again).await, 0);
    let rival = locker.lock("x").expect("a valid name");
    let busy = async || assert!(rival.try_acquire().await.expect("an answer").is_none());
    assert_eq!(calls_of(&mut admin, busy).await, 1);
    let release = async || lease.release().await.expect("it is held");
    assert_eq!(calls_of(&mut admin, release).await, 1);

    let commands = admin.command_calls("evalsha").await;
    assert!(commands > 0, "the script is not sent again and again");
}

/// The figures of the notes: what each call makes the server execute.
#[tokio::test]
async fn nothing_but_the_script_is_sent() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let locker = connect(&server).await;
    admin.reset_stats().await;
    for _ in 0..10 {
        let lease = lock(&locker, "x").acquire().await.expect("it is free");
        lease.release().await.expect("it is held");
    }
    assert_eq!(admin.script_calls().await, 20);
    // Of the commands that the script runs, reads are the fewest that decide.
    for (command, calls) in [
        ("time", 20),
        ("get", 20),
        ("incr", 10),
        ("set", 20),
        ("del", 10),
    ] {
        assert_eq!(admin.command_calls(command).await, calls, "of {command}");
    }
    for command in ["ping", "eval", "subscribe", "publish", "client"] {
        assert_eq!(admin.command_calls(command).await, 0, "of {command}");
    }
}

#[tokio::test]
async fn waiting_polls_no_faster_than_every_50_ms() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let locker = connect(&server).await;
    let _held = lock(&locker, "x").acquire().await.expect("it is free");
    let wait = async || {
        let waiting = lock(&locker, "x");
        assert!(
            waiting
                .acquire_within(millis(1_000))
                .await
                .expect("an answer")
                .is_none()
        );
    };
    let calls = calls_of(&mut admin, wait).await;
    assert!((4..=20).contains(&calls), "{calls} calls in a second");
}

#[tokio::test]
async fn renewals_that_are_due_together_leave_together() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let locker = connect(&server).await;
    let mut leases = Vec::new();
    for i in 0..500 {
        let lock = lock(&locker, &format!("x{i}")).ttl(millis(3_000));
        leases.push(lock.acquire().await.expect("it is free"));
    }
    admin.reset_stats().await;
    tokio::time::sleep(millis(2_000)).await;
    let (calls, renewals) = (
        admin.script_calls().await,
        admin.command_calls("pexpireat").await,
    );
    assert!(renewals >= 500, "{renewals} renewals");
    assert!(
        calls * 2 < renewals,
        "{calls} calls for {renewals} renewals"
    );
    assert!(leases.iter().all(leasehold::Lease::is_valid));
}
