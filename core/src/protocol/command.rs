//! Commands and replies.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use super::key::LockKey;
use super::pattern::Pattern;
use crate::error::Error;
use crate::name::{Name, Owner};
use crate::time::{ServerTime, YEAR};
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

/// The first 16 digits of a lease id, which are no secret: a message names its lease by them. The
/// others are known to the store and to who made it.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HalfId(pub u64);

impl LeaseId {
    /// What may be told of it to everybody.
    pub fn half(self) -> HalfId {
        HalfId(u64::try_from(self.0 >> 64).unwrap_or(0))
    }
}

impl fmt::Display for HalfId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for HalfId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HalfId({self})")
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
    /// this long after its last use, or for ever if it counted densely before.
    ClockFloor {
        /// How long, at least a millisecond.
        retention: Duration,
    },
    /// 1, 2, 3, …: the counter never expires, and tokens fall back if the store loses it.
    Dense,
}

impl Counter {
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the retention is not from 1 s to a year.
    pub fn check(self) -> Result<(), Error> {
        match self {
            Self::ClockFloor { retention } => {
                Error::check_range("token_retention", retention, Duration::from_secs(1), YEAR)
            }
            Self::Dense => Ok(()),
        }
    }
}

/// Who asks for a lock, and how it gets it: what a place in line consists of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The acquisition.
    pub lease: LeaseId,
    /// The locker that asks, and whom a grant is told.
    pub client: ClientId,
    /// The holder as others see it.
    pub owner: Owner,
    /// How the token is made.
    pub counter: Counter,
    /// How long it counts as alive after it asked, and how long it has to take up a lock that
    /// was handed to it: it is promised half of it, and has the whole if the server found somebody
    /// to tell. Whole milliseconds count, up to [`LONGEST_WINDOW`](Self::LONGEST_WINDOW).
    pub window: Duration,
}

impl Claim {
    /// No claim holds up those behind it for longer.
    pub const LONGEST_WINDOW: Duration = Duration::from_secs(60);

    /// Whether the store takes both for one: it counts whole milliseconds.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.lease == other.lease && self.to_string() == other.to_string()
    }
}

/// The claim as the store has it.
impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            lease,
            client,
            owner,
            counter,
            window,
        } = self;
        let retention = match counter {
            Counter::ClockFloor { retention } => retention.as_millis(),
            Counter::Dense => 0,
        };
        let (window, kind, label) = (window.as_millis(), owner.kind(), owner.label());
        write!(f, "{lease}:{client}:{window}:{retention}:{kind}:{label}")
    }
}

/// Takes a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acquire {
    /// The lock's keys.
    pub key: LockKey,
    /// Who asks.
    pub claim: Claim,
    /// How long the lock is held unless it is renewed; whole milliseconds count.
    pub ttl: Duration,
    /// Whether it takes a place in line, or confirms it, if the lock is not free.
    pub waits: bool,
    /// Whether it takes the lock over from its own owner at another client.
    pub reclaims: Reclaim,
}

/// What an acquisition may take over from its own owner at another client. It names the tenure, so
/// that one that comes late, or twice, never takes over a tenure that began after it was asked for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Reclaim {
    /// Nothing yet; it is told what it could take over.
    Ask,
    /// This tenure, and no other.
    From(FencingToken),
    /// Nothing: it found the lock taken by somebody else.
    Never,
}

/// Extends a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Renew {
    /// The lock's keys.
    pub key: LockKey,
    /// The lease to extend.
    pub lease: LeaseId,
    /// The tenure to extend: a late command may have taken the lock for this lease again.
    pub token: FencingToken,
    /// The new time to live, from now.
    pub ttl: Duration,
}

/// Frees a lock, or leaves its line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Release {
    /// The lock's keys.
    pub key: LockKey,
    /// Whose lease or place in line ends.
    pub claim: Claim,
}

/// Frees a lock that somebody else has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForceRelease {
    /// The lock's keys.
    pub key: LockKey,
    /// The tenure that is meant: a command that runs twice must not hit the next one.
    pub token: FencingToken,
}

