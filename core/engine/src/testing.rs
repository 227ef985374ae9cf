//! Runs engines by hand in tests, with a virtual clock, in-memory servers, and a network and pushes that obey
//! the test.
//!
//! A [`Host`] runs one locker, or several lockers over the same servers. [`Host::at`] selects the locker of a
//! call.

#![allow(
    clippy::new_without_default,
    reason = "a test states how its host begins"
)]

mod network;
mod view;

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{
    Acquired, Answer, Backlog, CallId, Engine, Input, LockId, LockOptions, LockSpec, RequestId,
    ServerId, Settings, Stats, Suspicion, Wait,
};
use crate::error::{Error, ErrorKind};
use crate::event::LeaseEvent;
use crate::memory::MemoryServer;
use crate::name::{Name, Owner};
use crate::protocol::{Claim, ClientId, Counter, Durability, LeaseId, LockKey, Op, Pattern};
use crate::share::Sharing;
use crate::ticket::Passed;
use crate::time::Timestamp;
use crate::token::FencingToken;
pub use network::{id_of, place};
pub use view::{key, key_of, kind, name_of, remaining};

pub const LOCK: LockId = LockId(1);
/// The ID of the first locker's client. Each further locker's ID is one greater.
pub const CLIENT: ClientId = ClientId(7);
pub const TTL: Duration = Duration::from_secs(30);
/// The default command timeout.
pub const TIMEOUT: Duration = Duration::from_secs(2);
pub const PATIENCE: Duration = Duration::from_secs(10);
/// A round trip that is long enough for a few requests of any size to be under way.
pub const FAR: Duration = ms(2);

pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// How a server's network treats a batch when a locker sends it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Net {
    /// The server executes and answers the batch at once.
    Up,
    /// The batch stays in `pending` until the test decides.
    Hold,
    /// The batch never arrives. The host reports an error when the engine gives up on the answer.
    LoseRequests,
    /// The server executes the batch, but its answer is lost.
    LoseReplies,
    /// The server executes the batch when it resumes, however late. An error replaces a late answer.
    Frozen,
}

/// How the network treats a server's pushes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Pushes {
    /// A push arrives at once, after the answer to what caused it.
    Deliver,
    /// A push stays in `heard` until the test decides.
    Hold,
    /// A push is lost, although the server believes that it was received.
    Drop,
}

/// A batch that a locker sent.
#[derive(Clone, Debug)]
pub struct Sent {
    pub at: Timestamp,
    pub locker: usize,
    pub server: ServerId,
    pub request: RequestId,
    pub batch: Vec<Op>,
    pub durability: Option<Durability>,
    pub give_up: Timestamp,
}

/// An event that a locker emitted.
#[derive(Clone, Debug)]
pub struct Told {
    pub at: Timestamp,
    pub event: LeaseEvent,
    pub deadline: Option<Timestamp>,
}

/// One engine, with the events that it emitted.
#[derive(Debug)]
pub struct Locker {
    pub engine: Engine,
    pub client: ClientId,
    /// The owner that its locks show.
    pub owner: Owner,
    /// The time at which the engine wants its next tick.
    pub wake: Option<Timestamp>,
    pub events: Vec<Told>,
    /// Events that concern no lock.
    pub notices: Vec<LeaseEvent>,
    /// The counters as of the last step.
    pub counted: Stats,
    pub numbers: Vec<u64>,
}

/// Lockers, their servers, and the network between them.
///
/// The host dereferences to the [`Locker`] that calls are for.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)]
pub struct Host {
    pub lockers: Vec<Locker>,
    /// The index of the locker that calls are for.
    me: usize,
    pub servers: Vec<MemoryServer>,
    pub now: Timestamp,
    /// The servers' clocks, in microseconds, at local time zero.
    pub epoch: u64,
    /// How far each server's clock is ahead of `epoch`, in microseconds.
    pub ahead: Vec<u64>,
    pub net: Net,
    /// Networks of individual servers, which override `net`.
    pub nets: BTreeMap<usize, Net>,
    /// How long answers travel when the network is `Net::Up`.
    pub back: Duration,
    /// True if the host subscribes when an engine asks for it.
    pub subscribes: bool,
    /// The servers at which engines asked for a subscription.
    pub asked_to_subscribe: Vec<ServerId>,
    pub pushes: Pushes,
    /// Pushes that have not arrived yet, each with its locker.
    pub heard: VecDeque<(usize, Input)>,
    pub ttl: Duration,
    pub fixed: bool,
    pub reentrant: bool,
    pub counter: Counter,
    /// The copies that locks require.
    pub durability: Option<Durability>,
    /// The bounds of the age of a lease.
    pub at_most: Option<Duration>,
    pub at_least: Option<Duration>,
    /// The ticks before the one of a runner.
    pub backlog: Option<Backlog>,
    /// The most waiters in line.
    pub max_line: Option<u32>,
    /// Refuses another capacity.
    pub strict: bool,
    /// The servers' reply when they are asked for the number of copies.
    pub copies: Result<[u64; 2], Error>,
    /// Every batch that was sent.
    pub log: Vec<Sent>,
    /// Batches on their way to servers that are up.
    arriving: VecDeque<Sent>,
    pub pending: VecDeque<Sent>,
    pub lost: Vec<Sent>,
    pub done: BTreeMap<CallId, (Timestamp, Answer)>,
    pub closed: Vec<LockId>,
    /// The connections that engines suspect.
    pub suspected: Vec<(ServerId, Suspicion)>,
    /// The keys that engines asked to watch, and when.
    pub reads: Vec<(Timestamp, Vec<LockKey>)>,
    last_id: u64,
}

