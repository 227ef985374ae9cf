//! A host with a virtual clock, and a network and a channel that do as they are told.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::view::key;
use crate::engine::Kind;
use crate::engine::front::Front;
use crate::engine::single::Single;
use crate::engine::{
    Acquired, Answer, CallId, Engine, HolderInfo, Input, Inspection, Listing, LockId, LockOptions,
    LockSpec, RequestId, ServerId, Settings, Stats, Suspicion, Wait,
};
use crate::error::{Error, ErrorKind};
use crate::event::LeaseEvent;
use crate::memory::MemoryServer;
use crate::name::{Name, Owner};
use crate::protocol::{BatchReply, ClientId, Counter, Durability, LeaseId, LockKey, Op, Push};
use crate::time::Timestamp;
use crate::token::FencingToken;

pub(super) const LOCK: LockId = LockId(1);
pub(super) const CLIENT: ClientId = ClientId(7);
/// So long before its deadline the loss of a lease of half a second or more is told.
pub(super) const LEAD: Duration = Duration::from_millis(50);
pub(super) const TTL: Duration = Duration::from_secs(30);
/// As in the settings.
pub(super) const TIMEOUT: Duration = Duration::from_secs(2);
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// A round trip that is long enough for a few requests of any size to be under way.
pub(super) const FAR: Duration = ms(2);
/// How long after a renewal or a retry may come, at the most, and then some.
pub(super) const SOON: Duration = Duration::from_millis(300);

pub(super) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What becomes of a batch at the moment it is sent.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Net {
    /// It is executed and answered at once.
    Up,
    /// It stays in `pending` until the test decides.
    Hold,
    /// It never arrives; an error comes in place of the answer when nobody waits any more.
    LoseRequests,
    /// It is executed, and the answer is lost likewise.
    LoseReplies,
}

/// What becomes of what the store tells without being asked.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Pushes {
    /// It is told at once, after the answer to what caused it.
    Deliver,
    /// It stays in `heard` until the test decides.
    Hold,
    /// It is lost, though the store thinks that somebody heard it.
    Drop,
}

#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) at: Timestamp,
    pub(super) request: RequestId,
    pub(super) batch: Vec<Op>,
    pub(super) durability: Option<Durability>,
    pub(super) give_up: Timestamp,
}

#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) at: Timestamp,
    pub(super) event: LeaseEvent,
    pub(super) deadline: Option<Timestamp>,
}

/// What came of a call, whatever kind it is of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Done {
    Acquired(Acquired),
    Busy,
    Renewed,
    Released,
    Inspected(Inspection),
    Listed(Listing),
    ForceReleased(Option<HolderInfo>),
    ShutDown,
}

impl From<Answer> for Result<Done, Error> {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Acquire(result) => result.map(|got| got.map_or(Done::Busy, Done::Acquired)),
            Answer::Renew(result) => result.map(|()| Done::Renewed),
            Answer::Release(result) => result.map(|()| Done::Released),
            Answer::Inspect(result) => result.map(Done::Inspected),
            Answer::List(result) => result.map(Done::Listed),
            Answer::ForceRelease(result) => result.map(Done::ForceReleased),
            Answer::Shutdown => Ok(Done::ShutDown),
        }
    }
}

/// A look inside.
impl Engine {
    pub(super) fn single(&self) -> &Front<Single> {
        match &self.0 {
            Kind::Single(single) => single,
            #[cfg(feature = "quorum")]
            Kind::Quorum(_) => panic!("it is of several servers"),
        }
    }

    pub(super) fn single_mut(&mut self) -> &mut Front<Single> {
        match &mut self.0 {
            Kind::Single(single) => single,
            #[cfg(feature = "quorum")]
            Kind::Quorum(_) => panic!("it is of several servers"),
        }
    }

    pub(super) fn wake_at(&self) -> Option<Timestamp> {
        self.single().env.cx.timers.first()
    }

    /// Somebody who wants a lock, if anybody does.
    pub(super) fn acquiring(&self) -> Option<LeaseId> {
        let mut contenders = self.single().locks.contenders.values();
        let acquiring = contenders.find(|contender| contender.is_acquiring());
        acquiring.map(|contender| contender.lease.lease)
    }
}

/// What happens at the only server.
impl Input {
    pub(super) const CONNECTED: Self = Self::Connected {
        server: ServerId::ONLY,
    };
    pub(super) const SUBSCRIBED: Self = Self::Subscribed {
        server: ServerId::ONLY,
    };
    pub(super) const UNSUBSCRIBED: Self = Self::Unsubscribed {
        server: ServerId::ONLY,
    };

    pub(super) const WATCHING: Self = Self::Watching {
        server: ServerId::ONLY,
    };

