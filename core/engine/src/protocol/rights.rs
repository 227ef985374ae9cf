//! The rights that a user of a Redis server needs.

use super::key::prefix;
use super::pattern::quote_one;

/// The groups of rights as literals, which `concat!` can join.
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

/// The rights that a user of a Redis server needs for the locks of one namespace, in the words of an ACL.
///
/// The patterns hold the namespace as keys do, escaped, and quoted as a glob. Taken literally, `a:b` would be a
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
    /// What every key of the namespace begins with.
    start: String,
}

impl Rights {
    /// To take, renew, give back and inspect locks.
    pub const LOCKS: &str = rights!(locks);

    /// To receive pushes, and to send them to others.
    pub const PUSHES: &str = rights!(pushes);

    /// To list locks. It shows the names of all keys of the database.
    pub const LIST: &str = rights!(list);

    /// To learn at once that a held lock was deleted or overwritten. `CLIENT TRACKING` shows the names of all
    /// keys that anybody changes, and sends messages to the connections of other users.
    pub const TRACKING: &str = rights!(tracking);

    /// On the nodes of a cluster.
    pub const CLUSTER: &str = rights!(cluster);

    /// On the servers of a quorum.
    pub const QUORUM: &str = rights!(quorum);

    /// To use the database that a URL names.
    pub const DATABASE: &str = rights!(database);

    /// For a namespace.
    pub fn new(namespace: &str) -> Self {
        let mut start = String::new();
        prefix(namespace, &mut start);
        Self { start }
    }

    /// The pattern of the keys.
    pub fn keys(&self) -> String {
        self.pattern("~{")
    }

    /// The pattern of the channels.
    pub fn channels(&self) -> String {
        self.pattern("&leasehold:")
    }

    fn pattern(&self, before: &str) -> String {
        let mut pattern = before.to_owned();
        write_scope(&self.start, &mut pattern);
        pattern + ":*"
    }

    /// Writes all of them in words.
    pub(crate) fn advise(&self, into: &mut String) {
        advise(Some(&self.start), into);
    }
}

/// Writes in words which rights a user needs, in the namespace of a key or of what its keys begin with; or with a
/// mark in its place.
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

/// Writes the namespace of a key as patterns hold it: what is between the brace and the first colon.
fn write_scope(start: &str, into: &mut String) {
    let namespace = start.split(':').next().and_then(|start| start.get(1..));
    for character in namespace.unwrap_or_default().chars() {
        // Redis refuses a pattern with white space in it.
        match character {
            '\0'..=' ' | '\u{7f}' => into.push('?'),
            character => quote_one(character, into),
        }
    }
}

/// The namespace stands where there is nothing. It is put together as this crate is compiled, because a browser
/// loads it.
const ADVICE: [&str; 5] = [
    "a user of the locks needs on the keys ~{",
    "",
    concat!(
        ":* ",
        rights!(locks),
        "; to be told at once, on the channels &leasehold:"
    ),
    "",
    concat!(
        ":* ",
        rights!(pushes),
        "; to list ",
        rights!(list),
        ", and to learn of changes by others at once ",
        rights!(tracking),
        ", which both show the names of all keys; for a cluster ",
        rights!(cluster),
        "; for a quorum ",
        rights!(quorum),
        "; and for a database in the URL ",
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

    /// The rights to the commands that a script calls: each is the first argument of a function.
    fn called(script: &str) -> BTreeSet<String> {
        let calls = ["run('", "call('"].into_iter().flat_map(|call| {
            let after = script.split(call).skip(1);
            after.filter_map(|rest| rest.split('\'').next())
        });
        calls
            .map(|name| format!("+{}", name.to_lowercase()))
            .collect()
    }

    /// Catches a command that the script calls and no list of rights names: waiters took the slow path without
    /// `ZCARD`.
    #[test]
    fn every_command_of_the_script_is_among_the_rights() {
        let called = called(SCRIPT);
        // Words in capitals that are no commands: arguments of those.
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
                "{word} is called in a way that this test does not know"
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

    /// Matches a text as Redis does, for patterns in which only `*`, `?` and escapes are special.
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

    /// Catches a pattern that does not fit the keys of its namespace, or fits those of another.
    #[test]
    fn patterns_fit_their_own_namespace_alone() {
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
    fn what_cannot_stand_in_a_pattern_is_any_character_there() {
        assert_eq!(Rights::new("my shop\n\0").keys(), "~{my?shop??:*");
    }
}
