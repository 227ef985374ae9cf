//! Checks of settings and arguments.

use std::time::Duration;

use super::{Error, ErrorKind};

impl Error {
    /// Fails with [`ErrorKind::Config`] if a text is empty or longer than `most` bytes. `what` describes the
    /// text.
    #[doc(hidden)]
    pub fn check_length(what: &str, text: &str, most: usize) -> Result<(), Self> {
        let length = text.len();
        if (1..=most).contains(&length) {
            return Ok(());
        }
        let message = format!("{what} must be 1 to {most} bytes long; got {length} bytes");
        Err(Self::new(ErrorKind::Config, message))
    }

    /// Fails with [`ErrorKind::Config`] if a time is out of bounds. `what` is a setting's name or a
    /// description.
    #[doc(hidden)]
    pub fn check_range(
        what: &'static str,
        time: Duration,
        least: Duration,
        most: Duration,
    ) -> Result<(), Self> {
        if (least..=most).contains(&time) {
            return Ok(());
        }
        let [least, most, time] = [least, most, time].map(in_words);
        let rule = format!("must be from {least} to {most}; got {time}");
        Err(Self::bad_option(what, rule))
    }
}

/// Returns a time for people: exact if that takes few digits, otherwise rounded down.
fn in_words(time: Duration) -> String {
    const DAY: u64 = 86_400;
    const FEW: u64 = 10_000;
    let (seconds, nanos) = (time.as_secs(), time.subsec_nanos());
    let days = seconds / DAY;
    if days > 0 {
        let more = if seconds % DAY == 0 && nanos == 0 {
            ""
        } else {
            "more than "
        };
        let plural = if days == 1 { "" } else { "s" };
        return format!("{more}{days} day{plural}");
    }
    if nanos == 0 {
        let unit = if seconds == 0 { "ms" } else { "s" };
        return format!("{seconds} {unit}");
    }
    let nanos = seconds * 1_000_000_000 + u64::from(nanos);
    let units = [("ms", 1_000_000), ("µs", 1_000), ("ns", 1)];
    let exact = |(_, size): &&(&str, u64)| nanos % size == 0 && nanos / size < FEW;
    if let Some((unit, size)) = units.iter().find(exact) {
        return format!("{} {unit}", nanos / size);
    }
    let (unit, size) = if seconds > 0 {
        ("s", 1_000_000_000)
    } else if nanos < 1_000_000 {
        ("µs", 1_000)
    } else {
        ("ms", 1_000_000)
    };
    format!("more than {} {unit}", nanos / size)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a long time that is shown in nanoseconds.
    #[test]
    fn times_are_told_in_words_for_people() {
        let day = Duration::from_secs(86_400);
        let cases = [
            (Duration::ZERO, "0 ms"),
            (Duration::from_nanos(7), "7 ns"),
            (Duration::from_nanos(10_001), "more than 10 µs"),
            (Duration::from_micros(9_999), "9999 µs"),
            (Duration::from_nanos(9_999_999), "more than 9 ms"),
            (Duration::from_millis(10), "10 ms"),
            (Duration::from_millis(1_500), "1500 ms"),
            (Duration::from_secs(3_600), "3600 s"),
            (Duration::from_millis(3_600_001), "more than 3600 s"),
            (day, "1 day"),
            (day * 366, "366 days"),
            (day * 366 + Duration::from_nanos(1), "more than 366 days"),
            (day / 2 * 123, "more than 61 days"),
            (Duration::MAX, "more than 213503982334601 days"),
        ];
        for (time, words) in cases {
            assert_eq!(in_words(time), words);
        }
    }
}
