//! Pairs that are begun when they are due, however many are under way.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;

use crate::Result;
use crate::side::Side;

/// The most pairs under way; more are refused.
const MOST: u32 = 4_096;

/// For each pair the microseconds from when it was due until its lock was acquired and released; or the first error.
type Times = Mutex<Result<Vec<[f64; 2]>>>;

/// Reads from the socket at this path when each pair is due, and makes them.
pub(crate) async fn open(side: &Arc<Side>, path: &Path) -> Result<Value> {
    let mut arrivals = UnixStream::connect(path).await?;
    let (free, times) = (
        Arc::new(Semaphore::new(MOST as usize)),
        Arc::new(Times::new(Ok(Vec::new()))),
    );
    let before = processor_time();
    let (mut count, mut refused) = (0_u64, 0_u64);
    let (mut bytes, mut filled) = ([0; 8_192], 0);
    loop {
        let read = arrivals.read(&mut bytes[filled..]).await?;
        if read == 0 {
            break;
        }
        filled += read;
        let whole = filled / 8 * 8;
        for due in bytes[..whole].chunks_exact(8) {
            let due = f64::from_le_bytes(due.try_into()?);
            let Ok(permit) = free.clone().try_acquire_owned() else {
                refused += 1;
                continue;
            };
            count += 1;
            let (side, times, name) = (side.clone(), times.clone(), format!("open/{count}"));
            tokio::spawn(async move {
                let taken = pair(&side, &name, due).await;
                let mut times = times.lock().unwrap_or_else(PoisonError::into_inner);
                match (&mut *times, taken) {
                    (Ok(times), Ok(taken)) => times.push(taken),
                    (times @ Ok(_), Err(error)) => *times = Err(error),
                    (Err(_), _) => {}
                }
                drop(permit);
            });
        }
        bytes.copy_within(whole..filled, 0);
        filled -= whole;
    }
    // Once all permits are back, no pair is under way.
    let _ = free.acquire_many(MOST).await?;
    let processor = processor_time() - before;
    let mut times = times.lock().unwrap_or_else(PoisonError::into_inner);
    let times = std::mem::replace(&mut *times, Ok(Vec::new()))?;
    let column = |at: usize| {
        times
            .iter()
            .map(|times| times[at].round())
            .collect::<Vec<_>>()
    };
    Ok(
        json!({ "refused": refused, "processor": processor, "acquired": column(0), "released": column(1) }),
    )
}

async fn pair(side: &Side, name: &str, due: f64) -> Result<[f64; 2]> {
    let held = side.acquire(name).await?;
    let acquired = now() - due;
    side.release(held).await?;
    Ok([acquired, now() - due])
}

/// Returns the microseconds of the clock by which arrivals are due.
fn now() -> f64 {
    micros(ClockId::Monotonic)
}

/// Returns the microseconds of processor time that this process has used.
fn processor_time() -> f64 {
    micros(ClockId::ProcessCPUTime)
}

fn micros(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}