/// Looks at a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inspect {
    /// The lock's keys.
    pub key: LockKey,
}

/// Walks over the locks that are held, one step of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct List {
    /// Which of them.
    pub pattern: Pattern,
    /// Where the last step ended; 0 to begin.
    pub cursor: u64,
}

/// One operation of the protocol, of which a batch is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Takes the lock if it is free, this lease's already, or has the tenure that it may reclaim.
    Acquire(Acquire),
    /// Extends the lock if it is still this lease's.
    Renew(Renew),
    /// Frees the lock if it is this lease's, for the next in line; else the claim leaves the line.
    Release(Release),
    /// Frees the lock for the next in line if this tenure has it, whoever that is, and tells the
    /// holder.
    ForceRelease(ForceRelease),
    /// Tells who has the lock, and who waits for it.
    Inspect(Inspect),
    /// One step of a walk over the locks that are held.
    List(List),
}

impl Command {
    /// How many of those who wait an inspection names.
    pub const MOST_NAMED: usize = 100;

    /// The keys of the lock that the command is about; `None` if it is not about one.
    pub fn key(&self) -> Option<&LockKey> {
        match self {
            Self::Acquire(acquire) => Some(&acquire.key),
            Self::Renew(Renew { key, .. })
            | Self::Release(Release { key, .. })
            | Self::ForceRelease(ForceRelease { key, .. })
            | Self::Inspect(Inspect { key }) => Some(key),
            Self::List(_) => None,
        }
    }

    /// About how many bytes it takes to send.
    pub(crate) fn size(&self) -> usize {
        const WORDS: usize = 128;
        let keys = match self {
            Self::Renew(_) => 1,
            _ => 4,
        };
        let text = match self {
            Self::Acquire(Acquire { claim, .. }) | Self::Release(Release { claim, .. }) => {
                WORDS + claim.owner.label().len()
            }
            Self::List(List { pattern, .. }) => pattern.glob().len(),
            Self::Renew(_) | Self::ForceRelease(_) | Self::Inspect(_) => 0,
        };
        WORDS + text + keys * self.key().map_or(0, LockKey::size)
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
    Held(Grant),
    /// Acquire: somebody else has it.
    Busy {
        /// When the holder's lease ends unless it is renewed; `None` if the lock does not expire,
        /// since somebody took its expiry away.
        expires: Option<ServerTime>,
        /// The place in line, 1 for who is next; `None` for a claim that does not wait.
        place: Option<NonZeroU32>,
    },
    /// Acquire: its own owner has it at another client, and it may ask again to take it over; it has
    /// no place in line.
    Reclaimable {
        /// The tenure that it may name.
        token: FencingToken,
    },
    /// Acquire: somebody else has it, and the line is full.
    Full {
        /// How many wait.
        waiting: u32,
    },
    /// Renew: extended.
    Renewed {
        /// When the lock expires now.
        expires: ServerTime,
    },
    /// Renew, release, force-release: the lock is free.
    Gone,
    /// Renew, release, force-release: the lock is somebody else's.
    Taken,
    /// Release, force-release: freed.
    Released,
    /// Inspect.
    Inspected(Inspected),
    /// List.
    Listed {
        /// Where to go on; `None` at the end.
        cursor: Option<u64>,
        /// Names of locks that are held; a walk may come to a name more than once.
        names: Vec<Name>,
    },
}

/// What an inspection saw.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inspected {
    /// Who has the lock, if anybody has.
    pub holder: Option<Holder>,
    /// The last token of the name that is remembered.
    pub last_token: Option<FencingToken>,
    /// How many wait.
    pub waiting: u32,
    /// Those who are alive among the first [`Command::MOST_NAMED`] places, in order.
    pub line: Vec<Waiter>,
}

/// Who waits for a lock, as the store knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiter {
    /// Its owner or label.
    pub owner: Owner,
    /// When it came.
    pub since: ServerTime,
}

/// What an acquisition got.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Grant {
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
