//! Scans the store for new locks, again and again, in small steps with pauses.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use leasehold::{Error, Locker};
use leasehold_observe::escaped;
use tokio::sync::mpsc;
use tokio::time::{sleep, sleep_until};

use crate::poller::Scanned;
use crate::state::State;

/// The time from one step to the next. Each is one SCAN of up to 1,000 keys.
const STEP: Duration = Duration::from_millis(250);
/// The least time from the beginning of one scan to that of the next.
const SCAN: Duration = Duration::from_secs(1);
/// The least time between the beginnings of two scans if the server reports new locks.
const SCAN_IF_TRACKED: Duration = Duration::from_secs(30);
const AFTER_AN_ERROR: Duration = Duration::from_secs(1);

/// Scans forever.
pub(crate) async fn scan(locker: Locker, state: Arc<State>, scanned: mpsc::Sender<Scanned>) {
    loop {
        let (began, gaps) = (Instant::now(), state.gaps());
        match scan_once(&locker, &state, &scanned).await {
            Ok(()) => {
                state.table().unlisted = None;
                pause(began, gaps, &state).await;
            }
            Err(error) => {
                failed(&state, &error);
                sleep(AFTER_AN_ERROR).await;
            }
        }
    }
}

fn failed(state: &State, error: &Error) {
    let mut table = state.table();
    if error.is_transient() {
        table.away(&error.to_string());
    } else {
        table.unlisted = Some(escaped(&error.to_string()));
    }
}

async fn scan_once(
    locker: &Locker,
    state: &State,
    scanned: &mpsc::Sender<Scanned>,
) -> Result<(), Error> {
    let mut steps = locker.list_steps("*");
    let mut next = tokio::time::Instant::now();
    while let Some(names) = steps.try_next().await? {
        {
            let mut table = state.table();
            table.steps += 1;
            table.back();
        }
        let _ = scanned.send(Scanned::Step(names)).await;
        next += STEP;
        sleep_until(next).await;
    }
    let _ = scanned.send(Scanned::End).await;
    Ok(())
}

/// Waits until the next scan is due. After a gap in the reports of the server, only a scan finds what is new.
async fn pause(began: Instant, gaps: u64, state: &State) {
    loop {
        let pause = if state.table().tracks && state.gaps() == gaps {
            SCAN_IF_TRACKED
        } else {
            SCAN
        };
        let left = pause.saturating_sub(began.elapsed());
        if left.is_zero() {
            return;
        }
        sleep(left.min(STEP)).await;
    }
}
