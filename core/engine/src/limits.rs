//! Limits and defaults that Rust and JavaScript share.
//!
//! They are in `limits.jsonc`, which the bundler of the npm package reads, too. Times in it are in
//! milliseconds.

use std::time::Duration;

use crate::rows::{cut, same};

/// Returns the number with this name.
///
/// Call this only in constants. Then an unknown name does not compile, and the file does not end up in
/// programs.
pub const fn number(name: &str) -> u64 {
    let mut rest = include_str!("limits.jsonc");
    while !rest.is_empty() {
        let (_, after) = cut(rest, b'"');
        let (found, after) = cut(after, b'"');
        let (value, next) = cut(cut(after, b':').1, b'\n');
        if same(found, name) {
            return digits(cut(value, b',').0);
        }
        rest = next;
    }
    panic!("limits.jsonc has no limit of this name")
}

/// Returns the number with this name as a `u32`. Call this only in constants.
#[allow(clippy::cast_possible_truncation)]
pub const fn count(name: &str) -> u32 {
    let number = number(name);
    assert!(number <= u32::MAX as u64, "the number does not fit 32 bits");
    number as u32
}

/// Returns the time with this name. Call this only in constants.
pub const fn time(name: &str) -> Duration {
    Duration::from_millis(number(name))
}

const fn digits(text: &str) -> u64 {
    let (mut value, mut at) = (0, 0);
    while at < text.len() {
        let byte = text.as_bytes()[at];
        assert!(byte.is_ascii_digit(), "a limit is a whole number");
        value = value * 10 + (byte - b'0') as u64;
        at += 1;
    }
    value
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn each_is_what_a_reader_of_json_finds() {
        let limits: BTreeMap<String, u64> =
            serde_json::from_str(include_str!("limits.jsonc")).expect("names and whole numbers");
        assert!(limits.len() > 10);
        for (name, limit) in limits {
            assert_eq!(number(&name), limit, "{name}");
        }
    }
}
