//! The inputs and outputs of the engine.

use std::ops::{Deref, RangeInclusive};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::table::Id;
use crate::error::Error;
use crate::event::{LeaseEvent, as_millis};
use crate::name::{Name, Owner};
use crate::protocol::{
    Admission, BatchReply, Counter, Durability, LeaseId, LockKey, Op, Pattern, Push,
};
use crate::share::Sharing;
use crate::ticket::Passed;
use crate::time::{Timestamp, YEAR};
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

/// A lock's name, keys and options: the same for all its acquisitions. It dereferences to its
/// [options](LockOptions).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockSpec {
    /// The name of the lock. It takes no memory of its own if it is made [with the key](LockKey::with_name).
    pub name: Name,
    /// The lock's keys in the store.
    pub key: LockKey,
    /// The options of the lock. Locks with equal options should share them.
    pub options: Arc<LockOptions>,
}

/// The options of a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockOptions {
    /// The time to live of a lease that is not renewed.
    pub ttl: Duration,
    /// True if leases end by themselves, without renewal.
    pub fixed: bool,
    /// True if all acquisitions through one handle share a tenure. Otherwise each excludes every other.
    pub reentrant: bool,
    /// The holder's label, which others can see.
    pub owner: Owner,
    /// The rule for new tokens.
    pub counter: Counter,
    /// The copies that an acquisition or renewal needs, besides the server that executes it, before it
    /// counts.
    pub durability: Option<Durability>,
    /// The age at which a lease ends even if it is renewed.
    pub at_most: Option<Duration>,
    /// The age until which the name stays taken after a release.
    pub at_least: Option<Duration>,
    /// The state of a job's schedule before the owner's tick, for the events of the turn.
    pub backlog: Option<Backlog>,
    /// The most waiters in line; a caller that finds more fails instead of waiting.
    pub max_line: Option<u32>,
    /// True if a shared name whose capacity at the store is not the owner's is refused.
    pub strict: bool,
}

/// The ticks of a schedule before the one that a runner claims, as far as it saw them when it asked.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Backlog {
    /// The first missed tick, which nobody completed.
    pub first: u64,
    /// The number of missed ticks.
    pub missed: u64,
    /// True if an earlier turn had begun the claimed tick and not completed it.
    pub again: bool,
}

impl Deref for LockSpec {
    type Target = LockOptions;

    fn deref(&self) -> &LockOptions {
        &self.options
    }
}

impl LockOptions {
    /// Returns these options, or an equal recent value that shares its memory.
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

/// The number of recent options to compare with: a program has few kinds of locks.
const MOST_RECENT: usize = 8;

impl LockSpec {
    /// The shortest time to live.
    pub const MIN_TTL: Duration = Duration::from_millis(10);
    /// The longest time to live: a year.
    pub const MAX_TTL: Duration = YEAR;

    /// Checks the options. Fails with [`ErrorKind::Config`](crate::ErrorKind::Config) if a time is out of
    /// bounds.
    pub fn check(&self) -> Result<(), Error> {
        Self::check_ttl(self.ttl)?;
        self.counter.check()?;
        self.check_ages()?;
        self.check_share()?;
        self.durability.as_ref().map_or(Ok(()), Durability::check)
    }

    /// Checks that a shared name has no option that only other locks have.
    pub(super) fn check_share(&self) -> Result<(), Error> {
        let options = [
            ("reentrant", self.reentrant),
            ("at_least", self.at_least.is_some()),
        ];
        let unfit = options.iter().find(|(_, is_set)| *is_set);
        match unfit.filter(|_| self.owner.share().is_some()) {
            Some((what, _)) => Err(Error::bad_option(what, "cannot be used with a shared name")),
            None => Ok(()),
        }
    }

    /// Checks the bounds of a lease's age against each other and the time to live.
    pub fn check_ages(&self) -> Result<(), Error> {
        let (longest, ttl) = (Self::MAX_TTL, self.ttl);
        if let Some(age) = self.at_most.filter(|age| *age < ttl) {
            let rule = format!("must be at least the time to live, {ttl:?}; got {age:?}");
            return Err(Error::bad_option("at_most", rule));
        }
        if let (Some(age), Some(most)) = (self.at_least, self.at_most)
            && age > most
        {
            let rule = format!("must not exceed the longest time, {most:?}; got {age:?}");
            return Err(Error::bad_option("at_least", rule));
        }
        let ages = [("at_most", self.at_most), ("at_least", self.at_least)];
        let mut ages = ages
            .into_iter()
            .filter_map(|(what, age)| Some((what, age?)));
        ages.try_for_each(|(what, age)| Error::check_range(what, age, Duration::ZERO, longest))
    }

    /// Returns the copies that a lease with this time to live needs. The wait for them is limited to a third
    /// of that time.
    pub(super) fn durability(&self, ttl: Duration) -> Option<Durability> {
        self.durability.map(|durability| durability.within(ttl / 3))
    }

