//! Limits and defaults that Rust and JavaScript both go by: `limits.jsonc`, which the bundler of the npm
//! package reads, too. Times there are in milliseconds.

use std::time::Duration;

use crate::rows::{cut, same};

/// The number of this name. Only to be called for constants: then a name that the file has not got does
/// not compile, and the file is in no program.
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

/// The same of a smaller number, under the same condition.
#[allow(clippy::cast_possible_truncation)]
pub const fn count(name: &str) -> u32 {
    let number = number(name);
    assert!(number <= u32::MAX as u64, "it is no smaller number");
    number as u32
}

/// The time of this name, under the same condition.
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
