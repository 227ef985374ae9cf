//! Programs that pause tokio's time in their tests.

use std::time::{Duration, Instant};

use leasehold::{LeaseEvent, Locker, LossReason};
use leasehold_tests::RedisServer;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::oneshot;
use tokio::time::{advance, pause, sleep};
use tokio_stream::StreamExt;

use crate::{LIMIT, connect, millis};

const TTL: Duration = Duration::from_secs(30);

/// Catches a lease that follows real time while the test's time runs ahead.
#[tokio::test(start_paused = true)]
async fn a_lease_expires_by_the_paused_clock() {
    let begin = Instant::now();
    let locker = Locker::in_memory();
    let lock = locker.lock("x").expect("valid").ttl(TTL).fixed();
    let lease = lock.acquire().await.expect("a free lock");
    sleep(Duration::from_secs(29)).await;
    assert!(lease.is_valid());
    assert!(lease.remaining() < Duration::from_secs(2));
    let age = lease.began().elapsed().expect("the time is past");
    assert!(age >= Duration::from_secs(29), "{age:?}");
    assert_eq!(lease.lost().await.reason, LossReason::Expired);
    assert!(!lease.is_valid());
    assert!(begin.elapsed() < LIMIT, "in no time");
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_by_the_paused_clock() {
    let begin = Instant::now();
    let locker = Locker::in_memory();
    let lock = locker.lock("x").expect("valid").ttl(TTL);
    let mut events = lock.events();
    let lease = lock.acquire().await.expect("a free lock");
    let mut renewals = 0;
    let hour = sleep(Duration::from_secs(3_600));
    tokio::pin!(hour);
    loop {
        tokio::select! {
            () = &mut hour => break,
            event = events.next() => match event.expect("the lock is there") {
                LeaseEvent::Renewed { .. } => renewals += 1,
                LeaseEvent::Acquired { .. } => {}
                other => panic!("{other:?}"),
            },
        }
    }
    assert!(lease.is_valid());
    assert!((350..500).contains(&renewals), "{renewals} in an hour");
    lease.release().await.expect("a held lock");
    assert!(begin.elapsed() < LIMIT, "in no time");
}

#[tokio::test(start_paused = true)]
async fn waiters_wait_by_the_paused_clock() {
    let begin = Instant::now();
    let locker = Locker::in_memory();
    let lock = locker.lock("x").expect("valid").ttl(TTL).fixed();
    let _lease = lock.acquire().await.expect("a free lock");
    let other = locker.lock("x").expect("valid");
    let asked = tokio::time::Instant::now();
    let none = other.acquire_within(Duration::from_secs(10)).await;
    assert!(none.expect("an answer").is_none());
    assert_eq!(asked.elapsed().as_secs(), 10);
    let next = other.acquire().await.expect("the lease expires");
    assert!((28..32).contains(&asked.elapsed().as_secs()));
    assert!(next.is_valid());
    assert!(begin.elapsed() < LIMIT, "in no time");
}

/// Catches a lease that survives a jump: a process that stood still sees the same, and its lease was not
/// renewed.
#[tokio::test(start_paused = true)]
async fn a_jump_past_its_deadline_loses_a_lease() {
    let locker = Locker::in_memory();
    let lock = locker.lock("x").expect("valid").ttl(TTL);
    let lease = lock.acquire().await.expect("a free lock");
    advance(TTL / 2).await;
    assert!(lease.is_valid());
    advance(TTL * 2).await;
    assert!(!lease.is_valid());
    assert_eq!(lease.lost().await.reason, LossReason::Expired);
}

/// Catches a lease that is moved by a later pause of time, which goes on from there.
#[tokio::test]
async fn pausing_time_later_moves_no_lease() {
    let locker = Locker::in_memory();
    let lock = locker.lock("x").expect("valid").ttl(TTL).fixed();
    let lease = lock.acquire().await.expect("a free lock");
    let before = lease.remaining();
    pause();
    let after = lease.remaining();
    assert!(after <= before && after + millis(2_000) > before);
    sleep(TTL).await;
    assert!(!lease.is_valid());
}

fn cpu_of_this_thread() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).expect("positive");
    let nanos = u32::try_from(time.tv_nsec).expect("less than a second");
    Duration::new(seconds, nanos)
}

/// Catches a background task whose timers fire at once again and again, which takes more than half of a core.
#[tokio::test]
async fn a_locker_on_a_server_idles_while_time_is_paused() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let lock = locker.lock("x").expect("valid").ttl(millis(60_000));
    let lease = lock.acquire().await.expect("a free lock");
    pause();
    let before = cpu_of_this_thread();
    // Not by tokio's timers, since their time is paused.
    let (slept, sleeping) = oneshot::channel();
    std::thread::spawn(move || {
        std::thread::sleep(millis(1_000));
        slept.send(()).expect("the test waits");
    });
    sleeping.await.expect("the thread sleeps");
    let burnt = cpu_of_this_thread().saturating_sub(before);
    assert!(burnt < millis(200), "{burnt:?} of CPU in a second");
    assert!(lease.is_valid());
}
