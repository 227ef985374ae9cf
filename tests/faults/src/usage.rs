//! The uses of the names in a round.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;
use std::time::Duration;

use leasehold::{Error, Lease, Locker, Permit};
use leasehold_tests::Random;
use serde::{Deserialize, Serialize};

use crate::client::{TTL, WAIT};
use crate::fleet::Language;

/// The capacity of a semaphore that all clients give.
pub const CAPACITY: u32 = 3;

/// The use of the names in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Use {
    /// Three locks, for six clients of three kinds.
    Locks,
    /// One semaphore, for twenty clients.
    Semaphore,
    /// One name for twenty readers and writers.
    Readers,
}

impl Use {
    /// Returns the kinds of the clients, in the order of their numbers.
    pub fn clients(self) -> Vec<Language> {
        let kinds: &[Language] = match self {
            Self::Locks => &[Language::Rust, Language::Node, Language::Command],
            Self::Semaphore | Self::Readers => &[Language::Rust, Language::Node],
        };
        let count = if self == Self::Locks { 6 } else { 20 };
        kinds.iter().copied().cycle().take(count).collect()
    }

    /// Returns the names that the clients contend for.
    pub fn names(self) -> Vec<String> {
        let names: &[&str] = match self {
            Self::Locks => &["a", "b", "c"],
            Self::Semaphore | Self::Readers => &["a"],
        };
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// Returns how many clients can hold a name at once when nobody resizes it.
    pub fn holders(self) -> usize {
        if self == Self::Semaphore {
            CAPACITY as usize
        } else {
            1
        }
    }

    /// Returns the time to live of a lease. Where twenty wait, it is short: each dead holder delays all of them that long.
    pub fn ttl(self) -> Duration {
        if self == Self::Locks { TTL } else { TTL / 2 }
    }

    /// Returns how long an acquisition waits. Short waits for a shared name show when it was admitted.
    pub fn wait(self, random: &mut Random) -> Duration {
        if self != Self::Locks && random.chance(60) {
            return Duration::from_millis(random.between(0, 150));
        }
        WAIT
    }

    /// Acquires a name, for reading if `reads` and there are readers.
    pub async fn acquire(
        self,
        locker: &Locker,
        name: &str,
        reads: bool,
        wait: Duration,
    ) -> Result<Option<Held>, Error> {
        let permit = match self {
            Self::Locks => {
                let lease = locker
                    .lock(name)?
                    .ttl(self.ttl())
                    .acquire_within(wait)
                    .await?;
                return Ok(lease.map(Held::Lock));
            }
            Self::Semaphore => {
                let semaphore = locker.semaphore(name, CAPACITY)?.ttl(self.ttl());
                semaphore.acquire_within(wait).await?
            }
            Self::Readers => {
                let both = locker.rw_lock(name)?.ttl(self.ttl());
                let part = if reads { both.read() } else { both.write() };
                let permit = part.acquire_within(wait).await?;
                return Ok(permit.map(|permit| Held::Permit(permit, reads)));
            }
        };
        Ok(permit.map(|permit| Held::Permit(permit, false)))
    }
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Locks => "locks",
            Self::Semaphore => "semaphore",
            Self::Readers => "readers",
        })
    }
}

impl FromStr for Use {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = [Self::Locks, Self::Semaphore, Self::Readers].into_iter();
        all.find(|usage| usage.to_string() == text)
            .ok_or_else(|| format!("unknown use `{text}`: locks, semaphore or readers"))
    }
}

/// A lease of a lock or of a shared name.
#[derive(Debug)]
pub enum Held {
    /// A lock.
    Lock(Lease),
    /// A part of a shared name; true for a reader.
    Permit(Permit, bool),
}

impl Deref for Held {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        match self {
            Self::Lock(lease) => lease,
            Self::Permit(permit, _) => permit,
        }
    }
}

impl Held {
    /// Returns the name for the guarded store.
    pub fn resource(&self) -> String {
        match self {
            Self::Lock(lease) => lease.name().as_str().to_owned(),
            Self::Permit(permit, _) => permit.resource().into_owned(),
        }
    }

    /// Returns true for a reader.
    pub fn reads(&self) -> bool {
        matches!(self, Self::Permit(_, true))
    }

    /// Returns the last writer's token.
    pub fn generation(&self) -> Option<u64> {
        match self {
            Self::Lock(_) => None,
            Self::Permit(permit, _) => permit.generation().map(leasehold::FencingToken::get),
        }
    }

    /// Returns the token for the guarded store: a reader has the last writer's, if there was one.
    pub fn fence(&self) -> Option<u64> {
        if self.reads() {
            self.generation()
        } else {
            Some(self.token().get())
        }
    }

    /// Releases it.
    pub async fn release(self) -> Result<(), Error> {
        match self {
            Self::Lock(lease) => lease.release().await,
            Self::Permit(permit, _) => permit.release().await,
        }
    }
}
