//! Many tasks that ask at the same time.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use leasehold::Locker;
use leasehold_tests::{Admin, RedisServer};

use crate::{LIMIT, connect};

/// So many tasks acquire and release a lock of their own, so often.
async fn crowd(locker: &Locker, tasks: usize, times: usize) {
    let tasks = (0..tasks).map(|task| {
        let lock = locker.lock(format!("{task}")).expect("a valid name");
        tokio::spawn(async move {
            for _ in 0..times {
                let lease = lock.acquire().await.expect("it is free");
                lease.release().await.expect("it is held");
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("it does not panic");
    }
}

/// Catches batches of one and of all others that take turns, and a single caller who pays for others.
#[tokio::test]
async fn what_tasks_ask_together_leaves_together() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let locker = connect(&server).await;
    for (tasks, most_calls) in [(1, 100), (12, 400), (64, 1_600)] {
        let before = admin.script_calls().await;
        crowd(&locker, tasks, 50).await;
        let calls = admin.script_calls().await - before;
        // After its first acquisition a locker looks at what it holds once.
        assert!(calls <= most_calls + 1, "{tasks} tasks made {calls} calls");
    }
}

/// Catches a task that is to send what others ask for, too, and does not run any more.
#[tokio::test]
async fn a_call_that_is_polled_once_only_holds_up_nobody() {
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
        let lease = acquired.expect("in time").expect("it is free");
        lease.release().await.expect("it is held");
    }
}
