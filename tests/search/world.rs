//! A small world: a few engines, one in-memory server, and everything that is under way between them.

use std::fmt;
use std::time::Duration;

use leasehold_engine::engine::{Input, ServerId};
use leasehold_engine::protocol::{BatchReply, Counter, Op, Push, Reply};
use leasehold_engine::testing::{FAR, Host, LOCK, Net, Pushes, Sent, key, kind, ms, place};
use leasehold_engine::time::Timestamp;

use crate::checks::{Checks, Held, Stored, Violation};
use crate::faults::{Fault, Forged};
use crate::program::{Client, client_id, engine};

pub(crate) const TTL: Duration = ms(2_000);
pub(crate) const TIMEOUT: Duration = ms(1_000);

/// The bounds of a world. Everything within them is searched.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Plan {
    /// One server, or the servers of a quorum. Those of a quorum have clocks of different speeds.
    pub(crate) servers: usize,
    pub(crate) clients: usize,
    /// The acquisitions of each client.
    pub(crate) calls: u8,
    /// True if a client may also ask without waiting.
    pub(crate) tries: bool,
    /// True if the watchdog renews leases.
    pub(crate) renews: bool,
    /// How far time may pass at once, in milliseconds.
    pub(crate) steps: &'static [u64],
    /// How often time may pass.
    pub(crate) passes: u8,
    pub(crate) wakes: Wakes,
    /// How many requests the network may repeat.
    pub(crate) repeats: u8,
    pub(crate) cancels: u8,
    pub(crate) crashes: u8,
    /// How often a server may lose its data. If there is no other one, exclusion is not checked after that.
    pub(crate) flushes: u8,
    /// How much faster than the clients' clocks the server's clock is, in parts per million. At a quorum, the second
    /// server's clock is as much slower, and the third one's is neither.
    pub(crate) faster: i64,
    /// True if clients hear pushes.
    pub(crate) hears: bool,
    pub(crate) fault: Fault,
    /// The greatest number of actions.
    pub(crate) depth: usize,
}

/// When engines hear of the time that passes in a step.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Wakes {
    /// At the times that they asked for.
    InTime,
    AtTheEnd,
}

/// One action of a program, the network, the server or time.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    Acquire {
        client: usize,
        waits: bool,
    },
    Release {
        client: usize,
    },
    Cancel {
        client: usize,
    },
    Crash {
        client: usize,
    },
    /// The server executes a request; any may be the next one. A request that it never executes is lost.
    Execute {
        request: usize,
    },
    /// The server executes a request, and the network keeps a copy, which the server may execute later.
    Repeat {
        request: usize,
    },
    /// A reply arrives. One that never does is lost.
    Reply {
        reply: usize,
    },
    /// A push arrives. One that never does is lost.
    Push {
        push: usize,
    },
    Pass {
        millis: u64,
    },
    Flush {
        server: usize,
    },
}

/// A request on its way to the server.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) sent: Sent,
    /// True if nobody awaits the reply: the network made this copy, or the client crashed.
    pub(crate) orphan: bool,
}

pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) host: Host,
    pub(crate) clients: Vec<Client>,
    pub(crate) requests: Vec<Request>,
    pub(crate) replies: Vec<(Sent, BatchReply)>,
    /// The pushes under way, each with its receiver and its server.
    pub(crate) pushes: Vec<(usize, ServerId, Push)>,
    pub(crate) checks: Checks,
    pub(crate) forged: Forged,
    /// How many more of these may happen: passes, repeats, cancels, crashes, flushes.
    pub(crate) left: [u8; 5],
    /// The story so far, if somebody reads it.
    pub(crate) story: Option<Vec<String>>,
}

const PASSES: usize = 0;
const REPEATS: usize = 1;
const CANCELS: usize = 2;
pub(crate) const CRASHES: usize = 3;
const FLUSHES: usize = 4;

