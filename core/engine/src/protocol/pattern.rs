//! Patterns that select names of a namespace.

use std::sync::Arc;

use super::key::{LockKey, escape, prefix, unescape};
use crate::error::{Error, ErrorKind};
use crate::name::Name;

const SUFFIX: &str = "}";

/// Matches any bytes of a name. No name has this byte, because names are UTF-8.
const WILD: u8 = 0xff;

/// Selects names of a namespace: `*` matches any characters, `\*` a star, `\\` a backslash, and any other
/// character itself.
///
/// ```
/// use leasehold_engine::{protocol::{LockKey, Pattern}, Name};
///
/// let pattern = Pattern::new("app", "orders/*")?;
/// let key = LockKey::new("app", &Name::new("orders/42")?)?;
/// assert_eq!(pattern.name_of(key.lock()), Some(Name::new("orders/42")?));
/// assert_eq!(pattern.name_of("{app:users/42}"), None);
/// assert_eq!(Pattern::new("app", r"a\**")?.glob(), r"{app:a\**}");
/// # Ok::<(), leasehold_engine::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// The first part of every key of the namespace.
    prefix: Arc<str>,
    /// The pattern, with names escaped as in keys.
    names: Arc<[u8]>,
    glob: Arc<str>,
}

impl Pattern {
    /// Compiles a pattern. Returns [`ErrorKind::Config`] if the namespace or the
    /// pattern is empty or too long, or if a backslash is not followed by `*` or `\`.
    pub fn new(namespace: &str, pattern: &str) -> Result<Self, Error> {
        LockKey::check_namespace(namespace)?;
        let mut start = String::new();
        prefix(namespace, &mut start);
        let (mut plain, mut names, mut glob) = (String::new(), Vec::new(), String::new());
        quote(&start, &mut glob);
        let mut characters = pattern.chars();
        while let Some(mut character) = characters.next() {
            if character == '*' {
                plain.push(character);
                names.push(WILD);
                glob.push('*');
                continue;
            }
            if character == '\\' {
                let escaped = characters.next().filter(|next| matches!(next, '*' | '\\'));
                character = escaped.ok_or_else(|| {
                    let message = r"a pattern may contain a backslash only as \* or \\";
                    Error::new(ErrorKind::Config, message)
                })?;
            }
            plain.push(character);
            let mut own = String::new();
            escape(character.encode_utf8(&mut [0; 4]), false, &mut own);
            names.extend(own.bytes());
            quote(&own, &mut glob);
        }
        Error::check_length("a pattern", &plain, Name::MAX_BYTES)?;
        glob.push_str(SUFFIX);
        Ok(Self {
            prefix: start.into(),
            names: names.into(),
            glob: glob.into(),
        })
    }

    /// Rebuilds a pattern from its [`glob`](Self::glob).
    pub(super) fn of_glob(glob: &str) -> Option<Self> {
        let (mut prefix, mut names) = (String::new(), Vec::new());
        let mut characters = glob.strip_suffix(SUFFIX)?.chars();
        while let Some(character) = characters.next() {
            let plain = match character {
                '\\' => characters.next()?,
                other => other,
            };
            // The first colon ends the namespace, which has none of its own.
            if !prefix.ends_with(':') {
                prefix.push(plain);
            } else if character == '*' {
                names.push(WILD);
            } else {
                names.extend(plain.encode_utf8(&mut [0; 4]).bytes());
            }
        }
        Some(Self {
            prefix: prefix.into(),
            names: names.into(),
            glob: glob.into(),
        })
    }

    /// Returns the lock key of a name of this namespace.
    pub(super) fn key_of(&self, name: &Name) -> String {
        let mut key = self.prefix.to_string();
        escape(name.as_str(), false, &mut key);
        key + SUFFIX
    }

    /// Returns the prefix of every key of the namespace.
    pub(super) fn start(&self) -> &str {
        &self.prefix
    }

    /// Returns the glob that matches the lock keys, for `SCAN`.
    pub fn glob(&self) -> &str {
        &self.glob
    }

