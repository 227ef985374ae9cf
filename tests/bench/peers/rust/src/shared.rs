//! Names that callers share, and several names at once.

use std::time::{Duration, Instant};

use leasehold::Locker;
use serde_json::Value;

use crate::{Result, counted};

/// The slots of the semaphore.
const SLOTS: u32 = 10;

/// Lets callers acquire and release for this time.
pub(crate) async fn run(locker: &Locker, kind: &str, callers: usize, millis: u64) -> Result<Value> {
    let begin = Instant::now();
    let end = begin + Duration::from_millis(millis);
    let callers = (0..callers).map(|caller| {
        let (locker, kind) = (locker.clone(), kind.to_owned());
        tokio::spawn(async move {
            let mut count = 0_u64;
            while Instant::now() < end {
                pair(&locker, &kind, caller).await?;
                count += 1;
            }
            Result::Ok(count)
        })
    });
    counted(begin, callers).await
}

async fn pair(locker: &Locker, kind: &str, caller: usize) -> Result<()> {
    match kind {
        "semaphore" => {
            let semaphore = locker.semaphore("slots", SLOTS)?;
            semaphore.acquire().await?.release().await?;
        }
        "readers" => {
            let readers = locker.rw_lock("read")?;
            readers.read().acquire().await?.release().await?;
        }
        _ => {
            let names = ["a", "b", "c"].map(|name| format!("several/{caller}/{name}"));
            locker.all(names)?.acquire().await?.release().await?;
        }
    }
    Ok(())
}
