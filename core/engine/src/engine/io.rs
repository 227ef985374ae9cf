//! What goes into the engine and what comes out of it.

use std::ops::{Deref, RangeInclusive};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::table::Id;
use crate::error::Error;
use crate::event::{LeaseEvent, as_millis};
use crate::name::{Name, Owner};
use crate::protocol::{BatchReply, Counter, Durability, LeaseId, LockKey, Op, Pattern, Push};
use crate::time::{Timestamp, YEAR};
use crate::token::FencingToken;

/// A handle on a name, which any number of acquisitions go through. The host chooses it, and never
/// again for something else.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LockId(pub u64);

impl Id for LockId {
    fn number(self) -> u64 {
        self.0
    }

    fn of(number: u64) -> Self {
        Self(number)
    }
}

/// A call of the program that waits for an answer. The host chooses it, as above.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CallId(pub u64);

impl Id for CallId {
    fn number(self) -> u64 {
        self.0
    }

    fn of(number: u64) -> Self {
        Self(number)
    }
}

/// A server of the store, which has a clock of its own. The host chooses it: one that is alone is
/// [`ONLY`](Self::ONLY), those of a cluster have a number each.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServerId(pub u32);

impl ServerId {
    /// The one server of a store that is not a cluster.
    pub const ONLY: Self = Self(0);

    /// Cursors of walks are shorter than this; above it they name a server.
    pub(crate) const CURSOR_BITS: u32 = 48;

    /// Where a walk over the locks at this server begins: a cursor for [`Input::List`]. Of a cluster each
    /// server has to be walked.
    pub fn walk(self) -> u64 {
        u64::from(self.0) << Self::CURSOR_BITS
    }
}

/// A batch that was sent. The engine chooses it.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u64);

/// What a lock is: the same for all its acquisitions. Its [options](LockOptions) can be read as if they were
/// its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockSpec {
    /// What is locked. It takes no memory of its own if it is made [with the
    /// key](LockKey::with_name).
    pub name: Name,
    /// Its keys in the store.
    pub key: LockKey,
    /// How it is held. Locks that are alike should share this.
    pub options: Arc<LockOptions>,
}

/// How a lock is held.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockOptions {
    /// How long a lease lives unless it is renewed.
    pub ttl: Duration,
    /// Whether leases end by themselves, without renewal.
    pub fixed: bool,
    /// Whether all acquisitions through one handle share a tenure. Else each excludes every other.
    pub reentrant: bool,
    /// The holder as others see it.
    pub owner: Owner,
    /// How tokens are made.
    pub counter: Counter,
    /// What has to have it, besides the server that gives it, before it counts.
    pub durability: Option<Durability>,
}

impl Deref for LockSpec {
    type Target = LockOptions;

    fn deref(&self) -> &LockOptions {
        &self.options
    }
}

impl LockOptions {
    /// The same options in the memory of earlier ones, if they are alike and not long ago.
    pub fn shared(self, recent: &mut Vec<Arc<Self>>) -> Arc<Self> {
        if let Some(same) = recent.iter().find(|options| ***options == self) {
            return same.clone();
        }
        if recent.len() >= MOST_RECENT {
            recent.remove(0);
        }
        let options = Arc::new(self);
        recent.push(options.clone());
        options
    }
}

/// A program has few kinds of locks.
const MOST_RECENT: usize = 8;

impl LockSpec {
    /// The shortest time to live.
    pub const MIN_TTL: Duration = Duration::from_millis(10);
    /// The longest time to live: a year.
    pub const MAX_TTL: Duration = YEAR;

    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if a time is out of bounds.
    pub fn check(&self) -> Result<(), Error> {
        Self::check_ttl(self.ttl)?;
        self.counter.check()?;
        self.durability.as_ref().map_or(Ok(()), Durability::check)
    }

