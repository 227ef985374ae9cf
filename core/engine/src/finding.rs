//! Problems of a store that works.

use std::fmt;

use serde::Serialize;

use crate::name::Name;
use crate::protocol::{info_field, printable};

/// A problem of a store that endangers leases although the store works, or a difference between a store and the
/// program. An operator must fix it.
///
/// `Locker::findings` has those found so far. As JSON a finding is an object with a `type` in camel
/// case.
///
/// ```
/// # use leasehold_engine as leasehold;
/// # use leasehold::Finding;
/// # fn show(finding: &Finding) {
/// match finding {
///     Finding::Eviction { policy } => eprintln!("maxmemory-policy is {policy}"),
///     other => eprintln!("{other}"),
/// }
/// # }
/// ```
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Finding {
    /// The server evicts keys when it is full, including held locks, which it then gives to others. Set
    /// `maxmemory-policy` to `noeviction`.
    Eviction {
        /// The server's `maxmemory-policy`.
        policy: String,
    },
    /// The server does not notify a holder whose lock another client has changed, by `DEL` or `FLUSHALL` for
    /// example.
    ///
    /// The holder learns of it only at its next renewal. Found in the background, after the first
    /// acquisition. Permit what is missing, or turn off `Builder::tracking`.
    Untracked {
        /// The server's error, or another obstacle.
        reason: String,
    },
    /// A name has another capacity at the store than this program asks for, for instance during a deploy.
    ///
    /// Found with an acquisition of that name. Call `Semaphore::resize`, or change the program.
    Capacity {
        /// The name.
        name: Name,
        /// The capacity at the store, which is in force.
        capacity: u32,
        /// The capacity that the program asks for.
        wanted: u32,
    },
}

impl Finding {
    /// Returns the problems that a server's `INFO` shows. For hosts of the engine.
    pub fn all(info: &str) -> Vec<Self> {
        let policy = info_field(info, "maxmemory_policy");
        let evicts = policy.filter(|policy| *policy != "noeviction");
        let found = evicts.map(|policy| Self::Eviction {
            policy: printable(policy),
        });
        found.into_iter().collect()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eviction { policy } => write!(
                f,
                "maxmemory-policy is {policy}, so a full server evicts held locks and gives them to others; \
                 set maxmemory-policy to noeviction"
            ),
            Self::Untracked { reason } => write!(
                f,
                "the server does not notify a holder whose lock was deleted or overwritten; the holder \
                 learns of it only at its next renewal: {reason}"
            ),
            Self::Capacity {
                name,
                capacity,
                wanted,
            } => write!(
                f,
                "the capacity of {:?} is {capacity}, but this program asks for {wanted}; resize the name, or change \
                 the program",
                name.as_str()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_but_one_is_found() {
        let found = |policy| Finding::all(&format!("maxmemory:0\r\nmaxmemory_policy:{policy}\r\n"));
        for policy in ["volatile-ttl", "volatile-lru", "allkeys-lru", "new\u{1b}"] {
            let [finding] = &found(policy)[..] else {
                panic!("{policy} was not found");
            };
            let shown = finding.to_string();
            assert!(shown.contains(policy.trim_end_matches('\u{1b}')), "{shown}");
            assert!(!shown.contains(char::is_control), "{shown:?}");
        }
        assert_eq!(found("noeviction"), []);
        assert_eq!(Finding::all("redis_version:7.0.15\r\n"), []);
    }
}
