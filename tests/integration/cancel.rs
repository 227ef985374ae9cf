//! Calls that their caller dropped leave nothing behind (I6).

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use leasehold::Locker;
use leasehold_tests::{Admin, Direction, Mode, Proxy, RedisServer, eventually};

use crate::{LIMIT, connect, connect_with, lock_key, millis};

async fn wait_until_nothing_is_left(admin: &mut Admin) {
    // The limit is far below the 30 s after which the locks would expire, and the 12 s for which a claim
    // counts as alive.
    let condition = async || admin.in_use().await.is_empty();
    eventually(LIMIT, "no lock and no place in line are left", condition).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquires_dropped_after_any_time_leave_nothing() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.port()).await;
    proxy.latency(millis(1));
    let locker = connect_with(Locker::builder(), &proxy.url()).await;
    let mut dropped = 0;
    for micros in (0..6_000).step_by(30) {
        let lock = locker
            .lock(format!("x{}", micros % 7))
            .expect("a valid name");
        let acquire = lock.acquire();
        let within = std::time::Duration::from_micros(micros);
        if tokio::time::timeout(within, acquire).await.is_err() {
            dropped += 1;
        }
    }
    assert!(
        dropped > 10,
        "only {dropped} acquires were dropped before they ended"
    );
    wait_until_nothing_is_left(&mut Admin::connect(&server).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquires_dropped_after_any_number_of_polls_leave_nothing() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    for polls in 0..50 {
        let lock = locker.lock("x").expect("a valid name");
        let mut acquire = pin!(lock.acquire());
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..polls % 5 {
            if acquire.as_mut().poll(&mut context).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    wait_until_nothing_is_left(&mut Admin::connect(&server).await).await;
}

#[tokio::test]
async fn a_command_delayed_past_its_time_changes_nothing() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let proxy = Proxy::start(server.port()).await;
    let builder = Locker::builder().command_timeout(millis(150));
    let locker = connect_with(builder, &proxy.url()).await;
    admin.reset_stats().await;

    proxy.set(Direction::Up, Mode::Hold);
    let error = locker.lock("x").expect("a valid name").try_acquire().await;
    let error = error.expect_err("no reply arrives");
    assert!(error.is_timeout(), "{error:?}");
    proxy.set(Direction::Up, Mode::Pass);
    let arrived = async || admin.script_calls().await > 0;
    eventually(LIMIT, "the delayed command reaches the server", arrived).await;
    // An executed command would have left the last token behind, even if its lock was released.
    assert!(
        admin.keys("*").await.is_empty(),
        "{:?}",
        admin.keys("*").await
    );
}

/// The negative control: the same command without `not_after` does take effect when it arrives late.
#[tokio::test]
async fn a_late_command_without_a_time_limit_takes_the_lock() {
    use leasehold::{Name, Owner};
    use leasehold_engine::protocol::{self, Command, Counter, LockKey, Op};
    use leasehold_engine::time::ServerTime;

    let server = RedisServer::start().await;
    let key = LockKey::new("leasehold", &Name::new("x").expect("valid")).expect("valid");
    let acquire = protocol::Acquire {
        key,
        claim: protocol::Claim {
            lease: protocol::LeaseId(7),
            client: protocol::ClientId(7),
            owner: Owner::labelled("test").expect("valid"),
            counter: Counter::Dense,
            ttl: LIMIT,
            window: LIMIT,
        },
        waits: false,
        reclaims: protocol::Reclaim::Never,
    };
    let never = ServerTime::from_micros(9_000_000_000_000_000);
    let op = Op {
        command: Command::Acquire(acquire),
        not_after: never,
    };
    let call = protocol::encode(&[op]);
    let keys = call.keys().len().to_string();
    let mut words = vec!["EVAL", protocol::SCRIPT, &keys];
    words.extend(call.keys().chain(call.args()));

    let proxy = Proxy::start(server.port()).await;
    let mut delayed = Admin::connect_port(proxy.port()).await;
    proxy.set(Direction::Up, Mode::Hold);
    let answer = tokio::time::timeout(millis(150), delayed.try_command(&words)).await;
    assert!(answer.is_err(), "no answer comes");
    proxy.set(Direction::Up, Mode::Pass);
    let mut admin = Admin::connect(&server).await;
    let taken = async || admin.tenure(&lock_key("x")).await.is_some();
    eventually(LIMIT, "the late command takes the lock", taken).await;
}

/// Catches a release that a later request of the same task overtakes. The runtime has more threads than
/// cores, so a thread is often stopped between taking a batch out of the engine and sending it.
#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn a_dropped_lease_is_free_for_the_next_call_of_the_same_task() {
    let server = RedisServer::start().await;
    drop_and_try(connect(&server).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn a_dropped_lease_is_free_in_memory_for_the_next_call_of_the_same_task() {
    drop_and_try(Locker::in_memory()).await;
}

/// Catches a place in line that is given up only after the next request of a task whose wait timed out.
#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn a_timed_out_place_in_line_is_gone_for_the_next_call_of_the_same_task() {
    let server = RedisServer::start().await;
    wait_and_inspect(connect(&server).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn a_timed_out_place_in_line_is_gone_in_memory_for_the_next_call() {
    wait_and_inspect(Locker::in_memory()).await;
}

/// Runs eight tasks, each of which waits in line for a short time and then counts the waiters.
async fn wait_and_inspect(locker: Locker) {
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..8 {
        let locker = locker.clone();
        tasks.spawn(async move {
            let name = format!("x{task}");
            let lock = locker.lock(&name).expect("a valid name");
            let _held = lock.acquire().await.expect("a free lock");
            let mut waited = 0;
            while waited < 50 {
                // On a slow machine the call fails if no reply arrives in time.
                waited += u32::from(lock.acquire_within(millis(20)).await.is_ok());
                let seen = locker.inspect(&name).await.expect("an answer");
                assert_eq!(seen.waiting, 0, "after {waited} times in line");
            }
        });
    }
    tasks.join_all().await;
}

/// Runs eight tasks, each of which drops its lease and takes the lock again.
async fn drop_and_try(locker: Locker) {
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..8 {
        let locker = locker.clone();
        tasks.spawn(async move {
            for _ in 0..300 {
                let lock = locker.lock(format!("x{task}")).expect("a valid name");
                let lease = lock.try_acquire().await.expect("an answer");
                drop(lease.expect("the earlier lease was dropped"));
            }
        });
    }
    tasks.join_all().await;
}
