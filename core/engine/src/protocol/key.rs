//! The Redis keys of one name.

use std::fmt;
use std::sync::Arc;

use crate::error::Error;
use crate::name::Name;

/// The Redis keys of one name: the lock's is `{namespace:name}`, and the line's begins with that as a hash
/// tag.
///
/// `}` is escaped in both parts and `:` in the namespace, so that different names never share a
/// key and all keys of one name live on one cluster slot.
///
/// ```
/// use leasehold_engine::{protocol::LockKey, Name};
///
/// let key = LockKey::new("app", &Name::new("a}b%")?)?;
/// assert_eq!(key.lock(), "{app:a%7Db%25}");
/// # Ok::<(), leasehold_engine::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockKey(Arc<str>);

impl LockKey {
    /// The longest namespace, in bytes.
    pub const MAX_NAMESPACE_BYTES: usize = 128;

    /// Returns the keys of a name, or [`ErrorKind::Config`](crate::ErrorKind::Config) if the namespace is
    /// empty or too long.
    pub fn new(namespace: &str, name: &Name) -> Result<Self, Error> {
        Self::of(namespace, name.as_str())
    }

    /// Returns a name and its keys. They share memory unless a character of the name is escaped in keys.
    /// Returns [`ErrorKind::Config`](crate::ErrorKind::Config) if the name or the namespace is not valid.
    ///
    /// ```
    /// use leasehold_engine::protocol::LockKey;
    ///
    /// let (name, key) = LockKey::with_name("app", "orders/42")?;
    /// assert_eq!((name.as_str(), key.lock()), ("orders/42", "{app:orders/42}"));
    /// # Ok::<(), leasehold_engine::Error>(())
    /// ```
    pub fn with_name(namespace: &str, name: &str) -> Result<(Name, Self), Error> {
        Name::check(name)?;
        let key = Self::of(namespace, name)?;
        let name = if name.bytes().any(|byte| escaped(byte, false).is_some()) {
            Name::new(name)?
        } else {
            Name::within(&key.0)
        };
        Ok((name, key))
    }

    fn of(namespace: &str, name: &str) -> Result<Self, Error> {
        Self::check_namespace(namespace)?;
        let mut tag = String::with_capacity(namespace.len() + name.len() + 3);
        prefix(namespace, &mut tag);
        escape(name, false, &mut tag);
        tag.push('}');
        Ok(Self(tag.into()))
    }

    pub(crate) fn check_namespace(namespace: &str) -> Result<(), Error> {
        Error::check_length("a namespace", namespace, Self::MAX_NAMESPACE_BYTES)
    }

    pub(super) fn size(&self) -> usize {
        self.0.len()
    }

    /// Returns the cluster slot of the keys: CRC-16/XMODEM of the hash tag, as the specification of Redis
    /// Cluster says.
    ///
    /// ```
    /// use leasehold_engine::{protocol::LockKey, Name};
    ///
    /// let key = LockKey::new("app", &Name::new("orders/42")?)?;
    /// assert_eq!(key.slot(), 12_454);
    /// # Ok::<(), leasehold_engine::Error>(())
    /// ```
    pub fn slot(&self) -> u16 {
        // The tag is between the key's own braces; a namespace may begin with another brace.
        let tag = self.0.get(1..self.0.len() - 1).unwrap_or_default();
        let crc = tag.bytes().fold(0_u16, |crc, byte| {
            (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
                let shifted = crc << 1;
                if crc & 0x8000 == 0 {
                    shifted
                } else {
                    shifted ^ 0x1021
                }
            })
        });
        crc % Self::SLOTS
    }

    /// How many slots a cluster has.
    pub const SLOTS: u16 = 16_384;

    /// Reads the lock key that a server reported; `None` if it cannot be a lock key. The name in it is not
    /// validated.
    ///
    /// ```
    /// use leasehold_engine::{protocol::LockKey, Name};
    ///
    /// let key = LockKey::new("app", &Name::new("orders/42")?)?;
    /// assert_eq!(LockKey::of_lock(key.lock()), Some(key));
    /// assert_eq!(LockKey::of_lock("app:orders"), None);
    /// # Ok::<(), leasehold_engine::Error>(())
    /// ```
    pub fn of_lock(key: &str) -> Option<Self> {
        let may_be = key.starts_with('{') && key.ends_with('}');
        may_be.then(|| Self(key.into()))
    }

    /// Returns the key of the lock: a hash with the last token and the holder.
    pub fn lock(&self) -> &str {
        &self.0
    }

    /// Returns the key of the empty name in the same namespace, which no lock has. A server of a quorum keeps
    /// its [incarnation](super::Incarnation) there.
    ///
    /// ```
    /// use leasehold_engine::{protocol::LockKey, Name};
    ///
    /// let key = LockKey::new("app", &Name::new("orders/42")?)?;
    /// assert_eq!(key.mark().lock(), "{app:}");
    /// # Ok::<(), leasehold_engine::Error>(())
    /// ```
    #[must_use]
    pub fn mark(&self) -> Self {
        // The namespace has no colon of its own: it is escaped.
        let (namespace, _) = self.0.split_once(':').unwrap_or((&self.0, ""));
        Self(format!("{namespace}:}}").into())
    }

    /// Returns the key of the line of waiters.
    pub fn line(&self) -> String {
        format!("{}{}", self.0, Self::LINE)
    }

    /// Returns the key of the holders of a shared name: a sorted set.
    pub fn holders(&self) -> String {
        format!("{}{}", self.0, Self::HOLDERS)
    }

    pub(super) const LOCK: &str = "";
    const LINE: &str = ":line";

    const HOLDERS: &str = ":holders";

    /// The suffixes of the keys of a name, in the order of the script's `KEYS`.
    pub(super) const ALL: &[&str] = &[Self::LOCK, Self::LINE];

    /// The suffixes of the keys of a shared name, in the order of the script's `KEYS`.
    pub(super) const SHARED: &[&str] = &[Self::LOCK, Self::LINE, Self::HOLDERS];

    /// Returns true if this is one of the name's keys.
    pub(super) fn has(&self, key: &str) -> bool {
        let suffix = key.strip_prefix(self.lock());
        suffix.is_some_and(|suffix| Self::SHARED.contains(&suffix))
    }
}

