//! The run: true time, what happens when, and the hosts that take it in.

use std::collections::{BTreeMap, BTreeSet};

use leasehold::engine::{Input, LockId, Output, ServerId, Wait};
use leasehold::protocol::{Command, LeaseId, LockKey, Op};
use leasehold::{FencingToken, LeaseEvent};

use crate::checks::Checks;
use crate::clock::{MILLI, Moment};
use crate::host::{Host, SharedSent};
use crate::plan::{Plan, Sabotage};
use crate::random::Random;
use crate::server::Server;
use crate::stats::{Stats, Violation};

/// More steps, or more outputs of one step, than any run needs.
const MAX_STEPS: u64 = 200_000;
const MAX_OUTPUTS: u32 = 5_000;

#[derive(Debug)]
pub(crate) enum Happening {
    /// A batch reaches its server.
    Arrival(SharedSent),
    /// An input reaches a host; if it came by a connection, only while that is the current one.
    Delivery {
        host: usize,
        life: u64,
        by: Option<SharedSent>,
        input: Input,
    },
    /// A host's program does something.
    Act {
        host: usize,
    },
    Resume {
        host: usize,
    },
    /// A connection is made again, if it is still the one that was lost.
    Restore {
        host: usize,
        server: usize,
        connection: u64,
    },
    /// A host's subscription is there, if it is still this one.
    Listen {
        host: usize,
        life: u64,
        server: usize,
        connection: u64,
    },
    /// Something comes on a host's subscription, if it is still this one.
    Heard {
        host: usize,
        life: u64,
        server: usize,
        connection: u64,
        input: Input,
    },
    /// A server that did nothing goes on.
    Thaw {
        server: usize,
    },
    /// A server's clock is set right.
    SetForward {
        server: usize,
    },
    /// Something goes wrong, perhaps.
    Trouble,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: Moment,
    pub(crate) random: Random,
    pub(crate) plan: Plan,
    pub(crate) servers: Vec<Server>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) checks: Checks,
    pub(crate) last_id: u64,
    agenda: BTreeMap<(Moment, u64), Happening>,
    steps: u64,
    tracing: bool,
}

impl World {
    /// One run; what it saw, or what was not kept.
    pub(crate) fn run(seed: u64, sabotage: Sabotage, tracing: bool) -> Result<Stats, Violation> {
        let mut random = Random::new(seed);
        let plan = Plan::new(&mut random, sabotage);
        let mut world = Self::new(plan, random, tracing);
        world.begin();
        world.advance(world.plan.chaos);
        world.ended()
    }

    pub(crate) fn ended(mut self) -> Result<Stats, Violation> {
        self.end();
        match self.checks.violation {
            Some(violation) => Err(violation),
            None => Ok(self.checks.stats),
        }
    }

    pub(crate) fn new(plan: Plan, mut random: Random, tracing: bool) -> Self {
        let hosts = (0..plan.hosts)
            .map(|id| Host::new(&plan, &mut random, id))
            .collect();
        let world = Self {
            now: 0,
            random,
            servers: plan.clocks.iter().copied().map(Server::new).collect(),
            plan,
            hosts,
            checks: Checks::default(),
            last_id: 0,
            agenda: BTreeMap::new(),
            steps: 0,
            tracing,
        };
        world.trace(|world| format!("{:#?}", world.plan));
        world
    }

    pub(crate) fn begin(&mut self) {
        for host in 0..self.hosts.len() {
            self.restore_all(host, 30 * MILLI);
            let first = self.random.below(self.plan.pace);
            self.schedule(first, Happening::Act { host });
        }
        self.schedule(0, Happening::Trouble);
    }

    pub(crate) fn failed(&self) -> bool {
        self.checks.violation.is_some()
    }

    pub(crate) fn trace(&self, line: impl FnOnce(&Self) -> String) {
        if self.tracing {
            let (seconds, nanos) = (self.now / 1_000_000_000, self.now % 1_000_000_000);
            println!("{seconds}.{nanos:09}  {}", line(self));
        }
    }

