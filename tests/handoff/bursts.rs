//! Bursts of more pushes than the client has room for: some are missed, and every effect comes in time.
//!
//! On one thread a client reads all of a burst before it handles any of it, so the burst overflows each time.

use futures::future::{join_all, try_join_all};
use leasehold::{Lease, Lock, Locker, LossReason};
use leasehold_tests::{Admin, Direction, Mode, Proxy, RedisServer, Stopwatch, eventually, within};

use crate::{LIMIT, SLACK, connect, connect_url, lock_key, subscribed, waiting};

/// More than the room for pushes after it has grown once.
const BURST: usize = 1_000;

fn locks(locker: &Locker) -> Vec<Lock> {
    let names = (0..BURST).map(|number| format!("x{number}"));
    let locks = names.map(|name| locker.lock(name).expect("a valid name"));
    locks.collect()
}

async fn all_held(locks: &[Lock]) -> Vec<Lease> {
    let held = try_join_all(locks.iter().map(Lock::acquire)).await;
    held.expect("free locks")
}

/// Returns the last connection for pushes that was opened.
async fn newest_listener(admin: &mut Admin) -> u64 {
    let list = admin.string(&["CLIENT", "LIST", "TYPE", "pubsub"]).await;
    let list = list.unwrap_or_default();
    let ids = list.lines().filter_map(|line| {
        let id = line.strip_prefix("id=")?.split(' ').next()?;
        id.parse().ok()
    });
    ids.max().expect("the locker listens")
}

/// Catches holders whose loss was among the missed pushes: their next renewal is 8 s away.
#[tokio::test]
async fn a_burst_of_losses_reaches_every_holder() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let leases = all_held(&locks(&connect(&server).await)).await;
    eventually(LIMIT, "all keys are tracked", async || {
        let tracked = admin.info("stats", "tracking_total_keys").await;
        tracked == Some(BURST.to_string())
    })
    .await;
    let listener = newest_listener(&mut admin).await;
    let keys: Vec<_> = (0..BURST)
        .map(|number| lock_key(&format!("x{number}")))
        .collect();
    let mut delete = vec!["UNLINK"];
    delete.extend(keys.iter().map(String::as_str));
    let begin = Stopwatch::start();
    admin.command(&delete).await;
    let lost = within(SLACK * 2, join_all(leases.iter().map(Lease::lost))).await;
    println!("all were lost after {:.0?}", begin.elapsed());
    let lost = lost.expect("every holder hears of its loss");
    assert!(lost.iter().all(|lost| lost.reason == LossReason::Deleted));
    assert!(
        newest_listener(&mut admin).await > listener,
        "some pushes were missed"
    );
}

/// Catches waiters whose turn was among the missed pushes: their next heartbeat is up to 5 s away.
#[tokio::test]
async fn a_burst_of_grants_reaches_every_waiter() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let holder = connect(&server).await;
    let held = all_held(&locks(&holder)).await;
    let proxy = Proxy::start(server.port()).await;
    let locker = connect_url(&proxy.url()).await;
    let waiters: Vec<_> = locks(&locker).iter().map(waiting).collect();
    eventually(LIMIT, "all waiters are in line", async || {
        admin.keys("*}:line").await.len() == BURST
    })
    .await;
    subscribed(&mut admin, 2).await;
    let listener = newest_listener(&mut admin).await;
    proxy.only(1);
    proxy.set(Direction::Down, Mode::Hold);
    let released = try_join_all(held.into_iter().map(Lease::release)).await;
    released.expect("held locks");
    let begin = Stopwatch::start();
    proxy.set(Direction::Down, Mode::Pass);
    let leases = within(SLACK, try_join_all(waiters)).await;
    println!("all were served after {:.0?}", begin.elapsed());
    let _held = leases.expect("every waiter is served").expect("no panic");
    assert!(
        newest_listener(&mut admin).await > listener,
        "some pushes were missed"
    );
}
