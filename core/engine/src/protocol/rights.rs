//! The ACL rights that a Redis user needs.

use super::key::prefix;
use super::pattern::quote_one;

/// The groups of rights, as literals that `concat!` can join.
macro_rules! rights {
    (locks) => {
        "+eval +evalsha +time +exists +hget +hgetall +hset +hdel +pexpire +pexpireat +persist +zadd \
         +zcard +zcount +zmscore +zrange +zrangebyscore +zrem +zscore"
    };
    (pushes) => {
        "+subscribe +publish +pubsub|numsub"
    };
    (cluster) => {
        "+cluster|slots +asking +ssubscribe +spublish"
    };
    (list) => {
        "+scan"
    };
    (tracking) => {
        "+client|id +client|tracking +client|caching"
    };
    (quorum) => {
        "+info +lastsave"
    };
    (database) => {
        "+select"
    };
}

/// The rights that a user of a Redis server needs for the locks of one namespace, as ACL rules.
///
/// The patterns contain the namespace escaped as in keys and quoted as a glob. Unescaped, `a:b` would be a
/// part of the namespace `a`.
///
/// ```
/// use leasehold_engine::protocol::Rights;
///
/// let rights = Rights::new("shop:eu");
/// assert_eq!(rights.keys(), "~{shop%3Aeu:*");
/// assert_eq!(rights.channels(), "&leasehold:shop%3Aeu:*");
/// assert_eq!(Rights::new("st*r").keys(), r"~{st\*r:*");
/// ```
#[derive(Clone, Debug)]
pub struct Rights {
    /// The first part of every key of the namespace.
    start: String,
}

impl Rights {
    /// The rights to acquire, renew, release and inspect locks.
    pub const LOCKS: &str = rights!(locks);

    /// The rights to receive pushes and to send them to other clients.
    pub const PUSHES: &str = rights!(pushes);

    /// The right to list locks. It reveals the names of all keys of the database.
    pub const LIST: &str = rights!(list);

    /// The rights to learn at once that another program deleted or overwrote a held lock. `CLIENT TRACKING`
    /// reveals the names of all keys that anybody changes, and can send messages to the connections of other
    /// users.
    pub const TRACKING: &str = rights!(tracking);

    /// The additional rights on the nodes of a cluster.
    pub const CLUSTER: &str = rights!(cluster);

    /// The additional rights on the servers of a quorum.
    pub const QUORUM: &str = rights!(quorum);

    /// The right to select the database that a URL names.
    pub const DATABASE: &str = rights!(database);

    /// Returns the rights for a namespace.
    pub fn new(namespace: &str) -> Self {
        let mut start = String::new();
        prefix(namespace, &mut start);
        Self { start }
    }

    /// Returns the ACL pattern of the keys, such as `~{shop:*`.
    pub fn keys(&self) -> String {
        self.pattern("~{")
    }

    /// Returns the ACL pattern of the channels, such as `&leasehold:shop:*`.
    pub fn channels(&self) -> String {
        self.pattern("&leasehold:")
    }

    fn pattern(&self, before: &str) -> String {
        let mut pattern = before.to_owned();
        write_scope(&self.start, &mut pattern);
        pattern + ":*"
    }

    /// Appends a sentence that lists all rights for this namespace.
    pub(crate) fn advise(&self, into: &mut String) {
        advise(Some(&self.start), into);
    }
}

/// Appends a sentence that lists the rights that a user needs. `start` is a key, or the first part of one,
/// and selects the namespace. With `None`, the sentence has the placeholder `NAMESPACE`.
#[cold]
#[inline(never)]
pub(crate) fn advise(start: Option<&str>, into: &mut String) {
    for part in ADVICE {
        if part.is_empty() {
            write_scope(start.unwrap_or("{NAMESPACE:"), into);
        }
        into.push_str(part);
    }
}

/// Appends the namespace of a key as an ACL pattern. It stands between the key's brace and its first colon.
fn write_scope(start: &str, into: &mut String) {
    let namespace = start.split(':').next().and_then(|start| start.get(1..));
    for character in namespace.unwrap_or_default().chars() {
        // Redis refuses patterns that contain white space.
        match character {
            '\0'..=' ' | '\u{7f}' => into.push('?'),
            // Other control characters have two bytes.
            '\u{80}'..='\u{9f}' => into.push_str("??"),
            character => quote_one(character, into),
        }
    }
}