    /// Returns the name of a lock key, or `None` if the pattern does not match it.
    pub fn name_of(&self, lock_key: &str) -> Option<Name> {
        let escaped = lock_key.strip_prefix(&*self.prefix)?.strip_suffix(SUFFIX)?;
        if !matches(&self.names, escaped.as_bytes()) {
            return None;
        }
        Name::new(unescape(escaped)).ok()
    }
}

/// Returns true if the pattern matches the name. Each star matches as little as possible; on a mismatch, the
/// last one matches one byte more.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut place, mut at) = (0, 0);
    // The place after the last star, and where that star's match ends.
    let mut star = None;
    while let Some(byte) = name.get(at) {
        match (pattern.get(place), star) {
            (Some(&WILD), _) => {
                place += 1;
                star = Some((place, at));
            }
            (Some(expected), _) if expected == byte => {
                place += 1;
                at += 1;
            }
            (_, Some((after, end))) => {
                at = end + 1;
                place = after;
                star = Some((after, at));
            }
            (_, None) => return false,
        }
    }
    pattern.iter().skip(place).all(|byte| *byte == WILD)
}

/// Appends text as a glob that matches only that text.
fn quote(text: &str, into: &mut String) {
    for character in text.chars() {
        quote_one(character, into);
    }
}

pub(super) fn quote_one(character: char, into: &mut String) {
    if matches!(character, '*' | '?' | '[' | ']' | '\\') {
        into.push('\\');
    }
    into.push(character);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(name: &str) -> String {
        let name = Name::new(name).expect("a valid name");
        LockKey::new("n*s", &name)
            .expect("a valid namespace")
            .lock()
            .to_owned()
    }

    #[test]
    fn a_star_matches_anything_and_other_characters_match_themselves() {
        let cases = [
            ("*", "anything", true),
            ("a", "a", true),
            ("a", "ab", false),
            ("a*", "a", true),
            ("a*", "abc", true),
            ("a*", "ba", false),
            ("*c", "abc", true),
            ("a*c", "ac", true),
            ("a*c", "a", false),
            ("ab*bc", "abc", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("**", "x", true),
            ("a?c", "abc", false),
            ("a?c", "a?c", true),
            ("[ab]", "a", false),
            ("[ab]", "[ab]", true),
            (r"a\*", "a*", true),
            (r"a\*", "ab", false),
            (r"a\\", r"a\", true),
            (r"a\\*", r"a\b", true),
            (r"\**\*", "*-*", true),
            (r"\**\*", "*--", false),
            ("a*c", "a*c", true),
            ("}%*", "}%7D", true),
            ("%7D", "}", false),
        ];
        for (pattern, name, expected) in cases {
            let found = Pattern::new("n*s", pattern)
                .expect("a valid pattern")
                .name_of(&lock(name));
            let expected = expected.then(|| Name::new(name).expect("a valid name"));
            assert_eq!(found, expected, "{pattern:?} and {name:?}");
        }
    }

    #[test]
    fn the_glob_escapes_all_but_the_stars_of_the_pattern() {
        let pattern = Pattern::new("n*s", r"a*[?]}\*\\").expect("a valid pattern");
        assert_eq!(pattern.glob(), r"{n\*s:a*\[\?\]%7D\*\\}");
    }

    #[test]
    fn other_namespaces_and_bad_patterns_are_refused() {
        let pattern = Pattern::new("ns", "*").expect("a valid pattern");
        assert_eq!(pattern.name_of("{ns2:x}"), None);
        assert_eq!(pattern.name_of("{ns:x}:token"), None);
        assert!(Pattern::new("ns", "").is_err());
        assert!(Pattern::new("", "x").is_err());
        assert!(Pattern::new("ns", &"x".repeat(513)).is_err());
        assert!(Pattern::new("ns", &r"\*".repeat(512)).is_ok());
        assert!(Pattern::new("ns", &r"\*".repeat(513)).is_err());
        for pattern in [r"\", r"a\", r"\a", r"\\\", r"C:\temp\*"] {
            let error = Pattern::new("ns", pattern).expect_err("a stray backslash");
            assert!(error.to_string().contains(r"\* or \\"), "{error}");
        }
    }
}
