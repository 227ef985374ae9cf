//! Many leases of one locker, held through several periods of renewal: what they cost the client
//! and the server, and that none is lost.
//!
//! A period is a third of the time to live, the longest time between two renewals of a lease. In a
//! further period all events are read, as a program that watches its leases does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use leasehold::{Lease, LeaseEvent, LeaseEvents, Locker};
use leasehold_tests::{Admin, RedisServer, eventually};

use crate::Result;
use crate::options::Options;
use crate::stats::{line, processor_time, resident};

/// How many are acquired at a time.
const AT_ONCE: usize = 256;
/// Acquired and released before anything is measured, so that buffers have their size.
const WARM_UP: usize = 2 * AT_ONCE;

/// What a reader of all events has read.
#[derive(Default)]
struct Told {
    renewed: AtomicU64,
    at_risk: AtomicU64,
    lost: AtomicU64,
    missed: AtomicU64,
}

/// What is counted before and after.
struct Counts {
    at: Instant,
    processor: i64,
    scripts: u64,
    renewals: u64,
    server: f64,
}

impl Counts {
    async fn take(admin: &mut Admin) -> Result<Self> {
        Ok(Self {
            scripts: admin.script_calls().await,
            renewals: admin.command_calls("hget").await,
            server: server_cpu(admin).await?,
            processor: processor_time(),
            at: Instant::now(),
        })
    }

    /// How much of one core the client has used since then.
    fn client_percent(&self, before: &Self) -> f64 {
        let time = (self.at - before.at).as_secs_f64();
        (self.processor - before.processor) as f64 / 1e9 / time * 100.0
    }
}

/// Seconds of a processor that the server has used.
pub(crate) async fn server_cpu(admin: &mut Admin) -> Result<f64> {
    let mut server = 0.0;
    for field in ["used_cpu_user", "used_cpu_sys"] {
        let seconds = admin.info("cpu", field).await.ok_or("INFO has no CPU")?;
        server += seconds.parse::<f64>()?;
    }
    Ok(server)
}

pub(crate) async fn run(options: &Options) -> Result<()> {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let locker = Locker::connect(server.url()).await?;
    drop(acquire(&locker, WARM_UP, options.ttl).await?);
    eventually(Duration::from_secs(10), "the first releases", async || {
        locker.list("*").next().await.is_none().then_some(())
    })
    .await;

    let (empty, begin) = (resident()?, Instant::now());
    let leases = acquire(&locker, options.leases, options.ttl).await?;
    let (full, took) = (resident()?, begin.elapsed());

    let period = options.ttl / 3;
    let before = Counts::take(&mut admin).await?;
    tokio::time::sleep(period * options.periods).await;
    let after = Counts::take(&mut admin).await?;
    let last = resident()?;
    let soonest = leases.iter().map(Lease::remaining).min();

    println!(
        "many: {} leases of {:?}, held for {} periods of {period:?}",
        options.leases, options.ttl, options.periods
    );
    report(options, &before, &after);
    let each = |bytes: usize| format!("{}", bytes.saturating_sub(empty) / options.leases);
    line("resident bytes per lease, at first", &each(full), "");
    line(
        "resident bytes per lease, at the end",
        &each(last),
        "<= 600",
    );
    let rate = options.leases as f64 / took.as_secs_f64() / 1e3;
    line("acquired", &format!("{rate:.1} k/s"), "");
    let soonest = soonest.unwrap_or_default();
    let renewed_in_time = options.ttl.mul_f64(0.6);
    let aim = format!("> {renewed_in_time:.1?}");
    line(
        "least time left of a lease",
        &format!("{soonest:.1?}"),
        &aim,
    );

    let told = watch(&locker, &mut admin, options).await?;
    let valid = leases.iter().filter(|lease| lease.is_valid()).count();
    let all = options.leases.to_string();
    line("valid at the end", &valid.to_string(), &all);

    let begin = Instant::now();
    locker.shutdown().await;
    let took = format!("{:.1?}", begin.elapsed());
    line("shutdown, which releases all", &took, "");
    for tracking in [true, false] {
        server_memory(tracking, options).await?;
    }
    if valid < options.leases || told > 0 || soonest < renewed_in_time {
        return Err("not all leases were held, and at no risk, all the time".into());
    }
    Ok(())
}

