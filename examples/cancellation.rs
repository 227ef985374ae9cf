//! Three ways to stop: a limit for waiting, a dropped call, and work that ends with its lease. The first two leave
//! neither a lock nor a place in line behind.
//!
//! `cargo run --example cancellation`; with `LEASEHOLD_URL=redis://…` on a server.

use std::error::Error;
use std::time::Duration;

use leasehold::Locker;
use tokio::time::sleep;

const NAME: &str = "cancellation";
const A_WHILE: Duration = Duration::from_millis(500);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("LEASEHOLD_URL").unwrap_or("memory://".into());
    let locker = Locker::connect(url).await?;
    let lock = locker.lock(NAME)?;
    let lease = lock.acquire().await?;

    // It is not an error that somebody else holds the lock.
    let second = lock.acquire_within(A_WHILE).await?;
    println!("after {A_WHILE:?} of waiting: {second:?}");

    tokio::select! {
        lease = lock.acquire() => println!("held with token {}", lease?.token()),
        () = sleep(A_WHILE) => println!("no longer wanted"),
        _ = tokio::signal::ctrl_c() => println!("interrupted"),
    }
    println!("waiters in line: {}", locker.inspect(NAME).await?.waiting);

    // `run` drops its work at any await point as soon as the lease is lost.
    locker.force_release(NAME).await?;
    if let Err(lost) = lease.run(std::future::pending::<()>()).await {
        println!("the work stopped: {lost}");
    }
    locker.shutdown().await;
    Ok(())
}
