//! The lock on your own Redis client: [`client`] has all that the lock needs, and no more.
//!
//! `LEASEHOLD_URL=redis://127.0.0.1:6379 cargo run --example adapter`

mod client;

use std::error::Error;
use std::time::{Duration, Instant};

use client::Client;
use leasehold::Locker;
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("LEASEHOLD_URL").unwrap_or("redis://127.0.0.1:6379".into());
    let address = url
        .strip_prefix("redis://")
        .filter(|rest| !rest.contains(['@', '/']));
    let address = address.ok_or("this client takes redis://host:port and nothing more")?;
    let connect = async || {
        let connected = Locker::with_adapter(Client::connect(address.to_owned())).await;
        connected.map_err(|error| format!("{address}: {error}"))
    };
    let (first, second) = (connect().await?, connect().await?);

    let lease = first.lock("orders/42")?.acquire().await?;
    println!("the first locker holds it with token {}", lease.token());
    let lock = second.lock("orders/42")?;
    let waiting = tokio::spawn(async move { lock.acquire().await });
    while first.inspect("orders/42").await?.waiting == 0 {
        sleep(Duration::from_millis(5)).await;
    }
    lease.release().await?;
    let released = Instant::now();
    let lease = waiting.await??;
    let took = released.elapsed();
    println!(
        "the second has it {took:.1?} later with token {}",
        lease.token()
    );
    lease.release().await?;
    Ok(())
}