impl Deref for Host {
    type Target = Locker;

    fn deref(&self) -> &Locker {
        &self.lockers[self.me]
    }
}

impl DerefMut for Host {
    fn deref_mut(&mut self) -> &mut Locker {
        &mut self.lockers[self.me]
    }
}

/// A host that is set to one of its lockers, until this is dropped. By default it is set to the first.
#[derive(Debug)]
pub struct At<'a> {
    host: &'a mut Host,
    before: usize,
}

impl Deref for At<'_> {
    type Target = Host;

    fn deref(&self) -> &Host {
        self.host
    }
}

impl DerefMut for At<'_> {
    fn deref_mut(&mut self) -> &mut Host {
        self.host
    }
}

impl Drop for At<'_> {
    fn drop(&mut self) {
        self.host.me = self.before;
    }
}

/// Constructors.
impl Host {
    /// Returns a connected host that knows the server's clock and has logged nothing.
    ///
    /// The server seems far away until it answers at once, so a few operations can be under way.
    pub fn new() -> Self {
        let mut host = Self::unconnected();
        let now = host.now;
        host.now = Timestamp::from_nanos(4_998_000_000);
        host.back = FAR;
        host.connect(0);
        host.back = Duration::ZERO;
        assert_eq!(host.now, now);
        host.forget();
        host
    }

    /// Returns a connected host, whose network is `net` from then on.
    pub fn on(net: Net) -> Self {
        let mut host = Self::new();
        host.net = net;
        host
    }

    /// Returns a host with this network, which has asked the server for its clock.
    pub fn connecting(net: Net) -> Self {
        let mut host = Self::unconnected();
        host.net = net;
        host.connect(0);
        host
    }

    /// Returns a host with an acquisition of `LOCK` under way, and that call.
    pub fn asking() -> (Self, CallId) {
        let mut host = Self::on(Net::Hold);
        let call = host.acquire(LOCK, Wait::Forever);
        (host, call)
    }

    /// Returns a host that holds `LOCK`, and the lease.
    pub fn holding() -> (Self, LeaseId) {
        let mut host = Self::new();
        let lease = host.hold(LOCK).lease;
        (host, lease)
    }

    /// Returns a connected host with this drift margin.
    pub fn with_margin(parts_per_million: u32) -> Self {
        let mut settings = Settings::new(CLIENT);
        settings.drift_margin = parts_per_million;
        let mut host = Self::with(settings.checked().expect("good settings"), 1);
        host.connect(0);
        host
    }

    pub fn unconnected() -> Self {
        Self::with(Settings::new(CLIENT), 1)
    }

    /// Returns a host with one locker and this many servers, none of them connected.
    pub fn with(settings: Settings, servers: usize) -> Self {
        let mut host = Self::of_servers(servers);
        host.join(CLIENT, Engine::new(settings), "host");
        host
    }

