//! The seal: the token at the end of an object's content, as spaces and tabs.

use bytes::Bytes;
use leasehold_engine::FencingToken;

/// The number of bits of a token.
const BITS: usize = 53;
/// The length of a seal: a space or a tab for each bit, the highest first, and a line feed.
pub(super) const BYTES: usize = BITS + 1;

/// Returns the content with its seal.
pub(super) fn put_on(content: &[u8], token: FencingToken) -> Bytes {
    [content, &seal(token)].concat().into()
}

/// Returns the content without its seal; `None` if it does not end in the seal of this token.
pub(super) fn take_off(mut bytes: Bytes, token: FencingToken) -> Option<Bytes> {
    let length = bytes.len().checked_sub(BYTES)?;
    let found = bytes.split_off(length);
    (found == seal(token)[..]).then_some(bytes)
}

fn seal(token: FencingToken) -> [u8; BYTES] {
    let mut seal = [b'\n'; BYTES];
    for (place, byte) in seal[..BITS].iter_mut().rev().enumerate() {
        let set = token.get() >> place & 1 == 1;
        *byte = if set { b'\t' } else { b' ' };
    }
    seal
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Catches a seal that other versions cannot read.
    #[test]
    fn a_seal_is_the_tokens_bits_as_spaces_and_tabs() {
        let token = FencingToken::new(5).expect("it is small");
        let expected = format!("{}\t \t\n", " ".repeat(50));
        assert_eq!(seal(token), expected.as_bytes());
    }

    // Catches two tokens with the same seal: a write of the same content would keep its etag.
    #[test]
    fn every_bit_of_a_token_is_in_its_seal() {
        let most = FencingToken::MAX.get();
        let numbers: BTreeSet<_> = (0..BITS)
            .flat_map(|place| [1_u64 << place, most ^ (1 << place)])
            .collect();
        let tokens = numbers
            .iter()
            .map(|number| FencingToken::new(*number).expect("it is below 2^53"));
        let seals: BTreeSet<_> = tokens.map(seal).collect();
        assert_eq!(seals.len(), numbers.len());
    }

    #[test]
    fn removing_a_seal_restores_the_content() {
        let token = FencingToken::new(33).expect("33 is a token");
        for content in ["", "x", "ends in \t \n"] {
            let sealed = put_on(content.as_bytes(), token);
            assert_eq!(take_off(sealed, token).as_deref(), Some(content.as_bytes()));
        }
    }

    #[test]
    fn a_seal_of_another_token_or_none_is_noticed() {
        let (one, other) = (33, 34);
        let token = |number| FencingToken::new(number).expect("it is a token");
        assert_eq!(take_off(put_on(b"x", token(one)), token(other)), None);
        assert_eq!(take_off(Bytes::from_static(b"x"), token(one)), None);
    }
}
