//! The due times of jobs.

use serde::Serialize;

use crate::error::{Error, ErrorKind};

/// A due time of a job, as a number from 1 to 2^53-1.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct Tick(u64);

impl Tick {
    /// The greatest tick, which JavaScript can still represent exactly.
    pub const MAX: u64 = (1 << 53) - 1;

    /// Makes a tick of its number. Fails with [`Config`](crate::ErrorKind::Config) if that is 0 or greater
    /// than [`MAX`](Self::MAX).
    pub fn new(number: u64) -> Result<Self, Error> {
        if (1..=Self::MAX).contains(&number) {
            return Ok(Self(number));
        }
        let what = format!("the tick {number} is not from 1 to {}", Self::MAX);
        Err(Error::new(ErrorKind::Config, what))
    }

    /// Returns the number.
    pub fn get(self) -> u64 {
        self.0
    }
}
