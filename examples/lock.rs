//! Takes a lock, works while it holds it, and releases it. Run it in two terminals: the second one waits.
//!
//! `LEASEHOLD_URL=redis://127.0.0.1:6379 cargo run --example lock`

use std::error::Error;
use std::time::Duration;

use leasehold::{FencingToken, Locker};
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("LEASEHOLD_URL").unwrap_or("redis://127.0.0.1:6379".into());
    let locker = Locker::connect(url).await?;
    let outcome = tokio::select! {
        outcome = ship(&locker) => outcome,
        _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
    };
    // Release also after an error or Ctrl-C, so that the next waiter need not wait for the lease to end.
    locker.shutdown().await;
    outcome
}

async fn ship(locker: &Locker) -> Result<(), Box<dyn Error>> {
    let lock = locker.lock("orders/42")?.ttl(Duration::from_secs(10));
    let Some(lease) = lock.acquire_within(Duration::from_secs(30)).await? else {
        return Err("another process held orders/42 for 30 s".into());
    };
    // `run` drops the work if the lease is lost.
    lease.run(work(lease.token())).await?;
    lease.release().await?;
    println!("released");
    Ok(())
}

async fn work(token: FencingToken) {
    println!("held with token {token}, which goes with every write");
    sleep(Duration::from_secs(3)).await;
}
