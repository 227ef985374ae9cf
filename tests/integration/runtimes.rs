//! Lockers whose tokio runtime ends before they do: no call may wait for ever.

use std::sync::Arc;
use std::task::{Context, Wake};
use std::time::Duration;

use futures::StreamExt;
use leasehold::{Error, ErrorKind, Lease, LeaseEvent, LeaseEvents, Locker, LossReason};
use leasehold_tests::{Admin, RedisServer, eventually, unique_name, within};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::{LIMIT, connect_with, own_client};

/// The rest of a locker after its runtime ended: a lease, a reader, and pending calls.
struct Left {
    locker: Locker,
    lease: Lease,
    events: LeaseEvents,
    /// The name of a lock that another locker holds.
    taken: String,
}

impl Left {
    async fn of(locker: Locker) -> Self {
        let taken = unique_name("taken");
        let events = locker.events();
        let lock = locker.lock(&taken).expect("valid");
        let lease = lock.acquire().await.expect("a free lock");
        Self {
            locker,
            lease,
            events,
            taken,
        }
    }
}

fn one_thread() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime")
}

fn two_threads() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let answer = within(Duration::from_secs(3), future).await;
    answer.unwrap_or_else(|| panic!("{what} waits for ever"))
}

fn names_the_runtime(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Shutdown, "{error:?}");
    let why = "the tokio runtime on which the locker was made has ended";
    assert!(error.to_string().contains(why), "{error}");
}

/// Checks every call that a program may make on a locker whose runtime has ended.
async fn everything_ends(left: Left) {
    let Left {
        locker,
        lease,
        mut events,
        taken,
    } = left;
    assert_eq!(
        soon("lost", lease.lost()).await.reason,
        LossReason::Shutdown
    );
    assert!(!lease.is_valid() && lease.remaining().is_zero());
    let mut lost = 0;
    while let Some(event) = soon("the stream of events", events.next()).await {
        lost += u32::from(matches!(
            event,
            LeaseEvent::Lost {
                reason: LossReason::Shutdown,
                ..
            }
        ));
    }
    assert_eq!(lost, 1);
    let lock = locker.lock(taken).expect("valid");
    names_the_runtime(
        &soon("acquire", lock.acquire())
            .await
            .expect_err("the runtime ended"),
    );
    let tried = soon("try_acquire", lock.try_acquire()).await;
    names_the_runtime(&tried.expect_err("the runtime ended"));
    let within = soon("acquire_within", lock.acquire_within(LIMIT)).await;
    names_the_runtime(&within.expect_err("the runtime ended"));
    names_the_runtime(
        &soon("inspect", locker.inspect("x"))
            .await
            .expect_err("the runtime ended"),
    );
    let listed = soon("list", locker.list("*").next()).await;
    names_the_runtime(&listed.expect("an answer").expect_err("the runtime ended"));
    names_the_runtime(
        &soon("renew", lease.renew())
            .await
            .expect_err("the runtime ended"),
    );
    let tenure = soon("hold", lock.hold().next()).await;
    assert!(tenure.is_none());
    let later = soon("events of a later reader", locker.events().next()).await;
    assert_eq!(later, None);
    let released = soon("release", lease.release()).await;
    assert!(released.expect_err("a lost lease").is_not_held());
    soon("shutdown", locker.shutdown()).await;
}

/// Makes a locker on the first runtime, ends that runtime while a call of the second one is pending, and
/// checks the rest of the locker.
fn ends(first: Runtime, second: &Runtime, locker: impl AsyncFnOnce() -> Locker + Send + 'static) {
    let (made, left) = oneshot::channel();
    let (end, ending) = oneshot::channel::<()>();
    let life = std::thread::spawn(move || {
        let left = first.block_on(async { Left::of(locker().await).await });
        made.send(left).ok().expect("the test waits");
        first.block_on(ending).expect("the test has come so far");
        drop(first);
    });
    second.block_on(async {
        let left = left.await.expect("the locker is made");
        let lock = left.locker.lock(&left.taken).expect("valid");
        let waiting = tokio::spawn(async move { lock.acquire().await });
        let waits = async || {
            let inspection = left.locker.inspect(&left.taken).await;
            inspection.expect("an answer").waiting == 1
        };
        eventually(LIMIT, "the call is pending", waits).await;
        end.send(()).expect("the runtime lives");
        let waited = soon("a call under way", waiting).await.expect("no panic");
        names_the_runtime(&waited.expect_err("the runtime ended"));
        everything_ends(left).await;
    });
    life.join().expect("no panic as the runtime ends");
}

#[test]
fn on_redis_everything_ends_with_the_runtime() {
    for (first, second) in [
        (one_thread(), one_thread()),
        (two_threads(), one_thread()),
        (one_thread(), two_threads()),
    ] {
        let server = second.block_on(RedisServer::start());
        let url = server.url();
        ends(first, &second, async move || {
            connect_with(Locker::builder(), &url).await
        });
        second.block_on(async {
            let mut admin = Admin::connect(&server).await;
            let alone =
                async || admin.info("clients", "connected_clients").await.as_deref() == Some("1");
            eventually(LIMIT, "the connections are closed", alone).await;
        });
    }
}

