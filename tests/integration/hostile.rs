//! Abuse that a hostile user tried, and its expected result.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Wake};
use std::time::{Duration, Instant};

use futures::Stream;
use leasehold::{ErrorKind, Lease, LeaseEvent, LeaseEvents, Locker, LossReason};
use leasehold_tests::{
    Admin, Proxy, RedisServer, Stopwatch, eventually, next_event, unique_name, within,
};
use tokio_stream::StreamExt;

use crate::{LIMIT, connect, connect_with, held, lock_key, millis, own_client};

/// Catches a connection that is replaced because callers had short timeouts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_waits_do_not_replace_the_connection_of_others() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.port()).await;
    proxy.latency(millis(15));
    let locker = connect_with(Locker::builder(), &proxy.url()).await;
    let lock = locker.lock("held").expect("valid").ttl(millis(2_000));
    let lease = lock.acquire().await.expect("a free lock");
    let subscribes = async || proxy.connections() == 2;
    eventually(LIMIT, "the connection for pushes", subscribes).await;
    let before = proxy.connections();
    let begin = Stopwatch::start();
    // If the machine stands still, a lease of two seconds may be lost and a connection count as silent.
    let disturbed = || begin.stalled() > millis(500);
    while begin.elapsed() < millis(3_000) {
        let hasty = locker.lock("other").expect("valid");
        let _ = hasty.acquire_within(millis(10)).await;
        assert!(lease.is_valid() || disturbed());
    }
    assert!(
        proxy.connections() == before || disturbed(),
        "the connection answers, though slowly"
    );
    let patient = locker.lock("third").expect("valid").try_acquire().await;
    assert!(patient.expect("an answer").is_some());
}

/// Catches timeouts that each start their own reconnection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_server_is_used_as_soon_as_it_answers_again() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.port()).await;
    let builder = Locker::builder().command_timeout(millis(300));
    let locker = connect_with(builder, &proxy.url()).await;
    let until = Instant::now() + millis(2_500);
    let hammer = (0..100).map(|number| {
        let locker = locker.clone();
        tokio::spawn(async move {
            while Instant::now() < until {
                let lock = locker.lock(format!("x{number}")).expect("valid");
                drop(lock.try_acquire().await);
                tokio::time::sleep(millis(5)).await;
            }
        })
    });
    let hammer: Vec<_> = hammer.collect();
    tokio::time::sleep(millis(300)).await;
    server.pause();
    tokio::time::sleep(millis(1_500)).await;
    server.resume();
    for task in hammer {
        task.await.expect("no panic");
    }
    let lock = locker.lock("after").expect("valid");
    let back = async || lock.try_acquire().await.is_ok();
    eventually(millis(3_000), "the locker is served again", back).await;
    assert!(
        proxy.connections() < 10,
        "{} connections",
        proxy.connections()
    );
}

/// Catches a password in an error: Redis echoes unknown commands with their arguments.
#[tokio::test]
async fn a_password_echoed_by_the_server_is_not_quoted() {
    let server = RedisServer::config()
        .args(["--rename-command", "AUTH", ""])
        .start()
        .await;
    let url = format!("redis://:s3cret@127.0.0.1:{}", server.port());
    let error = Locker::connect(url).await.expect_err("AUTH is not known");
    assert!(
        !format!("{error} {error:?}").contains("s3cret"),
        "{error:?}"
    );
}

#[test]
fn leases_may_be_dropped_on_any_thread_and_after_their_runtime() {
    thread_local!(static KEPT: RefCell<Vec<Lease>> = const { RefCell::new(Vec::new()) });
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime")
    };
    let (clients, lockers) = (runtime(), runtime());
    let server = clients.block_on(RedisServer::start());
    let client = clients.block_on(own_client(&server));
    let leases = lockers.block_on(async {
        let mut leases = Vec::new();
        for locker in [
            connect(&server).await,
            Locker::with_fred(client)
                .await
                .expect("the client is connected"),
            Locker::in_memory(),
        ] {
            for _ in 0..2 {
                let name = unique_name("lease");
                leases.push(held(&locker, &name).await);
            }
        }
        leases
    });
    let (mut in_thread, mut after) = (Vec::new(), Vec::new());
    for (number, lease) in leases.into_iter().enumerate() {
        if number % 2 == 0 {
            in_thread.push(lease);
        } else {
            after.push(lease);
        }
    }
    let thread = std::thread::spawn(|| KEPT.with_borrow_mut(|kept| kept.extend(in_thread)));
    thread.join().expect("no panic as the thread ends");
    drop(lockers);
    clients.block_on(async { drop(after) });
}

/// A task that only its waker keeps alive, as in the executor of the async book.
struct Task(Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>);

impl Wake for Task {
    fn wake(self: Arc<Self>) {}
}

