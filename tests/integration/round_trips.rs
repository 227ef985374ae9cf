//! The cost of calls, as the server counts it.

use futures::StreamExt;
use leasehold::{Lock, Locker};
use leasehold_tests::{Admin, RedisServer, eventually};

use crate::{LIMIT, connect, millis};

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
    // The first acquisition of a locker makes it subscribe and then check its locks once.
    let locker = subscribed(&server, &mut admin).await;
    let lock = lock(&locker, "x").reentrant();

    let mut lease = None;
    let acquire = async || lease = Some(lock.acquire().await.expect("a free lock"));
    assert_eq!(calls_of(&mut admin, acquire).await, 1);
    let lease = lease.expect("the lock was acquired");
    let renew = async || lease.renew().await.expect("a held lock");
    assert_eq!(calls_of(&mut admin, renew).await, 1);
    let again = async || drop(lock.acquire().await.expect("the handle holds the lock"));
    assert_eq!(calls_of(&mut admin, again).await, 0);
    let rival = locker.lock("x").expect("a valid name");
    let busy = async || assert!(rival.try_acquire().await.expect("an answer").is_none());
    assert_eq!(calls_of(&mut admin, busy).await, 1);
    let release = async || lease.release().await.expect("a held lock");
    assert_eq!(calls_of(&mut admin, release).await, 1);

    let commands = admin.command_calls("evalsha").await;
    assert!(commands > 0, "the script is sent only once");
}

/// Returns a locker that has already made its push connection, which it does once after the first
/// acquisition. From here on only the lock's own commands count.
pub(crate) async fn subscribed(server: &RedisServer, admin: &mut Admin) -> Locker {
    let locker = connect(server).await;
    let first = lock(&locker, "first").acquire().await.expect("a free lock");
    first.release().await.expect("a held lock");
    let proved = async || admin.hearing_lockers().await == 1;
    eventually(LIMIT, "the subscription is checked", proved).await;
    assert_eq!(admin.command_calls("subscribe").await, 1);
    admin.reset_stats().await;
    locker
}

/// Catches a command that a call makes the server execute without need.
#[tokio::test]
async fn only_the_script_is_sent() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let locker = subscribed(&server, &mut admin).await;
    for _ in 0..10 {
        let lease = lock(&locker, "x").acquire().await.expect("a free lock");
        lease.release().await.expect("a held lock");
    }
    assert_eq!(admin.script_calls().await, 20);
    // The commands that the script runs. Each read is needed for a decision.
    for (command, calls) in [
        // A release does not read the clock.
        ("time", 10),
        ("hgetall", 10),
        ("hset", 10),
        ("hdel", 10),
        // For a new name only: to check for waiters, and to set how long to remember the name.
        ("exists", 1),
        ("pexpire", 1),
    ] {
        assert_eq!(admin.command_calls(command).await, calls, "of {command}");
    }
    for command in [
        "ping",
        "eval",
        "subscribe",
        "publish",
        "client",
        "hget",
        "persist",
        "zrange",
        "zadd",
        "zrem",
    ] {
        assert_eq!(admin.command_calls(command).await, 0, "of {command}");
    }
}

/// Catches a connection for each lock, waiter or kind of request.
#[tokio::test]
async fn a_locker_has_two_connections() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let locker = subscribed(&server, &mut admin).await;
    let held = lock(&locker, "x").acquire().await.expect("a free lock");
    let waiter = lock(&locker, "x");
    let waiter = waiter.acquire_within(millis(100)).await;
    assert!(waiter.expect("an answer").is_none());
    held.renew().await.expect("a held lock");
    assert_eq!(locker.list("*").count().await, 1);
    let connected = admin.info("clients", "connected_clients").await;
    assert_eq!(connected.as_deref(), Some("3"), "two and the test's own");
}

/// Catches leases of one locker that are each renewed at a time of their own.
#[tokio::test]
async fn renewals_due_together_leave_together() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let locker = connect(&server).await;
    let mut leases = Vec::new();
    for i in 0..500 {
        let lock = lock(&locker, &format!("x{i}")).ttl(millis(6_000));
        leases.push(lock.acquire().await.expect("a free lock"));
    }
    admin.reset_stats().await;
    let renewed = async || {
        let calls = admin.script_calls().await;
        let renewals = admin.command_calls("hget").await;
        (renewals >= 500).then_some((calls, renewals))
    };
    let (calls, renewals) = eventually(LIMIT, "500 renewals", renewed).await;
    assert!(
        calls * 2 < renewals,
        "{calls} calls for {renewals} renewals"
    );
    assert!(leases.iter().all(leasehold::Lease::is_valid));
}

/// Catches a walk that goes on by itself where it finds nothing, so that its caller cannot limit its pace.
#[tokio::test]
async fn a_walk_makes_one_call_per_step() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    for at in 0..5_000 {
        admin.ok(&["SET", &format!("other/{at}"), "x"]).await;
    }
    let locker = subscribed(&server, &mut admin).await;
    let lease = lock(&locker, "x").acquire().await.expect("a free lock");
    let (mut steps, mut found, mut count) = (locker.list_steps("*"), Vec::new(), 0);
    loop {
        let before = admin.script_calls().await;
        let step = steps.next().await.transpose().expect("the user may list");
        let calls = admin.script_calls().await - before;
        let Some(names) = step else {
            assert_eq!(calls, 0);
            break;
        };
        assert_eq!(calls, 1);
        found.extend(names);
        count += 1;
    }
    assert!(count >= 3, "{count}");
    assert_eq!(found, [lease.name().clone()]);
}
