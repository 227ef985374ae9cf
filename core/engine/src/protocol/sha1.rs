//! SHA-1, equal to `redis.sha1hex`. Written for size: few messages are sealed, and a crate that is optimized
//! for speed would add four times as many bytes to the browser build.

const START: [u32; 5] = [
    0x6745_2301,
    0xefcd_ab89,
    0x98ba_dcfe,
    0x1032_5476,
    0xc3d2_e1f0,
];
const BLOCK: usize = 64;

/// Returns the SHA-1 of a text.
pub(super) fn sha1(text: &str) -> [u8; 20] {
    let mut bytes = text.as_bytes().to_vec();
    let bits = 8 * u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    bytes.push(0x80);
    let padded = (bytes.len() + size_of::<u64>()).next_multiple_of(BLOCK);
    bytes.resize(padded - size_of::<u64>(), 0);
    bytes.extend(bits.to_be_bytes());
    let words: Vec<u32> = bytes.chunks(4).map(word).collect();
    let state = words.chunks(BLOCK / 4).fold(START, take_in);
    let mut hash = [0; 20];
    for (place, word) in hash.chunks_mut(4).zip(state) {
        place.copy_from_slice(&word.to_be_bytes());
    }
    hash
}

fn word(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(0, |word, byte| word << 8 | u32::from(*byte))
}

// The variable names are those of the SHA-1 standard.
#[allow(clippy::many_single_char_names)]
fn take_in(state: [u32; 5], block: &[u32]) -> [u32; 5] {
    let mut words = [0; 80];
    words[..block.len()].copy_from_slice(block);
    for at in block.len()..words.len() {
        let mixed = words[at - 3] ^ words[at - 8] ^ words[at - 14] ^ words[at - 16];
        words[at] = mixed.rotate_left(1);
    }
    let [mut a, mut b, mut c, mut d, mut e] = state;
    for (round, word) in words.into_iter().enumerate() {
        let (chosen, constant) = match round / 20 {
            0 => (b & c | !b & d, 0x5a82_7999),
            1 => (b ^ c ^ d, 0x6ed9_eba1),
            2 => (b & c | b & d | c & d, 0x8f1b_bcdc_u32),
            _ => (b ^ c ^ d, 0xca62_c1d6),
        };
        let next = [a.rotate_left(5), chosen, e, constant, word];
        (e, d, c, b) = (d, c, b.rotate_left(30), a);
        a = next.into_iter().fold(0, u32::wrapping_add);
    }
    let mut sums = [a, b, c, d, e];
    for (sum, before) in sums.iter_mut().zip(state) {
        *sum = sum.wrapping_add(before);
    }
    sums
}

#[cfg(test)]
mod tests {
    use ::sha1::{Digest, Sha1};

    use super::sha1;

    /// Catches a difference from the server's SHA-1, for every length of the last block.
    #[test]
    fn it_equals_another_implementation() {
        for length in 0..200 {
            let text = "0123456789abcdef~".repeat(20)[..length].to_owned();
            assert_eq!(sha1(&text), *Sha1::digest(&text), "{length}");
        }
    }
}
