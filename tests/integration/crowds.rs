//! Many tasks that ask at the same time.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use leasehold::Locker;
use leasehold_tests::{Admin, RedisServer};

use crate::{LIMIT, connect};

/// Runs this many tasks, each of which acquires and releases a lock of its own this many times.
async fn crowd(locker: &Locker, tasks: usize, times: usize) {
    let tasks = (0..tasks).map(|task| {
        let lock = locker.lock(format!("{task}")).expect("a valid name");
        tokio::spawn(async move {
            for _ in 0..times {
                let lease = lock.acquire().await.expect("a free lock");
                lease.release().await.expect("a held lock");
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("no panic");
    }
}

/// Catches batches that alternate between one operation and all others, and a single caller that waits to
/// coalesce with others.
#[tokio::test]
async fn requests_of_concurrent_tasks_leave_together() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let locker = connect(&server).await;
    for (tasks, most_calls) in [(1, 100), (12, 400), (64, 1_600)] {
        let before = admin.script_calls().await;
        crowd(&locker, tasks, 50).await;
        let calls = admin.script_calls().await - before;
        // After its first acquisition a locker checks its locks once.
        assert!(calls <= most_calls + 1, "{tasks} tasks made {calls} calls");
    }
}

/// Catches a task that has to send others' requests and is never polled again.
#[tokio::test]
async fn a_call_that_is_polled_only_once_delays_no_other() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let other = locker.lock("other").expect("a valid name");
    for _ in 0..20 {
        crowd(&locker, 8, 3).await;
        let lock = locker.lock("stuck").expect("a valid name");
        let mut stuck = pin!(lock.acquire());
        let mut context = Context::from_waker(Waker::noop());
        assert!(stuck.as_mut().poll(&mut context).is_pending());
        let acquired = tokio::time::timeout(LIMIT / 10, other.acquire()).await;
        let lease = acquired.expect("in time").expect("a free lock");
        lease.release().await.expect("a held lock");
    }
}
