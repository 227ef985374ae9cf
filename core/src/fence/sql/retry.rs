//! Another try after a race, for a while.

use std::time::{Duration, Instant};

use crate::fence::random::random;
use crate::limits;

/// No try begins later than this after the first.
const LIMIT: Duration = limits::time("raceLimit");
const FIRST_PAUSE: Duration = limits::time("firstRacePause");
const LONGEST_PAUSE: Duration = limits::time("longestRacePause");

pub(super) struct Retry {
    began: Instant,
    pause: Duration,
}

impl Retry {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            pause: FIRST_PAUSE,
        }
    }

    /// Waits before the next try, a random part of a pause that doubles; false if it is too late
    /// for one.
    pub(super) async fn wait(&mut self) -> bool {
        let part = self.pause * u32::from(random().to_le_bytes()[0]) / 256;
        if self.began.elapsed() + part > LIMIT {
            return false;
        }
        tokio::time::sleep(part).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        true
    }
}