/// The parts of the sentence; empty strings stand for the namespace. Joined at compile time, because browsers
/// load this code.
const ADVICE: [&str; 5] = [
    "the user needs the ACL rules ~{",
    "",
    concat!(
        ":* ",
        rights!(locks),
        "; to be notified at once, &leasehold:"
    ),
    "",
    concat!(
        ":* ",
        rights!(pushes),
        "; to list locks, ",
        rights!(list),
        "; to learn at once of changes by others, ",
        rights!(tracking),
        " (these and +scan reveal the names of all keys); on a cluster, ",
        rights!(cluster),
        "; in a quorum, ",
        rights!(quorum),
        "; and for a database in the URL, ",
        rights!(database)
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::name::Name;
    use crate::protocol::{ClientId, LockKey, SCRIPT, channel};

    fn named(rights: &[&'static str]) -> BTreeSet<&'static str> {
        rights.iter().flat_map(|rights| rights.split(' ')).collect()
    }

    /// Returns the rights for all commands that a script calls. Each command is the first argument of `run`
    /// or `call`.
    fn called(script: &str) -> BTreeSet<String> {
        let calls = ["run('", "call('"].into_iter().flat_map(|call| {
            let after = script.split(call).skip(1);
            after.filter_map(|rest| rest.split('\'').next())
        });
        calls
            .map(|name| format!("+{}", name.to_lowercase()))
            .collect()
    }

    /// Catches a command that the script calls and no list of rights names. Without `ZCARD`, waiters once
    /// took the slow path.
    #[test]
    fn every_command_of_the_script_is_among_the_rights() {
        let called = called(SCRIPT);
        // Capitalized words that are arguments, not commands.
        let arguments = [
            "COUNT",
            "GT",
            "LIMIT",
            "MATCH",
            "NX",
            "TYPE",
            "WITHSCORES",
            "XX",
        ];
        let words = SCRIPT.split('\'').skip(1).step_by(2);
        for word in words
            .filter(|word| word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase()))
        {
            let right = format!("+{}", word.to_lowercase());
            assert!(
                called.contains(&right) || arguments.contains(&word),
                "the script has {word}, which is neither a known call nor a known argument"
            );
        }
        let by_hosts = [
            "+eval",
            "+evalsha",
            "+subscribe",
            "+pubsub|numsub",
            "+cluster|slots",
            "+asking",
            "+ssubscribe",
        ];
        let named = named(&[
            Rights::LOCKS,
            Rights::PUSHES,
            Rights::LIST,
            Rights::CLUSTER,
            Rights::QUORUM,
        ]);
        let expected: BTreeSet<_> = named
            .into_iter()
            .filter(|right| !by_hosts.contains(right))
            .collect();
        assert_eq!(called, expected.into_iter().map(str::to_owned).collect());
    }

    /// Matches text as Redis does, for patterns in which only `*`, `?` and escapes are special.
    fn matches(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([b'*', rest @ ..], _) => (0..=text.len()).any(|from| matches(rest, &text[from..])),
            ([b'?', rest @ ..], [_, text @ ..]) => matches(rest, text),
            ([b'\\', one, rest @ ..] | [one, rest @ ..], [first, text @ ..]) => {
                one == first && matches(rest, text)
            }
            ([], []) => true,
            _ => false,
        }
    }

    /// Catches a pattern that does not match the keys of its namespace, or matches those of another one.
    #[test]
    fn patterns_match_only_their_own_namespace() {
        let namespaces = [
            "a",
            "a:b",
            "a%3Ab",
            "a%b",
            "x}y",
            "x",
            "st*r",
            "stir",
            "q?",
            "qq",
            "br[a]ck",
            "brack",
            r"back\slash",
            "backslash",
            "{a",
            "NAMESPACE",
            "é",
        ];
        let name = Name::new("b:payroll").expect("a valid name");
        for own in namespaces {
            let rights = Rights::new(own);
            for other in namespaces {
                let key = LockKey::new(other, &name).expect("a valid namespace");
                let channel = channel(other, ClientId(7));
                let fits = |pattern: String, text: &str| {
                    matches(&pattern.as_bytes()[1..], text.as_bytes())
                };
                let what = format!("{own:?} and {other:?}");
                assert_eq!(fits(rights.keys(), key.lock()), own == other, "{what}");
                assert_eq!(fits(rights.keys(), &key.line()), own == other, "{what}");
                assert_eq!(fits(rights.channels(), &channel), own == other, "{what}");
            }
        }
    }

    /// Redis refuses white space in a pattern, and a terminal acts on control characters.
    #[test]
    fn characters_that_patterns_cannot_contain_become_wildcards() {
        assert_eq!(Rights::new("my shop\n\0").keys(), "~{my?shop??:*");
    }
}
