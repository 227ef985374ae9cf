//! From the host's numbers and strings to the core's types, and back.

use std::time::Duration;

use leasehold_engine::time::Timestamp;
use leasehold_engine::{Error, ErrorKind};

/// A moment of the host's clock. What is not a time is its origin.
pub(crate) fn timestamp(millis: f64) -> Timestamp {
    Timestamp::from_nanos(number(millis * 1e6))
}

pub(crate) fn millis(at: Timestamp) -> f64 {
    id(at.as_nanos()) / 1e6
}

/// Some milliseconds; none of what is infinite, negative or no number.
pub(crate) fn span(millis: f64) -> Option<Duration> {
    let nanos = (millis * 1e6).round_ties_even();
    (nanos.is_finite() && nanos >= 0.0).then(|| Duration::from_nanos(number(nanos)))
}

/// A setting, or what it is in words.
// The number itself is not told: the code that prints one is longer than all that is above.
pub(crate) fn duration(what: &'static str, millis: f64) -> Result<Duration, Error> {
    span(millis)
        .ok_or_else(|| Error::bad_option(what, "must be a number of milliseconds from 0 up"))
}

/// The host's numbers are whole, and far below 2^53.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(crate) fn number(number: f64) -> u64 {
    number as u64
}

#[allow(clippy::cast_precision_loss)]
pub(crate) fn id(number: u64) -> f64 {
    number as f64
}

pub(crate) fn error(code: &str, message: &str) -> Error {
    let kind = ErrorKind::from_code(code).unwrap_or(ErrorKind::Store);
    Error::new(kind, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a time that is cut short by what a fraction looks like in binary.
    #[test]
    fn a_span_is_rounded_to_nanoseconds() {
        assert_eq!(span(0.0), Some(Duration::ZERO));
        assert_eq!(span(0.3), Some(Duration::from_micros(300)));
        assert_eq!(span(1_000.7), Some(Duration::from_micros(1_000_700)));
        assert_eq!(span(3.6e6), Some(Duration::from_secs(3_600)));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for millis in [-1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, f64::MAX] {
            assert_eq!(span(millis), None, "{millis}");
        }
        assert!(span(1e300).is_some_and(|long| long > Duration::from_secs(1 << 32)));
    }
}