/// Catches a waker that is dropped while the locker's state is locked.
#[tokio::test]
async fn a_task_dropped_with_its_waker_may_own_a_lease() {
    let locker = Locker::in_memory();
    let lock = locker.lock("x").expect("valid");
    let lease = lock.acquire().await.expect("a free lock");
    let events = Arc::new(Mutex::new(locker.events()));
    let weak: Weak<Mutex<LeaseEvents>> = Arc::downgrade(&events);
    let work = std::future::poll_fn(move |context| {
        let _owned = &lease;
        let Some(events) = weak.upgrade() else {
            return Poll::Ready(());
        };
        let mut events = events.lock().expect("not poisoned");
        while let Poll::Ready(Some(_)) = Pin::new(&mut *events).poll_next(context) {}
        Poll::Pending
    });
    let task = Arc::new(Task(Mutex::new(Some(Box::pin(work)))));
    let waker = task.clone().into();
    if let Some(work) = task.0.lock().expect("not poisoned").as_mut() {
        assert!(
            work.as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
    }
    drop((waker, task));
    let (sender, done) = std::sync::mpsc::channel();
    let runtime = tokio::runtime::Handle::current();
    std::thread::spawn(move || {
        let _on_runtime = runtime.enter();
        drop(events);
        sender.send(()).expect("the test waits");
    });
    done.recv_timeout(LIMIT).expect("no deadlock");
}

#[tokio::test]
async fn work_is_not_polled_after_the_deadline() {
    let locker = Locker::in_memory();
    let lock = locker.lock("x").expect("valid").ttl(millis(1_000)).fixed();
    let lease = lock.acquire().await.expect("a free lock");
    let steps = AtomicU32::new(0);
    let work = async {
        loop {
            steps.fetch_add(1, Ordering::Relaxed);
            // This blocks the whole runtime, so no event can arrive.
            std::thread::sleep(millis(1_050));
            tokio::task::yield_now().await;
        }
    };
    let lost = lease
        .run::<_>(work)
        .await
        .map(|(): ()| ())
        .expect_err("the lease is over");
    assert_eq!(lost.reason, LossReason::Expired);
    assert_eq!(steps.into_inner(), 1);
}

#[tokio::test]
async fn every_shutdown_waits_for_the_store() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.port()).await;
    let locker = connect_with(Locker::builder(), &proxy.url()).await;
    let lease = held(&locker, "x").await;
    proxy.latency(millis(100));
    let mut admin = Admin::connect(&server).await;
    // Three shutdowns: one is dropped, and two run side by side.
    let given_up = tokio::time::timeout(millis(10), locker.shutdown()).await;
    assert!(given_up.is_err());
    tokio::join!(locker.shutdown(), locker.shutdown());
    assert_eq!(admin.tenure(&lock_key("x")).await, None);
    assert!(!lease.is_valid());
}

#[tokio::test]
async fn a_shutdown_without_a_server_still_ends() {
    let mut server = RedisServer::start().await;
    let builder = Locker::builder()
        .command_timeout(millis(200))
        .patience(millis(500));
    let locker = connect_with(builder, &server.url()).await;
    let year = Duration::from_secs(366 * 24 * 60 * 60);
    let lock = locker.lock("x").expect("valid").ttl(year);
    let lease = lock.acquire().await.expect("a free lock");
    let mut events = locker.events();
    server.kill();
    let shut_down = within(millis(3_000), locker.shutdown()).await;
    shut_down.expect("in time");
    let lost = |event: &LeaseEvent| matches!(event, LeaseEvent::Lost { .. });
    next_event(&mut events, LIMIT, lost).await;
    let end = within(LIMIT, events.next()).await;
    assert_eq!(end.expect("in time"), None, "the stream ends");
    assert!(!lease.is_valid());
}

#[tokio::test]
async fn waiters_outlast_a_server_without_memory() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let mut admin = Admin::connect(&server).await;
    admin.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let lock = locker.lock("x").expect("valid");
    let error = lock
        .try_acquire()
        .await
        .expect_err("the call does not wait");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    tokio::time::sleep(millis(200)).await;
    admin.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    let lease = tokio::time::timeout(LIMIT, waiting)
        .await
        .expect("in time")
        .expect("no panic");
    assert!(lease.expect("there is memory again").is_valid());
}

/// Catches renewals that wait for callers that do not poll.
#[tokio::test]
async fn futures_that_are_not_polled_delay_no_other() {
    let server = RedisServer::start().await;
    let builder = Locker::builder().command_timeout(millis(300));
    let locker = connect_with(builder, &server.url()).await;
    // Long enough to survive if the machine stands still for two seconds.
    let lock = locker.lock("kept").expect("valid").ttl(millis(3_000));
    let lease = lock.acquire().await.expect("a free lock");
    let mut parked = Vec::new();
    for number in 0..40 {
        let lock = locker.lock(format!("x{number}")).expect("valid");
        let mut acquire = Box::pin(async move { lock.acquire().await });
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(acquire.as_mut().poll(&mut context).is_pending());
        parked.push(acquire);
    }
    let begin = Instant::now();
    while begin.elapsed() < millis(4_000) {
        assert!(lease.is_valid(), "lost after {:?}", begin.elapsed());
        tokio::time::sleep(millis(20)).await;
    }
    lease.release().await.expect("a held lock");
}

#[tokio::test]
async fn zero_patience_still_makes_one_attempt() {
    let server = RedisServer::start().await;
    let builder = Locker::builder().patience(Duration::ZERO);
    let locker = connect_with(builder, &server.url()).await;
    let lease = held(&locker, "x").await;
    assert!(
        locker
            .inspect("x")
            .await
            .expect("an answer")
            .holder
            .is_some()
    );
    lease.release().await.expect("a held lock");
    let _held = held(&locker, "x").await;
    locker.shutdown().await;
    let mut admin = Admin::connect(&server).await;
    assert_eq!(admin.tenure(&lock_key("x")).await, None);
}