impl World {
    pub(crate) fn new(plan: Plan, tells: bool) -> Self {
        let mut host = Host::of_servers(plan.servers);
        host.ahead = vec![1_000_000_000; plan.servers];
        host.reentrant = false;
        (host.ttl, host.fixed) = (TTL, !plan.renews);
        host.subscribes = plan.hears;
        host.pushes = Pushes::Hold;
        host.counter = Counter::ClockFloor {
            retention: Duration::from_secs(86_400),
        };
        let left = [
            plan.passes,
            plan.repeats,
            plan.cancels,
            plan.crashes,
            plan.flushes,
        ];
        let mut world = Self {
            plan,
            host,
            clients: Vec::new(),
            requests: Vec::new(),
            replies: Vec::new(),
            pushes: Vec::new(),
            checks: Checks::of(plan.servers),
            forged: Forged::default(),
            left,
            story: tells.then(Vec::new),
        };
        for client in 0..plan.clients {
            let id = client_id(client, 0);
            let engine = engine(id, plan.servers);
            world.host.join(id, engine, name(client));
            world.clients.push(Client::default());
            world.connect(client);
        }
        if world.is_quorum() {
            world.enter();
        }
        world
    }

    pub(crate) fn is_quorum(&self) -> bool {
        self.plan.servers > 1
    }

    /// Connects a client and tells it the servers' clocks, all at once.
    pub(crate) fn connect(&mut self, client: usize) {
        let now = self.host.now;
        self.host.net = Net::Up;
        self.host.back = FAR;
        for server in 0..self.plan.servers {
            self.host.at(client).connect(server);
        }
        self.host.back = Duration::ZERO;
        self.host.net = Net::Hold;
        self.host.now = self.host.now.max(now);
        self.host.forget();
    }

    /// Has each client use the quorum once, so that the servers know one another.
    fn enter(&mut self) {
        self.host.net = Net::Up;
        for client in 0..self.plan.clients {
            let lease = self.host.at(client).hold(LOCK).lease;
            self.host.at(client).release(lease);
        }
        for server in &mut self.host.servers {
            server.delete(&key(LOCK));
        }
        self.host.net = Net::Hold;
        self.host.forget();
    }

