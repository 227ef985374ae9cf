//! Leads for as long as it holds a lock, one process at a time. Start it several times. If you kill the leader, the next
//! process leads when the lease has ended; after Ctrl-C it leads at once.
//!
//! `LEASEHOLD_URL=redis://127.0.0.1:6379 cargo run --example leader`

use std::error::Error;
use std::time::Duration;

use futures::TryStreamExt;
use leasehold::{FencingToken, Locker};
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("LEASEHOLD_URL").unwrap_or("redis://127.0.0.1:6379".into());
    let locker = Locker::connect(url).await?;
    let outcome = tokio::select! {
        outcome = lead_in_turn(&locker) => outcome,
        interrupted = tokio::signal::ctrl_c() => interrupted.map_err(Into::into),
    };
    locker.shutdown().await; // Hands the lock to the next in line.
    outcome
}

async fn lead_in_turn(locker: &Locker) -> Result<(), Box<dyn Error>> {
    let mut tenures = locker.lock("leader")?.ttl(Duration::from_secs(5)).hold();
    while let Some(lease) = tenures.try_next().await? {
        // A loss drops the work. The loop then waits for the next turn.
        if let Err(lost) = lease.run(lead(lease.token())).await {
            println!("no longer leading: {lost}");
        }
    }
    Ok(())
}

async fn lead(token: FencingToken) {
    println!("leading with token {token}");
    sleep(Duration::MAX).await; // The work, which takes as long as it may.
}
