//! Lists of strings as one string, which crosses the border at once.
//!
//! JavaScript counts UTF-16 units and Rust counts bytes. For ASCII they are the same.

/// Splits a list that JavaScript joined: for each string its length, a colon, and the string. Returns `None`
/// for any other form.
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

/// Returns the list with one more string.
#[cfg(feature = "memory")]
pub(crate) fn with(mut list: String, part: &str) -> String {
    list.push_str(&units(part).to_string());
    list.push(':');
    list.push_str(part);
    list
}

pub(crate) fn units(text: &str) -> u32 {
    let units = if text.is_ascii() {
        text.len()
    } else {
        text.chars().map(char::len_utf16).sum()
    };
    u32::try_from(units).unwrap_or(u32::MAX)
}

/// Returns how many bytes this many leading UTF-16 units have.
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

#[cfg(all(test, feature = "memory"))]
mod tests {
    use super::*;

    fn list(parts: &[&str]) -> String {
        let parts = parts.iter().map(|part| (*part).to_owned());
        parts.fold(String::new(), |list, part| with(list, &part))
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
