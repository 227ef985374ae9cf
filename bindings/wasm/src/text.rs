//! Lists of strings in one string: crossing the border once costs less than once per string.
//!
//! JavaScript counts UTF-16 units and Rust counts bytes; for ASCII they are the same.

use leasehold::protocol::ScriptCall;

/// Keys and arguments as one text, and where in it each ends, in UTF-16 units.
pub(crate) fn join(call: &ScriptCall) -> (String, Vec<u32>) {
    let (mut text, mut ends) = (String::new(), Vec::new());
    let mut end = 0;
    for part in call.keys().chain(call.args()) {
        text.push_str(part);
        end += units(part);
        ends.push(end);
    }
    (text, ends)
}

/// Takes apart what JavaScript made of a list: each string's length, a colon, the string. `None` if
/// it is not of that form.
pub(crate) fn split(mut text: &str) -> Option<Vec<&str>> {
    let mut parts = Vec::new();
    while !text.is_empty() {
        let (length, rest) = text.split_once(':')?;
        let (part, rest) = rest.split_at_checked(bytes(rest, length.parse().ok()?)?)?;
        parts.push(part);
        text = rest;
    }
    Some(parts)
}

fn units(text: &str) -> u32 {
    let units = if text.is_ascii() {
        text.len()
    } else {
        text.chars().map(char::len_utf16).sum()
    };
    u32::try_from(units).unwrap_or(u32::MAX)
}

/// How many bytes the first so many UTF-16 units are.
fn bytes(text: &str, units: usize) -> Option<usize> {
    if text.as_bytes().get(..units)?.is_ascii() {
        return Some(units);
    }
    let (mut left, mut bytes) = (units, 0);
    for character in text.chars() {
        if left == 0 {
            break;
        }
        left = left.checked_sub(character.len_utf16())?;
        bytes += character.len_utf8();
    }
    (left == 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(parts: &[&str]) -> String {
        let part = |part: &&str| format!("{}:{part}", units(part));
        parts.iter().map(part).collect()
    }

    #[test]
    fn any_strings_come_back() {
        let lists: [&[&str]; 6] = [
            &[],
            &[""],
            &["a", "", "bc:3:d"],
            &["\0", "é", "日本", "a\u{10348}b", "x"],
            &["\u{fffd}", "7:"],
            &["é7:"],
        ];
        for parts in lists {
            assert_eq!(split(&list(parts)).as_deref(), Some(parts));
        }
    }

    /// Catches a length that is trusted: an index out of bounds would end the instance.
    #[test]
    fn what_is_no_list_is_refused() {
        for text in [
            "a",
            ":",
            "1:",
            "2:é",
            "1:\u{10348}",
            "-1:a",
            "99999999999999999999:a",
            "1:ab",
            "4294967296:a",
        ] {
            assert_eq!(split(text), None, "{text:?}");
        }
    }
}
