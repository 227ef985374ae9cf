//! Numbers in text.

/// Returns the number if the text is only decimal digits: no sign, no blanks.
///
/// Not by `parse`, which accepts a sign and is four times as much code in WebAssembly.
#[inline(never)]
pub(crate) fn plain(text: &str) -> Option<u64> {
    let mut number = None;
    for byte in text.bytes() {
        let digit = u64::from(byte.wrapping_sub(b'0'));
        let before = number.unwrap_or(0_u64);
        number = Some(before.checked_mul(10)?.checked_add(digit)?);
        if digit > 9 {
            return None;
        }
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_digits_are_a_number() {
        let numbers = ["0", "007", "18446744073709551615"];
        assert_eq!(numbers.map(plain), [Some(0), Some(7), Some(u64::MAX)]);
        for text in [
            "",
            "+1",
            "-1",
            " 1",
            "1 ",
            "1a",
            "/",
            ":",
            "٣",
            "18446744073709551616",
        ] {
            assert_eq!(plain(text), None, "{text:?}");
        }
    }
}
