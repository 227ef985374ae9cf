//! The run: true time, the schedule of events, and the hosts that take them in.

use std::collections::BTreeMap;

use leasehold_engine::LeaseEvent;
use leasehold_engine::engine::{Input, Output, Wait};
use leasehold_engine::protocol::{ClientId, LeaseId, LockKey};

use crate::ages::Kept;
use crate::book::Look;
use crate::checks::Checks;
use crate::clock::{MILLI, Moment};
use crate::drain::{Idle, Offer};
use crate::host::{Host, SharedSent};
use crate::plan::Plan;
use crate::random::Random;
use crate::sabotage::Sabotage;
use crate::servers::Server;
use crate::stats::{Stats, Violation};

/// Bounds beyond any run's needs: the steps of a run, and the outputs of one step.
const MAX_STEPS: u64 = 200_000;
const MAX_OUTPUTS: u32 = 5_000;

/// A process: its host, and how often that host has crashed.
pub(crate) type Process = (usize, u64);

#[derive(Debug)]
pub(crate) enum Happening {
    /// A batch reaches a server.
    Arrival(SharedSent),
    /// The batch reaches the server once more.
    Again(SharedSent),
    /// An input reaches a process; if it came by a connection, only while that connection is the current one.
    Delivery(Process, Option<SharedSent>, Input),
    /// A host's program does something.
    Act(usize),
    /// A host's pause is over.
    Resume(usize),
    /// A host's connection to a server breaks, if it is still this one.
    Cut(usize, usize, u64),
    /// A host's connection to a server is made again, if it is still the one that broke.
    Restore(usize, usize, u64),
    /// One of a process's subscriptions is made.
    Listen(Process, usize),
    /// A message arrives on a process's subscription, if that still has this connection.
    Heard(Process, (usize, u64), Input),
    /// A server notices that a client's subscription is over.
    Forget(ClientId, usize),
    /// A process learns where a slot is.
    Learn(Process, u16),
    /// A lease that was given up must be gone.
    Gone(LockKey, LeaseId),
    /// A lease that was handed the lock must know.
    TakenUp(LockKey, Offer),
    /// A host's lease must have the lock for its time to live from this moment.
    Confirmed(usize, LeaseId, Moment),
    /// The holder of this lease must know of its loss at this moment.
    TakenAway(Offer, Moment),
    /// A frozen server goes on.
    Thaw(usize),
    /// The clock of a server that began late is set right.
    SetForward(usize),
    /// Something may go wrong.
    Trouble,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: Moment,
    pub(crate) random: Random,
    pub(crate) plan: Plan,
    pub(crate) servers: Vec<Server>,
    /// The slots that have moved, and where.
    pub(crate) moved: BTreeMap<u16, usize>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) checks: Checks,
    pub(crate) last_id: u64,
    /// Since when nothing goes wrong and every waiter must be served at once.
    pub(crate) calm_since: Option<Moment>,
    pub(crate) idle: BTreeMap<LockKey, Idle>,
    pub(crate) offers: BTreeMap<LockKey, Offer>,
    /// The parts that were handed over and are not taken up yet.
    pub(crate) part_offers: Vec<(LockKey, Offer)>,
    /// The names that stay taken after a release.
    pub(crate) kept: BTreeMap<LockKey, Kept>,
    /// The number of commands that the servers executed.
    pub(crate) executed: u64,
    schedule: BTreeMap<(Moment, u64), Happening>,
    steps: u64,
    tracing: bool,
}

impl World {
    /// Does one run. Returns what it saw, or the broken promise.
    pub(crate) fn run(
        plan: fn(&mut Random, Sabotage) -> Plan,
        seed: u64,
        sabotage: Sabotage,
        tracing: bool,
    ) -> Result<Stats, Violation> {
        let mut random = Random::new(seed);
        let plan = plan(&mut random, sabotage);
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
            calm_since: plan.is_prompt().then_some(0),
            plan,
            hosts,
            checks: Checks::default(),
            last_id: 0,
            idle: BTreeMap::new(),
            offers: BTreeMap::new(),
            part_offers: Vec::new(),
            kept: BTreeMap::new(),
            executed: 0,
            schedule: BTreeMap::new(),
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
            self.restore_all(host, 30 * MILLI);
            let first = self.random.below(self.plan.pace);
            self.schedule(first, Happening::Act(host));
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
        self.schedule
            .insert((at.max(self.now), self.last_id), happening);
    }

    pub(crate) fn process(&self, host: usize) -> Process {
        (host, self.hosts[host].life)
    }

