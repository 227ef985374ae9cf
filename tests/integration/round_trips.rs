//! What calls cost, as the server counts it.

use futures::StreamExt;
use leasehold::{Lock, Locker};
use leasehold_tests::{Admin, RedisServer, Stopwatch, eventually};

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
    // The first acquisition of a locker makes it subscribe, and then it looks at what it holds once.
    let locker = subscribed(&server, &mut admin).await;
    let lock = lock(&locker, "x").reentrant();

    let mut lease = None;
    let acquire = async || lease = Some(lock.acquire().await.expect("it is free"));
    assert_eq!(calls_of(&mut admin, acquire).await, 1);
    let lease = lease.expect("it was acquired");
    let renew = async || lease.renew().await.expect("it is held");
    assert_eq!(calls_of(&mut admin, renew).await, 1);
    let again = async || drop(lock.acquire().await.expect("it is held by it"));
    assert_eq!(calls_of(&mut admin, again).await, 0);
    let rival = locker.lock("x").expect("a valid name");
    let busy = async || assert!(rival.try_acquire().await.expect("an answer").is_none());
    assert_eq!(calls_of(&mut admin, busy).await, 1);
    let release = async || lease.release().await.expect("it is held");
    assert_eq!(calls_of(&mut admin, release).await, 1);

    let commands = admin.command_calls("evalsha").await;
    assert!(commands > 0, "the script is not sent again and again");
}

/// A locker that has already made its second connection, for pushes, as it does once, after the first
/// acquisition; so that only the lock's own commands are counted from here on.
async fn subscribed(server: &RedisServer, admin: &mut Admin) -> Locker {
    let locker = connect(server).await;
    let first = lock(&locker, "first").acquire().await.expect("it is free");
    first.release().await.expect("it is held");
    let proved = async || admin.hearing_lockers().await == 1;
    eventually(LIMIT, "the subscription to be proved", proved).await;
    assert_eq!(admin.command_calls("subscribe").await, 1);
    admin.reset_stats().await;
    locker
}

/// What each call makes the server execute.
#[tokio::test]
async fn nothing_but_the_script_is_sent() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let locker = subscribed(&server, &mut admin).await;
    for _ in 0..10 {
        let lease = lock(&locker, "x").acquire().await.expect("it is free");
        lease.release().await.expect("it is held");
    }
    assert_eq!(admin.script_calls().await, 20);
    // Of the commands that the script runs. No read is there that is not needed to decide.
    for (command, calls) in [
        // A release asks for no time.
        ("time", 10),
        ("hgetall", 10),
        ("hset", 10),
        ("hdel", 10),
        // The first time alone: whether somebody waits for a name that nobody used, and how long to
        // remember it.
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

/// Catches waiters that poll. One asks; asks again, if its subscription is confirmed only then; and
/// leaves. Its heartbeat would come after 5 s.
#[tokio::test]
async fn waiting_three_seconds_does_not_poll() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let locker = subscribed(&server, &mut admin).await;
    let _held = lock(&locker, "x").acquire().await.expect("it is free");
    let wait = async || {
        let waiting = lock(&locker, "x");
        assert!(
            waiting
                .acquire_within(millis(3_000))
                .await
                .expect("an answer")
                .is_none()
        );
        let left = async || line_is_empty(&server).await;
        eventually(LIMIT, "the waiter to leave the line", left).await;
    };
    let begin = Stopwatch::start();
    let calls = calls_of(&mut admin, wait).await;
    // If the machine stood still for a second, the heartbeat may be due too.
    let most = 3 + u64::from(begin.stalled() > millis(1_000));
    assert!(
        (2..=most).contains(&calls),
        "{calls} calls in three seconds"
    );
}

/// Whether nobody waits for `x`.
async fn line_is_empty(server: &RedisServer) -> bool {
    let mut admin = Admin::connect(server).await;
    admin.keys("*:line").await.is_empty()
}

#[tokio::test]
async fn renewals_that_are_due_together_leave_together() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let locker = connect(&server).await;
    let mut leases = Vec::new();
    for i in 0..500 {
        let lock = lock(&locker, &format!("x{i}")).ttl(millis(6_000));
        leases.push(lock.acquire().await.expect("it is free"));
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

/// Catches: a walk that goes on by itself where it finds nothing, so that nobody can give it a pace.
#[tokio::test]
async fn a_walk_makes_one_call_a_step() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    for at in 0..5_000 {
        admin.ok(&["SET", &format!("other/{at}"), "x"]).await;
    }
    let locker = subscribed(&server, &mut admin).await;
    let lease = lock(&locker, "x").acquire().await.expect("it is free");
    let (mut steps, mut found, mut count) = (locker.list_steps("*"), Vec::new(), 0);
    loop {
        let before = admin.script_calls().await;
        let step = steps.next().await.transpose().expect("it may list");
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
