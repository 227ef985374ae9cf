//! Hosts with a quorum each, over the same few servers, on a network that does as it is told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::Engine;
use crate::engine::{
    Acquired, Answer, CallId, Input, LockId, LockOptions, LockSpec, Output, RequestId, ServerId,
    Settings, Wait,
};
use crate::error::{Error, ErrorKind};
use crate::event::LeaseEvent;
use crate::memory::MemoryServer;
use crate::name::{Name, Owner};
use crate::protocol::{ClientId, Command, Counter, LeaseId, LockKey, Op};
use crate::time::{ServerTime, Timestamp};

pub(super) const LOCK: LockId = LockId(1);
pub(super) const TTL: Duration = Duration::from_secs(30);
/// The longest that a lease may live.
pub(super) const LONGEST: Duration = Duration::from_secs(120);
pub(super) const TIMEOUT: Duration = Duration::from_secs(2);
/// How long a retry takes, at the most, and then some.
pub(super) const SOON: Duration = Duration::from_millis(1_500);

/// What a server does with what reaches it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum State {
    Up,
    /// It takes everything in, and does nothing until it goes on.
    Frozen,
    /// Nothing reaches it.
    Away,
}

#[derive(Debug)]
struct Sent {
    host: usize,
    server: usize,
    request: RequestId,
    batch: Vec<Op>,
    give_up: Timestamp,
}

pub(super) struct World {
    pub(super) hosts: Vec<Host>,
    pub(super) servers: Vec<MemoryServer>,
    pub(super) states: Vec<State>,
    /// How far each server's clock is ahead, in microseconds.
    pub(super) ahead: Vec<u64>,
    pub(super) now: Timestamp,
    pub(super) ttl: Duration,
    /// How many operations were sent, but for those that find out who may vote.
    pub(super) sent: usize,
    waiting: Vec<Sent>,
}

pub(super) struct Host {
    pub(super) quorum: Engine,
    pub(super) done: BTreeMap<CallId, Answer>,
    pub(super) events: Vec<(LeaseEvent, Option<Timestamp>)>,
    /// Events about no lock.
    pub(super) notices: Vec<LeaseEvent>,
    wake: Timestamp,
    last: u64,
}

impl World {
    /// Servers that have been used before, so that each knows the others.
    pub(super) fn new(hosts: usize, servers: usize) -> Self {
        Self::used(Self::fresh(hosts, servers))
    }

    /// Makes a world as [`new`](Self::new) does, with hosts of this drift margin.
    pub(super) fn with_margin(hosts: usize, servers: usize, parts_per_million: u32) -> Self {
        let settings = |id| Settings {
            drift_margin: parts_per_million,
            ..settings(id)
        };
        Self::used(Self::of(hosts, servers, settings))
    }

    fn used(mut world: Self) -> Self {
        let hosts = world.hosts.len();
        for host in 0..hosts {
            let lease = world.hold(host).lease;
            world.release(host, lease);
            world.hosts[host].done.clear();
            world.hosts[host].events.clear();
        }
        for server in &mut world.servers {
            server.delete(&key());
        }
        world
    }

    /// Servers that are new, as are the hosts to them.
    pub(super) fn fresh(hosts: usize, servers: usize) -> Self {
        Self::of(hosts, servers, settings)
    }

    fn of(hosts: usize, servers: usize, settings: impl Fn(u64) -> Settings) -> Self {
        let mut world = Self {
            hosts: Vec::new(),
            servers: (0..servers).map(|_| MemoryServer::new()).collect(),
            states: vec![State::Up; servers],
            ahead: (0..).map(|at| at * 1_000).take(servers).collect(),
            now: Timestamp::from_nanos(5_000_000_000),
            ttl: TTL,
            sent: 0,
            waiting: Vec::new(),
        };
        for id in (0..).take(hosts) {
            world.join_as(id, settings(id));
        }
        world
    }

    /// One more host, with leases that live for so long at the most; it is connected to all servers.
    pub(super) fn join(&mut self, longest: Duration) -> usize {
        let id = u64::try_from(self.hosts.len()).expect("it is small");
        let mut settings = settings(id);
        settings.longest_ttl = longest;
        self.join_as(id, settings)
    }

    fn join_as(&mut self, id: u64, settings: Settings) -> usize {
        let (host, servers) = (self.hosts.len(), self.servers.len());
        self.hosts.push(Host {
            quorum: Engine::quorum(settings, servers).expect("it is odd"),
            done: BTreeMap::new(),
            events: Vec::new(),
            notices: Vec::new(),
            wake: Timestamp::NEVER,
            last: (1 + id) << 32,
        });
        for server in 0..servers {
            self.connect(host, server);
            let server = id_of(server);
            self.input(host, Input::Subscribed { server });
        }
        host
    }

    pub(super) fn input(&mut self, host: usize, input: Input) {
        let now = self.now;
        self.hosts[host].quorum.handle(now, input);
        self.drain(host);
        self.deliver();
    }