    /// What has to be waited for, of a lease with this time to live. A lease must not spend its time
    /// with that.
    pub(super) fn durability(&self, ttl: Duration) -> Option<Durability> {
        self.durability.map(|durability| durability.within(ttl / 3))
    }

    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if it is no time to live.
    pub fn check_ttl(ttl: Duration) -> Result<(), Error> {
        let what = "a lease's time to live";
        Error::check_range(what, ttl, Self::MIN_TTL, Self::MAX_TTL)
    }
}

/// How long an acquisition waits for a lock that somebody else holds.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Wait {
    /// It does not: one answer from the store decides.
    Never,
    /// Until then.
    Until(Timestamp),
    /// For ever.
    Forever,
}

/// Something that happened outside of the engine.
#[derive(Clone, Debug)]
pub enum Input {
    /// A server can be reached: for the first time, or again and perhaps another one in its place.
    /// What was sent to it before is lost.
    Connected {
        /// Which one.
        server: ServerId,
    },
    /// A server cannot be reached any more; nothing is sent to it until `Connected`.
    Disconnected {
        /// Which one.
        server: ServerId,
        /// What happened.
        error: Error,
    },
    /// These slots of a cluster are served by this server from now on. What is of a slot that the
    /// host has not named goes to [`ServerId::ONLY`].
    Slots {
        /// The first and the last of them.
        slots: RangeInclusive<u16>,
        /// Which server.
        server: ServerId,
    },
    /// The program wants the lock. Answered by [`Answer::Acquire`].
    Acquire {
        /// The call to answer.
        call: CallId,
        /// The handle. If that is re-entrant and has the lock, the call gets a share of its tenure.
        lock: LockId,
        /// What to acquire: the same for all acquisitions through one handle.
        spec: Arc<LockSpec>,
        /// 128 fresh random bits: the engine's only source of randomness.
        lease: LeaseId,
        /// How long to wait.
        wait: Wait,
    },
    /// The program gave up a call; a lock that it was to get is given back.
    Cancel {
        /// The call.
        call: CallId,
        /// The handle and the lease id that it was made with, if it acquires or renews.
        of: Option<(LockId, LeaseId)>,
    },
    /// Extend a lease now. Answered by [`Answer::Renew`].
    Renew {
        /// The call to answer.
        call: CallId,
        /// The tenure.
        lease: LeaseId,
        /// Its time to live from now on, if that changes. What is left of the lease is never cut
        /// short.
        ttl: Option<Duration>,
        /// What the last token of the name is raised to at the store, unless it is as high. Later
        /// renewals repeat it until one that had it succeeded, and the call waits for one that has it.
        floor: Option<FencingToken>,
    },
    /// One of the tenure's leases is given up; the last one frees the lock. Answered by
    /// [`Answer::Release`].
    Release {
        /// The call to answer, if somebody waits.
        call: Option<CallId>,
        /// The tenure.
        lease: LeaseId,
    },
    /// Tell who has a lock and who waits for it. Answered by [`Answer::Inspect`].
    Inspect {
        /// The call to answer.
        call: CallId,
        /// The lock's keys.
        key: LockKey,
    },
    /// Tell which locks are held, one step of a walk. Answered by [`Answer::List`].
    List {
        /// The call to answer.
        call: CallId,
        /// Which locks.
        pattern: Pattern,
        /// Where the last step ended; 0 to begin, or what [`ServerId::walk`] says.
        cursor: u64,
    },
    /// Free a lock, whoever has it. Answered by [`Answer::ForceRelease`]. Only the tenure that the
    /// store knew when it was first asked is ended, however often that has to be tried.
    ForceRelease {
        /// The call to answer.
        call: CallId,
        /// The lock's keys.
        key: LockKey,
        /// Only of this tenure. With any other the lock stays as it is, and the answer is that it was free.
        token: Option<FencingToken>,
    },
    /// The program has dropped the handle; [`Output::Closed`] follows when its last tenure is over.
    Close {
        /// The handle.
        lock: LockId,
    },
    /// The answer to [`Output::Send`], or why there is none.
    Reply {
        /// Who answered: in a cluster perhaps another server than the one that was asked.
        server: ServerId,
        /// Which one.
        request: RequestId,
        /// The answer.
        result: Result<BatchReply, Error>,
    },
    /// The answer to some of the operations of an [`Output::Send`]; those that are left have theirs to come.
    Part {
        /// Who answered.
        server: ServerId,
        /// Which one.
        request: RequestId,
        /// The places of the operations in what is left of it, in order.
        places: Vec<usize>,
        /// The answer.
        result: Result<BatchReply, Error>,
    },
    /// A message came on this client's [channel](crate::protocol::channel).
    Push {
        /// Who sent it; `None` if the host cannot know, as in a cluster, whose servers pass messages
        /// on: then it is the server that has the lock's keys.
        server: Option<ServerId>,
        /// What it says.
        push: Push,
    },
    /// The channel is subscribed: for the first time, or again, or messages on it may have been
    /// missed. To be fed after the subscription was confirmed, so that what the engine asks now
    /// leaves no gap.
    Subscribed {
        /// Whose messages can be heard.
        server: ServerId,
    },
    /// The channel cannot be heard for now; the engine asks more often.
    Unsubscribed {
        /// Whose messages cannot be heard.
        server: ServerId,
    },
    /// The server says from now on when a key is changed that [`Output::Watch`] names after this:
    /// for the first time, or anew after the connection was replaced. A host that cannot have that
    /// never feeds it: holders then learn of such a change at their next renewal.
    Watching {
        /// Which one.
        server: ServerId,
    },
    /// Somebody else may have changed the lock: whoever holds it looks. It does no harm if nobody
    /// has.
    Changed {
        /// Which one; `None` if it may be any.
        key: Option<LockKey>,
    },
    /// End every tenure and refuse everything from now on. Answered by [`Answer::Shutdown`].
    Shutdown {
        /// The call to answer.
        call: CallId,
    },
    /// Time passed.
    Tick,
}

