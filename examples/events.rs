//! Holds a lock, takes it again whenever it is lost, and prints its events. To see some, delete its key
//! (`redis-cli DEL '{leasehold:example}'`), stop the server, or run this twice.
//!
//! `LEASEHOLD_URL=redis://127.0.0.1:6379 cargo run --example events`

use std::error::Error;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use leasehold::{Lock, Locker};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("LEASEHOLD_URL").unwrap_or("redis://127.0.0.1:6379".into());
    let locker = Locker::connect(url).await?;
    let lock = locker.lock("example")?.ttl(Duration::from_secs(3));
    let mut events = lock.events();
    let printing = tokio::spawn(async move {
        while let Some(event) = events.next().await {
            println!("{event}");
        }
    });
    let outcome = tokio::select! {
        outcome = hold(&lock) => outcome,
        interrupted = tokio::signal::ctrl_c() => interrupted.map_err(Into::into),
    };
    // Releases what is held, and ends the stream of events.
    locker.shutdown().await;
    printing.await?;
    outcome
}

async fn hold(lock: &Lock) -> Result<(), Box<dyn Error>> {
    let mut tenures = lock.hold();
    while let Some(lease) = tenures.try_next().await? {
        println!("work must stop: {}", lease.lost().await);
    }
    Ok(())
}
