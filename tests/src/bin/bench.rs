//! What the lock costs, on a server of its own: `cargo xtask bench --help`.
//!
//! - `roundtrip`: a sequential acquire and release, as a ratio to two bare round trips on the
//!   same connection: rounds of both in turn, the median of the rounds' medians.
//! - `pairs`: acquire and release on distinct names by 1, 16, 64 and 256 callers, as a ratio to
//!   the same number of bare script calls, and to `SET NX PX` with a script that compares and
//!   deletes, on the same connection.
//! - `memory`: the bytes that each held lease takes in the process.

#![allow(clippy::cast_precision_loss)]

use std::cmp::Ordering;
use std::error::Error;
use std::time::{Duration, Instant};

use fred::prelude::*;
use leasehold::Locker;
use leasehold_tests::{Admin, RedisServer};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// What people write themselves, beside `SET NX PX`.
const COMPARE_AND_DELETE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                                  return redis.call('DEL', KEYS[1]) end return 0";

const ROUNDS: usize = 11;
const PAIRS: usize = 5_120;
const LEASES: usize = 50_000;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("roundtrip") => roundtrip().await,
        Some("memory") => memory().await,
        Some("pairs") => pairs().await,
        _ => Err("name a benchmark: roundtrip, pairs or memory".into()),
    }
}

async fn roundtrip() -> Result<()> {
    let server = RedisServer::start().await;
    let config = fred::types::config::Config::from_url(&server.url())?;
    let client = fred::types::Builder::from_config(config).build()?;
    client.init().await?;
    let locker = Locker::with_fred(client.clone()).await?;
    let lock = locker.lock("bench")?;
    let sha: String = client.script_load("return ARGV[1]").await?;

    let (mut bare, mut script, mut pairs) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let pings = p50(async || {
            client.ping::<()>(None).await?;
            Ok(client.ping::<()>(None).await?)
        })
        .await?;
        let calls = p50(async || {
            client.evalsha::<(), _, _, _>(&sha, "k", "a").await?;
            Ok(client.evalsha::<(), _, _, _>(&sha, "k", "a").await?)
        })
        .await?;
        let leases = p50(async || Ok(lock.acquire().await?.release().await?)).await?;
        // The first round warms up.
        if round > 0 {
            bare.push(pings);
            script.push(calls);
            pairs.push(leases);
        }
    }
    let [bare, script, pairs] = [bare, script, pairs].map(median);
    println!("two PINGs                  p50 {bare:>8.1?}");
    println!("two calls of a bare script p50 {script:>8.1?}");
    println!("acquire and release        p50 {pairs:>8.1?}");
    println!("ratio to two PINGs         {:.2}", ratio(pairs, bare));
    println!("ratio to two bare scripts  {:.2}", ratio(pairs, script));

    let mut admin = Admin::connect(&server).await;
    let (mut counted, before) = (Vec::new(), admin.script_calls().await);
    let lease = lock.acquire().await?;
    counted.push(("acquire", admin.script_calls().await));
    lease.renew().await?;
    counted.push(("renew", admin.script_calls().await));
    lease.release().await?;
    counted.push(("release", admin.script_calls().await));
    let mut last = before;
    for (what, calls) in counted {
        println!("script calls of one {what:<7} {}", calls - last);
        last = calls;
    }
    Ok(())
}

async fn pairs() -> Result<()> {
    let server = RedisServer::start().await;
    let config = fred::types::config::Config::from_url(&server.url())?;
    let client = fred::types::Builder::from_config(config).build()?;
    client.init().await?;
    let locker = Locker::with_fred(client.clone()).await?;
    let sha: String = client.script_load("return ARGV[1]").await?;
    let plain: String = client.script_load(COMPARE_AND_DELETE).await?;
    println!("callers  two bare scripts  SET NX+delete  acquire+release  ratios      per call");
    for callers in [1, 16, 64, 256] {
        let [mut bare, mut plainly, mut leases, mut packed] = [const { Vec::new() }; 4];
        for round in 0..=ROUNDS {
            let calls = thousand_per_second(callers, async |caller| {
                for _ in 0..2 {
                    let key = format!("bench-{caller}");
                    client.evalsha::<(), _, _, _>(&sha, key, "a").await?;
                }
                Ok(())
            });
            let calls = calls.await?;
            let sets = thousand_per_second(callers, async |caller| {
                let key = format!("plain-{caller}");
                let (expire, only) = (Some(Expiration::PX(30_000)), Some(SetOptions::NX));
                client
                    .set::<(), _, _>(&key, "id", expire, only, false)
                    .await?;
                Ok(client.evalsha::<(), _, _, _>(&plain, key, "id").await?)
            });
            let sets = sets.await?;
            let mut admin = Admin::connect(&server).await;
            let before = admin.script_calls().await;
            let pairs = thousand_per_second(callers, async |caller| {
                let lock = locker.lock(format!("bench-{caller}"))?;
                Ok(lock.acquire().await?.release().await?)
            });
            let pairs = pairs.await?;
            let scripts = admin.script_calls().await - before;
            if round > 0 {
                bare.push(calls);
                plainly.push(sets);
                leases.push(pairs);
                packed.push(2.0 * PAIRS as f64 / scripts as f64);
            }
        }
        let [bare, plainly, leases, packed] = [bare, plainly, leases, packed].map(median);
        println!(
            "{callers:>7}  {bare:>12.1} k/s  {plainly:>9.1} k/s  {leases:>11.1} k/s  \
             {:.2}, {:.2}  {packed:>6.1}",
            leases / bare,
            leases / plainly,
        );
    }
    Ok(())
}

/// How many thousand times a second `callers` tasks do the work, `PAIRS` times in all.
async fn thousand_per_second(
    callers: usize,
    work: impl AsyncFn(usize) -> Result<()>,
) -> Result<f64> {
    let begin = Instant::now();
    let tasks = (0..callers).map(|caller| {
        let work = &work;
        async move {
            for _ in 0..PAIRS / callers {
                work(caller).await?;
            }
            Result::Ok(())
        }
    });
    futures::future::try_join_all(tasks).await?;
    Ok((PAIRS / callers * callers) as f64 / begin.elapsed().as_secs_f64() / 1e3)
}

async fn memory() -> Result<()> {
    let server = RedisServer::start().await;
    let locker = Locker::connect(server.url()).await?;
    // Names as long as `orders/0000042`, and room in the allocator's and the tree's nodes.
    let before = resident()?;
    let mut leases = Vec::with_capacity(LEASES);
    for number in 0..LEASES {
        let lock = locker
            .lock(format!("orders/{number:07}"))?
            .ttl(Duration::from_secs(3_600));
        leases.push(lock.acquire().await?);
    }
    let held = resident()?.saturating_sub(before);
    println!("{LEASES} leases held: {} bytes each", held / LEASES);
    locker.shutdown().await;
    Ok(())
}

async fn p50(mut work: impl AsyncFnMut() -> Result<()>) -> Result<Duration> {
    let mut times = Vec::with_capacity(PAIRS);
    for _ in 0..PAIRS {
        let begin = Instant::now();
        work().await?;
        times.push(begin.elapsed());
    }
    Ok(median(times))
}

fn median<T: Copy + Default + PartialOrd>(mut values: Vec<T>) -> T {
    values.sort_by(|one, other| one.partial_cmp(other).unwrap_or(Ordering::Equal));
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn ratio(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64()
}

/// The process's resident memory in bytes.
fn resident() -> Result<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line
        .and_then(|line| line.split_whitespace().next())
        .ok_or("no VmRSS")?;
    Ok(kib.parse::<usize>()? * 1_024)
}