/// Something for the host to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Execute the batch in one script call and feed the answer back as [`Input::Reply`]. Batches
    /// leave in the order of these outputs.
    Send {
        /// Where.
        server: ServerId,
        /// To be named in [`Input::Reply`].
        request: RequestId,
        /// What to execute; empty to ask for the server's time alone.
        batch: Vec<Op>,
        /// What to wait for behind the script's call, and to [weigh](Durability::weigh) its reply by. A
        /// host that cannot do so executes nothing and replies
        /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported).
        durability: Option<Durability>,
        /// After this moment nobody waits for the answer.
        give_up: Timestamp,
    },
    /// Subscribe to the client's [channel](crate::protocol::channel) in the background, and keep it
    /// so; to be reported by [`Input::Subscribed`]. Said once for each server. A host that cannot do
    /// it need not: waiters then ask every second.
    Subscribe {
        /// Where.
        server: ServerId,
    },
    /// Read these keys so that the server says when they change, and feed that as
    /// [`Input::Changed`]; also each of them if not all are there. Said only after
    /// [`Input::Watching`].
    Watch {
        /// Where.
        server: ServerId,
        /// Which locks, at most 128.
        keys: Vec<LockKey>,
    },
    /// The connection may be of no use any more. A host that owns it replaces it, unless one is
    /// being made already; an answer to a question of the host's own, such as `PING`, proves a
    /// connection that is only `silent`.
    Suspect {
        /// To which server.
        server: ServerId,
        /// Why.
        why: Suspicion,
    },
    /// Answer a call.
    Answer {
        /// The call.
        call: CallId,
        /// The answer.
        answer: Answer,
    },
    /// Something happened to a lock.
    Event {
        /// The handle.
        lock: LockId,
        /// The acquisition through it, or its tenure.
        lease: LeaseId,
        /// What happened.
        event: LeaseEvent,
        /// The lease's deadline after it, where there is one.
        deadline: Option<Timestamp>,
    },
    /// Something happened that is about no lock: for readers of all locks.
    Notice {
        /// What happened.
        event: LeaseEvent,
    },
    /// No event of a handle that was closed will follow.
    Closed {
        /// The handle.
        lock: LockId,
    },
    /// Nothing more for now: feed [`Input::Tick`] at this moment, if nothing else happens before. It may
    /// turn out to have been too early.
    Wait {
        /// When; `None` if time alone changes nothing.
        until: Option<Timestamp>,
    },
}

