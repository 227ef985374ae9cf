//! Converts the host's numbers and strings to the core's types, and back.

use std::time::Duration;

use leasehold_engine::time::Timestamp;
use leasehold_engine::{Error, ErrorKind};

/// Returns a moment of the host's clock; the clock's origin for any other number.
pub(crate) fn timestamp(millis: f64) -> Timestamp {
    Timestamp::from_nanos(number(millis * 1e6))
}

pub(crate) fn millis(at: Timestamp) -> f64 {
    id(at.as_nanos()) / 1e6
}

/// Returns a duration; `None` if the number is infinite, negative or not a number.
pub(crate) fn span(millis: f64) -> Option<Duration> {
    let nanos = (millis * 1e6).round_ties_even();
    (nanos.is_finite() && nanos >= 0.0).then(|| Duration::from_nanos(number(nanos)))
}

/// Returns a setting's duration, or an error that begins with `what`: the setting's name, or a description.
// The message leaves out the number, because code that prints floats is longer than everything above.
pub(crate) fn duration(what: &'static str, millis: f64) -> Result<Duration, Error> {
    span(millis)
        .ok_or_else(|| Error::bad_option(what, "must be a number of milliseconds from 0 up"))
}

/// Converts one of the host's numbers, which are whole and far below 2^53.
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

    /// Catches a time that is cut short because a fraction is not exact in binary.
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
