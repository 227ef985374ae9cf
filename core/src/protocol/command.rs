//! Commands and replies.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::key::LockKey;
use crate::error::Error;
use crate::name::Owner;
use crate::time::ServerTime;
use crate::token::FencingToken;

/// 128 random bits, new for each acquisition: they make a retry of it idempotent.
///
/// Printed as 32 hexadecimal digits, which is also its form in the store.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u128);

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseId({self})")
    }
}

/// 64 random bits that tell one locker from every other.
///
/// Printed as 16 hexadecimal digits, which is also its form in the store.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientId({self})")
    }
}

/// How a name's tokens are counted.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Counter {
    /// Lifted to the server's clock: grows even if the store loses its data. The counter is kept
    /// this long after its last use.
    ClockFloor {
        /// How long, at least a millisecond.
        retention: Duration,
    },
    /// 1, 2, 3, …: the counter never expires, and tokens fall back if the store loses it.
    Dense,
}

/// Takes a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acquire {
    /// The lock's keys.
    pub key: LockKey,
    /// The acquisition.
    pub lease: LeaseId,
    /// How long the lock is held unless it is renewed; whole milliseconds count.
    pub ttl: Duration,
    /// The locker that asks.
    pub client: ClientId,
    /// The holder as others see it.
    pub owner: Owner,
    /// How the token is made.
    pub counter: Counter,
}

/// One operation of the protocol, of which a batch is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Takes the lock if it is free, this lease's already, or reclaimable.
    Acquire(Acquire),
    /// Extends the lock if it is still this lease's.
    Renew {
        /// The lock's keys.
        key: LockKey,
        /// The lease to extend.
        lease: LeaseId,
        /// The tenure to extend: a late command may have taken the lock for this lease again.
        token: FencingToken,
        /// The new time to live, from now.
        ttl: Duration,
    },
    /// Frees the lock if it is this lease's.
    Release {
        /// The lock's keys.
        key: LockKey,
        /// The lease to end.
        lease: LeaseId,
    },
    /// Frees the lock, whoever has it.
    ForceRelease {
        /// The lock's keys.
        key: LockKey,
    },
    /// Tells who has the lock.
    Inspect {
        /// The lock's keys.
        key: LockKey,
    },
}

impl Command {
    /// The keys of the lock that the command is about.
    pub fn key(&self) -> &LockKey {
        match self {
            Self::Acquire(acquire) => &acquire.key,
            Self::Renew { key, .. }
            | Self::Release { key, .. }
            | Self::ForceRelease { key }
            | Self::Inspect { key } => key,
        }
    }
}

impl Command {
    /// About how many bytes it takes to send.
    pub(crate) fn size(&self) -> usize {
        const WORDS: usize = 128;
        match self {
            Self::Acquire(acquire) => WORDS + 2 * acquire.key.size() + acquire.owner.label().len(),
            other => WORDS + 2 * other.key().size(),
        }
    }
}

/// A command with the moment, on the server's clock, past which it must do nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Op {
    /// What to do.
    pub command: Command,
    /// The server refuses to act later than this.
    pub not_after: ServerTime,
}

/// What came of one command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// The command came past its `not_after`; nothing was done.
    Late,
    /// Acquire: the lock is this lease's.
    Held(Held),
    /// Acquire: somebody else has it, until then unless it is renewed; `None` if the lock does
    /// not expire, since somebody took its expiry away.
    Busy {
        /// When the holder's lease ends.
        expires: Option<ServerTime>,
    },
    /// Renew: extended.
    Renewed {
        /// When the lock expires now.
        expires: ServerTime,
    },
    /// Renew, release: the lock is free.
    Gone,
    /// Renew, release: the lock is somebody else's.
    Taken,
    /// Release: freed.
    Released,
    /// Force-release: freed, and this was its holder; `None` if it was free.
    ForceReleased(Option<Holder>),
    /// Inspect: the holder, if there is one, and the last token that is remembered.
    Inspected {
        /// Who has it.
        holder: Option<Holder>,
        /// The last token of the name.
        last_token: Option<FencingToken>,
    },
}

/// What an acquisition got.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// The tenure's token.
    pub token: FencingToken,
    /// When the lock expires unless it is renewed.
    pub expires: ServerTime,
}

/// Who has a lock, as the store knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The holder's token.
    pub token: FencingToken,
    /// When the lock expires unless it is renewed; `None` if it does not.
    pub expires: Option<ServerTime>,
    /// The holder's owner or label.
    pub owner: Owner,
}

/// The answer to a batch: one reply per command, in order, and the server's time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BatchReply {
    /// The server's clock while it executed the batch.
    pub time: ServerTime,
    /// A reply, or the server's refusal, for each command. One failing command does not fail its
    /// neighbours.
    pub replies: Vec<Result<Reply, Error>>,
}

impl FromStr for LeaseId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u128::from_str_radix(text, 16).map(Self)
    }
}
