//! The shortest leases: for them, too, `Lost` comes before the server's own expiry.

use std::time::Duration;

use leasehold::Locker;
use leasehold_tests::{Admin, RedisServer};

use crate::{KEY, LIMIT, ONE_AT_A_TIME, expiry, wall_clock};

/// The number of leases of each length, one after the other.
const LEASES: usize = 40;
/// How many of them may be late: on a busy machine a timer is late now and then.
const STRAY: usize = 2;
/// The largest number of series: on a busy machine a single one proves nothing.
const SERIES: usize = 5;

/// Catches a `Lost` that is due so shortly before the deadline that a timer with millisecond resolution is
/// late: with leases of 10 ms most came after the server's expiry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_loss_of_the_shortest_leases_comes_before_the_server_frees_them() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let server = RedisServer::start().await;
    let locker = Locker::connect(server.url())
        .await
        .expect("the server is up");
    let mut admin = Admin::connect(&server).await;
    for millis in [10, 15, 20, 30] {
        let ttl = Duration::from_millis(millis);
        let mut late = Vec::new();
        for _ in 0..SERIES {
            late = late_losses(&locker, &mut admin, ttl).await;
            println!("{ttl:?}: {} of {LEASES} told late: {late:?}", late.len());
            if late.len() <= STRAY {
                break;
            }
        }
        assert!(
            late.len() <= STRAY,
            "{ttl:?}: the loss came late by {late:?}"
        );
    }
}

/// Returns how late the late losses were.
async fn late_losses(locker: &Locker, admin: &mut Admin, ttl: Duration) -> Vec<Duration> {
    let lock = locker.lock("x").expect("valid").ttl(ttl).fixed();
    let (mut measured, mut late) = (0, Vec::new());
    for _ in 0..LEASES * 10 {
        let acquired = lock.acquire_within(LIMIT).await.expect("an answer");
        let lease = acquired.expect("the lock is free soon");
        // The lease was over before the server could be asked, so it does not count.
        let Some(expiry) = expiry(admin, KEY).await else {
            continue;
        };
        lease.lost().await;
        let told = wall_clock();
        late.extend(told.checked_sub(expiry).filter(|late| !late.is_zero()));
        measured += 1;
        if measured == LEASES {
            return late;
        }
    }
    panic!("only {measured} of {LEASES} leases of {ttl:?} could be measured");
}
