//! The inputs and outputs of the engine.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use super::inspection::{HolderInfo, Inspection, Listing};
use super::spec::LockSpec;
use super::table::Id;
use crate::error::Error;
use crate::event::LeaseEvent;
use crate::name::Owner;
use crate::protocol::{
    Admission, BatchReply, Counter, Durability, LeaseId, LockKey, Op, Pattern, Push,
};
use crate::share::Sharing;
use crate::ticket::Passed;
use crate::time::Timestamp;
use crate::token::FencingToken;

/// A handle on a name. Any number of acquisitions go through it. The host chooses the number and never reuses
/// it.
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

/// A call of the program that waits for an answer. The host chooses the number and never reuses it.
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

/// A server of the store, with its own clock. The host chooses the number: [`ONLY`](Self::ONLY) for a lone
/// server, and one number for each server of a cluster.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServerId(pub u32);

impl ServerId {
    /// The one server of a store that is not a cluster.
    pub const ONLY: Self = Self(0);

    /// The number of bits in a walk's cursor. The bits above name a server.
    pub(crate) const CURSOR_BITS: u32 = 48;

    /// Returns the cursor for [`Input::List`] at which a walk over this server's locks begins. In a cluster,
    /// walk each server.
    pub fn walk(self) -> u64 {
        u64::from(self.0) << Self::CURSOR_BITS
    }
}

/// A batch that was sent. The engine chooses the number.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u64);

/// How long an acquisition waits for a lock that is held.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Wait {
    /// It does not wait: the store's first answer decides.
    Never,
    /// It waits until this time.
    Until(Timestamp),
    /// It waits without a limit.
    Forever,
}

