//! The tasks that wake when an answer arrives.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use leasehold_tests::{Admin, RedisServer, eventually};

use crate::{LIMIT, connect};

#[derive(Default)]
struct Counted {
    wakes: AtomicUsize,
    task: Mutex<Option<Waker>>,
}

impl Wake for Counted {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
        // Empty if the task was woken already and has not run since.
        if let Some(task) = self.task.lock().expect("nothing panics with it").take() {
            task.wake();
        }
    }
}

/// Returns the output of a future, and how often its task was woken for it.
async fn counting_wakes<F: Future>(future: F) -> (F::Output, usize) {
    let mut future = pin!(future);
    let counted = Arc::new(Counted::default());
    let waker = Waker::from(counted.clone());
    let output = poll_fn(|context| {
        let task = context.waker().clone();
        *counted.task.lock().expect("nothing panics with it") = Some(task);
        future.as_mut().poll(&mut Context::from_waker(&waker))
    });
    let output = output.await;
    (output, counted.wakes.load(Ordering::SeqCst))
}

/// Catches a task that is woken by the answer which it is already handling: it would be scheduled once more,
/// and another thread woken to run it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_woken_once_for_its_round_trip() {
    let server = RedisServer::start().await;
    let lock = connect(&server).await.lock("x").expect("a valid name");
    let mut more: Vec<usize> = Vec::new();
    for _ in 0..20 {
        let (lease, acquiring) = counting_wakes(lock.acquire()).await;
        let lease = lease.expect("a free lock");
        let (renewed, renewing) = counting_wakes(lease.renew()).await;
        renewed.expect("a held lock");
        let (released, releasing) = counting_wakes(lease.release()).await;
        released.expect("a held lock");
        let wakes = [acquiring, renewing, releasing];
        more.extend(wakes.into_iter().filter(|wakes| *wakes > 1));
    }
    // On a busy machine a task may, now and then, be woken before it has handled the answer.
    assert!(more.len() < 10, "{more:?}");
}

/// Catches an answer that wakes the task that polled a call first, and not the one that polls it now.
#[tokio::test]
async fn a_call_that_moves_to_another_task_is_answered_there() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let locker = connect(&server).await;
    let lock = locker.lock("x").expect("a valid name");
    let lease = lock.acquire().await.expect("a free lock");
    let mut waiting = Box::pin({
        let lock = lock.clone();
        async move { lock.acquire().await }
    });
    let first = counting_wakes(async {
        tokio::select! {
            biased;
            _ = &mut waiting => panic!("it is held"),
            () = eventually(LIMIT, "a waiter", async || {
                admin.keys("*:line").await.len() == 1
            }) => {}
        }
    });
    first.await;
    let elsewhere = tokio::spawn(waiting);
    tokio::task::yield_now().await;
    lease.release().await.expect("a held lock");
    let lease = tokio::time::timeout(LIMIT, elsewhere).await;
    let lease = lease.expect("the task is woken").expect("no panic");
    drop(lease.expect("the lock was handed over"));
}
