//! A process that runs the ticks of a job and writes under its tokens, for tests in which runners fail.
//!
//! `runner URL GUARD NAME PERIOD_MS TTL_MS job|lock` prints `ready`. For each turn it appends `TICK TOKEN` to a guarded
//! list on the server GUARD, works for a moment, completes the tick, and then prints `done TICK TOKEN`, or
//! `failed ERROR`. With `lock` it does without jobs: in each period, by its own clock, it tries to take a lock.
//! `runner.mjs` is the same in JavaScript. Both end when they have read a line.

use std::error::Error;
use std::time::{Duration, SystemTime};

use fred::interfaces::ClientLike;
use fred::types::{Builder, config::Config};
use leasehold::fence::redis::FencedRedis;
use leasehold::{FencingToken, Locker, Missed};
use tokio::time::sleep;
use tokio_stream::StreamExt;

const WORK: Duration = Duration::from_millis(15);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, guard, name, period, ttl, how] = &args[..] else {
        return Err("runner URL GUARD NAME PERIOD_MS TTL_MS job|lock".into());
    };
    let client = Builder::from_config(Config::from_url(guard)?).build()?;
    client.init().await?;
    let guard = FencedRedis::new(client);
    let locker = Locker::connect(url).await?;
    let (period, ttl) = (period.parse()?, Duration::from_millis(ttl.parse()?));
    let (over, runtime) = (locker.clone(), tokio::runtime::Handle::current());
    std::thread::spawn(move || {
        // Also if the other side is gone.
        let _ = std::io::stdin().read_line(&mut String::new());
        runtime.spawn(async move { over.shutdown().await });
    });
    println!("ready");
    match how.as_str() {
        "lock" => by_lock(&locker, &guard, name, (period, ttl)).await,
        _ => by_job(&locker, &guard, name, (period, ttl)).await,
    }
}

async fn by_job(
    locker: &Locker,
    guard: &FencedRedis,
    name: &str,
    (period, ttl): (u64, Duration),
) -> Result<(), Box<dyn Error>> {
    let job = locker
        .job(name)?
        .every(Duration::from_millis(period))
        .ttl(ttl);
    let mut turns = job.missed(Missed::All(1_000)).turns();
    while let Some(turn) = turns.try_next().await? {
        let (tick, token) = (turn.tick(), turn.token());
        if let Err(error) = write(guard, tick, token).await {
            println!("failed {error}");
            continue;
        }
        sleep(WORK).await;
        match turn.done().await {
            Ok(()) => println!("done {tick} {token}"),
            Err(error) => println!("failed {error}"),
        }
    }
    Ok(())
}

async fn by_lock(
    locker: &Locker,
    guard: &FencedRedis,
    name: &str,
    (period, ttl): (u64, Duration),
) -> Result<(), Box<dyn Error>> {
    let lock = locker.lock(name)?.ttl(ttl);
    let mut last = 0;
    loop {
        let now = SystemTime::UNIX_EPOCH.elapsed()?.as_millis();
        let tick = u64::try_from(now)? / period * period;
        if tick == last {
            sleep(Duration::from_millis(2)).await;
            continue;
        }
        last = tick;
        // A process that is a little late finds the lock free again.
        sleep(Duration::from_millis(u64::from(std::process::id() % 8) * 7)).await;
        if let Some(lease) = lock.try_acquire().await? {
            write(guard, tick, lease.token()).await?;
            sleep(WORK).await;
            lease.release().await?;
        }
    }
}

async fn write(
    guard: &FencedRedis,
    tick: u64,
    token: FencingToken,
) -> Result<(), leasehold::Error> {
    let written = guard.resource("resource", token)?;
    written.push("log", format!("{tick} {token}")).await?;
    Ok(())
}
