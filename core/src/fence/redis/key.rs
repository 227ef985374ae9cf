//! The key under which the fence of a resource is stored.

use std::sync::LazyLock;

use fred::util::redis_keyslot;

/// Returns the key of a resource's fence: `{tag}:fence:resource`, or `{resource}:fence` if the whole resource
/// is the tag.
///
/// The tag puts it on the cluster slot of a key with the resource's name. No two resources share a key,
/// because the tag ends at the first `}`.
pub(super) fn fence_key(resource: &str) -> String {
    match hash_tag(resource) {
        Some(tag) => format!("{{{tag}}}:fence:{resource}"),
        None if !resource.contains('}') => format!("{{{resource}}}:fence"),
        // Redis hashes the whole of such a name, but no tag can hold it.
        None => format!("{{{}}}:fence:{resource}", number_on_slot_of(resource)),
    }
}

/// Returns the part that Redis hashes instead of the whole key: from the first `{` to the next `}`, if it is
/// not empty.
fn hash_tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// Returns the smallest number that, as a key, is on the same slot.
fn number_on_slot_of(key: &str) -> u32 {
    NUMBERS[usize::from(redis_keyslot(key.as_bytes()))]
}

/// The smallest number on each slot, found in one search on first use. A number's hash is that of all its
/// digits except the last, plus one step.
static NUMBERS: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let mut hashes: Vec<u16> = Vec::with_capacity(NUMBERS_TRIED);
    let mut numbers = vec![u32::MAX; SLOTS];
    for (number, digit) in (0_u32..).zip((b'0'..=b'9').cycle()).take(NUMBERS_TRIED) {
        let before = if number < 10 {
            0
        } else {
            hashes[number as usize / 10]
        };
        let hash = crc16_step(before, digit);
        hashes.push(hash);
        let smallest = &mut numbers[usize::from(hash) % SLOTS];
        *smallest = number.min(*smallest);
    }
    numbers
});

/// One step of CRC-16/XMODEM, as the cluster specification defines it.
fn crc16_step(crc: u16, byte: u8) -> u16 {
    (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| {
        (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 }
    })
}

/// The numbers below this one cover every slot.
const NUMBERS_TRIED: usize = 1 << 17;

/// The number of slots of a Redis Cluster.
const SLOTS: usize = 16_384;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A second implementation of the cluster specification, bit by bit, to check the first.
    fn slot(key: &[u8]) -> u16 {
        let find = |from: usize, byte| key[from..].iter().position(|other| *other == byte);
        let tag = find(0, b'{').and_then(|open| {
            let length = find(open + 1, b'}').filter(|length| *length > 0)?;
            Some(&key[open + 1..open + 1 + length])
        });
        let mut crc = 0_u16;
        for byte in tag.unwrap_or(key) {
            crc ^= u16::from(*byte) << 8;
            for _ in 0..8 {
                let carry = crc & 0x8000 != 0;
                crc <<= 1;
                if carry {
                    crc ^= 0x1021;
                }
            }
        }
        crc % 16_384
    }

    /// The test vectors that every implementation must agree on, in other languages, too.
    const VECTORS: &str = include_str!("../../../../tests/vectors/fence_keys.json");

    #[derive(serde::Deserialize)]
    struct Vector {
        resource: String,
        slot: u16,
        fence: String,
    }

    fn vectors() -> Vec<Vector> {
        serde_json::from_str(VECTORS).expect("the vectors are of this shape")
    }

    #[test]
    fn the_second_implementation_is_right() {
        // From the cluster specification of Redis.
        assert_eq!(slot(b"123456789"), 0x31c3);
        assert_eq!(slot(b"{user1000}.following"), slot(b"user1000"));
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
        assert_eq!(slot(b"foo{bar}{zap}"), slot(b"bar"));
    }

    /// Catches a key that moves, so that writers of two versions or languages do not fence each other. Also
    /// catches a tag that is cut short: the server would answer CROSSSLOT.
    #[test]
    fn fence_keys_match_the_shared_vectors() {
        for vector in vectors() {
            let (name, fence) = (&vector.resource, fence_key(&vector.resource));
            assert_eq!(fence, vector.fence, "{name}");
            assert_eq!(slot(name.as_bytes()), vector.slot, "{name}");
            assert_eq!(slot(fence.as_bytes()), vector.slot, "{name}: {fence}");
        }
    }

    #[test]
    fn no_two_resources_share_a_fence() {
        let fences: BTreeSet<_> = vectors().into_iter().map(|vector| vector.fence).collect();
        assert_eq!(fences.len(), vectors().len());
    }

    #[test]
    fn there_is_a_number_on_every_slot() {
        let slots: BTreeSet<_> = (0_u32..1 << 17)
            .map(|number| slot(number.to_string().as_bytes()))
            .collect();
        assert_eq!(slots.len(), 16_384);
    }
}
