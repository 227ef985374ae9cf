//! The run: true time, what happens when, and the hosts that take it in.

use std::collections::BTreeMap;

use leasehold::LeaseEvent;
use leasehold::engine::{Input, Output};
use leasehold::protocol::{ClientId, Command, LeaseId, LockKey, Op, Reclaim};
use leasehold::time::ServerTime;

use crate::book::Call;
use crate::checks::{Checks, Valid};
use crate::clock::Moment;
use crate::drain::{Idle, Offer};
use crate::host::{Host, SharedSent};
use crate::plan::{Plan, Sabotage};
use crate::random::Random;
use crate::servers::Server;
use crate::stats::{Stats, Violation};

/// More steps, or more outputs of one step, than any run needs.
const MAX_STEPS: u64 = 200_000;
const MAX_OUTPUTS: u32 = 5_000;

#[derive(Debug)]
pub(crate) enum Happening {
    /// A batch reaches the server.
    Arrival(SharedSent),
    /// The same batch reaches it once more.
    Again(SharedSent),
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
    /// A connection is lost, if it is still this one.
    Cut {
        host: usize,
        server: usize,
        connection: u64,
    },
    /// A connection is made again, if it is still the one that was lost.
    Restore {
        host: usize,
        server: usize,
        connection: u64,
    },
    /// A host's subscription is there.
    Listen {
        host: usize,
        life: u64,
    },
    /// Something comes on a host's subscription, if it is still this one.
    Heard {
        host: usize,
        life: u64,
        connection: u64,
        input: Input,
    },
    /// A server notices that a subscription is over.
    Forget {
        client: ClientId,
        server: usize,
    },
    /// A host is told where a slot is.
    Learn {
        host: usize,
        life: u64,
        slot: u16,
    },
    /// Whoever gave up must be gone.
    Gone {
        key: LockKey,
        lease: LeaseId,
    },
    /// Whoever was handed the lock must know.
    TakenUp {
        key: LockKey,
        offer: Offer,
    },
    /// Whoever was told that it has the lock must have it for its time to live.
    Confirmed {
        host: usize,
        lease: LeaseId,
        since: Moment,
    },
    /// Whoever had the lock must know that it was taken away.
    TakenAway {
        lost: Offer,
        since: Moment,
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
    /// The slots that are elsewhere than in the beginning, and where.
    pub(crate) moved: BTreeMap<u16, usize>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) checks: Checks,
    pub(crate) last_id: u64,
    /// Since when nothing goes wrong and everybody must be served.
    pub(crate) calm_since: Option<Moment>,
    pub(crate) idle: BTreeMap<LockKey, Idle>,
    pub(crate) offers: BTreeMap<LockKey, Offer>,
    /// How many commands the servers executed.
    pub(crate) executed: u64,
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
        world.end();
        world.result()
    }

    pub(crate) fn new(plan: Plan, mut random: Random, tracing: bool) -> Self {
        let hosts = (0..plan.hosts)
            .map(|id| Host::new(&plan, &mut random, id))
            .collect();
        let world = Self {
            now: 0,
            random,
            servers: plan.clocks.iter().copied().map(Server::new).collect(),
            moved: BTreeMap::new(),
            calm_since: plan.calm.then_some(0),
            plan,
            hosts,
            checks: Checks::default(),
            last_id: 0,
            idle: BTreeMap::new(),
            offers: BTreeMap::new(),
            executed: 0,
            agenda: BTreeMap::new(),
            steps: 0,
            tracing,
        };
        world.trace(|world| format!("{:#?}", world.plan));
        world
    }

    pub(crate) fn result(self) -> Result<Stats, Violation> {
        match self.checks.violation {
            Some(violation) => Err(violation),
            None => Ok(self.checks.stats),
        }
    }

    pub(crate) fn begin(&mut self) {
        for host in 0..self.hosts.len() {
            self.restore_all(host, 30 * crate::clock::MILLI);
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

    pub(crate) fn forget_arrivals(&mut self, server: usize) {
        self.agenda.retain(|_, happening| match happening {
            Happening::Arrival(sent) | Happening::Again(sent) => sent.server != server,
            _ => true,
        });
    }

    pub(crate) fn anything_on_its_way(&self) -> bool {
        self.agenda
            .values()
            .any(|happening| matches!(happening, Happening::Arrival(_) | Happening::Again(_)))
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
        let wakes = self.hosts.iter().filter_map(Host::wake);
        let agenda = self.agenda.first_key_value().map(|((at, _), _)| *at);
        wakes.chain(agenda).min()
    }

    /// The next thing that happens.
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
        let Some(((_, _), happening)) = self.agenda.pop_first() else {
            return;
        };
        match happening {
            Happening::Arrival(sent) => self.arrive(&sent),
            Happening::Again(sent) => self.arrive_again(&sent),
            Happening::Delivery {
                host,
                life,
                by,
                input,
            } => self.deliver(host, life, by, input),
            Happening::Act { host } => self.act(host),
            Happening::Resume { host } => self.resume(host),
            Happening::Cut {
                host,
                server,
                connection,
            } => self.cut(host, server, connection),
            Happening::Restore {
                host,
                server,
                connection,
            } => self.restore(host, server, connection),
            Happening::Listen { host, life } => self.listen(host, life),
            Happening::Heard {
                host,
                life,
                connection,
                input,
            } => self.heard(host, life, connection, input),
            Happening::Forget { client, server } => self.forget_listener(client, server),
            Happening::Learn { host, life, slot } => self.learn(host, life, slot),
            Happening::Gone { key, lease } => self.check_gone(&key, lease),
            Happening::TakenUp { key, offer } => self.check_taken_up(&key, offer),
            Happening::Confirmed { host, lease, since } => self.check_confirmed(host, lease, since),
            Happening::TakenAway { lost, since } => self.check_taken_away(lost, since),
            Happening::Trouble => self.trouble(),
        }
    }

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
        if let Input::Connected { server } | Input::Disconnected { server, .. } = &input
            && let Some(server) = self.index_of(*server)
        {
            self.hosts[host].links[server].changes += 1;
        }
        if self.hosts[host].paused {
            self.hosts[host].inbox.push_back(input);
        } else {
            self.feed(host, input);
        }
    }

    pub(crate) fn feed(&mut self, id: usize, input: Input) {
        let look = self.hosts[id].look(self.now);
        self.trace(|_| format!("host {id} at {}: {input:?}", look.now.as_nanos()));
        self.note(id, &input);
        self.hosts[id].fed += 1;
        self.hosts[id].engine.handle(look.now, input);
        let mut outputs = 0;
        loop {
            let output = self.hosts[id].engine.poll();
            self.trace(|_| format!("    {output:?}"));
            let Host { book, readers, .. } = &mut self.hosts[id];
            match output {
                Output::Send {
                    server,
                    request,
                    batch,
                    give_up,
                    ..
                } => {
                    self.send(id, server, request, batch, give_up);
                }
                Output::Answer { call, answer } => {
                    book.completed(&mut self.checks, look, call, &answer);
                }
                Output::Event {
                    lock,
                    lease,
                    event,
                    deadline,
                } => {
                    readers.publish(lock, lease, &event);
                    book.event(&mut self.checks, look, (lock, lease), &event, deadline);
                    if let LeaseEvent::Acquired { .. } = event {
                        self.watch_acquired(id, lease);
                    }
                }
                Output::Notice { event } => book.notice(&mut self.checks, look, &event),
                Output::Closed { lock } => book.closed(&mut self.checks, lock),
                Output::Subscribe { server } => self.subscribe(id, server),
                Output::Suspect { .. } => {}
                Output::Watch { keys, .. } => self.watch(id, keys),
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
            readers,
            ..
        } = &mut self.hosts[id];
        let known = engine.all_held(look.now).map(|(lease, _)| lease);
        book.settled(&mut self.checks, look.now, (known.collect(), *wake_at));
        readers.keep_up(&mut self.checks, engine, look.now);
        self.check_exclusion(id);
        self.watch_leaving(id);
    }

    /// What an engine knows from now on.
    fn note(&mut self, id: usize, input: &Input) {
        if let Input::Connected { server } | Input::Disconnected { server, .. } = input
            && let Some(server) = self.index_of(*server)
        {
            let link = &mut self.hosts[id].links[server];
            link.told_down = matches!(input, Input::Disconnected { .. });
            link.told += 1;
        }
        if let Input::Slots { slots, server } = input {
            self.hosts[id].routes.learn(slots.clone(), *server);
        }
    }

    /// I1, of one host's leases with everybody else's. Only a lease's beginning can break it, and
    /// that is somebody's step.
    fn check_exclusion(&mut self, host: usize) {
        let mut of_key = BTreeMap::<_, Vec<_>>::new();
        for (key, lease) in (0..self.hosts.len()).flat_map(|host| self.valid_leases(host)) {
            of_key.entry(key).or_default().push(lease);
        }
        for (key, mut leases) in of_key {
            leases.sort_by_key(|lease| lease.token);
            let newer = leases.iter().enumerate();
            let pairs =
                newer.flat_map(|(place, new)| leases[..place].iter().map(|old| (*old, *new)));
            for (old, new) in pairs.filter(|(old, new)| [old.host, new.host].contains(&host)) {
                self.meet(&key, old, new);
            }
        }
    }

    fn meet(&mut self, key: &LockKey, old: Valid, new: Valid) {
        let book = &self.hosts[old.host].book;
        let lock = book.locks.get(&old.lock);
        let held = lock.and_then(|lock| lock.held.as_ref());
        if held.is_some_and(|held| self.checks.nobody_could_know(book, held)) {
            self.checks
                .saw("two leases at once before slewing was noticed");
        } else {
            self.checks.both_valid(key, old, new);
        }
    }

    fn valid_leases(&self, id: usize) -> impl Iterator<Item = (LockKey, Valid)> + '_ {
        let host = &self.hosts[id];
        let now = host.clock.at(self.now);
        let ignored = self.plan.sabotage == Sabotage::DeadlinesIgnored;
        host.book.locks.iter().filter_map(move |(lock, state)| {
            let held = state.held.as_ref()?;
            let more = if ignored {
                state.spec.ttl
            } else {
                std::time::Duration::ZERO
            };
            let valid = Valid {
                host: id,
                lock: *lock,
                token: held.token,
            };
            (now < held.deadline + more).then(|| (state.spec.key.clone(), valid))
        })
    }

    /// I5: what is sent for leases that are over; I6: or for queries that nobody waits for.
    pub(crate) fn check_sent(&mut self, host: usize, op: &Op) {
        let command = &op.command;
        // Too late by any clock: it does nothing but tell the time of the server that has the keys.
        let probes = op.not_after == ServerTime::from_micros(0);
        if probes && self.is_cluster() && matches!(command, Command::Inspect(_)) {
            return self.checks.saw("a server's clock was asked for");
        }
        if let Command::ForceRelease(_) | Command::Inspect(_) | Command::List(_) = command {
            let calls = &self.hosts[host].book.calls;
            let wanted = calls.values().any(|pending| pending.call == Call::Query);
            return self.checks.ensure("I6", wanted, || {
                format!("nobody waits for what host {host} sends: {command:?}")
            });
        }
        let Command::Acquire(acquire) = command else {
            return;
        };
        if acquire.reclaims != Reclaim::Ask {
            let first = self.checks.answered.entry(acquire.claim.lease);
            first.or_insert(self.now);
        }
        let over = self.hosts[host].book.ended.contains(&acquire.claim.lease);
        self.checks.ensure("I5", !over, || {
            format!("host {host} asks again for {acquire:?}")
        });
    }
}