/// Bytes of the server's memory for a lock that is held, and for a name that is remembered.
async fn server_memory(tracking: bool, options: &Options) -> Result<()> {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let builder = Locker::builder().tracking(tracking);
    let locker = builder.connect(server.url()).await?;
    drop(acquire(&locker, WARM_UP, options.ttl).await?);
    let empty = used_memory(&mut admin).await?;
    let leases = acquire(&locker, options.leases, options.ttl).await?;
    if tracking {
        // The keys are read by and by, so that the server tells of changes.
        let limit = Duration::from_secs(60);
        eventually(limit, "all locks to be tracked", async || {
            let tracked = admin.info("stats", "tracking_total_keys").await;
            let tracked = tracked.and_then(|tracked| tracked.parse().ok());
            tracked
                .is_some_and(|tracked: usize| tracked >= options.leases)
                .then_some(())
        })
        .await;
    }
    let held = used_memory(&mut admin).await?;
    drop(leases);
    locker.shutdown().await;
    let remembered = used_memory(&mut admin).await?;
    println!(
        "bytes of the server's memory, {} tracking",
        if tracking { "with" } else { "without" }
    );
    let each = |bytes: f64| format!("{:.0}", (bytes - empty) / options.leases as f64);
    line("for a lock that is held", &each(held), "");
    line("for a name that is remembered", &each(remembered), "");
    Ok(())
}

async fn used_memory(admin: &mut Admin) -> Result<f64> {
    let used = admin.info("memory", "used_memory").await;
    Ok(used.ok_or("INFO has no memory")?.parse()?)
}

/// A period with a reader of all events; returns how many of them are `AtRisk` or `Lost`.
async fn watch(locker: &Locker, admin: &mut Admin, options: &Options) -> Result<u64> {
    let told = Arc::new(Told::default());
    let reader = tokio::spawn(read_events(locker.events(), told.clone()));
    let before = Counts::take(admin).await?;
    tokio::time::sleep(options.ttl / 3).await;
    let after = Counts::take(admin).await?;
    reader.abort();
    let [renewed, at_risk, lost, missed] = [&told.renewed, &told.at_risk, &told.lost, &told.missed]
        .map(|count| count.load(Ordering::Relaxed));
    println!("with a reader of all events, in one more period");
    let client = format!("{:.2} %", after.client_percent(&before));
    line("client's CPU, of one core", &client, "");
    line("events: renewed", &renewed.to_string(), "");
    line("events: at risk", &at_risk.to_string(), "0");
    line("events: lost", &lost.to_string(), "0");
    line("events: missed by the reader", &missed.to_string(), "");
    Ok(at_risk + lost)
}

fn report(options: &Options, before: &Counts, after: &Counts) {
    let time = (after.at - before.at).as_secs_f64();
    let periods = time / (options.ttl / 3).as_secs_f64();
    let calls = (after.scripts - before.scripts) as f64;
    let renewals = (after.renewals - before.renewals) as f64;
    let per_call = options.leases as f64 * periods / calls;
    line(
        "script calls per lease and period",
        &format!("1/{per_call:.1}"),
        "<= 1/64",
    );
    let per_lease = renewals / options.leases as f64 / periods;
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
    let client = after.client_percent(before);
    line(
        "client's CPU, of one core",
        &format!("{client:.2} %"),
        "<= 3 %",
    );
    let each = client / 100.0 * time / renewals * 1e6;
    line("client's CPU per renewal", &format!("{each:.2} µs"), "");
    let server = (after.server - before.server) / time * 100.0;
    line("server's CPU, of one core", &format!("{server:.2} %"), "");
}

async fn acquire(locker: &Locker, count: usize, ttl: Duration) -> Result<Vec<Lease>> {
    let mut leases = Vec::with_capacity(count);
    let mut acquired = stream::iter(0..count)
        .map(async |number| {
            let lock = locker.lock(format!("lease/{number:06}"))?;
            // Setting the option makes another handle, so it is set only where it changes something.
            let lock = if ttl == leasehold::Lock::DEFAULT_TTL {
                lock
            } else {
                lock.ttl(ttl)
            };
            lock.acquire().await
        })
        .buffer_unordered(AT_ONCE);
    while let Some(lease) = acquired.next().await {
        leases.push(lease?);
    }
    Ok(leases)
}

async fn read_events(mut events: LeaseEvents, told: Arc<Told>) {
    while let Some(event) = events.next().await {
        let (counter, count) = match event {
            LeaseEvent::Renewed { .. } => (&told.renewed, 1),
            LeaseEvent::AtRisk { .. } => (&told.at_risk, 1),
            LeaseEvent::Lost { .. } => (&told.lost, 1),
            LeaseEvent::Lagged { missed } => (&told.missed, missed),
            _ => continue,
        };
        counter.fetch_add(count, Ordering::Relaxed);
    }
}