    fn drain(&mut self, host: usize) {
        loop {
            let Host {
                quorum,
                done,
                events,
                notices,
                wake,
                ..
            } = &mut self.hosts[host];
            match quorum.poll() {
                Output::Wait { until } => {
                    *wake = until.unwrap_or(Timestamp::NEVER);
                    return;
                }
                Output::Send {
                    server,
                    request,
                    batch,
                    give_up,
                    ..
                } => {
                    let own = |op: &&Op| matches!(op.command, Command::Enter(_));
                    self.sent += batch.len() - batch.iter().filter(own).count();
                    let server = usize::try_from(server.0).expect("it is small");
                    self.waiting.push(Sent {
                        host,
                        server,
                        request,
                        batch,
                        give_up,
                    });
                }
                Output::Answer { call, answer } => {
                    let before = done.insert(call, answer);
                    assert!(before.is_none(), "answered twice: {before:?}");
                }
                Output::Event {
                    event, deadline, ..
                } => events.push((event, deadline)),
                Output::Subscribe { server } => {
                    let client = ClientId(1 + u64::try_from(host).expect("it is small"));
                    let server = usize::try_from(server.0).expect("it is small");
                    self.servers[server].subscribe(client);
                }
                Output::Notice { event } => notices.push(event),
                _ => {}
            }
        }
    }

    /// What reaches a server that is up is executed and answered.
    fn deliver(&mut self) {
        while let Some(place) = self
            .waiting
            .iter()
            .position(|sent| self.states[sent.server] == State::Up)
        {
            let Sent {
                host,
                server,
                request,
                batch,
                ..
            } = self.waiting.remove(place);
            let time = self.time(server);
            let reply = self.servers[server].execute(time, &batch);
            let input = Input::Reply {
                server: id_of(server),
                request,
                result: Ok(reply),
            };
            self.hosts[host].quorum.handle(self.now, input);
            self.drain(host);
            for (client, push) in self.servers[server].take_pushes() {
                let to = usize::try_from(client.0 - 1).expect("it is small");
                let input = Input::Push {
                    server: Some(id_of(server)),
                    push,
                };
                self.hosts[to].quorum.handle(self.now, input);
                self.drain(to);
            }
        }
    }

    pub(super) fn time(&self, server: usize) -> ServerTime {
        let micros = 1_700_000_000_000_000 + self.now.as_nanos() / 1_000;
        ServerTime::from_micros(micros + self.ahead[server])
    }

    pub(super) fn set(&mut self, server: usize, state: State) {
        self.states[server] = state;
        self.deliver();
    }