/// An event outside the engine.
#[derive(Clone, Debug)]
pub enum Input {
    /// A server can be reached, for the first time or again. It may be a different server at the same place.
    /// Replies to earlier requests are lost.
    Connected {
        /// The server.
        server: ServerId,
    },
    /// A server can no longer be reached. The engine sends nothing to it until `Connected`.
    Disconnected {
        /// The server.
        server: ServerId,
        /// The reason.
        error: Error,
    },
    /// A cluster's server serves these slots from now on. Operations for slots that the host has not named go
    /// to [`ServerId::ONLY`].
    Slots {
        /// The first and the last slot.
        slots: RangeInclusive<u16>,
        /// The server.
        server: ServerId,
    },
    /// The program asks for a lock. Answered by [`Answer::Acquire`].
    Acquire {
        /// The call to answer.
        call: CallId,
        /// The handle. If it is re-entrant and holds the lock, the call shares that tenure.
        lock: LockId,
        /// The lock: the same for all acquisitions through one handle.
        spec: Arc<LockSpec>,
        /// 128 fresh random bits: the engine's only source of randomness.
        lease: LeaseId,
        /// How long to wait for the lock.
        wait: Wait,
    },
    /// The program gave up a call. If the call gets a lock anyway, the engine gives it back.
    Cancel {
        /// The call.
        call: CallId,
        /// The handle and the lease ID of the call, if it acquires or renews.
        of: Option<(LockId, LeaseId)>,
    },
    /// The program asks to extend a lease now. Answered by [`Answer::Renew`].
    Renew {
        /// The call to answer.
        call: CallId,
        /// The lease of the tenure.
        lease: LeaseId,
        /// The new time to live, if it changes. A shorter one never shortens what is left of the lease.
        ttl: Option<Duration>,
        /// The least value of the name's last token: the store raises it if it is lower. Renewals repeat the
        /// floor until one with it succeeds, and the call waits for a renewal with it. Shared names have no
        /// floor: there, any floor makes a writer a reader.
        floor: Option<FencingToken>,
    },
    /// The program gives up one of the tenure's leases. The last one frees the lock. Answered by
    /// [`Answer::Release`].
    Release {
        /// The call to answer, if one waits.
        call: Option<CallId>,
        /// The lease of the tenure.
        lease: LeaseId,
    },
    /// The program gives up a turn and completes its tick, which is given to nobody again. Answered by
    /// [`Answer::Release`].
    Complete {
        /// The call to answer.
        call: CallId,
        /// The lease of the turn.
        lease: LeaseId,
    },
    /// The program passes a tenure on, which ends at once and stays at the store. Answered by [`Answer::Pass`].
    Pass {
        /// The call to answer.
        call: CallId,
        /// The lease of the tenure.
        lease: LeaseId,
    },
    /// The program takes over a tenure that its holder passed on. Answered by [`Answer::Acquire`].
    Accept {
        /// The call to answer.
        call: CallId,
        /// The handle. It must not be re-entrant and in use.
        lock: LockId,
        /// The lock. A lease of it ends at the age that the tenure was allowed, unless `at_most` is set.
        spec: Arc<LockSpec>,
        /// 128 fresh random bits.
        lease: LeaseId,
        /// The tenure.
        passed: Box<Passed>,
    },
    /// The program asks for a lock's holder and waiters. Answered by [`Answer::Inspect`].
    Inspect {
        /// The call to answer.
        call: CallId,
        /// The lock's keys.
        key: LockKey,
    },
    /// The program asks for held locks, one step of a walk. Answered by [`Answer::List`].
    List {
        /// The call to answer.
        call: CallId,
        /// The pattern of the names.
        pattern: Pattern,
        /// The cursor that the last step returned. A walk starts with 0, or with [`ServerId::walk`].
        cursor: u64,
    },
    /// The program asks to free a lock, whoever holds it. Answered by [`Answer::ForceRelease`]. Retries end
    /// only the tenure that the store reported first.
    ForceRelease {
        /// The call to answer.
        call: CallId,
        /// The lock's keys.
        key: LockKey,
        /// The only tenure to end. If another tenure holds the lock, it keeps it, and the answer is that the
        /// lock was free.
        token: Option<FencingToken>,
    },
    /// The program asks the holder of a lock to release it. Answered by [`Answer::RequestYield`]. Retries ask
    /// only the tenure that the store reported first.
    RequestYield {
        /// The call to answer.
        call: CallId,
        /// The lock's keys.
        key: LockKey,
        /// The locker that asks, as the holder sees it.
        by: Owner,
        /// How long the holder has; at most a year.
        within: Duration,
    },
    /// The program changes the capacity of a shared name. Answered by [`Answer::Resize`].
    Resize {
        /// The call to answer.
        call: CallId,
        /// The keys of the name.
        key: LockKey,
        /// How the name is shared.
        sharing: Sharing,
        /// The new capacity.
        capacity: u32,
        /// The rule for tokens, as the name's [options](super::LockOptions) have it.
        counter: Counter,
    },
    /// The program dropped the handle. [`Output::Closed`] follows when its last tenure is over.
    Close {
        /// The handle.
        lock: LockId,
    },
    /// The reply to an [`Output::Send`], or the error if there is none.
    Reply {
        /// The server that replied. A cluster may have redirected the request to a different server.
        server: ServerId,
        /// The request.
        request: RequestId,
        /// The reply.
        result: Result<BatchReply, Error>,
    },
    /// The replies to some operations of an [`Output::Send`]. The replies to the rest follow.
    Part {
        /// The server that replied.
        server: ServerId,
        /// The request.
        request: RequestId,
        /// The positions of these operations among those without a reply, in ascending order.
        places: Vec<usize>,
        /// The replies.
        result: Result<BatchReply, Error>,
    },
    /// A message arrived on this client's [channel](crate::protocol::channel).
    Push {
        /// The sender. `None` if the host cannot tell, as in a cluster, whose servers pass messages on. The
        /// engine then assumes the server that has the lock's keys.
        server: Option<ServerId>,
        /// The message.
        push: Push,
    },
    /// The channel is subscribed: for the first time, again, or after messages may have been missed. Feed
    /// this after the server confirmed the subscription, so that the engine's next requests leave no gap.
    Subscribed {
        /// The server whose messages arrive.
        server: ServerId,
    },
    /// No messages of the channel arrive for now. The engine polls more often.
    Unsubscribed {
        /// The server whose messages are missing.
        server: ServerId,
    },
    /// The server reports changes of keys that a later [`Output::Watch`] names: for the first time, or again
    /// on a new connection. A host without this feature never feeds it. Its holders then notice such a change
    /// at their next renewal.
    Watching {
        /// The server.
        server: ServerId,
    },
    /// Another client may have changed the lock, so its holder checks. A false alarm does no harm.
    Changed {
        /// The lock's keys; `None` if any lock may have changed.
        key: Option<LockKey>,
    },
    /// The program ends all tenures and refuses later calls. Answered by [`Answer::Shutdown`].
    Shutdown {
        /// The call to answer.
        call: CallId,
    },
    /// Time has passed.
    Tick,
}

