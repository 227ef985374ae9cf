//! Times as people write and read them: `500ms`, `1.5s`, `1m30s`.

use std::time::Duration;

/// The units, each with its nanoseconds.
const UNITS: [(&str, u128); 5] = [
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];
/// The most digits of a number, on either side of its point; more would overflow.
const MOST_DIGITS: usize = 18;
/// The longest time, which is more than the library accepts anywhere.
const MOST: Duration = Duration::from_secs(10 * 366 * 86_400);
const FORM: &str = "a time is numbers with units, such as 500ms, 1.5s, 1m30s or 12h";

/// Reads a time. Every number needs a unit, so that nobody mistakes seconds for milliseconds.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if text.starts_with(['-', '−']) {
        return Err("a time cannot be below zero".to_owned());
    }
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (mut rest, mut sum) = (text, 0_u128);
    while !rest.is_empty() {
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let digits = rest.find(|c| !is_number(c)).unwrap_or(rest.len());
        let (number, behind) = rest.split_at(digits);
        let letters = behind.find(|c| is_number(c) || c == ' ');
        let (unit, behind) = behind.split_at(letters.unwrap_or(behind.len()));
        let Some((_, size)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(match unit {
                "" if part(number, 1).is_some() => {
                    format!("{number} needs a unit: {number}s or {number}ms")
                }
                _ => FORM.to_owned(),
            });
        };
        sum += part(number, *size).ok_or(FORM)?;
        rest = behind.trim_start();
    }
    if text.is_empty() {
        return Err(FORM.to_owned());
    }
    if sum > MOST.as_nanos() {
        return Err("that is longer than ten years".to_owned());
    }
    u64::try_from(sum)
        .map(Duration::from_nanos)
        .map_err(|_| FORM.to_owned())
}

/// Returns the nanoseconds of a number of units, rounded down.
fn part(number: &str, size: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| {
        let fits = text.len() <= MOST_DIGITS;
        text.parse::<u128>().ok().filter(|_| fits)
    };
    let power = 10_u128.pow(u32::try_from(fraction.len()).ok()?.min(18));
    Some(digits(whole)? * size + digits(fraction)? * size / power)
}

/// Shows a time in at most two units, rounded down.
pub(crate) fn show(time: Duration) -> String {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let (seconds, minutes) = (millis / 1_000, millis / 60_000);
    let (hours, days) = (minutes / 60, minutes / 1_440);
    match () {
        () if millis == 0 => "0s".to_owned(),
        () if seconds == 0 => format!("{millis}ms"),
        () if seconds < 10 && millis % 1_000 >= 100 => {
            format!("{seconds}.{}s", millis % 1_000 / 100)
        }
        () if minutes == 0 => format!("{seconds}s"),
        () if hours == 0 => pair(minutes, "m", seconds % 60, "s"),
        () if days == 0 => pair(hours, "h", minutes % 60, "m"),
        () => pair(days, "d", hours % 24, "h"),
    }
}

fn pair(large: u64, unit: &str, small: u64, small_unit: &str) -> String {
    match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit}{small}{small_unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        let cases = [
            ("0", 0),
            ("0s", 0),
            ("250ms", 250),
            ("2s", 2_000),
            ("1m30s", 90_000),
            ("1h 5m", 3_900_000),
            ("2d", 172_800_000),
            ("1.5s", 1_500),
            ("0.25h", 900_000),
            ("1m0.5s", 60_500),
            ("1.5d", 129_600_000),
        ];
        for (text, millis) in cases {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn fractions_are_exact_to_the_nanosecond() {
        assert_eq!(parse("0.0000015s"), Ok(Duration::from_nanos(1_500)));
        assert_eq!(parse("1.25ms"), Ok(Duration::from_micros(1_250)));
        assert_eq!(
            parse("0.999999999999999999s"),
            Ok(Duration::from_nanos(999_999_999))
        );
    }

    #[test]
    fn what_is_no_time_is_refused_with_what_is() {
        for (text, says) in [
            ("-2s", "below zero"),
            ("2", "2s or 2ms"),
            ("", "500ms"),
            ("s", "500ms"),
            ("2 s", "2s or 2ms"),
            ("2sec", "500ms"),
            ("1.5", "1.5s or 1.5ms"),
            ("1.s", "500ms"),
            (".5s", "500ms"),
            ("1.2.3s", "500ms"),
            ("1,5s", "500ms"),
            ("+1s", "500ms"),
            ("99999999999999999999s", "500ms"),
            ("0.1234567890123456789s", "500ms"),
            ("999999999999999999d", "ten years"),
            ("4000d", "ten years"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn times_are_shown_briefly() {
        for (millis, shown) in [
            (0, "0s"),
            (999, "999ms"),
            (2_050, "2s"),
            (2_990, "2.9s"),
            (59_999, "59s"),
            (90_000, "1m30s"),
            (3_600_000, "1h"),
            (90_000_000, "1d1h"),
        ] {
            assert_eq!(show(Duration::from_millis(millis)), shown);
        }
    }
}
