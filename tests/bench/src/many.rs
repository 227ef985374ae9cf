//! Many leases of one locker, held through several renewal periods: their cost for the client and the server,
//! and a check that none is lost.
//!
//! A period is a third of the time to live, the longest time between two renewals of a lease.

use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use leasehold::{Lease, Lock, Locker};
use leasehold_tests::{Admin, RedisServer, eventually};

use crate::Result;
use crate::stats::{line, processor_time, resident, server_time};

const PERIODS: u32 = 3;
const PERIOD: Duration = Duration::from_secs(Lock::DEFAULT_TTL.as_secs() / 3);
/// How many leases are acquired at a time.
const AT_ONCE: usize = 256;
/// Leases that are acquired and released before the measurement, so that buffers have their size.
const WARM_UP: usize = 2 * AT_ONCE;

/// Counts that are taken before and after.
struct Counts {
    at: Instant,
    client: f64,
    server: f64,
    scripts: u64,
    renewals: u64,
}

impl Counts {
    async fn take(admin: &mut Admin, locker: &Locker) -> Result<Self> {
        Ok(Self {
            scripts: admin.script_calls().await,
            renewals: locker.stats().renewals,
            server: server_time(admin).await?,
            client: processor_time(),
            at: Instant::now(),
        })
    }
}

pub(crate) async fn run(count: usize) -> Result<()> {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let locker = Locker::connect(server.url()).await?;
    drop(acquire(&locker, WARM_UP).await?);
    eventually(Duration::from_secs(10), "the first releases", async || {
        locker.list("*").next().await.is_none()
    })
    .await;

    let (empty, begin) = (resident()?, Instant::now());
    let leases = acquire(&locker, count).await?;
    let (full, took) = (resident()?, begin.elapsed());
    let before = Counts::take(&mut admin, &locker).await?;
    tokio::time::sleep(PERIOD * PERIODS).await;
    let after = Counts::take(&mut admin, &locker).await?;
    let last = resident()?;
    let soonest = leases
        .iter()
        .map(Lease::remaining)
        .min()
        .unwrap_or_default();

    println!("many: {count} leases, held for {PERIODS} periods of {PERIOD:?}");
    report(count, &before, &after);
    let each = |bytes: usize| format!("{}", bytes.saturating_sub(empty) / count);
    line("resident bytes per lease, at first", &each(full), "");
    line(
        "resident bytes per lease, at the end",
        &each(last),
        "<= 600",
    );
    let rate = count as f64 / took.as_secs_f64() / 1e3;
    line("acquired", &format!("{rate:.1} k/s"), "");
    let renewed_in_time = Lock::DEFAULT_TTL.mul_f64(0.6);
    let aim = format!("> {renewed_in_time:.1?}");
    line(
        "least time left of a lease",
        &format!("{soonest:.1?}"),
        &aim,
    );
    let valid = leases.iter().filter(|lease| lease.is_valid()).count();
    line("valid at the end", &valid.to_string(), &count.to_string());
    let at_risk = locker.stats().renewal_failures;
    line("renewals that failed", &at_risk.to_string(), "0");

    let begin = Instant::now();
    locker.shutdown().await;
    let took = format!("{:.1?}", begin.elapsed());
    line("shutdown, which releases all", &took, "");
    for tracking in [true, false] {
        server_memory(tracking, count).await?;
    }
    if valid < count || at_risk > 0 || soonest < renewed_in_time {
        return Err("not all leases were held, and at no risk, all the time".into());
    }
    Ok(())
}

/// Measures the bytes of the server's memory for a held lock and for a remembered name.
async fn server_memory(tracking: bool, count: usize) -> Result<()> {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let builder = Locker::builder().tracking(tracking);
    let locker = builder.connect(server.url()).await?;
    drop(acquire(&locker, WARM_UP).await?);
    let empty = used_memory(&mut admin).await?;
    let leases = acquire(&locker, count).await?;
    if tracking {
        // The keys are read gradually for tracking.
        let limit = Duration::from_secs(60);
        eventually(limit, "all locks are tracked", async || {
            let tracked = admin.info("stats", "tracking_total_keys").await;
            let tracked = tracked.and_then(|tracked| tracked.parse().ok());
            tracked.is_some_and(|tracked: usize| tracked >= count)
        })
        .await;
    }
    let held = used_memory(&mut admin).await?;
    drop(leases);
    locker.shutdown().await;
    let remembered = used_memory(&mut admin).await?;
    let how = if tracking { "with" } else { "without" };
    println!("bytes of the server's memory, {how} tracking");
    let each = |bytes: f64| format!("{:.0}", (bytes - empty) / count as f64);
    line("for a lock that is held", &each(held), "");
    line("for a name that is remembered", &each(remembered), "");
    Ok(())
}

async fn used_memory(admin: &mut Admin) -> Result<f64> {
    let used = admin.info("memory", "used_memory").await;
    Ok(used.ok_or("INFO has no memory")?.parse()?)
}

fn report(count: usize, before: &Counts, after: &Counts) {
    let time = (after.at - before.at).as_secs_f64();
    let periods = time / PERIOD.as_secs_f64();
    let calls = (after.scripts - before.scripts) as f64;
    let renewals = (after.renewals - before.renewals) as f64;
    let per_call = count as f64 * periods / calls;
    line(
        "script calls per lease and period",
        &format!("1/{per_call:.1}"),
        "<= 1/64",
    );
    let per_lease = renewals / count as f64 / periods;
    line(
        "renewals per lease and period",
        &format!("{per_lease:.2}"),
        "",
    );
    line(
        "renewals per script call",
        &format!("{:.1}", renewals / calls),
        "",
    );
    let client = after.client - before.client;
    let percent = |micros: f64| format!("{:.2} %", micros / 1e6 / time * 100.0);
    line("client's CPU, of one core", &percent(client), "<= 3 %");
    line(
        "client's CPU per renewal",
        &format!("{:.2} µs", client / renewals),
        "",
    );
    line(
        "server's CPU, of one core",
        &percent(after.server - before.server),
        "",
    );
}

async fn acquire(locker: &Locker, count: usize) -> Result<Vec<Lease>> {
    let mut acquired = stream::iter(0..count)
        .map(async |number| locker.lock(format!("lease/{number:06}"))?.acquire().await)
        .buffer_unordered(AT_ONCE);
    let mut leases = Vec::with_capacity(count);
    while let Some(lease) = acquired.next().await {
        leases.push(lease?);
    }
    Ok(leases)
}
