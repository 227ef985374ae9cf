//! Much more than a locker is made for: what it costs, how calls end, and how soon all is well again. Fails if a bound
//! does not hold, a lease is lost, or anything stays behind.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::stream::{FuturesUnordered, StreamExt};
use leasehold::{Lease, LeaseEvents, Locker};
use leasehold_tests::{Admin, RedisServer, eventually};

use crate::Result;
use crate::stats::{line, resident};

const LIMIT: Duration = Duration::from_secs(120);
const CALLS: usize = 100_000;
const PATIENCE: Duration = Duration::from_secs(3);
const READERS: usize = 10_000;
/// Pairs that each reader misses: more events than it may queue.
const MISSED: usize = 700;
const WAITERS: usize = 50_000;
const LOCKERS: usize = 1_000;

const ALL: [&str; 4] = ["stopped", "readers", "line", "lockers"];

/// Runs these stories; all, each in a process of its own, if none is named. So no story reuses the memory of another.
pub(crate) async fn run(only: &[String]) -> Result<()> {
    if only.is_empty() {
        for story in ALL {
            let program = std::env::current_exe()?;
            let mut command = std::process::Command::new(program);
            let status = command.args(["overload", "--only", story]).status()?;
            status
                .success()
                .then_some(())
                .ok_or("a bound does not hold")?;
        }
    }
    for story in only {
        match &**story {
            "stopped" => stopped_server().await?,
            "readers" => readers_that_never_read().await?,
            "line" => long_line().await?,
            "lockers" => reconnecting().await?,
            other => {
                return Err(format!("there is no `{other}`; there are: {}", ALL.join(", ")).into());
            }
        }
    }
    Ok(())
}

/// Returns how many bytes each of them has added since.
fn each(before: usize, count: usize) -> Result<String> {
    Ok(format!("{} B", resident()?.saturating_sub(before) / count))
}

fn took(since: Instant) -> String {
    format!("{:.2} s", since.elapsed().as_secs_f64())
}

async fn stopped_server() -> Result<()> {
    println!("{CALLS} acquisitions on a server that is stopped, with a patience of {PATIENCE:?}");
    let server = RedisServer::start().await;
    let locker = Locker::builder().patience(PATIENCE);
    let locker = locker.connect(server.url()).await?;
    drop(locker.lock("first")?.acquire().await?);
    let before = resident()?;
    server.pause();
    let began = Instant::now();
    let mut calls = FuturesUnordered::new();
    for number in 0..CALLS {
        let lock = locker.lock(format!("stopped/{number}"))?;
        calls.push(async move { lock.acquire().await.map(drop) });
    }
    let mut ends: BTreeMap<String, usize> = BTreeMap::new();
    let mut most = 0;
    let mut count = 0;
    while let Some(end) = calls.next().await {
        let end = end.map_or_else(
            |error| error.kind().code().to_owned(),
            |()| "held".to_owned(),
        );
        *ends.entry(end).or_default() += 1;
        count += 1;
        if count == 1 {
            most = resident()?;
        }
    }
    line(
        "memory of a waiting call",
        &format!("{} B", most.saturating_sub(before) / CALLS),
        "",
    );
    line("all have ended after", &took(began), "");
    for (end, count) in &ends {
        line(&format!("ended with {end}"), &count.to_string(), "");
    }
    server.resume();
    let began = Instant::now();
    let lock = locker.lock("works")?;
    let works = async || lock.acquire().await.is_ok();
    eventually(LIMIT, "the locker is served again", works).await;
    line("an acquisition works again after", &took(began), "");
    let is_free = async || locker.list("*").next().await.is_none();
    eventually(LIMIT, "nothing stays behind", is_free).await;
    line("nothing is held any more after", &took(began), "");
    locker.shutdown().await;
    Ok(())
}