impl fmt::Debug for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Appends the part of a key before the name: the brace, the escaped namespace and a colon.
pub(super) fn prefix(namespace: &str, into: &mut String) {
    into.push('{');
    escape(namespace, true, into);
    into.push(':');
}

pub(super) fn escape(text: &str, colons: bool, into: &mut String) {
    // `get`, because slicing that can panic adds kilobytes to the browser build.
    let part = |from, to| text.get(from..to).unwrap_or_default();
    let mut plain = 0;
    for (place, byte) in text.bytes().enumerate() {
        if let Some(escaped) = escaped(byte, colons) {
            into.push_str(part(plain, place));
            into.push_str(escaped);
            plain = place + 1;
        }
    }
    into.push_str(part(plain, text.len()));
}

fn escaped(byte: u8, colons: bool) -> Option<&'static str> {
    match byte {
        b'%' => Some("%25"),
        b'}' => Some("%7D"),
        b':' if colons => Some("%3A"),
        _ => None,
    }
}

/// Reverses [`escape`] for a name.
pub(super) fn unescape(text: &str) -> String {
    let mut parts = text.split('%');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let brace = part.strip_prefix("7D").map(|rest| ('}', rest));
        let percent = || ('%', part.strip_prefix("25").unwrap_or(part));
        let (character, rest) = brace.unwrap_or_else(percent);
        plain.push(character);
        plain.push_str(rest);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str, name: &str) -> LockKey {
        let name = Name::new(name).expect("a valid name");
        LockKey::new(namespace, &name).expect("a valid namespace")
    }

    /// The expected slots are from a server's `CLUSTER KEYSLOT`.
    #[test]
    fn a_key_knows_its_slot() {
        for (namespace, name, slot) in [("app", "orders/42", 12_454), ("{app", "a", 14_615)] {
            let name = Name::new(name).expect("a short name is valid");
            let key = LockKey::new(namespace, &name).expect("a short namespace is valid");
            assert_eq!(key.slot(), slot);
        }
    }

    #[test]
    fn different_names_have_different_keys() {
        let pairs = [
            (key("a", "b:c"), key("a:b", "c")),
            (key("a", "}"), key("a", "%7D")),
            (key("a", "x}:line"), key("a", "x")),
        ];
        for (one, other) in pairs {
            assert_ne!(one, other);
            assert_ne!(one.lock(), other.lock());
        }
    }

    /// Catches a name that exposes other parts of the key that it shares memory with, or its escaped form.
    #[test]
    fn a_name_that_shares_memory_with_its_key_equals_any_other() {
        for plain in [
            "x",
            "a:b",
            ":",
            "{",
            "}",
            "{}",
            "a}{b",
            "%7D",
            "🔒 \n\0",
            "{a:b}",
        ] {
            for namespace in ["ns", "a:b", "{", "}:"] {
                let (name, key) = LockKey::with_name(namespace, plain).expect("both are valid");
                let other = Name::new(plain).expect("a short name is valid");
                assert_eq!((name.as_str(), &name), (plain, &other));
                assert_eq!(
                    key,
                    LockKey::new(namespace, &other).expect("both are valid")
                );
                assert_eq!(format!("{name} {name:?}"), format!("{other} {other:?}"));
                assert_eq!(
                    serde_json::to_string(&name).expect("a string serializes"),
                    serde_json::to_string(plain).expect("a string serializes")
                );
            }
        }
        assert!(LockKey::with_name("ns", "").is_err() && LockKey::with_name("", "x").is_err());
    }

    /// Redis hashes the bytes between the first `{` and the first `}` after it.
    #[test]
    fn the_whole_name_is_the_hash_tag() {
        for name in ["{", "}", "{}", "a}{b", "🔒 \n\0", "x"] {
            let key = key("ns", name);
            let tag = &key.lock()[1..key.lock().find('}').expect("there is a closing brace")];
            assert_eq!(format!("{{{tag}}}"), key.lock(), "of {name:?}");
            assert_eq!(format!("{{{tag}}}:line"), key.line(), "of {name:?}");
        }
    }

    #[test]
    fn a_name_has_a_few_keys() {
        let key = key("ns:eu", "a:b%");
        assert_eq!(key.lock(), "{ns%3Aeu:a:b%25}");
        assert_eq!(key.line(), "{ns%3Aeu:a:b%25}:line");
        assert_eq!(key.holders(), "{ns%3Aeu:a:b%25}:holders");
        for own in [key.lock(), &key.line(), &key.holders()] {
            assert!(key.has(own), "{own}");
        }
        for other in [
            "{ns%3Aeu:a:b%25}:other",
            "{ns%3Aeu:a}",
            "{ns%3Aeu:a:b%25",
            "",
        ] {
            assert!(!key.has(other), "{other}");
        }
        for other in ["{ns:a", "ns:a}", ""] {
            assert_eq!(LockKey::of_lock(other), None, "{other}");
        }
    }

    #[test]
    fn a_namespace_is_checked() {
        let name = Name::new("x").expect("a valid name");
        assert!(LockKey::new("", &name).is_err());
        assert!(LockKey::new(&"n".repeat(129), &name).is_err());
    }
}