    pub(super) fn changed(lock: LockId) -> Self {
        let key = Some(key(lock));
        Self::Changed { key }
    }

    pub(super) fn disconnected(error: Error) -> Self {
        let server = ServerId::ONLY;
        Self::Disconnected { server, error }
    }

    pub(super) fn reply(request: RequestId, result: Result<BatchReply, Error>) -> Self {
        Self::Reply {
            server: ServerId::ONLY,
            request,
            result,
        }
    }

    pub(super) fn push(push: Push) -> Self {
        let server = Some(ServerId::ONLY);
        Self::Push { server, push }
    }
}

pub(super) type Outcome = (Timestamp, Result<Done, Error>);

pub(super) struct Host {
    pub(super) engine: Engine,
    pub(super) server: MemoryServer,
    pub(super) now: Timestamp,
    /// The server's clock, in microseconds, when the local one said zero.
    pub(super) epoch: u64,
    pub(super) net: Net,
    /// How long an answer takes back, if it comes at once.
    pub(super) back: Duration,
    /// Whether it subscribes when the engine asks for it.
    pub(super) subscribes: bool,
    pub(super) asked_to_subscribe: usize,
    pub(super) pushes: Pushes,
    /// What the store told this client, and nobody told the engine yet.
    pub(super) heard: VecDeque<Push>,
    pub(super) ttl: Duration,
    pub(super) fixed: bool,
    /// What its locks need, and what the store says of that.
    pub(super) durability: Option<Durability>,
    pub(super) copies: Result<[u64; 2], Error>,
    /// Everything that was sent.
    pub(super) log: Vec<Sent>,
    pub(super) pending: VecDeque<Sent>,
    pub(super) events: Vec<Told>,
    pub(super) done: BTreeMap<CallId, Outcome>,
    pub(super) closed: Vec<LockId>,
    pub(super) notices: Vec<LeaseEvent>,
    /// Which connections the engine suspects.
    pub(super) suspected: Vec<Suspicion>,
    pub(super) lost: Vec<(Timestamp, RequestId)>,
    /// Which keys were to be read, and when.
    pub(super) reads: Vec<(Timestamp, Vec<LockKey>)>,
    /// What was counted when that was last looked at.
    pub(super) counted: Stats,
    pub(super) numbers: Vec<u64>,
    last_id: u64,
}

/// The program and the clock.
impl Host {
    /// Connected, with an anchor, and nothing logged yet. The store seems far away until it answers at
    /// once: a few operations can be under way.
    pub(super) fn new() -> Self {
        let mut host = Self::unconnected();
        let now = host.now;
        host.now = Timestamp::from_nanos(4_998_000_000);
        host.back = FAR;
        host.input(Input::CONNECTED);
        host.back = Duration::ZERO;
        assert_eq!(host.now, now);
        host.forget();
        host
    }

    /// One that keeps that much of each lease for clocks that drift.
    pub(super) fn with_margin(parts_per_million: u32) -> Self {
        let mut host = Self::unconnected();
        let mut settings = Settings::new(CLIENT);
        settings.drift_margin = parts_per_million;
        host.engine = Engine::new(settings.checked().expect("good settings"));
        host.input(Input::CONNECTED);
        host
    }

    pub(super) fn unconnected() -> Self {
        Self {
            engine: Engine::new(Settings::new(CLIENT)),
            server: MemoryServer::new(),
            now: Timestamp::from_nanos(5_000_000_000),
            epoch: 1_700_000_000_000_000,
            net: Net::Up,
            back: Duration::ZERO,
            subscribes: true,
            asked_to_subscribe: 0,
            pushes: Pushes::Deliver,
            heard: VecDeque::new(),
            ttl: TTL,
            fixed: false,
            durability: None,
            copies: Ok([1, 0]),
            log: Vec::new(),
            pending: VecDeque::new(),
            events: Vec::new(),
            done: BTreeMap::new(),
            closed: Vec::new(),
            notices: Vec::new(),
            suspected: Vec::new(),
            lost: Vec::new(),
            reads: Vec::new(),
            counted: Stats::default(),
            numbers: Vec::new(),
            last_id: 0,
        }
    }

    pub(super) fn input(&mut self, input: Input) {
        self.engine.handle(self.now, input);
        self.drain();
        self.look_at_counts();
    }

    /// Tells the time, as at `wake_at`, which must then ask for a later one.
    pub(super) fn tick(&mut self) {
        self.input(Input::Tick);
        let wake = self.engine.wake_at();
        assert!(
            wake.is_none_or(|at| at > self.now),
            "it would spin: {wake:?} at {:?}",
            self.now
        );
    }