async fn readers_that_never_read() -> Result<()> {
    println!("{READERS} streams of all events, which nobody reads, and {MISSED} pairs");
    let locker = Locker::in_memory();
    let lock = locker.lock("x")?;
    let before = resident()?;
    let mut readers: Vec<LeaseEvents> = (0..READERS).map(|_| locker.events()).collect();
    line("memory of a stream, at first", &each(before, READERS)?, "");
    let began = Instant::now();
    for _ in 0..MISSED {
        lock.acquire().await?.release().await?;
    }
    line(
        "a pair takes",
        &format!("{:.1?}", began.elapsed() / u32::try_from(MISSED)?),
        "",
    );
    line(
        "memory of a stream, at the end",
        &each(before, READERS)?,
        "",
    );
    let first = readers.last_mut().ok_or("there are readers")?.next().await;
    line(
        "the first event that one of them reads",
        &format!("{}", first.ok_or("an event")?),
        "",
    );
    drop(readers);
    locker.shutdown().await;
    Ok(())
}

async fn long_line() -> Result<()> {
    println!("{WAITERS} waiters for one name, in one locker");
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let locker = Locker::connect(server.url()).await?;
    let lease = locker.lock("x")?.acquire().await?;
    let (before, began) = (resident()?, Instant::now());
    let mut calls = FuturesUnordered::new();
    for _ in 0..WAITERS {
        let lock = locker.lock("x")?;
        calls.push(async move { lock.acquire().await });
    }
    let all_wait = async || {
        let seen = locker.inspect("x").await;
        seen.is_ok_and(|seen| usize::try_from(seen.waiting) == Ok(WAITERS))
    };
    // The calls are polled meanwhile.
    tokio::select! {
        () = eventually(LIMIT, "all stand in line", all_wait) => {}
        _ = calls.next() => return Err("a waiter got a lock that is held".into()),
    }
    line("all stand in line after", &took(began), "");
    line("memory of a waiter", &each(before, WAITERS)?, "");
    let line_bytes = admin
        .info("memory", "used_memory")
        .await
        .ok_or("INFO has no memory")?;
    let line_bytes: usize = line_bytes.parse()?;
    line(
        "the server's memory",
        &format!("{} MiB", line_bytes >> 20),
        "",
    );
    let began = Instant::now();
    lease.release().await?;
    let mut last = None;
    while let Some(lease) = calls.next().await {
        let lease: Lease = lease?;
        if last > Some(lease.token()) {
            return Err("a token fell back".into());
        }
        last = Some(lease.token());
        lease.release().await?;
    }
    line("all have had the lock after", &took(began), "");
    locker.shutdown().await;
    Ok(())
}

async fn reconnecting() -> Result<()> {
    println!("{LOCKERS} lockers whose connections are all cut at once, each with a lease");
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let mut held = Vec::with_capacity(LOCKERS);
    let before = resident()?;
    for number in 0..LOCKERS {
        let locker = Locker::connect(server.url()).await?;
        let lease = locker.lock(format!("cut/{number}"))?.acquire().await?;
        held.push((locker, lease));
    }
    line("memory of a locker", &each(before, LOCKERS)?, "");
    let began = Instant::now();
    for kind in ["normal", "pubsub"] {
        admin.command(&["CLIENT", "KILL", "TYPE", kind]).await;
    }
    let mut calls: FuturesUnordered<_> = held
        .iter()
        .map(async |(locker, lease)| {
            let other = locker.lock(format!("{} again", lease.name()))?;
            other.acquire().await.map(drop)
        })
        .collect();
    while let Some(called) = calls.next().await {
        called?;
    }
    drop(calls);
    line("each has acquired another lock after", &took(began), "");
    let lost = held.iter().filter(|(_, lease)| !lease.is_valid()).count();
    line("leases that were lost", &lost.to_string(), "0");
    for (locker, _) in &held {
        locker.shutdown().await;
    }
    (lost == 0)
        .then_some(())
        .ok_or_else(|| "leases were lost".into())
}
