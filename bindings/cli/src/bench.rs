//! `leasehold bench`: how fast locks are on a store, for a bounded time.

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use leasehold::{Error, Lock, Locker};
use serde::Serialize;

use crate::args::BenchArgs;
use crate::connect::connect;
use crate::exit::Failure;
use crate::out;
use crate::times::show;

const TTL: Duration = Duration::from_secs(30);
/// So that nothing is remembered of it for long.
const RETENTION: Duration = Duration::from_secs(1);
const TO_CONNECT: Duration = Duration::from_secs(10);
const MOST_TIME: Duration = Duration::from_secs(600);
const MOST_CALLERS: usize = 1_024;
/// Of the longest bar.
const WIDTH: usize = 50;

/// What one of the measurements found. Times are in microseconds.
#[derive(Serialize)]
struct Measured {
    bench: &'static str,
    callers: usize,
    count: usize,
    #[serde(rename = "perSecond")]
    per_second: f64,
    p50: u64,
    p90: u64,
    p99: u64,
    max: u64,
    /// How many took up to each power of two.
    histogram: Vec<Bucket>,
}

#[derive(Serialize)]
struct Bucket {
    #[serde(rename = "upTo")]
    up_to: u64,
    count: usize,
}

impl Measured {
    fn new(bench: &'static str, callers: usize, mut times: Vec<Duration>, took: Duration) -> Self {
        times.sort_unstable();
        let micros = |time: &Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let at = |share: usize| {
            let last = times.len().saturating_sub(1);
            times.get(last * share / 100).map_or(0, micros)
        };
        let mut histogram: Vec<Bucket> = Vec::new();
        for time in &times {
            let up_to = micros(time).max(1).next_power_of_two();
            match histogram.last_mut().filter(|bucket| bucket.up_to == up_to) {
                Some(bucket) => bucket.count += 1,
                None => histogram.push(Bucket { up_to, count: 1 }),
            }
        }
        let count = times.len();
        Self {
            bench,
            callers,
            count,
            per_second: rate(count, took),
            p50: at(50),
            p90: at(90),
            p99: at(99),
            max: at(100),
            histogram,
        }
    }

    fn say(&self, json: bool, what: &str) -> Result<(), Failure> {
        if json {
            return out::json(self).map(drop);
        }
        let head = format!(
            "{what}\n  {} in all, {:.0} a second; p50 {}, p90 {}, p99 {}, at most {}\n",
            self.count,
            self.per_second,
            in_micros(self.p50),
            in_micros(self.p90),
            in_micros(self.p99),
            in_micros(self.max)
        );
        let most = self
            .histogram
            .iter()
            .map(|bucket| bucket.count)
            .max()
            .unwrap_or(1);
        let bars = self.histogram.iter().map(|bucket| {
            let bar = "█".repeat((bucket.count * WIDTH).div_ceil(most));
            format!(
                "  up to {:>8}  {bar} {}\n",
                in_micros(bucket.up_to),
                bucket.count
            )
        });
        let bars: String = bars.collect();
        out::text(&format!("{head}{bars}\n")).map(drop)
    }
}

fn rate(count: usize, took: Duration) -> f64 {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    f64::from(count) / took.as_secs_f64().max(f64::EPSILON)
}

fn in_micros(micros: u64) -> String {
    match micros {
        0..10_000 => format!("{micros} µs"),
        10_000..10_000_000 => format!("{} ms", micros / 1_000),
        _ => format!("{} s", micros / 1_000_000),
    }
}

pub(crate) fn main(args: &BenchArgs) -> Result<u8, Failure> {
    if !(Duration::from_millis(100)..=MOST_TIME).contains(&args.time) {
        let most = show(MOST_TIME);
        return Err(Failure::usage(format!("--time is from 100ms to {most}")));
    }
    if !(1..=MOST_CALLERS).contains(&args.callers) {
        return Err(Failure::usage(format!(
            "--callers is from 1 to {MOST_CALLERS}"
        )));
    }
    crate::block_on(bench(args))
}