    /// Returns a host with this many servers and no locker.
    pub fn of_servers(servers: usize) -> Self {
        Self {
            lockers: Vec::new(),
            me: 0,
            servers: (0..servers).map(|_| MemoryServer::new()).collect(),
            now: Timestamp::from_nanos(5_000_000_000),
            epoch: 1_700_000_000_000_000,
            ahead: vec![0; servers],
            net: Net::Up,
            nets: BTreeMap::new(),
            back: Duration::ZERO,
            subscribes: true,
            asked_to_subscribe: Vec::new(),
            pushes: Pushes::Deliver,
            heard: VecDeque::new(),
            ttl: TTL,
            fixed: false,
            reentrant: true,
            counter: Counter::Dense,
            durability: None,
            at_most: None,
            at_least: None,
            backlog: None,
            max_line: None,
            strict: false,
            copies: Ok([1, 0]),
            log: Vec::new(),
            arriving: VecDeque::new(),
            pending: VecDeque::new(),
            lost: Vec::new(),
            done: BTreeMap::new(),
            closed: Vec::new(),
            suspected: Vec::new(),
            reads: Vec::new(),
            last_id: 0,
        }
    }

    /// Adds a locker, which is not connected yet.
    pub fn join(&mut self, client: ClientId, engine: Engine, owner: &str) {
        self.lockers.push(Locker {
            engine,
            client,
            owner: Owner::labelled(owner).expect("a short label is valid"),
            wake: None,
            events: Vec::new(),
            notices: Vec::new(),
            counted: Stats::default(),
            numbers: Vec::new(),
        });
    }

    /// Sets the host to a locker for one call.
    pub fn at(&mut self, locker: usize) -> At<'_> {
        let before = std::mem::replace(&mut self.me, locker);
        At { host: self, before }
    }
}

/// Time.
impl Host {
    pub fn input(&mut self, input: Input) {
        let now = self.now;
        self.engine.handle(now, input);
        self.settle();
    }

    /// Ticks the engine, which must then ask for a later tick.
    pub fn tick(&mut self) {
        self.input(Input::Tick);
        let (wake, now) = (self.wake, self.now);
        assert!(
            wake.is_none_or(|at| at > now),
            "the engine would spin: {wake:?} at {now:?}"
        );
    }

    /// Lets time pass, with every tick that an engine asked for.
    pub fn advance(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            let lost = self.lost.iter().map(|sent| sent.give_up);
            let wakes = self.lockers.iter().filter_map(|locker| locker.wake);
            let Some(at) = wakes.chain(lost).min().filter(|at| *at <= until) else {
                break;
            };
            self.now = self.now.max(at);
            for locker in 0..self.lockers.len() {
                if self.lockers[locker].wake.is_some_and(|at| at <= self.now) {
                    self.at(locker).tick();
                }
            }
            self.fail_lost();
        }
        self.now = until;
    }

    /// Lets time pass without a tick.
    pub fn sleep(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    pub fn advance_to(&mut self, at: Timestamp) {
        self.advance(at.since(self.now));
    }
}

/// Calls of the program.
impl Host {
    /// Makes a call whose input carries its ID.
    fn call(&mut self, input: impl FnOnce(CallId) -> Input) -> CallId {
        let call = self.next_call();
        self.input(input(call));
        call
    }

    pub fn next_call(&mut self) -> CallId {
        self.last_id += 1;
        CallId(self.last_id)
    }

    pub fn acquire(&mut self, lock: LockId, wait: Wait) -> CallId {
        self.acquire_as(lock, lock, wait)
    }

    /// Asks for a lock, and sends nothing yet.
    pub fn begin(&mut self, lock: LockId) {
        let (call, spec, now) = (self.next_call(), self.spec(lock).into(), self.now);
        let input = Input::Acquire {
            call,
            lock,
            spec,
            lease: lease_of(call),
            wait: Wait::Never,
        };
        self.engine.handle(now, input);
    }

    /// Acquires the name of one lock as the owner of another.
    pub fn acquire_as(&mut self, lock: LockId, name: LockId, wait: Wait) -> CallId {
        self.acquire_spec(lock, self.spec(name), wait)
    }

    pub fn acquire_spec(&mut self, lock: LockId, spec: LockSpec, wait: Wait) -> CallId {
        let spec = Arc::new(spec);
        self.call(|call| Input::Acquire {
            call,
            lock,
            spec,
            lease: lease_of(call),
            wait,
        })
    }

    /// Acquires a lock by its name, through `LOCK`.
    pub fn acquire_name(&mut self, name: &Name, wait: Wait) -> CallId {
        self.acquire_spec(LOCK, self.spec_of(name), wait)
    }

    /// Acquires a lock that is free.
    pub fn hold(&mut self, lock: LockId) -> Acquired {
        let call = self.acquire(lock, Wait::Never);
        self.grant(call)
    }

    pub fn release(&mut self, lease: LeaseId) -> CallId {
        self.call(|call| Input::Release {
            call: Some(call),
            lease,
        })
    }