    /// Checks a time to live. Fails with [`ErrorKind::Config`](crate::ErrorKind::Config) if it is out of
    /// bounds.
    pub fn check_ttl(ttl: Duration) -> Result<(), Error> {
        let what = "a lease's time to live";
        Error::check_range(what, ttl, Self::MIN_TTL, Self::MAX_TTL)
    }
}

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
        /// The rule for tokens, as the name's [options](LockOptions) have it.
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

/// One step of a walk over the held locks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listing {
    /// The cursor of the next step; `None` at the end.
    pub cursor: Option<u64>,
    /// The names of the locks. A walk may return a name more than once.
    pub names: Vec<Name>,
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

/// The store's state of a lock. As JSON, fields are in camel case and durations are whole milliseconds.
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
    /// The holder; `None` if the lock is free, or if the name is [shared](Self::shared).
    pub holder: Option<HolderInfo>,
    /// The last token of the name, if the store still remembers one.
    pub last_token: Option<FencingToken>,
    /// The ticks, if the name is a job's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobInfo>,
    /// The capacity and the holders, if the name is a semaphore's, a quota's, or for readers and writers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared: Option<Box<SharedInfo>>,
    /// The number of waiters in line.
    pub waiting: u32,
    /// The waiters among the first 100 places of the line, in order.
    pub line: Vec<WaiterInfo>,
    /// The pending request to the holder to yield, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wanted: Option<WantedInfo>,
    /// The server's clock, in milliseconds since 1970.
    pub server_time: u64,
}

/// The capacity and the holders of a shared name.
///
/// ```
/// # use leasehold_engine as leasehold;
/// # fn show(shared: &leasehold::SharedInfo) {
/// println!("{} of {} are held", shared.used, shared.capacity);
/// for permit in &shared.holders {
///     println!("{} has {} (slots {:?})", permit.by, permit.weight, permit.slots);
/// }
/// # }
/// ```
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SharedInfo {
    /// How the name is shared.
    pub sharing: Sharing,
    /// The capacity of the name: its slots or units. For readers and writers it is 1,000,000,000, of which a writer
    /// takes all.
    pub capacity: u32,
    /// How often the capacity was set, from 1.
    pub epoch: u32,
    /// The token of the last writer, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<FencingToken>,
    /// The slots or units that are held.
    pub used: u32,
    /// The number of holders.
    pub held: u32,
    /// The first 100 holders, the soonest to expire first.
    pub holders: Vec<PermitInfo>,
}

/// A holder of a part of a shared name.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PermitInfo {
    /// The permit's token.
    pub token: FencingToken,
    /// The time until the permit expires unless it is renewed.
    #[serde(serialize_with = "as_millis")]
    pub remaining: Duration,
    /// The number of slots or units.
    pub weight: u32,
    /// The slots, if the name has slots.
    pub slots: Box<[u16]>,
    /// The holder's owner or label.
    pub by: String,
}

/// The ticks of a job.
///
/// ```
/// # use leasehold_engine as leasehold;
/// # fn show(job: &leasehold::JobInfo) {
/// match &job.completed {
///     Some(done) => println!("{} completed tick {} {:?} ago", done.by, done.tick, done.ago),
///     None => println!("no tick is completed"),
/// }
/// # }
/// ```
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobInfo {
    /// The greatest tick that was completed, if the store remembers one.
    pub completed: Option<CompletedInfo>,
    /// The tick of the last turn, unless it was completed or given back. If nobody holds the name, its runner
    /// died or lost its lease.
    pub begun: Option<u64>,
}

/// A tick that was completed.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CompletedInfo {
    /// The tick.
    pub tick: u64,
    /// The token of the turn that completed it.
    pub token: FencingToken,
    /// How long ago it was completed.
    #[serde(serialize_with = "as_millis")]
    pub ago: Duration,
    /// The label of its runner.
    pub by: String,
}

/// A request to the holder of a lock to release it soon.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WantedInfo {
    /// The owner or label of the locker that asked.
    pub by: String,
    /// The time that is left to the holder.
    #[serde(serialize_with = "as_millis")]
    pub remaining: Duration,
}

/// A waiter in a lock's line.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaiterInfo {
    /// The waiter's owner or label.
    pub owner: Owner,
    /// How long the waiter has waited.
    #[serde(serialize_with = "as_millis")]
    pub waited: Duration,
}

/// The holder of a lock.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HolderInfo {
    /// The holder's token. At a quorum each server has its own, and this value combines the answers. It
    /// mostly equals the lease's token: show it to people, and do not compare it.
    pub token: FencingToken,
    /// The time until the lock expires unless it is renewed.
    #[serde(serialize_with = "as_millis")]
    pub remaining: Duration,
    /// The holder's owner or label.
    pub owner: Owner,
}
