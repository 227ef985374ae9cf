//! The shortest leases: for them, too, `Lost` comes before the server's own expiry.

use std::time::Duration;

use leasehold::Locker;
use leasehold_tests::{Admin, RedisServer};

use crate::{KEY, LIMIT, ONE_AT_A_TIME, expiry, wall_clock};

/// The number of leases of each length, one after the other.
const LEASES: usize = 40;
/// How many of them may be late, besides as many as plain timers of this process: on a busy machine each timer is late
/// now and then.
const STRAY: usize = 2;
/// How long before the expiry the plain timer is due.
const LEAD: Duration = Duration::from_millis(2);
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
        let mut series = 0;
        loop {
            let (late, late_timers) = late_losses(&locker, &mut admin, ttl).await;
            let told = late.len();
            println!("{ttl:?}: {told} of {LEASES} told late, {late_timers} timers: {late:?}");
            if told <= STRAY + late_timers {
                break;
            }
            series += 1;
            assert!(series < SERIES, "{ttl:?}: the loss came late by {late:?}");
        }
    }
}

/// Returns how late the late losses were, and how many plain timers were late.
async fn late_losses(locker: &Locker, admin: &mut Admin, ttl: Duration) -> (Vec<Duration>, usize) {
    let lock = locker.lock("x").expect("valid").ttl(ttl).fixed();
    let (mut measured, mut late, mut late_timers) = (0, Vec::new(), 0);
    let late_at = |expiry| {
        wall_clock()
            .checked_sub(expiry)
            .filter(|late| !late.is_zero())
    };
    for _ in 0..LEASES * 10 {
        let acquired = lock.acquire_within(LIMIT).await.expect("an answer");
        let lease = acquired.expect("the lock is free soon");
        // The lease was over before the server could be asked, so it does not count.
        let Some(expiry) = expiry(admin, KEY).await else {
            continue;
        };
        let told = async {
            lease.lost().await;
            late_at(expiry)
        };
        let timer = async {
            tokio::time::sleep(expiry.saturating_sub(wall_clock() + LEAD)).await;
            late_at(expiry)
        };
        let (told, timer) = tokio::join!(told, timer);
        late.extend(told);
        late_timers += usize::from(timer.is_some());
        measured += 1;
        if measured == LEASES {
            return (late, late_timers);
        }
    }
    panic!("only {measured} of {LEASES} leases of {ttl:?} could be measured");
}
