//! Locks in Rust: see the README of the parent folder.

#![allow(clippy::cast_precision_loss)]

mod open;
mod shared;
mod side;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt, TryStreamExt};
use serde_json::{Value, json};
use side::{Held, Side};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::runtime;
use tokio::task::JoinHandle;

/// The result of anything that can fail.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// How many locks are acquired at a time when many are held.
const AT_ONCE: usize = 64;

/// Runs a side with these arguments until its input ends.
pub fn main(args: &[&str]) -> Result<()> {
    let (threads, port, side) = match *args {
        [port, side] => (2, port, side),
        ["--threads", threads, port, side] => (threads.parse()?, port, side),
        _ => return Err("[--threads N] PORT SIDE".into()),
    };
    let mut runtime = match threads {
        1 => runtime::Builder::new_current_thread(),
        _ => runtime::Builder::new_multi_thread(),
    };
    let runtime = runtime.worker_threads(threads).enable_all().build()?;
    runtime.block_on(serve(port, side))
}

async fn serve(port: &str, side: &str) -> Result<()> {
    let side = Arc::new(Side::connect(port.parse()?, side).await?);
    println!("{}", json!({ "ready": side.version() }));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut held = Vec::new();
    while let Some(line) = lines.next_line().await? {
        let words: Vec<&str> = line.split(' ').collect();
        let done = match words[..] {
            ["pairs", callers, millis] => pairs(&side, callers.parse()?, millis.parse()?).await?,
            [
                kind @ ("semaphore" | "readers" | "several"),
                callers,
                millis,
            ] => match &*side {
                Side::Leasehold(locker) => {
                    shared::run(locker, kind, callers.parse()?, millis.parse()?).await?
                }
                _ => json!({ "cannot": "it has locks only" }),
            },
            ["open", path] => open::open(&side, path.as_ref()).await?,
            ["handoff", tasks, millis] if side.waits() => {
                handoff(&side, tasks.parse()?, millis.parse()?).await?
            }
            ["hold", count] if side.renews() => {
                held = hold(&side, count.parse()?).await?;
                json!({ "held": held.len() })
            }
            ["drop"] => {
                let releases = stream::iter(held.drain(..)).map(|lock| side.release(lock));
                releases
                    .buffer_unordered(AT_ONCE)
                    .try_collect::<()>()
                    .await?;
                json!({ "held": 0 })
            }
            ["watch"] if side.tells() => {
                let held = side.acquire("watched").await?;
                tokio::spawn(async move {
                    held.lost().await;
                    println!("{}", json!({ "lost": true }));
                });
                json!({ "held": 1 })
            }
            _ => json!({ "cannot": "it has no such thing" }),
        };
        println!("{done}");
    }
    Ok(())
}

async fn pairs(side: &Arc<Side>, callers: usize, millis: u64) -> Result<Value> {
    let begin = Instant::now();
    let end = begin + Duration::from_millis(millis);
    let callers = (0..callers).map(|caller| {
        let side = side.clone();
        tokio::spawn(async move {
            let (name, mut count) = (format!("pairs/{caller}"), 0_u64);
            while Instant::now() < end {
                let held = side.acquire(&name).await?;
                side.release(held).await?;
                count += 1;
            }
            Result::Ok(count)
        })
    });
    counted(begin, callers).await
}

/// Returns the pairs of all callers, and the time since they began.
async fn counted(
    begin: Instant,
    callers: impl Iterator<Item = JoinHandle<Result<u64>>>,
) -> Result<Value> {
    let mut count = 0;
    for caller in callers.collect::<Vec<_>>() {
        count += caller.await??;
    }
    Ok(json!({ "count": count, "millis": begin.elapsed().as_secs_f64() * 1e3 }))
}

async fn handoff(side: &Arc<Side>, tasks: usize, millis: u64) -> Result<Value> {
    let (begin, over) = (Instant::now(), Arc::new(AtomicBool::new(false)));
    let tasks = (0..tasks).map(|_| {
        let (side, over) = (side.clone(), over.clone());
        tokio::spawn(async move {
            let mut count = 0_u64;
            while !over.load(Ordering::Relaxed) {
                let held = side.acquire("handoff").await?;
                count += u64::from(!over.load(Ordering::Relaxed));
                side.release(held).await?;
            }
            Result::Ok(count)
        })
    });
    let tasks: Vec<_> = tasks.collect();
    tokio::time::sleep(Duration::from_millis(millis)).await;
    over.store(true, Ordering::Relaxed);
    let took = begin.elapsed();
    let mut counts = Vec::new();
    for task in tasks {
        counts.push(task.await??);
    }
    Ok(json!({
        "count": counts.iter().sum::<u64>(),
        "millis": took.as_secs_f64() * 1e3,
        "least": counts.iter().min(),
        "most": counts.iter().max(),
    }))
}

async fn hold(side: &Arc<Side>, count: usize) -> Result<Vec<Held>> {
    let acquired = stream::iter(0..count)
        .map(|number| async move { side.acquire(&format!("held/{number}")).await });
    acquired.buffer_unordered(AT_ONCE).try_collect().await
}