    pub(crate) fn schedule(&mut self, at: Moment, happening: Happening) {
        self.last_id += 1;
        self.agenda
            .insert((at.max(self.now), self.last_id), happening);
    }

    /// Takes what is on its way by a connection out of the agenda.
    pub(crate) fn take_arrivals(
        &mut self,
        host: usize,
        (server, connection): (usize, u64),
    ) -> Vec<(Moment, SharedSent)> {
        let mut taken = Vec::new();
        self.agenda.retain(|(at, _), happening| match happening {
            Happening::Arrival(sent)
                if (sent.host, sent.server, sent.connection) == (host, server, connection) =>
            {
                taken.push((*at, sent.clone()));
                false
            }
            _ => true,
        });
        taken
    }

    /// What is on its way to a server is lost.
    pub(crate) fn forget_arrivals(&mut self, server: usize) {
        self.agenda.retain(|_, happening| match happening {
            Happening::Arrival(sent) => sent.server != server,
            _ => true,
        });
    }

    pub(crate) fn anything_on_its_way(&self) -> bool {
        self.agenda
            .values()
            .any(|happening| matches!(happening, Happening::Arrival(_)))
    }

    /// Lets everything happen until then, or until a promise is broken.
    pub(crate) fn advance(&mut self, until: Moment) {
        while !self.failed() && self.next_moment().is_some_and(|next| next <= until) {
            self.step();
        }
        self.now = self.now.max(until);
        self.checks.now = self.now;
    }

    fn next_moment(&self) -> Option<Moment> {
        let planned = self.agenda.keys().next().map(|(at, _)| *at);
        let wakes = self.hosts.iter().filter_map(Host::wake);
        planned.into_iter().chain(wakes).min()
    }

    fn step(&mut self) {
        let Some(next) = self.next_moment() else {
            return;
        };
        self.now = self.now.max(next);
        self.checks.now = self.now;
        self.steps += 1;
        let steps = self.steps;
        self.checks
            .ensure("progress", steps < MAX_STEPS, || format!("{steps} steps"));
        if let Some(host) = self.hosts.iter().position(|host| host.wake() == Some(next)) {
            return self.tick(host);
        }
        let Some((_, happening)) = self.agenda.pop_first() else {
            return;
        };
        match happening {
            Happening::Arrival(sent) => self.arrive(sent),
            Happening::Delivery {
                host,
                life,
                by,
                input,
            } => self.deliver(host, life, by.as_deref(), input),
            Happening::Act { host } => self.act(host),
            Happening::Resume { host } => self.resume(host),
            Happening::Restore {
                host,
                server,
                connection,
            } => self.restore(host, server, connection),
            Happening::Listen {
                host,
                life,
                server,
                connection,
            } => self.listen((host, life), (server, connection)),
            Happening::Heard {
                host,
                life,
                server,
                connection,
                input,
            } => self.heard((host, life), (server, connection), input),
            Happening::Thaw { server } => self.thaw(server),
            Happening::SetForward { server } => self.set_forward(server),
            Happening::Trouble => self.trouble(),
        }
    }
}

/// A host takes something in.
impl World {
    pub(crate) fn tick(&mut self, host: usize) {
        self.feed(host, Input::Tick);
        let host = &self.hosts[host];
        let now = host.clock.at(self.now);
        let wake = host.wake_at;
        self.checks
            .ensure("progress", wake.is_none_or(|wake| wake > now), || {
                format!("the time was told, and it is wanted again: {wake:?} at {now:?}")
            });
    }

    /// Hands an input to a host, now or when its pause is over.
    pub(crate) fn input(&mut self, host: usize, input: Input) {
        if self.hosts[host].paused {
            self.hosts[host].inbox.push_back(input);
        } else {
            self.feed(host, input);
        }
    }

