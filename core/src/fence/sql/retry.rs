//! Retries after a race, for a limited time.

use std::time::{Duration, Instant};

use leasehold_engine::Error;
use leasehold_engine::limits;

use super::failure::{Class, Failure};
use crate::fence::random::random;

/// No attempt begins later than this after the first.
const LIMIT: Duration = limits::time("raceLimit");
const FIRST_PAUSE: Duration = limits::time("firstRacePause");
const LONGEST_PAUSE: Duration = limits::time("longestRacePause");

/// Repeats an attempt that another transaction conflicted with. Each pause is a random part of a limit that
/// doubles.
pub(super) async fn while_raced<T, F>(attempt: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Failure>>,
{
    let (began, mut pause) = (Instant::now(), FIRST_PAUSE);
    loop {
        let failure = match attempt().await {
            Ok(done) => return Ok(done),
            Err(failure) => failure,
        };
        let part = pause * u32::from(random().to_le_bytes()[0]) / 256;
        if failure.class != Class::Race || began.elapsed() + part > LIMIT {
            return Err(failure.error);
        }
        tokio::time::sleep(part).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
