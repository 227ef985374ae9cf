//! Walks over the locks of a store, again and again, in small steps with pauses, for those that are new.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use leasehold::{Error, Locker};
use tokio::sync::mpsc;
use tokio::time::{sleep, sleep_until};

use super::eye::Walked;
use super::state::State;

/// From one step to the next: each is one SCAN of up to 1,000 keys.
const STEP: Duration = Duration::from_millis(250);
/// From the beginning of one walk to that of the next, at the least.
const WALK: Duration = Duration::from_secs(1);
/// The same if the server says what changes, so that nothing new is only found by walking.
const WALK_IF_FOLLOWED: Duration = Duration::from_secs(30);
const AFTER_AN_ERROR: Duration = Duration::from_secs(1);

pub(super) async fn walk(locker: Locker, state: Arc<State>, walked: mpsc::Sender<Walked>) {
    loop {
        let (began, gaps) = (Instant::now(), state.gaps());
        match once(&locker, &state, &walked).await {
            Ok(()) => {
                state.board().unlisted = None;
                rest(began, gaps, &state).await;
            }
            Err(error) => {
                failed(&state, &error);
                sleep(AFTER_AN_ERROR).await;
            }
        }
    }
}

fn failed(state: &State, error: &Error) {
    let mut board = state.board();
    if error.is_transient() {
        board.away(&error.to_string());
    } else {
        board.unlisted = Some(crate::out::plain(&error.to_string()));
    }
}

async fn once(locker: &Locker, state: &State, walked: &mpsc::Sender<Walked>) -> Result<(), Error> {
    let mut steps = locker.list_steps("*");
    let mut next = tokio::time::Instant::now();
    while let Some(names) = steps.try_next().await? {
        {
            let mut board = state.board();
            board.steps += 1;
            board.back();
        }
        let _ = walked.send(Walked::Step(names)).await;
        next += STEP;
        sleep_until(next).await;
    }
    let _ = walked.send(Walked::End).await;
    Ok(())
}

/// Until the next walk. What changed before following began, or after it ended, only a walk finds.
async fn rest(began: Instant, gaps: u64, state: &State) {
    loop {
        let pause = if state.follows() && state.gaps() == gaps {
            WALK_IF_FOLLOWED
        } else {
            WALK
        };
        let left = pause.saturating_sub(began.elapsed());
        if left.is_zero() {
            return;
        }
        sleep(left.min(STEP)).await;
    }
}
