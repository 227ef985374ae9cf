//! A suspended machine: the timers of the runtime stood still meanwhile, and the lock's clock did not.

use std::time::Duration;

use leasehold::{LeaseEvent, Locker};
use leasehold_tests::{RedisServer, Stopwatch, next_event};

use crate::{LIMIT, ONE_AT_A_TIME};

const TTL: Duration = Duration::from_secs(4);
/// The background task checks the clock every half second; as much again is for a busy machine.
const SOON: Duration = Duration::from_secs(1);

/// Catches a background task that sleeps by its timer alone: after the suspension it would sleep for as long
/// as the machine did, here for the whole lease.
#[tokio::test]
async fn the_loss_is_reported_soon_after_the_machine_wakes() {
    let _turn = ONE_AT_A_TIME.lock().await;
    // Not an in-memory store, which would follow the paused time.
    let server = RedisServer::start().await;
    let locker = Locker::connect(server.url())
        .await
        .expect("the server is up");
    let lock = locker.lock("x").expect("valid");
    let lock = lock.ttl(TTL).fixed();
    let mut events = lock.events();
    let lease = lock.acquire().await.expect("a free lock");
    // After its first reads of the lock's key, the background task sets its timer for the lease's end.
    tokio::time::sleep(Duration::from_millis(200)).await;
    tokio::time::pause();
    // While a blocking task runs, paused time does not advance by itself.
    let asleep = tokio::task::spawn_blocking(|| std::thread::sleep(TTL));
    asleep.await.expect("the thread sleeps");
    tokio::time::resume();
    let woken = Stopwatch::start();
    assert!(
        !lease.is_valid(),
        "the lease becomes invalid without an event"
    );
    let lost = |event: &LeaseEvent| matches!(event, LeaseEvent::Lost { .. });
    next_event(&mut events, LIMIT, lost).await;
    let after = woken.elapsed();
    assert!(
        after < SOON,
        "the loss was reported {after:?} after the machine woke"
    );
}