    pub(crate) fn feed(&mut self, id: usize, input: Input) {
        let look = self.hosts[id].look(self.now);
        self.trace(|_| format!("host {id} at {}: {input:?}", look.now.as_nanos()));
        if let Input::Acquire { lease, wait, .. } = &input
            && *wait != Wait::Never
        {
            self.checks.asks(*lease);
        }
        self.hosts[id].engine.handle(look.now, input);
        let mut outputs = 0;
        loop {
            let output = self.hosts[id].engine.poll();
            self.trace(|_| format!("    {output:?}"));
            let book = &mut self.hosts[id].book;
            match output {
                Output::Send {
                    server,
                    request,
                    batch,
                    give_up,
                    ..
                } => self.send(id, server, (request, batch, give_up)),
                Output::Answer { call, answer } => {
                    book.completed(&mut self.checks, look, call, &answer);
                }
                Output::Event {
                    lock,
                    lease,
                    event,
                    deadline,
                } => {
                    self.before_event(id, (lock, lease), &event);
                    let book = &mut self.hosts[id].book;
                    book.event(&mut self.checks, look, (lock, lease), &event, deadline);
                }
                Output::Notice { event } => book.notice(&mut self.checks, look, &event),
                Output::Closed { lock } => book.closed(&mut self.checks, lock),
                Output::Subscribe { server } => self.subscribe(id, server),
                Output::Suspect { server, .. } => self.suspect(id, server),
                Output::Watch { .. } => {}
                Output::Wait { until } => {
                    self.hosts[id].wake_at = until;
                    break;
                }
            }
            outputs += 1;
            if outputs > MAX_OUTPUTS {
                return self
                    .checks
                    .ensure("progress", false, || format!("host {id} never ends"));
            }
        }
        let Host {
            book,
            engine,
            wake_at,
            ..
        } = &self.hosts[id];
        let known: BTreeSet<_> = engine.all_held(look.now).map(|(lease, _)| lease).collect();
        book.settled(&mut self.checks, look.now, (known, *wake_at));
        self.check_exclusion();
    }

    fn before_event(&mut self, id: usize, (lock, lease): (LockId, LeaseId), event: &LeaseEvent) {
        let book = &self.hosts[id].book;
        let contender = book.contender(lease).unwrap_or(lock);
        let Some(key) = book.locks.get(&contender).map(|lock| lock.spec.key.clone()) else {
            return;
        };
        match event {
            LeaseEvent::Acquired { token, .. } => {
                self.begins(&key, lease, *token);
                self.look_at_overtaking(id, &key, lease);
                if self.plan.calm {
                    self.check_order(id, lease);
                }
            }
            LeaseEvent::Lost { .. } if self.plan.sabotage == Sabotage::LatestDeadline => {
                self.lingers(id, &key, lease);
            }
            _ => {}
        }
    }

    /// I5: nothing is asked for leases that are over.
    pub(crate) fn check_sent(&mut self, host: usize, op: &Op) {
        let Command::Acquire(acquire) = &op.command else {
            return;
        };
        let book = &self.hosts[host].book;
        let whole = book.whole(acquire.claim.lease);
        let over = whole.is_some_and(|lease| book.ended.contains(&lease));
        self.checks.ensure("I5", !over, || {
            format!("host {host} asks again for {acquire:?}")
        });
    }
}

/// What is where.
impl World {
    /// All have every name, and tell of every name.
    #[expect(
        clippy::unused_self,
        reason = "the other simulation may have a cluster"
    )]
    pub(crate) fn is_cluster(&self) -> bool {
        false
    }

    pub(crate) fn stored(&self, server: usize, key: &LockKey) -> Option<(LeaseId, FencingToken)> {
        let server = &self.servers[server];
        let tenure = server.store.tenure(server.clock.at(self.now), key)?;
        Some((tenure.lease, tenure.token))
    }

    /// By which number a host knows a server.
    pub(crate) fn name_of(&self, host: usize, server: usize) -> ServerId {
        let mut list = self.hosts[host].list.iter();
        let place = list.position(|listed| *listed == server);
        ServerId(
            place
                .and_then(|place| u32::try_from(place).ok())
                .unwrap_or(u32::MAX),
        )
    }

    pub(crate) fn index_of(&self, host: usize, server: ServerId) -> Option<usize> {
        let place = usize::try_from(server.0).ok()?;
        self.hosts[host].list.get(place).copied()
    }
}
