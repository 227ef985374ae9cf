//! A machine that was suspended: the timers of a runtime stood still meanwhile, and the lock's clock
//! did not.

use std::time::Duration;

use leasehold::{LeaseEvent, Locker};
use leasehold_tests::{RedisServer, Stopwatch, next_event};

use crate::{LIMIT, ONE_AT_A_TIME};

const TTL: Duration = Duration::from_secs(4);
/// The background task looks at the clock every half second; and as much again for a busy machine.
const SOON: Duration = Duration::from_secs(1);

/// Catches a background task that sleeps by its timer alone: it would wake as long after the deadline as
/// the machine was suspended, here for the whole of the lease.
#[tokio::test]
async fn the_loss_is_told_soon_after_the_machine_wakes() {
    let _turn = ONE_AT_A_TIME.lock().await;
    // Not a store in memory, which would go by the paused time.
    let server = RedisServer::start().await;
    let locker = Locker::connect(server.url()).await.expect("it is there");
    let lock = locker.lock("x").expect("valid");
    let lock = lock.ttl(TTL).fixed();
    let mut events = lock.events();
    let lease = lock.acquire().await.expect("it is free");
    // Here the background task sets its timer.
    tokio::task::yield_now().await;
    tokio::time::pause();
    // As long as a blocking task runs, paused time does not go on by itself.
    let asleep = tokio::task::spawn_blocking(|| std::thread::sleep(TTL));
    asleep.await.expect("it sleeps");
    tokio::time::resume();
    let woken = Stopwatch::start();
    assert!(!lease.is_valid(), "it needs no event to be invalid");
    let lost = |event: &LeaseEvent| matches!(event, LeaseEvent::Lost { .. });
    next_event(&mut events, LIMIT, lost).await;
    let after = woken.elapsed();
    assert!(after < SOON, "told {after:?} after it woke");
}
