//! The shortest leases: their loss is told in time too, by the server's own expiry.

use std::time::Duration;

use leasehold::Locker;
use leasehold_tests::{Admin, RedisServer};

use crate::{KEY, LIMIT, ONE_AT_A_TIME, expiry, wall_clock};

/// So many leases of each length, one after the other.
const LEASES: usize = 40;
/// A timer of a busy machine is late for no fault of the lock's.
const STRAY: usize = 2;
/// A series in which the machine was busy proves nothing.
const SERIES: usize = 5;

/// Catches a loss that is told too shortly before the deadline for a timer of whole milliseconds:
/// of leases of 10 ms most were told after the server's expiry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_the_shortest_leases_is_told_before_the_server_frees_them() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let server = RedisServer::start().await;
    let locker = Locker::connect(server.url())
        .await
        .expect("the server is there");
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
        assert!(late.len() <= STRAY, "{ttl:?}: told late, by {late:?}");
    }
}

/// By how much those losses were late that were.
async fn late_losses(locker: &Locker, admin: &mut Admin, ttl: Duration) -> Vec<Duration> {
    let lock = locker.lock("x").expect("valid").ttl(ttl).fixed();
    let (mut measured, mut late) = (0, Vec::new());
    for _ in 0..LEASES * 10 {
        let acquired = lock.acquire_within(LIMIT).await.expect("an answer");
        let lease = acquired.expect("it is free soon");
        // A lease that is over before it was looked at tells nothing.
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
    panic!("{measured} of {LEASES} leases of {ttl:?} could be looked at");
}