    /// Lets time pass, and tells it whenever somebody wants to know.
    pub(super) fn advance(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            let late = self.waiting.iter().map(|sent| sent.give_up);
            let wakes = self.hosts.iter().map(|host| host.wake);
            let next = wakes.chain(late).min().unwrap_or(Timestamp::NEVER);
            if next > until {
                break;
            }
            self.now = self.now.max(next);
            for host in 0..self.hosts.len() {
                if self.hosts[host].wake <= self.now {
                    self.input(host, Input::Tick);
                    assert!(self.hosts[host].wake > self.now, "host {host} would spin");
                }
            }
            self.fail_late();
        }
        self.now = until;
    }

    fn fail_late(&mut self) {
        let now = self.now;
        let late: Vec<_> = self
            .waiting
            .extract_if(.., |sent| sent.give_up <= now)
            .collect();
        for Sent {
            host,
            server,
            request,
            batch,
            give_up,
        } in late
        {
            let result = Err(Error::no_answer());
            self.input(
                host,
                Input::Reply {
                    server: id_of(server),
                    request,
                    result,
                },
            );
            // A frozen server does what it was told when it goes on, as late as that is.
            if self.states[server] == State::Frozen {
                let sent = Sent {
                    host,
                    server,
                    request,
                    batch,
                    give_up: Timestamp::NEVER,
                };
                self.waiting.push(Sent {
                    give_up: give_up + Duration::from_secs(3_600),
                    ..sent
                });
            }
        }
    }

    pub(super) fn acquire(&mut self, host: usize, wait: Wait) -> CallId {
        self.acquire_with(host, wait, false)
    }

    pub(super) fn acquire_with(&mut self, host: usize, wait: Wait, reentrant: bool) -> CallId {
        let mut spec = self.spec(host);
        Arc::make_mut(&mut spec.options).reentrant = reentrant;
        self.acquire_as(host, wait, spec)
    }

    /// For an owner who takes over what is its own.
    pub(super) fn reclaim(&mut self, host: usize, wait: Wait) -> CallId {
        let mut spec = self.spec(host);
        let owner = Owner::reclaimable("job").expect("a short label is valid");
        Arc::make_mut(&mut spec.options).owner = owner;
        self.acquire_as(host, wait, spec)
    }

    /// Acquires a lock with a name of its own.
    pub(super) fn acquire_named(&mut self, host: usize, name: &Name) -> CallId {
        self.acquire_name(host, Wait::Never, name)
    }

    pub(super) fn acquire_name(&mut self, host: usize, wait: Wait, name: &Name) -> CallId {
        let (name, key) = (name.clone(), key_of(name));
        let spec = LockSpec {
            name,
            key,
            ..self.spec(host)
        };
        self.acquire_as(host, wait, spec)
    }

    pub(super) fn acquire_as(&mut self, host: usize, wait: Wait, spec: LockSpec) -> CallId {
        let call = self.next_call(host);
        let spec = Arc::new(spec);
        let lease = lease_of(call);
        self.input(
            host,
            Input::Acquire {
                call,
                lock: LOCK,
                spec,
                lease,
                wait,
            },
        );
        call
    }

    pub(super) fn next_call(&mut self, host: usize) -> CallId {
        self.hosts[host].last += 1;
        CallId(self.hosts[host].last)
    }

    pub(super) fn release(&mut self, host: usize, lease: LeaseId) -> CallId {
        let call = self.next_call(host);
        self.input(
            host,
            Input::Release {
                call: Some(call),
                lease,
            },
        );
        call
    }

    /// Acquires a lock that is free.
    pub(super) fn hold(&mut self, host: usize) -> Acquired {
        let call = self.acquire(host, Wait::Never);
        self.got(host, call)
    }

    pub(super) fn answer(&self, host: usize, call: CallId) -> Option<&Answer> {
        self.hosts[host].done.get(&call)
    }

    pub(super) fn got(&self, host: usize, call: CallId) -> Acquired {
        match self.answer(host, call) {
            Some(Answer::Acquire(Ok(Some(acquired)))) => *acquired,
            other => panic!("not acquired: {other:?}, {:?}", self.hosts[host].events),
        }
    }

    pub(super) fn error(&self, host: usize, call: CallId) -> &Error {
        let answer = self.answer(host, call);
        answer
            .and_then(Answer::error)
            .unwrap_or_else(|| panic!("no error: {answer:?}"))
    }

    /// At how many servers somebody has the lock, and stands in line.
    pub(super) fn left(&self) -> (usize, usize) {
        let key = key();
        let tenures = (0..self.servers.len())
            .filter(|at| self.servers[*at].tenure(self.time(*at), &key).is_some());
        let lines = (0..self.servers.len())
            .filter(|at| self.servers[*at].line_value(self.time(*at), &key).is_some());
        (tenures.count(), lines.count())
    }

    pub(super) fn last_tokens(&self) -> Vec<Option<u64>> {
        let servers = self.servers.iter().enumerate();
        servers
            .map(|(at, server)| server.last_token(self.time(at), &key()))
            .collect()
    }

    /// What happened to a host's leases, by the names of the events.
    pub(super) fn story(&self, host: usize) -> Vec<&'static str> {
        let events = self.hosts[host]
            .events
            .iter()
            .map(|(event, _)| match event {
                LeaseEvent::Waiting { .. } => "waiting",
                LeaseEvent::Acquired { .. } => "acquired",
                LeaseEvent::Renewed { .. } => "renewed",
                LeaseEvent::AtRisk { .. } => "at risk",
                LeaseEvent::Lost { .. } => "lost",
                LeaseEvent::Released { .. } => "released",
                _ => "other",
            });
        events.collect()
    }

    /// A host hears nothing that this server tells by itself.
    pub(super) fn deafen(&mut self, host: usize, server: usize) {
        let client = ClientId(1 + u64::try_from(host).expect("it is small"));
        self.servers[server].unsubscribe(client);
    }

    pub(super) fn cut(&mut self, host: usize, server: usize) {
        let error = Error::new(ErrorKind::Unavailable, "the cable was pulled");
        self.input(
            host,
            Input::Disconnected {
                server: id_of(server),
                error,
            },
        );
    }

    pub(super) fn connect(&mut self, host: usize, server: usize) {
        self.input(
            host,
            Input::Connected {
                server: id_of(server),
            },
        );
    }

    pub(super) fn spec(&self, host: usize) -> LockSpec {
        let mut spec = spec(host);
        Arc::make_mut(&mut spec.options).ttl = self.ttl;
        spec
    }
}

pub(super) fn spec(host: usize) -> LockSpec {
    let options = Arc::new(LockOptions {
        ttl: TTL,
        fixed: false,
        reentrant: false,
        owner: Owner::labelled(format!("host {host}")).expect("a short label is valid"),
        counter: Counter::ClockFloor {
            retention: Duration::from_secs(86_400),
        },
        durability: None,
    });
    let name = Name::new("lock").expect("a short name is valid");
    let key = key();
    LockSpec { name, key, options }
}

pub(super) fn settings(id: u64) -> Settings {
    let mut settings = Settings::new(ClientId(1 + id));
    settings.longest_ttl = LONGEST;
    settings
}

pub(super) fn key() -> LockKey {
    key_of(&Name::new("lock").expect("a short name is valid"))
}

pub(super) fn key_of(name: &Name) -> LockKey {
    LockKey::new("test", name).expect("a short namespace is valid")
}

pub(super) fn id_of(server: usize) -> ServerId {
    ServerId(u32::try_from(server).expect("it is small"))
}

pub(super) fn lease_of(call: CallId) -> LeaseId {
    LeaseId(u128::from(call.0) << 64)
}