#[test]
fn in_memory_everything_ends_with_the_runtime() {
    for (first, second) in [(one_thread(), one_thread()), (two_threads(), two_threads())] {
        ends(first, &second, async || Locker::in_memory());
    }
}

/// Catches a client of the program that ends with the locker: it lives on, and a new locker can use it.
#[test]
fn with_a_client_of_another_runtime_everything_ends_with_the_locker_s() {
    let (clients, lockers, others) = (two_threads(), one_thread(), one_thread());
    let server = clients.block_on(RedisServer::start());
    let client = clients.block_on(own_client(&server));
    let with_fred = |client| async {
        Locker::with_fred(client)
            .await
            .expect("the client is connected")
    };
    let same = client.clone();
    ends(lockers, &others, async move || with_fred(same).await);
    others.block_on(async {
        let locker = with_fred(client).await;
        let lock = locker.lock("new").expect("valid");
        assert!(lock.try_acquire().await.expect("an answer").is_some());
    });
}

/// Catches a shared in-memory store that ends with one locker: the store and its leases live on, to their
/// expiry.
#[test]
fn others_are_served_on_a_shared_store_in_memory() {
    let (first, second) = (one_thread(), one_thread());
    let url = format!("memory://{}", unique_name("store"));
    let made = async || Locker::connect(&url).await.expect("in memory");
    let (lease, name) = first.block_on(async {
        let lock = made().await.lock("x").expect("valid");
        let lock = lock.ttl(Duration::from_secs(2));
        let lease = lock.acquire().await.expect("a free lock");
        (lease, lock.name().clone())
    });
    let other = second.block_on(made());
    drop(first);
    second.block_on(async {
        assert!(!lease.is_valid());
        let lock = other.lock(name.as_str()).expect("valid");
        let next = soon("the next holder", lock.acquire()).await;
        assert!(next.expect("the lease expired").token() > lease.token());
    });
}

/// Catches a shutdown that is reported as the end of the runtime.
#[test]
fn a_shutdown_is_reported_after_the_end_of_the_runtime_too() {
    let (first, second) = (one_thread(), one_thread());
    let locker = first.block_on(async {
        let locker = Locker::in_memory();
        locker.shutdown().await;
        // The end of the streams is the last step of the background task.
        assert_eq!(soon("the end", locker.events().next()).await, None);
        locker
    });
    drop(first);
    second.block_on(async {
        let lock = locker.lock("x").expect("valid");
        let error = soon("acquire", lock.acquire())
            .await
            .expect_err("the runtime ended");
        assert!(error.to_string().contains("was shut down"), "{error}");
    });
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("on purpose");
    }
}

/// Catches a background task that ends without failing the pending calls, and a panic during a panic.
#[test]
fn wakers_that_panic_end_the_locker_and_not_the_process() {
    let runtime = two_threads();
    runtime.block_on(async {
        let locker = Locker::in_memory();
        let lock = locker.lock("x").expect("valid");
        let short = lock.ttl(Duration::from_millis(100)).fixed();
        let other = locker.lock("y").expect("valid");
        let _expires = short.acquire().await.expect("a free lock");
        let lease = other.acquire().await.expect("a free lock");
        let waker = Arc::new(Panics).into();
        let mut readers = [short.events(), other.events()];
        for events in &mut readers {
            let mut context = Context::from_waker(&waker);
            assert!(events.poll_next_unpin(&mut context).is_ready());
            assert!(events.poll_next_unpin(&mut context).is_pending());
        }
        assert_eq!(
            soon("lost", lease.lost()).await.reason,
            LossReason::Shutdown
        );
        let error = soon("acquire", other.acquire()).await;
        let error = error.expect_err("the runtime ended");
        assert_eq!(error.kind(), ErrorKind::Shutdown);
        assert!(error.to_string().contains("task panicked"), "{error}");
    });
}

/// Catches a caller whose thread has no runtime, and panics in the client of the server.
#[test]
fn calls_may_be_polled_outside_of_any_runtime() {
    let home = two_threads();
    let (server, locker) = home.block_on(async {
        let server = RedisServer::start().await;
        let locker = Locker::connect(server.url()).await;
        (server, locker.expect("the server is up"))
    });
    let outside = std::thread::spawn(move || {
        futures::executor::block_on(async {
            let lease = locker.lock("outside")?.acquire().await?;
            lease.renew().await?;
            assert!(locker.inspect("outside").await?.holder.is_some());
            lease.release().await?;
            locker.shutdown().await;
            Ok::<_, Error>(())
        })
    });
    outside
        .join()
        .expect("no panic")
        .expect("the calls succeed");
    home.block_on(async { drop(server) });
}

#[test]
fn a_locker_outside_of_any_runtime_is_refused() {
    let connects = futures::executor::block_on(Locker::connect("redis://127.0.0.1:1"));
    let lazily = Locker::builder().connect_lazily("redis://127.0.0.1:1");
    for refused in [connects, lazily, Locker::builder().in_memory()] {
        let error = refused.expect_err("there is no runtime");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("tokio runtime"), "{error}");
    }
}
