//! A lock on several independent servers: it works as long as a majority of them does.
//!
//! `cargo run --example quorum -- redis://one redis://two redis://three`; without URLs it uses five stores in memory, and
//! cuts two of them off.

use std::error::Error;
use std::time::Duration;

use futures::StreamExt;
use leasehold::{Locker, MemoryStore};
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut urls: Vec<String> = std::env::args().skip(1).collect();
    let in_memory = urls.is_empty();
    if in_memory {
        urls.extend((1..=5).map(|number| format!("memory://{number}")));
    }
    let locker = Locker::quorum(urls).await?;
    let mut events = locker.events();
    let printing = tokio::spawn(async move {
        while let Some(event) = events.next().await {
            println!("{event}");
        }
    });

    let lock = locker.lock("orders/42")?.ttl(Duration::from_secs(2));
    let lease = lock.acquire().await?;
    if in_memory {
        MemoryStore::named("1").cut_off();
        MemoryStore::named("2").cut_off();
    }
    // Work here. If a majority were lost, `run` would drop the work and return an error.
    lease.run(sleep(Duration::from_secs(4))).await?;
    lease.release().await?;
    locker.shutdown().await;
    Ok(printing.await?)
}