    pub fn pass(&mut self, lease: LeaseId) -> CallId {
        self.call(|call| Input::Pass { call, lease })
    }

    /// Accepts a tenure of a lock through this handle, with the host's options.
    pub fn accept(&mut self, handle: LockId, passed: &Passed) -> CallId {
        let spec = Arc::new(self.spec_of(&passed.name));
        let passed = Box::new(passed.clone());
        self.call(|call| Input::Accept {
            call,
            lock: handle,
            spec,
            lease: lease_of(call),
            passed,
        })
    }

    pub fn complete(&mut self, lease: LeaseId) -> CallId {
        self.call(|call| Input::Complete { call, lease })
    }

    pub fn renew(&mut self, lease: LeaseId) -> CallId {
        self.renew_with(lease, None, None)
    }

    pub fn renew_for(&mut self, lease: LeaseId, ttl: Duration) -> CallId {
        self.renew_with(lease, Some(ttl), None)
    }

    pub fn raise(&mut self, lease: LeaseId, floor: FencingToken) -> CallId {
        self.renew_with(lease, None, Some(floor))
    }

    fn renew_with(
        &mut self,
        lease: LeaseId,
        ttl: Option<Duration>,
        floor: Option<FencingToken>,
    ) -> CallId {
        self.call(|call| Input::Renew {
            call,
            lease,
            ttl,
            floor,
        })
    }

    /// Cancels a call that acquires through `LOCK`.
    pub fn cancel(&mut self, call: CallId) {
        self.cancel_of(call, lease_of(call));
    }

    pub fn cancel_of(&mut self, call: CallId, lease: LeaseId) {
        let of = Some((LOCK, lease));
        self.input(Input::Cancel { call, of });
    }

    pub fn close(&mut self, lock: LockId) {
        self.input(Input::Close { lock });
    }

    pub fn shutdown(&mut self) -> CallId {
        self.call(|call| Input::Shutdown { call })
    }

    pub fn inspect(&mut self, lock: LockId) -> CallId {
        let key = key(lock);
        self.call(|call| Input::Inspect { call, key })
    }

    /// Makes one step of a listing of all locks.
    pub fn list(&mut self, cursor: u64) -> CallId {
        let pattern = Pattern::new("test", "*").expect("a short pattern is valid");
        self.call(|call| Input::List {
            call,
            pattern,
            cursor,
        })
    }

    pub fn force_release(&mut self, lock: LockId) -> CallId {
        self.force_release_token(lock, None)
    }

    pub fn request_yield(&mut self, lock: LockId, by: &str, within: Duration) -> CallId {
        let key = self.spec(lock).key.clone();
        let by = Owner::labelled(by).expect("a valid label");
        self.call(|call| Input::RequestYield {
            call,
            key,
            by,
            within,
        })
    }

    /// Sets the capacity of a shared name.
    pub fn resize(&mut self, lock: LockId, sharing: Sharing, capacity: u32) -> CallId {
        let (key, counter) = (key(lock), self.counter);
        self.call(|call| Input::Resize {
            call,
            key,
            sharing,
            capacity,
            counter,
        })
    }

    pub fn force_release_token(&mut self, lock: LockId, token: Option<FencingToken>) -> CallId {
        let key = key(lock);
        self.call(|call| Input::ForceRelease { call, key, token })
    }

    /// Returns the specification of this lock. By default handles are re-entrant, so one handle is one owner.
    pub fn spec(&self, lock: LockId) -> LockSpec {
        self.spec_of(&name_of(lock))
    }

    pub fn spec_of(&self, name: &Name) -> LockSpec {
        let options = Arc::new(LockOptions {
            ttl: self.ttl,
            fixed: self.fixed,
            reentrant: self.reentrant,
            owner: self.owner.clone(),
            counter: self.counter,
            durability: self.durability,
            at_most: self.at_most,
            at_least: self.at_least,
            backlog: self.backlog,
            max_line: self.max_line,
            strict: self.strict,
        });
        LockSpec {
            name: name.clone(),
            key: key_of(name),
            options,
        }
    }
}

/// Returns the lease ID of a call that acquires.
pub fn lease_of(call: CallId) -> LeaseId {
    LeaseId(u128::from(call.0) << 64)
}

/// Returns a claim of `me` that lasts for this time.
pub fn claim_for(ttl: Duration) -> Claim {
    Claim {
        lease: LeaseId(7),
        client: ClientId(1),
        owner: Owner::labelled("me").expect("a short label is valid"),
        counter: Counter::Dense,
        ttl,
        window: Duration::from_secs(1),
    }
}