/// Why a connection may be of no use.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Suspicion {
    /// Two batches in a row had no answer in time. The connection may be half-open.
    Silent,
    /// The server says that it is a replica. Its address may lead to the primary by now.
    Demoted,
}

/// The answer to a call, of the kind that the call was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The lock is held; or somebody else has it, and the call's time to wait is over.
    Acquire(Result<Option<Acquired>, Error>),
    /// The lease was extended.
    Renew(Result<(), Error>),
    /// The lease was given up, and the lock freed if it was the last.
    Release(Result<(), Error>),
    /// Who has the lock.
    Inspect(Result<Inspection, Error>),
    /// Some of the locks that are held.
    List(Result<Listing, Error>),
    /// Who had the lock that was freed; `None` if it was free.
    ForceRelease(Result<Option<HolderInfo>, Error>),
    /// All tenures are over.
    Shutdown,
}

impl Answer {
    /// The error that the call failed with, if it did.
    pub fn error(&self) -> Option<&Error> {
        match self {
            Self::Acquire(result) => result.as_ref().err(),
            Self::Renew(result) | Self::Release(result) => result.as_ref().err(),
            Self::Inspect(result) => result.as_ref().err(),
            Self::List(result) => result.as_ref().err(),
            Self::ForceRelease(result) => result.as_ref().err(),
            Self::Shutdown => None,
        }
    }
}

/// One step of a walk over the locks that are held.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listing {
    /// Where to go on; `None` at the end.
    pub cursor: Option<u64>,
    /// Their names; a walk may come to a name more than once.
    pub names: Vec<Name>,
}

/// What a call that acquires gets: a lease of a tenure.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Acquired {
    /// Through which handle.
    pub lock: LockId,
    /// Which one.
    pub lease: LeaseId,
    /// Its token.
    pub token: FencingToken,
    /// When it ends unless it is renewed.
    pub deadline: Timestamp,
    /// When it began, or a little before.
    pub began: Timestamp,
    /// How long the call waited for it.
    pub waited: Duration,
}

/// What the store knows of a lock. As JSON its fields are in camel case, and durations are whole
/// milliseconds.
///
/// ```
/// # use leasehold_engine as leasehold;
/// # fn show(found: &leasehold::Inspection) {
/// match &found.holder {
///     Some(holder) => println!("{:?} has it for {:?}, {} wait", holder.owner, holder.remaining, found.waiting),
///     None => println!("it is free"),
/// }
/// # }
/// ```
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Inspection {
    /// Who has the lock; `None` if it is free.
    pub holder: Option<HolderInfo>,
    /// The last token of the name, if the store still remembers one.
    pub last_token: Option<FencingToken>,
    /// How many wait in line.
    pub waiting: u32,
    /// Those of them who are among the first 100 places, in order.
    pub line: Vec<WaiterInfo>,
}

/// Who waits for a lock.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaiterInfo {
    /// Its owner or label.
    pub owner: Owner,
    /// How long it has waited.
    #[serde(serialize_with = "as_millis")]
    pub waited: Duration,
}

/// Who has a lock.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HolderInfo {
    /// The holder's token. At a quorum each server has one of its own, and this is put together of what those
    /// say that answered: mostly it is that of the lease, but show it to people, and do not compare it.
    pub token: FencingToken,
    /// The time until the lock expires unless it is renewed.
    #[serde(serialize_with = "as_millis")]
    pub remaining: Duration,
    /// The holder's owner or label.
    pub owner: Owner,
}
