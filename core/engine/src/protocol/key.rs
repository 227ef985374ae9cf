//! The keys of one name.

use std::fmt;
use std::sync::Arc;

use crate::error::Error;
use crate::name::Name;

/// The keys of one name: the lock's is `{namespace:name}`, and the line's begins with that, as a hash tag.
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

    /// The key of a name; [`ErrorKind::Config`](crate::ErrorKind::Config) if the namespace is empty or over-long.
    pub fn new(namespace: &str, name: &Name) -> Result<Self, Error> {
        Self::of(namespace, name.as_str())
    }

    /// A name and its key. They share their memory, unless something in the name is escaped.
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the name or the namespace is not valid.
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

    /// The slot of a cluster that the keys are in: CRC-16/XMODEM of the hash tag, as the specification
    /// of Redis Cluster says.
    ///
    /// ```
    /// use leasehold_engine::{protocol::LockKey, Name};
    ///
    /// let key = LockKey::new("app", &Name::new("orders/42")?)?;
    /// assert_eq!(key.slot(), 12_454);
    /// # Ok::<(), leasehold_engine::Error>(())
    /// ```
    pub fn slot(&self) -> u16 {
        // Without its own braces; a namespace may begin with another one.
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

    /// Whose lock's key that is, if it may be one. It comes from a server, and need not be of a name.
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

    /// The key of the lock: a hash, with the last token and who has it.
    pub fn lock(&self) -> &str {
        &self.0
    }

    /// The key of the empty name in its namespace, which no lock has: where a server of a quorum keeps
    /// what says whether it has forgotten something.
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
        // In the namespace it is escaped.
        let (namespace, _) = self.0.split_once(':').unwrap_or((&self.0, ""));
        Self(format!("{namespace}:}}").into())
    }

    /// The key of the line of those who wait.
    pub fn line(&self) -> String {
        format!("{}{}", self.0, Self::LINE)
    }

    pub(super) const LOCK: &str = "";
    const LINE: &str = ":line";

    /// The suffixes of all keys of a name, in the script's order.
    pub(super) const ALL: &[&str] = &[Self::LOCK, Self::LINE];

    /// Whether this is one of the name's keys.
    pub(super) fn has(&self, key: &str) -> bool {
        let suffix = key.strip_prefix(self.lock());
        suffix.is_some_and(|suffix| Self::ALL.contains(&suffix))
    }
}

impl fmt::Debug for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// What `namespace` stands for in keys, up to the name.
pub(super) fn prefix(namespace: &str, into: &mut String) {
    into.push('{');
    escape(namespace, true, into);
    into.push(':');
}

pub(super) fn escape(text: &str, colons: bool, into: &mut String) {
    // Slices that can fail would bring kilobytes to a browser.
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

/// What [`escape`] made of a name, as it was.
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

    /// As a server's `CLUSTER KEYSLOT` says.
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

    /// Catches a name that shows what is around it in the key, or how it is escaped.
    #[test]
    fn a_name_that_is_a_part_of_its_key_is_as_any_other() {
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
                    serde_json::to_string(&name).expect("it is a text"),
                    serde_json::to_string(plain).expect("it is a text")
                );
            }
        }
        assert!(LockKey::with_name("ns", "").is_err() && LockKey::with_name("", "x").is_err());
    }

    /// Redis hashes what is between the first `{` and the first `}` after it.
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
    fn a_namespace_is_checked() {
        let name = Name::new("x").expect("a valid name");
        assert!(LockKey::new("", &name).is_err());
        assert!(LockKey::new(&"n".repeat(129), &name).is_err());
    }
}