    /// Lets time pass, and tells it whenever the engine wants to know.
    pub(super) fn advance(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            let lost = self.lost.iter().map(|(at, _)| *at).min();
            let next = self.engine.wake_at().into_iter().chain(lost).min();
            let Some(at) = next.filter(|at| *at <= until) else {
                break;
            };
            self.now = self.now.max(at);
            self.tick();
            self.fail_lost();
        }
        self.now = until;
    }

    /// Lets time pass without telling it.
    pub(super) fn sleep(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    pub(super) fn advance_to(&mut self, at: Timestamp) {
        self.advance(at.since(self.now));
    }

    pub(super) fn disconnect(&mut self) {
        let error = Error::new(ErrorKind::Unavailable, "the cable was pulled");
        self.input(Input::disconnected(error));
    }

    pub(super) fn next_call(&mut self) -> CallId {
        self.last_id += 1;
        CallId(self.last_id)
    }

    pub(super) fn acquire(&mut self, lock: LockId, wait: Wait) -> CallId {
        self.acquire_as(lock, lock, wait)
    }

    /// Acquires the name of one lock as the owner of another.
    pub(super) fn acquire_as(&mut self, lock: LockId, name: LockId, wait: Wait) -> CallId {
        self.acquire_spec(lock, self.spec(name), wait)
    }

    pub(super) fn acquire_spec(&mut self, lock: LockId, spec: LockSpec, wait: Wait) -> CallId {
        let call = self.next_call();
        let spec = Arc::new(spec);
        let lease = lease_of(call);
        self.input(Input::Acquire {
            call,
            lock,
            spec,
            lease,
            wait,
        });
        call
    }

    /// Acquires a lock that is free.
    pub(super) fn hold(&mut self, lock: LockId) -> Acquired {
        let call = self.acquire(lock, Wait::Never);
        self.grant(call)
    }

    pub(super) fn release(&mut self, lease: LeaseId) -> CallId {
        let call = self.next_call();
        self.input(Input::Release {
            call: Some(call),
            lease,
        });
        call
    }

    pub(super) fn renew(&mut self, lease: LeaseId) -> CallId {
        self.renew_with(lease, (None, None))
    }

    pub(super) fn renew_for(&mut self, lease: LeaseId, ttl: Duration) -> CallId {
        self.renew_with(lease, (Some(ttl), None))
    }

    pub(super) fn raise(&mut self, lease: LeaseId, floor: FencingToken) -> CallId {
        self.renew_with(lease, (None, Some(floor)))
    }

    fn renew_with(
        &mut self,
        lease: LeaseId,
        (ttl, floor): (Option<Duration>, Option<FencingToken>),
    ) -> CallId {
        let call = self.next_call();
        self.input(Input::Renew {
            call,
            lease,
            ttl,
            floor,
        });
        call
    }

    /// Gives up a call that acquires through `LOCK`.
    pub(super) fn cancel(&mut self, call: CallId) {
        self.cancel_of(call, lease_of(call));
    }

    pub(super) fn cancel_of(&mut self, call: CallId, lease: LeaseId) {
        let of = Some((LOCK, lease));
        self.input(Input::Cancel { call, of });
    }

    pub(super) fn close(&mut self, lock: LockId) {
        self.input(Input::Close { lock });
    }

    pub(super) fn shutdown(&mut self) -> CallId {
        let call = self.next_call();
        self.input(Input::Shutdown { call });
        call
    }

    pub(super) fn inspect(&mut self, lock: LockId) -> CallId {
        let call = self.next_call();
        self.input(Input::Inspect {
            call,
            key: key(lock),
        });
        call
    }

    pub(super) fn force_release(&mut self, lock: LockId) -> CallId {
        self.force_release_token(lock, None)
    }

    pub(super) fn force_release_token(
        &mut self,
        lock: LockId,
        token: Option<FencingToken>,
    ) -> CallId {
        let call = self.next_call();
        let key = key(lock);
        self.input(Input::ForceRelease { call, key, token });
        call
    }

    /// Its handles are re-entrant, so that one of them is one owner.
    pub(super) fn spec(&self, lock: LockId) -> LockSpec {
        let name = Name::new(format!("lock-{}", lock.0)).expect("a short name is valid");
        let options = Arc::new(LockOptions {
            ttl: self.ttl,
            fixed: self.fixed,
            reentrant: true,
            owner: Owner::labelled("host").expect("a short label is valid"),
            counter: Counter::Dense,
            durability: self.durability,
        });
        let key = key(lock);
        LockSpec { name, key, options }
    }
}

/// The lease id that a call acquires with.
pub(super) fn lease_of(call: CallId) -> LeaseId {
    LeaseId(u128::from(call.0) << 64)
}