    /// Returns the actions that are possible now.
    pub(crate) fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        for (client, state) in self.clients.iter().enumerate() {
            let idle = state.asking.is_none() && state.held.is_none();
            // Clients are alike, so they begin in the order of their names.
            let may_begin = client == 0 || self.clients[client - 1].calls > 0;
            if idle && may_begin && state.calls < self.plan.calls {
                actions.push(Action::Acquire {
                    client,
                    waits: true,
                });
                if self.plan.tries {
                    let waits = false;
                    actions.push(Action::Acquire { client, waits });
                }
            }
            if state.held.as_ref().is_some_and(|held| !held.lost) {
                actions.push(Action::Release { client });
            }
            if state.asking.is_some() && self.left[CANCELS] > 0 {
                actions.push(Action::Cancel { client });
            }
            if state.calls > 0 && self.left[CRASHES] > 0 {
                actions.push(Action::Crash { client });
            }
        }
        for (request, Request { orphan, .. }) in self.requests.iter().enumerate() {
            actions.push(Action::Execute { request });
            if self.left[REPEATS] > 0 && !orphan {
                actions.push(Action::Repeat { request });
            }
        }
        actions.extend((0..self.replies.len()).map(|reply| Action::Reply { reply }));
        actions.extend((0..self.pushes.len()).map(|push| Action::Push { push }));
        if self.left[PASSES] > 0 {
            let steps = self.plan.steps.iter();
            actions.extend(steps.map(|millis| Action::Pass { millis: *millis }));
        }
        if self.left[FLUSHES] > 0 {
            let servers = 0..self.plan.servers;
            actions.extend(servers.map(|server| Action::Flush { server }));
        }
        actions
    }

    /// Does an action, and checks every promise.
    pub(crate) fn apply(&mut self, action: Action) -> Result<(), Violation> {
        match action {
            Action::Acquire { client, waits } => self.acquire(client, waits),
            Action::Release { client } => self.release(client),
            Action::Cancel { client } => {
                self.left[CANCELS] -= 1;
                let asking = self.clients[client].asking.take();
                let (call, lease) = asking.expect("only what was asked is cancelled");
                self.tell(|| format!("client {} gives up", name(client)));
                let of = Some((LOCK, lease));
                self.input(client, Input::Cancel { call, of });
            }
            Action::Crash { client } => self.crash(client),
            Action::Execute { request } => {
                let request = self.requests.remove(request);
                self.execute(request)?;
            }
            Action::Repeat { request } => {
                self.left[REPEATS] -= 1;
                let request = self.requests[request].clone();
                let again = self.requests.iter_mut();
                let mut again = again.filter(|one| one.sent.request == request.sent.request);
                let same = again.find(|one| one.sent.locker == request.sent.locker);
                same.expect("the request is under way").orphan = true;
                self.tell(|| "the network repeats the next request".to_owned());
                self.execute(request)?;
            }
            Action::Reply { reply } => {
                let (sent, reply) = self.replies.remove(reply);
                self.tell(|| format!("the reply to {} arrives", about(&sent)));
                self.host.reply(&sent, Ok(reply));
            }
            Action::Push { push } => {
                let (to, server, push) = self.pushes.remove(push);
                self.tell(|| format!("the push to {} arrives", name(to)));
                let server = Some(server);
                self.input(to, Input::Push { server, push });
            }
            Action::Pass { millis } => {
                self.left[PASSES] -= 1;
                self.tell(|| format!("time passes: {millis} ms"));
                self.pass(ms(millis))?;
            }
            Action::Flush { server } => {
                self.left[FLUSHES] -= 1;
                let which = self.named(server);
                self.tell(|| format!("{which} loses its data"));
                let is_fault = self.plan.fault == Fault::DataLost;
                if is_fault && self.is_quorum() {
                    self.host.servers[server].delete(&key(LOCK));
                } else {
                    self.host.servers[server].flush();
                }
                self.checks.flushed(!self.is_quorum() && !is_fault);
                // The one assumption of I2: the clock is ahead of the last token.
                self.move_to(self.host.now + ms(1));
            }
        }
        self.settle()
    }

    /// Executes a request at the server.
    pub(crate) fn execute(&mut self, request: Request) -> Result<(), Violation> {
        let Request { sent, orphan } = request;
        let server = place(sent.server);
        let now = self.host.time(server);
        let before = self.stored(server);
        let reply = self.serve(server, &sent.batch);
        let after = self.stored(server);
        let replies: Vec<_> = reply.replies.iter().map(shown).collect();
        let late = if orphan { ", a copy" } else { "" };
        let which = self.named(server);
        self.tell(|| {
            format!(
                "{which} executes {}{late}: {}",
                about(&sent),
                replies.join(", ")
            )
        });
        for (client, push) in self.host.servers[server].take_pushes() {
            let push = self.pushed(push);
            let to = self.host.lockers.iter().position(|to| to.client == client);
            if let Some(to) = to {
                self.tell(|| format!("{which} sends a push to {}", name(to)));
                self.pushes.push((to, sent.server, push));
            }
        }
        let is_over = self.host.now > sent.give_up;
        let (at, batch) = ((server, now, is_over), &sent.batch);
        let result = self.checks.executed(at, batch, &reply, (before, after));
        if !orphan {
            self.replies.push((sent, reply));
        }
        result
    }

    /// Returns what a server has of the name.
    pub(crate) fn stored(&self, server: usize) -> Stored {
        let (now, key) = (self.host.time(server), key(LOCK));
        let server = &self.host.servers[server];
        let tenure = server.tenure(now, &key);
        Stored {
            tenure: tenure.map(|tenure| (tenure.lease, tenure.token.get())),
            expires: tenure.map(|tenure| tenure.expires),
            line: server
                .line_value(now, &key)
                .map(|(line, _)| line)
                .unwrap_or_default(),
        }
    }

    /// Lets time pass, with each tick that an engine asked for.
    pub(crate) fn pass(&mut self, time: Duration) -> Result<(), Violation> {
        let until = self.host.now + time;
        if self.plan.wakes == Wakes::AtTheEnd {
            self.move_to(until);
        }
        let late = match self.plan.fault {
            Fault::TicksLate => ms(500),
            _ => Duration::ZERO,
        };
        loop {
            let wakes = self.host.lockers.iter().filter_map(|locker| locker.wake);
            let first = wakes.min().map(|at| at + late).filter(|at| *at <= until);
            let Some(at) = first else { break };
            self.move_to(at.max(self.host.now));
            for client in 0..self.clients.len() {
                let wake = self.host.lockers[client].wake;
                if wake.is_some_and(|at| at + late <= self.host.now) {
                    self.input(client, Input::Tick);
                }
            }
            self.settle()?;
        }
        self.move_to(until);
        self.settle()
    }

    fn move_to(&mut self, at: Timestamp) {
        let time = at.since(self.host.now);
        let micros = i64::try_from(time.as_micros()).expect("a step is short");
        let faster = micros * self.plan.faster / 1_000_000;
        for (ahead, faster) in self.host.ahead.iter_mut().zip([faster, -faster, 0]) {
            *ahead = ahead.saturating_add_signed(faster);
        }
        self.host.sleep(time);
    }

    /// Names a server for a story.
    fn named(&self, server: usize) -> &'static str {
        if self.is_quorum() {
            ["server 1", "server 2", "server 3"][server]
        } else {
            "the server"
        }
    }

    pub(crate) fn input(&mut self, client: usize, input: Input) {
        self.host.at(client).input(input);
    }

    /// Takes what the engines sent and told, and checks the leases.
    pub(crate) fn settle(&mut self) -> Result<(), Violation> {
        for sent in std::mem::take(&mut self.host.pending) {
            self.tell(|| format!("client {} sends {}", name(sent.locker), about(&sent)));
            let orphan = false;
            self.requests.push(Request { sent, orphan });
        }
        for client in 0..self.clients.len() {
            for told in std::mem::take(&mut self.host.lockers[client].events) {
                self.told(client, &told.event, told.deadline)?;
            }
        }
        for (call, (_, answer)) in std::mem::take(&mut self.host.done) {
            let asks = |client: &Client| client.asking.is_some_and(|(asked, _)| asked == call);
            if let Some(client) = self.clients.iter().position(asks) {
                self.answered(client, &answer)?;
            }
        }
        let host = &mut self.host;
        host.log.clear();
        host.reads.clear();
        host.suspected.clear();
        host.asked_to_subscribe.clear();
        for locker in &mut host.lockers {
            locker.notices.clear();
        }
        self.checks.leases(self.host.now, &self.clients)?;
        for client in &mut self.clients {
            let is_over = |held: &Held| held.lost && held.until <= self.host.now;
            if client.held.as_ref().is_some_and(is_over) {
                client.held = None;
            }
        }
        Ok(())
    }

    pub(crate) fn tell(&mut self, what: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(what());
        }
    }
}

pub(crate) fn name(client: usize) -> &'static str {
    ["A", "B", "C"][client]
}

/// Names a request for a story.
fn about(sent: &Sent) -> String {
    let kinds: Vec<_> = sent.batch.iter().map(|op: &Op| kind(&op.command)).collect();
    let kinds = if kinds.is_empty() {
        "clock".to_owned()
    } else {
        kinds.join("+")
    };
    format!("{}'s {kinds} {}", name(sent.locker), sent.request.0)
}

/// Returns a reply in few words, of which the first is its kind.
pub(crate) fn shown(reply: &Result<Reply, impl fmt::Display>) -> String {
    match reply {
        Ok(Reply::Busy { place, .. }) => match place {
            Some(place) => format!("busy, place {place}"),
            None => "busy".to_owned(),
        },
        Ok(Reply::Held(grant)) => format!("held, token {}", grant.token),
        Ok(reply) => {
            let text = format!("{reply:?}");
            let end = text.find([' ', '(']).unwrap_or(text.len());
            text[..end].to_lowercase()
        }
        Err(error) => error.to_string(),
    }
}