async fn bench(args: &BenchArgs) -> Result<u8, Failure> {
    let urls = args.store.urls()?;
    let connected = || {
        let settings = args.store.builder().token_retention(RETENTION);
        connect(&urls, settings, Some(TO_CONNECT))
    };
    let (one, other) = (connected().await?, connected().await?);
    // Of three measurements each has its part.
    let each = args.time / 3;
    let callers = args.callers;
    let found = pairs("latency", &one, 1, each).await?;
    found.say(args.json, "acquire, one after the other, on a free lock")?;
    let found = pairs("pairs", &one, callers, each).await?;
    let what = format!(
        "acquire by {callers} callers at once, each on a lock of its own, with its release"
    );
    found.say(args.json, &what)?;
    let found = handoffs(&one, &other, each).await?;
    found.say(
        args.json,
        "handoff, from a release to the next holder on another connection",
    )?;
    one.shutdown().await;
    other.shutdown().await;
    Ok(0)
}

fn lock(locker: &Locker, caller: usize) -> Result<Lock, Error> {
    let name = format!("leasehold-bench/{}/{caller}", std::process::id());
    Ok(locker.lock(name)?.ttl(TTL))
}

/// How long acquiring takes; the rate is that of acquisitions with their releases.
async fn pairs(
    bench: &'static str,
    locker: &Locker,
    callers: usize,
    time: Duration,
) -> Result<Measured, Failure> {
    let start = Instant::now();
    let each = (0..callers).map(|caller| async move {
        let (lock, mut times) = (lock(locker, caller)?, Vec::new());
        while start.elapsed() < time {
            let asked = Instant::now();
            let lease = lock.acquire().await?;
            times.push(asked.elapsed());
            lease.release().await?;
        }
        Ok::<_, Error>(times)
    });
    let times = try_join_all(each).await?.concat();
    Ok(Measured::new(bench, callers, times, start.elapsed()))
}

/// Two take a lock in turns: whoever has it waits until the other one stands in line.
async fn handoffs(one: &Locker, other: &Locker, time: Duration) -> Result<Measured, Failure> {
    let mut locks = [lock(one, 0)?, lock(other, 0)?];
    let (start, mut times) = (Instant::now(), Vec::new());
    let mut lease = locks[0].acquire().await?;
    while start.elapsed() < time {
        let next = locks[1].clone();
        let waiting = tokio::spawn(async move {
            let lease = next.acquire().await?;
            Ok::<_, Error>((lease, Instant::now()))
        });
        while one.inspect(lease.name().as_str()).await?.waiting == 0 {
            tokio::task::yield_now().await;
        }
        let released = Instant::now();
        lease.release().await?;
        let (next, at) = waiting
            .await
            .map_err(|error| Failure::new(crate::exit::INTERNAL, error.to_string()))??;
        times.push(at.saturating_duration_since(released));
        lease = next;
        locks.swap(0, 1);
    }
    let took = start.elapsed();
    lease.release().await?;
    Ok(Measured::new("handoff", 2, times, took))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_buckets_are_of_the_times() {
        let times = (1..=100).map(Duration::from_micros).collect();
        let found = Measured::new("pairs", 1, times, Duration::from_secs(2));
        assert_eq!(
            (found.p50, found.p90, found.p99, found.max),
            (50, 90, 99, 100)
        );
        assert!((found.per_second - 50.0).abs() < 1e-9);
        let buckets: Vec<_> = found.histogram.iter().map(|b| (b.up_to, b.count)).collect();
        let expected = [
            (1, 1),
            (2, 1),
            (4, 2),
            (8, 4),
            (16, 8),
            (32, 16),
            (64, 32),
            (128, 36),
        ];
        assert_eq!(buckets, expected);
        let none = Measured::new("pairs", 1, Vec::new(), Duration::ZERO);
        assert_eq!((none.count, none.max), (0, 0));
    }
}
