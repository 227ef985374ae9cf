//! Many lockers in one process: their memory, connections and tasks, and their pairs beside a shared locker
//! and beside as many clients without the lock.

use std::iter::once;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use leasehold::{Lease, Lock, Locker};
use leasehold_tests::{Admin, RedisServer, eventually};
use tokio::runtime::Handle;
use tokio::time::sleep;

use crate::sides::{self, Side};
use crate::stats::{line, resident, threads};
use crate::{Options, Result};

const OPEN: usize = 100;
const LOCKERS: usize = 16;
const HELD: usize = 10_000;
const BURST: usize = 1_000;
const BURSTS: usize = 4;
const SETTLED: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(10);
const CALLERS: [usize; 3] = [16, 64, 256];

pub(crate) async fn run(options: &Options) -> Result<()> {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    if !options.alone {
        memory(&server, &mut admin).await?;
        bursts(&server, &mut admin).await?;
    }

    let mut clients = Vec::with_capacity(LOCKERS);
    for _ in 0..LOCKERS {
        clients.push(crate::bare_client(&server).await?);
    }
    let [_, delete] = sides::scripts(&clients[..1]).await?;
    let one = vec![clients[0].clone()];
    let mut all = vec![
        ("16 lockers", Side::Lockers(open(&server, LOCKERS).await?)),
        (
            "one locker, shared",
            Side::Lock(Locker::connect(server.url()).await?),
        ),
        (
            "SET NX + CAD by 16 clients",
            Side::SetsApart(clients, delete.clone()),
        ),
        ("SET NX + CAD by one client", Side::SetsApart(one, delete)),
    ];
    if options.alone {
        all.truncate(1);
    }
    println!(
        "pairs: medians of {} rounds; the ratios are those of the 16 lockers to the others",
        options.rounds()
    );
    let mut admins = [admin];
    for callers in options.callers.map_or(CALLERS.to_vec(), |one| vec![one]) {
        sides::compare(&all, callers, options.rounds(), &mut admins).await?;
    }
    Ok(())
}

/// Shows what each of many lockers adds to its process. `cargo xtask costs` has the exact bytes of the heap.
async fn memory(server: &RedisServer, admin: &mut Admin) -> Result<()> {
    // The first locker of a process also allocates what all of them share.
    let first = open(server, 1).await?;
    let before = Counts::take(admin).await?;
    let lockers = open(server, OPEN).await?;
    let after = Counts::take(admin).await?;
    println!("{OPEN} lockers by URL in one process, which all hear pushes: for each of them");
    let each = |after: usize, before: usize| {
        let more = after.saturating_sub(before) as f64 / OPEN as f64;
        format!("{more:.1}")
    };
    line(
        "KiB resident",
        &each(after.resident / 1_024, before.resident / 1_024),
        "<= 300",
    );
    line(
        "connections",
        &each(after.connections, before.connections),
        "<= 2",
    );
    line("tasks", &each(after.tasks, before.tasks), "");
    line("threads", &each(after.threads, before.threads), "0");
    drop((first, lockers));
    Ok(())
}

/// Deletes many of a locker's locks at once, several times. At first the locker misses some of the pushes: it
/// checks all its locks, and makes room for more pushes at a time.
async fn bursts(server: &RedisServer, admin: &mut Admin) -> Result<()> {
    let locker = Locker::connect(server.url()).await?;
    for number in 1..=BURSTS {
        let names = (0..HELD).map(|name| locker.lock(format!("burst-{name}")));
        let locks = names.collect::<std::result::Result<Vec<_>, _>>()?;
        let leases = try_join_all(locks.iter().map(Lock::acquire)).await?;
        eventually(LIMIT, "all locks are tracked", async || {
            let tracked = admin.info("stats", "tracking_total_keys").await;
            tracked == Some(HELD.to_string())
        })
        .await;
        let keys = admin.keys("*burst-*").await.into_iter().take(BURST);
        let keys: Vec<_> = keys.collect();
        let delete = once("UNLINK").chain(keys.iter().map(String::as_str));
        let delete: Vec<_> = delete.collect();
        let (calls, begin) = (admin.script_calls().await, Instant::now());
        admin.command(&delete).await;
        eventually(LIMIT, "all losses are known", async || {
            leases.iter().filter(|lease| !lease.is_valid()).count() == BURST
        })
        .await;
        let took = format!("{:.0?}", begin.elapsed());
        // Late checks also count.
        sleep(SETTLED).await;
        let calls = admin.script_calls().await - calls;
        println!("burst {number}: {BURST} of {HELD} leases deleted at once");
        let left = leases.into_iter().filter(Lease::is_valid);
        try_join_all(left.map(Lease::release)).await?;
        line("until all are known to be lost", &took, "");
        line("script calls", &calls.to_string(), "");
    }
    locker.shutdown().await;
    Ok(())
}

struct Counts {
    resident: usize,
    connections: usize,
    tasks: usize,
    threads: usize,
}

impl Counts {
    async fn take(admin: &mut Admin) -> Result<Self> {
        let connections = admin.info("clients", "connected_clients").await;
        Ok(Self {
            resident: resident()?,
            connections: connections.ok_or("INFO has no clients")?.parse()?,
            tasks: Handle::current().metrics().num_alive_tasks(),
            threads: threads()?,
        })
    }
}

/// Opens lockers that have acquired once, and so have subscribed.
async fn open(server: &RedisServer, count: usize) -> Result<Vec<Locker>> {
    let mut lockers = Vec::with_capacity(count);
    for _ in 0..count {
        let locker = Locker::connect(server.url()).await?;
        locker.lock("first")?.acquire().await?.release().await?;
        lockers.push(locker);
    }
    let mut admin = Admin::connect(server).await;
    eventually(LIMIT, "all lockers hear pushes", async || {
        admin.hearing_lockers().await >= count
    })
    .await;
    Ok(lockers)
}
