//! A rolling deploy: each version leads until it is asked to yield, and the next one then leads at once. Then, for
//! comparison, a leader that is silent: its lock has to expire. `LEASEHOLD_URL` names a server, if there is one.

use std::time::{Duration, Instant};

use leasehold::{Error, Locker};
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::var("LEASEHOLD_URL").unwrap_or("memory://rolling_deploy".into());
    let deploy = Locker::connect(&url).await?;
    for version in 1..=4 {
        tokio::spawn(lead(Locker::connect(&url).await?, version));
        sleep(Duration::from_millis(200)).await; // By now it leads, or stands in line.
        if version > 1 {
            let asked = Instant::now();
            let request = deploy.request_yield("leader", Duration::from_secs(10));
            println!("yielded: {}, {:?}", request.await?, asked.elapsed());
        }
    }
    sleep(Duration::from_millis(200)).await; // By now the last version leads.
    let lock = deploy.lock("silent")?.ttl(Duration::from_secs(2)).fixed();
    let (_silent, began) = (lock.acquire().await?, Instant::now());
    let next = lock.acquire().await?;
    println!("expired: {:?}", began.elapsed());
    next.release().await
}

/// Leads until somebody wants the lock: by a request, or in line.
async fn lead(locker: Locker, version: u32) -> Result<(), Error> {
    let lease = locker.lock("leader")?.acquire().await?;
    println!("version {version} leads with token {}", lease.token());
    lease.wanted().await?; // The leader's work goes here, up to a good point to stop.
    lease.release().await
}
