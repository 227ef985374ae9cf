//! A locker's use of the heap: bytes of a locker and of a held lease, and allocations of a pair. Also its
//! connections, and the number of operations that it puts into a call.

use std::alloc::System;
use std::ops::Range;
use std::time::Duration;

use futures::future::try_join_all;
use leasehold::{Lease, Lock, Locker};
use leasehold_tests::{Admin, RedisServer, eventually};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use crate::{Figures, Result};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PAIRS: usize = 1_024;
/// The number of times that pairs are counted. A busy machine delays callers, whose operations then leave in
/// more calls: the least is what the code costs.
const REPEATS: usize = 5;
const HELD: usize = 20_000;
const LOCKERS: usize = 100;
/// The connections of this program besides its lockers'.
const ADMIN: u64 = 1;
const LIMIT: Duration = Duration::from_secs(10);

pub(crate) fn measure(figures: &mut Figures) -> Result<()> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(measure_all(figures))
}

async fn measure_all(figures: &mut Figures) -> Result<()> {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    for (store, url) in [
        ("Redis", server.url()),
        ("memory", "memory://costs".to_owned()),
    ] {
        let locker = Locker::connect(&url).await?;
        for callers in [1, 64] {
            pairs(&locker, callers).await?;
            for _ in 0..REPEATS {
                let before = admin.script_calls().await;
                let region = Region::new(HEAP);
                pairs(&locker, callers).await?;
                let counted = region.change();
                let allocations = counted.allocations + counted.reallocations;
                let what = format!("heap: allocations of a pair, {callers} at once, on {store}");
                keep_least(figures, what, allocations as f64 / PAIRS as f64);
                let calls = admin.script_calls().await - before;
                if calls > 0 {
                    let what = format!("host: script calls of a pair, {callers} at once");
                    keep_least(figures, what, calls as f64 / PAIRS as f64);
                }
            }
        }
        locker.shutdown().await;
    }
    held(figures, &server).await?;
    lockers(figures, &server, &mut admin).await
}

fn keep_least(figures: &mut Figures, what: String, count: f64) {
    let least = figures.entry(what).or_insert(count);
    *least = least.min(count);
}

async fn held(figures: &mut Figures, server: &RedisServer) -> Result<()> {
    let locker = Locker::connect(server.url()).await?;
    // After this the tables have their size.
    for lease in hold(&locker, 0..HELD, Vec::new()).await? {
        lease.release().await?;
    }
    let leases = Vec::with_capacity(HELD);
    let region = Region::new(HEAP);
    let leases = hold(&locker, HELD..2 * HELD, leases).await?;
    let counted = region.change();
    let bytes = counted.bytes_allocated as f64 - counted.bytes_deallocated as f64;
    figures.insert(
        "heap: bytes of a lease that is held".to_owned(),
        bytes / HELD as f64,
    );
    drop(leases);
    locker.shutdown().await;
    Ok(())
}

/// Measures a locker by URL that has both of its connections, as the mean of many in one process.
async fn lockers(figures: &mut Figures, server: &RedisServer, admin: &mut Admin) -> Result<()> {
    // The first locker of a process also allocates what all of them share.
    open(server, admin, 1).await?[0].shutdown().await;
    eventually(LIMIT, "all earlier lockers are gone", async || {
        connections(admin).await == ADMIN
    })
    .await;
    let region = Region::new(HEAP);
    let lockers = open(server, admin, LOCKERS).await?;
    let counted = region.change();
    let bytes = counted.bytes_allocated as f64 - counted.bytes_deallocated as f64;
    let opened = connections(admin).await - ADMIN;
    let mut insert = |what: &str, count: f64| {
        figures.insert(what.to_owned(), count / LOCKERS as f64);
    };
    insert("heap: bytes of a locker by URL", bytes);
    insert("host: connections of a locker by URL", opened as f64);
    drop(lockers);
    Ok(())
}

/// Opens lockers one after the other, each until it hears pushes: its first acquisition subscribes.
async fn open(server: &RedisServer, admin: &mut Admin, count: usize) -> Result<Vec<Locker>> {
    let mut lockers = Vec::with_capacity(count);
    for number in 0..count {
        let locker = Locker::connect(server.url()).await?;
        let lease = locker.lock("orders")?.acquire().await?;
        lease.release().await?;
        lockers.push(locker);
        eventually(LIMIT, "the locker hears pushes", async || {
            admin.hearing_lockers().await == number + 1
        })
        .await;
    }
    Ok(lockers)
}

async fn connections(admin: &mut Admin) -> u64 {
    let count = admin.info("clients", "connected_clients").await;
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// All callers acquire, and then all release, so that the same operations leave together in each run.
async fn pairs(locker: &Locker, callers: usize) -> Result<()> {
    let locks = (0..callers).map(|caller| locker.lock(format!("orders/{caller:06}")));
    let locks = locks.collect::<std::result::Result<Vec<_>, _>>()?;
    for _ in 0..PAIRS / callers {
        let leases = try_join_all(locks.iter().map(Lock::acquire)).await?;
        try_join_all(leases.into_iter().map(Lease::release)).await?;
    }
    Ok(())
}

async fn hold(locker: &Locker, range: Range<usize>, mut leases: Vec<Lease>) -> Result<Vec<Lease>> {
    for number in range {
        leases.push(
            locker
                .lock(format!("orders/{number:06}"))?
                .acquire()
                .await?,
        );
    }
    Ok(leases)
}
