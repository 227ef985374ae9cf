//! Shares three licenses between eight callers. Each license is a slot with tokens of its own, so a guard refuses a holder that
//! comes too late. With `LEASEHOLD_URL=redis://127.0.0.1:6379` the licenses are on a server.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use leasehold::{Locker, fence::Gate};
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("LEASEHOLD_URL").unwrap_or("memory://".into());
    let locker = Locker::connect(url).await?;
    let licenses = locker.semaphore("licenses", 3)?;
    let gate = Arc::new(Gate::new()); // The guard of the vendor's server: it knows each license by its name.
    let mut callers = JoinSet::new();
    for caller in 1..=8 {
        let (licenses, gate) = (licenses.clone(), gate.clone());
        callers.spawn(async move {
            let permit = licenses.acquire().await?;
            gate.check(&permit.resource(), permit.token())?;
            println!("caller {caller} uses {}", permit.resource());
            tokio::time::sleep(Duration::from_millis(100)).await;
            permit.release().await
        });
    }
    while let Some(done) = callers.join_next().await {
        done??;
    }

    // A holder that does not come back in time, as after a long pause: its slot has a later holder.
    let late = licenses.acquire().await?;
    let (resource, token) = (late.resource().into_owned(), late.token());
    late.release().await?;
    let next = licenses.acquire().await?;
    gate.check(&next.resource(), next.token())?;
    println!("late: {:?}", gate.check(&resource, token));
    Ok(next.release().await?)
}
