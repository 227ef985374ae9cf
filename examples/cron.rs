//! Runs a job once per tick in all processes together. Start it several times: each tick runs in one of them. If you kill the
//! runner in the middle of a tick, another process runs the same tick.
//!
//! `LEASEHOLD_URL=redis://127.0.0.1:6379 cargo run --example cron`

use std::error::Error;
use std::time::Duration;

use leasehold::{Locker, Turn};
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("LEASEHOLD_URL").unwrap_or("memory://".into());
    let locker = Locker::connect(url).await?;
    // With the feature `cron` also .cron("*/15 * * * *", "Europe/Berlin")
    let job = locker.job("report")?.every(Duration::from_secs(2));
    tokio::select! {
        ended = job.run(report) => ended?,
        interrupted = tokio::signal::ctrl_c() => interrupted?,
    }
    locker.shutdown().await; // Gives an unfinished tick to another process.
    Ok(())
}

/// The work. An error would give the tick to another process.
async fn report(turn: &Turn) -> Result<(), std::io::Error> {
    println!("tick {} with token {}", turn.tick(), turn.token());
    sleep(Duration::from_millis(500)).await;
    if turn.missed() > 0 {
        println!("{} ticks before it were missed", turn.missed());
    }
    Ok(())
}