/// An action for the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Execute the batch in one script call, and feed the reply back as [`Input::Reply`]. Send batches in the
    /// order of these outputs.
    Send {
        /// The server to send to.
        server: ServerId,
        /// The number to name in [`Input::Reply`].
        request: RequestId,
        /// The operations. Empty to ask only for the server's time.
        batch: Vec<Op>,
        /// The copies to wait for after the script call, and to [weigh](Durability::weigh) its reply by. A
        /// host that cannot wait for copies executes nothing and replies with
        /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported).
        durability: Option<Durability>,
        /// The time after which no call waits for the reply.
        give_up: Timestamp,
    },
    /// Subscribe to the client's [channel](crate::protocol::channel) in the background, keep the
    /// subscription, and report it by [`Input::Subscribed`]. Each server gets this once. A host need not
    /// support it: its waiters then poll every second.
    Subscribe {
        /// The server to subscribe at.
        server: ServerId,
    },
    /// Read these keys so that the server reports when they change, and feed that as [`Input::Changed`]. If a
    /// key is missing, feed `Changed` for each key. Sent only after [`Input::Watching`].
    Watch {
        /// The server to read from.
        server: ServerId,
        /// The locks' keys, at most 128.
        keys: Vec<LockKey>,
    },
    /// The connection may be dead. A host that owns it replaces it, unless a replacement is under way. For a
    /// `silent` connection, an answer to a request of the host's own, such as `PING`, proves that it works.
    Suspect {
        /// The server.
        server: ServerId,
        /// The reason.
        why: Suspicion,
    },
    /// Answer a call.
    Answer {
        /// The call.
        call: CallId,
        /// The answer.
        answer: Answer,
    },
    /// An event of a lock.
    Event {
        /// The handle.
        lock: LockId,
        /// The lease ID of the acquisition, or of its tenure.
        lease: LeaseId,
        /// The event.
        event: LeaseEvent,
        /// The lease's deadline after the event, where there is one.
        deadline: Option<Timestamp>,
    },
    /// An event of no particular lock, for readers of all locks.
    Notice {
        /// The event.
        event: LeaseEvent,
    },
    /// The closed handle emits no more events.
    Closed {
        /// The handle.
        lock: LockId,
    },
    /// Nothing to do for now. Feed [`Input::Tick`] at this time, unless another input comes first. The time
    /// may turn out to be too early.
    Wait {
        /// The time; `None` if time alone changes nothing.
        until: Option<Timestamp>,
    },
}

/// The reason to suspect a connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Suspicion {
    /// Two batches in a row had no reply in time. The connection may be half-open.
    Silent,
    /// The server says that it is a replica. By now its address may lead to the primary.
    Demoted,
}

/// The answer to a call, of the kind that the call was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The lock is held. `None` if another holder has it and the call's wait is over, or if the tick of a
    /// runner was completed before.
    Acquire(Result<Option<Acquired>, Error>),
    /// The lease was extended.
    Renew(Result<(), Error>),
    /// The lease was given up, and the lock freed if it was the last.
    Release(Result<(), Error>),
    /// The tenure ended, and whoever knows it may accept it. Boxed, for the same reason as an inspection.
    Pass(Result<Box<Passed>, Error>),
    /// The lock's holder and waiters. Boxed, so that the answers of acquisitions stay small.
    Inspect(Result<Box<Inspection>, Error>),
    /// Some of the held locks.
    List(Result<Listing, Error>),
    /// The holder whose lock was freed; `None` if the lock was free.
    ForceRelease(Result<Option<HolderInfo>, Error>),
    /// The holder that was asked to yield; `None` if the lock was free.
    RequestYield(Result<Option<HolderInfo>, Error>),
    /// The epoch of the capacity: how often that was set, from 1.
    Resize(Result<u32, Error>),
    /// All tenures are over.
    Shutdown,
}

impl Answer {
    /// Returns the error, if the call failed.
    pub fn error(&self) -> Option<&Error> {
        match self {
            Self::Acquire(result) => result.as_ref().err(),
            Self::Renew(result) | Self::Release(result) => result.as_ref().err(),
            Self::Pass(result) => result.as_ref().err(),
            Self::Inspect(result) => result.as_ref().err(),
            Self::List(result) => result.as_ref().err(),
            Self::ForceRelease(result) | Self::RequestYield(result) => result.as_ref().err(),
            Self::Resize(result) => result.as_ref().err(),
            Self::Shutdown => None,
        }
    }
}

/// The lease that a call got.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acquired {
    /// The handle.
    pub lock: LockId,
    /// The lease ID of the tenure.
    pub lease: LeaseId,
    /// The fencing token.
    pub token: FencingToken,
    /// The time at which the lease ends unless it is renewed.
    pub deadline: Timestamp,
    /// The time at which the tenure began, or a little earlier.
    pub began: Timestamp,
    /// How long the call waited for the lock.
    pub waited: Duration,
    /// The slots and the state of a shared name.
    pub admission: Option<Arc<Admission>>,
}