    /// Removes the messages in flight on a connection from the schedule.
    pub(crate) fn take_arrivals(
        &mut self,
        host: usize,
        (server, connection): (usize, u64),
    ) -> Vec<(Moment, SharedSent)> {
        let mut taken = Vec::new();
        self.schedule.retain(|(at, _), happening| match happening {
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

    /// Loses the messages in flight to a server.
    pub(crate) fn forget_arrivals(&mut self, server: usize) {
        self.schedule.retain(|_, happening| match happening {
            Happening::Arrival(sent) | Happening::Again(sent) => sent.server != server,
            _ => true,
        });
    }

    pub(crate) fn anything_on_its_way(&self) -> bool {
        self.schedule
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
        let schedule = self.schedule.first_key_value().map(|((at, _), _)| *at);
        wakes.chain(schedule).min()
    }

    /// Does the next scheduled event.
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
        let Some((_, happening)) = self.schedule.pop_first() else {
            return;
        };
        match happening {
            Happening::Arrival(sent) => self.arrive(sent),
            Happening::Again(sent) => self.arrive_again(&sent),
            Happening::Delivery(process, by, input) => self.deliver(process, by, input),
            Happening::Act(host) => self.act(host),
            Happening::Resume(host) => self.resume(host),
            Happening::Cut(host, server, connection) => self.cut(host, server, connection),
            Happening::Restore(host, server, connection) => self.restore(host, server, connection),
            Happening::Listen(process, subscription) => self.listen(process, subscription),
            Happening::Heard(process, subscription, input) => {
                self.heard(process, subscription, input);
            }
            Happening::Forget(client, server) => self.forget_listener(client, server),
            Happening::Learn(process, slot) => self.learn(process, slot),
            Happening::Gone(key, lease) => self.check_gone(&key, lease),
            Happening::TakenUp(key, offer) => self.check_taken_up(&key, offer),
            Happening::Confirmed(host, lease, since) => self.check_confirmed(host, lease, since),
            Happening::TakenAway(lost, since) => self.check_taken_away(lost, since),
            Happening::Thaw(server) => self.thaw(server),
            Happening::SetForward(server) => self.set_forward(server),
            Happening::Trouble => self.trouble(),
        }
    }
}

/// The inputs of a host.
impl World {
    pub(crate) fn tick(&mut self, host: usize) {
        self.feed(host, Input::Tick);
        let host = &self.hosts[host];
        let now = host.clock.at(self.now);
        let wake = host.wake_at;
        self.checks
            .ensure("progress", wake.is_none_or(|wake| wake > now), || {
                format!("the engine got the time {now:?} and asks for the earlier {wake:?}")
            });
    }

    /// Hands an input to a host, now or when its pause is over.
    pub(crate) fn input(&mut self, host: usize, input: Input) {
        if let Input::Connected { server } | Input::Disconnected { server, .. } = &input
            && let Some(server) = self.index_of(host, *server)
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
            if let Output::Wait { until } = output {
                self.hosts[id].wake_at = until;
                break;
            }
            self.take(id, look, output);
            outputs += 1;
            if outputs > MAX_OUTPUTS {
                return self.checks.ensure("progress", false, || {
                    format!("host {id} never stops producing outputs")
                });
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

    /// Notes what an engine knows from now on.
    fn note(&mut self, id: usize, input: &Input) {
        match input {
            Input::Connected { server } | Input::Disconnected { server, .. } => {
                if let Some(server) = self.index_of(id, *server) {
                    let link = &mut self.hosts[id].links[server];
                    link.told_down = matches!(input, Input::Disconnected { .. });
                    link.told += 1;
                }
            }
            Input::Slots { slots, server } => {
                self.hosts[id].routes.learn(slots.clone(), *server);
            }
            Input::Acquire { lease, wait, .. } if *wait != Wait::Never => self.checks.asks(*lease),
            _ => {}
        }
    }

    /// Does what an engine's output asks for.
    fn take(&mut self, id: usize, look: Look, output: Output) {
        if let Output::Event {
            lock, lease, event, ..
        } = &output
            && self.plan.is_quorum()
        {
            self.before_event(id, (*lock, *lease), event);
        }
        let Host { book, readers, .. } = &mut self.hosts[id];
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
                readers.publish(lock, lease, &event);
                book.event(&mut self.checks, look, (lock, lease), &event, deadline);
                if let LeaseEvent::Acquired { .. } = event {
                    self.watch_acquired(id, lease);
                }
            }
            Output::Notice { event } => book.notice(&mut self.checks, look, &event),
            Output::Closed { lock } => book.closed(&mut self.checks, lock),
            Output::Subscribe { server } => self.subscribe(id, server),
            Output::Suspect { server, .. } => self.suspect(id, server),
            Output::Watch { keys, .. } => self.watch(id, keys),
            Output::Wait { .. } => {}
        }
    }
}
