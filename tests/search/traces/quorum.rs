//! Traces of real engines and the three servers of a quorum in the terms of `spec/Quorum.tla`.
//!
//! Milliseconds pass, for which the engines wait before they raise counters, but no tick of the specification. What the
//! specification lacks does not happen: nobody waits in line, and a request whose caller gave up is lost. A trace ends before a
//! client yields.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_engine::FencingToken;
use leasehold_engine::protocol::{
    Acquire, Claim, ClientId, Command, LeaseId, Op, Reclaim, Release,
};
use leasehold_engine::testing::{LOCK, key, place};

use crate::EMPTY;
use crate::faults::Fault;
use crate::search::hash;
use crate::world::{Action, Plan, Request, TTL, World, name};

/// The greatest number of actions of a trace.
const ACTIONS: usize = 80;
/// How far ahead of the servers a client's clock was before a trace, or twice as far.
const AHEAD: u64 = 10_000;
/// The specification's clock of each server, in tokens: `Scale` in `spec/QuorumTraces.cfg`.
const CLOCK: u64 = 1_000_000;

pub(super) const PLAN: Plan = Plan {
    servers: 3,
    clients: 3,
    calls: 3,
    tries: true,
    passes: 5,
    steps: &[2],
    faster: 0,
    cancels: 3,
    flushes: 1,
    ..EMPTY
};

/// A walk through a world, and what it looks like in the specification.
pub(super) struct Walk {
    world: World,
    /// The client of each lease.
    clients: BTreeMap<LeaseId, usize>,
    /// The leases for which some server was asked.
    begun: BTreeSet<LeaseId>,
    /// The time of the servers at the start.
    start: u64,
    events: Vec<String>,
    pub(super) is_kept: bool,
}

impl Walk {
    pub(super) fn new(plan: Plan) -> Self {
        let world = World::new(plan, false);
        Self {
            start: world.host.time(0).as_micros(),
            world,
            clients: BTreeMap::new(),
            begun: BTreeSet::new(),
            events: Vec::new(),
            is_kept: true,
        }
    }

    /// Does actions at random. Returns the trace as a TLA+ sequence.
    pub(super) fn walk(&mut self, seed: u64) -> String {
        for server in 0..3 {
            self.raise_counter(server, hash(&(seed, server)) % 3 * AHEAD);
        }
        for step in 0..ACTIONS {
            let mut actions = self.world.actions();
            // Every other trace keeps all servers for longer.
            let keeps_data = seed.is_multiple_of(2);
            let flushes = |action: &Action| matches!(action, Action::Flush { .. });
            actions.retain(|action| self.is_known(*action) && !(keeps_data && flushes(action)));
            let drawn = |draw: u64| {
                let at = hash(&(seed, step, draw)).checked_rem(actions.len() as u64)?;
                Some(actions[usize::try_from(at).expect("an index is small")])
            };
            // Of two draws the network's counts, so that few calls end before they are answered.
            let both = [drawn(0), drawn(1)].into_iter().flatten();
            let network = both.clone().find(is_of_network);
            let Some(action) = network.or(both.last()) else {
                break;
            };
            let goes_on = self.act(action);
            if !self.is_kept || !goes_on {
                break;
            }
        }
        format!("<<{}>>", self.events.join(",\n"))
    }

    /// A client whose clock is ahead has had the lock at one server, and let it go. So the servers' counters differ.
    fn raise_counter(&mut self, server: usize, ahead: u64) {
        let (start, now) = (self.start, self.world.host.time(server));
        if ahead == 0 {
            return;
        }
        let token = FencingToken::new(start + ahead).expect("a time is a token");
        let claim = Claim {
            lease: LeaseId(u128::from(ahead) << 64),
            client: ClientId(u64::MAX),
            owner: self.world.host.spec(LOCK).owner.clone(),
            counter: self.world.host.counter,
            ttl: TTL,
            window: TTL,
        };
        let acquire = Command::Acquire(Acquire {
            key: key(LOCK),
            claim: claim.clone(),
            waits: false,
            reclaims: Reclaim::Propose(token),
        });
        let release = Command::Release(Release {
            key: key(LOCK),
            claim,
            token: None,
            completes: false,
        });
        let not_after = now + TTL;
        let batch = [acquire, release].map(|command| Op { command, not_after });
        self.world.host.servers[server].execute(now, &batch);
        let (proposed, member) = (self.counted(token.get()), server + 1);
        let events = ["begin", "arrive", "reply", "end", "release"];
        self.note(
            &events.map(|what| {
                format!("do |-> \"{what}\", c |-> \"D\", m |-> {member}, proposed |-> {proposed}")
            }),
            "",
        );
    }

    /// True if the specification has this action.
    fn is_known(&self, action: Action) -> bool {
        match action {
            Action::Acquire { waits: true, .. } => false,
            // In the specification, a member has the lease of a client, whichever of its leases that is.
            Action::Acquire { client, .. } => {
                let own = |lease: &LeaseId| self.clients.get(lease) == Some(&client);
                let mut requests = self.world.requests.iter();
                let mut stored = (0..3).filter_map(|server| self.world.stored(server).tenure);
                !requests.any(|request| request.sent.locker == client)
                    && !stored.any(|(lease, _)| own(&lease))
            }
            Action::Execute { request } => {
                let ops = self.world.requests[request].sent.batch.iter();
                ops.filter_map(about)
                    .all(|(what, lease)| what == "release" || self.uses(lease))
            }
            _ => true,
        }
    }

    /// True if a client asks for this lease, or has it.
    fn uses(&self, lease: LeaseId) -> bool {
        self.clients.get(&lease).is_some_and(|client| {
            let client = &self.world.clients[*client];
            let asks = client.asking.is_some_and(|(_, of)| of == lease);
            asks || client.held.as_ref().is_some_and(|held| held.lease == lease)
        })
    }

    /// Does an action, and notes what it is in the specification. Returns false if that does not have it.
    fn act(&mut self, action: Action) -> bool {
        let phases = |world: &World| -> Vec<_> {
            let clients = world.clients.iter();
            clients
                .map(|client| (client.asking.is_some(), client.held.is_some()))
                .collect()
        };
        let before = phases(&self.world);
        let sent = self.world.requests.len();
        let sent = sent - usize::from(matches!(action, Action::Execute { .. }));
        let mut events = self.described(action);
        self.is_kept = self.world.apply(action).is_ok();
        if let Action::Acquire { client, .. } = action
            && let Some((_, lease)) = self.world.clients[client].asking
        {
            self.clients.insert(lease, client);
        }
        let mut begins = "";
        for (client, (before, after)) in before.into_iter().zip(phases(&self.world)).enumerate() {
            match (before, after) {
                ((true, _), (_, true)) => begins = name(client),
                ((true, _), (false, false)) | ((_, true), (_, false)) => {
                    events.push(format!("do |-> \"end\", c |-> \"{}\"", name(client)));
                }
                _ => {}
            }
        }
        if !begins.is_empty() && !matches!(action, Action::Reply { .. }) {
            events.push(format!("do |-> \"start\", c |-> \"{begins}\""));
        }
        let sent = self.world.requests[sent..].to_vec();
        if sent.iter().any(|request| self.yields(request)) {
            return false;
        }
        let sent = self.sent(&sent);
        // A request may leave after what it was for, if its server had another one: a raise was decided before the lease began.
        let is_raised = !begins.is_empty() && sent.iter().any(|event| event.contains("raise"));
        events = if is_raised {
            [sent, events].concat()
        } else {
            [events, sent].concat()
        };
        self.note(&events, begins);
        true
    }

    /// True if a client gives back what it has at a server, and goes on.
    fn yields(&self, request: &Request) -> bool {
        let mut ops = request.sent.batch.iter().filter_map(about);
        ops.any(|(what, lease)| what == "release" && self.uses(lease))
    }

    /// Returns the events of an action, except for what it lets the engines send.
    fn described(&self, action: Action) -> Vec<String> {
        let (what, sent) = match action {
            Action::Execute { request } => ("arrive", &self.world.requests[request].sent),
            Action::Reply { reply } => ("reply", &self.world.replies[reply].0),
            Action::Flush { server } if self.world.plan.fault != Fault::DataLost => {
                return vec![format!("do |-> \"flush\", m |-> {}", server + 1)];
            }
            _ => return Vec::new(),
        };
        let stored = self.world.stored(place(sent.server)).tenure;
        let ops = sent.batch.iter().filter_map(about);
        let known = ops.filter_map(|(op, lease)| match (what, op) {
            // Any other release frees nothing.
            ("arrive", "release") => stored.is_some_and(|(held, _)| held == lease).then_some(op),
            (_, "release") => None,
            _ => self.uses(lease).then_some(what),
        });
        let (client, member) = (name(sent.locker), place(sent.server) + 1);
        known
            .map(|what| format!("do |-> \"{what}\", c |-> \"{client}\", m |-> {member}"))
            .collect()
    }

    /// Returns the events of requests that leave in one action.
    fn sent(&mut self, sent: &[Request]) -> Vec<String> {
        let mut events: Vec<String> = Vec::new();
        let mut asked = Vec::new();
        for Request { sent, .. } in sent {
            let client = name(sent.locker);
            let own = |op: &&Op| about(op).is_some_and(|(_, lease)| self.uses(lease));
            for op in sent.batch.iter().filter(own) {
                let event = match &op.command {
                    Command::Acquire(acquire) => {
                        let proposed = match acquire.reclaims {
                            Reclaim::Propose(token) => self.counted(token.get()),
                            _ => 0,
                        };
                        let lease = acquire.claim.lease;
                        asked.push(lease);
                        if self.begun.contains(&lease) {
                            let member = place(sent.server) + 1;
                            format!("do |-> \"ask\", c |-> \"{client}\", m |-> {member}")
                        } else {
                            format!("do |-> \"begin\", c |-> \"{client}\", proposed |-> {proposed}")
                        }
                    }
                    Command::Renew(renew) => match renew.floor {
                        Some(token) => {
                            let token = self.counted(token.get());
                            format!("do |-> \"raise\", c |-> \"{client}\", token |-> {token}")
                        }
                        None => format!("do |-> \"prove\", c |-> \"{client}\""),
                    },
                    _ => continue,
                };
                if !events.contains(&event) {
                    events.push(event);
                }
            }
        }
        self.begun.extend(asked);
        events
    }

    /// Notes events, and what the members and the clients know after the last of them.
    fn note(&mut self, events: &[String], begins: &str) {
        let Some((last, before)) = events.split_last() else {
            return;
        };
        let begins = format!("begins |-> \"{begins}\"");
        let before = before.iter().map(|event| format!("[{event}, {begins}]"));
        self.events.extend(before);
        let members: Vec<_> = (0..3).map(|server| self.member(server)).collect();
        let clients: Vec<_> = (0..self.world.clients.len())
            .map(|client| self.client(client))
            .collect();
        let (members, clients) = (members.join(", "), clients.join(", "));
        let state = format!("members |-> <<{members}>>, clients |-> [{clients}]");
        self.events.push(format!("[{last}, {begins}, {state}]"));
    }

    fn member(&self, server: usize) -> String {
        let tenure = self.world.stored(server).tenure;
        let holder = tenure.map_or("nobody", |(lease, _)| name(self.clients[&lease]));
        let now = self.world.host.time(server);
        let last = self.world.host.servers[server].last_token(now, &key(LOCK));
        let last = last.map_or(0, |token| self.counted(token));
        format!("<<\"{holder}\", {last}>>")
    }

    fn client(&self, client: usize) -> String {
        let (name, state) = (name(client), &self.world.clients[client]);
        match &state.held {
            Some(held) => format!("{name} |-> <<\"held\", {}>>", self.counted(held.token)),
            None if state.asking.is_some() => format!("{name} |-> <<\"asking\", 0>>"),
            None => format!("{name} |-> <<\"idle\", 0>>"),
        }
    }

    /// Returns a token as the specification counts it.
    fn counted(&self, token: u64) -> u64 {
        (token + CLOCK).saturating_sub(self.start)
    }
}

fn is_of_network(action: &Action) -> bool {
    matches!(action, Action::Execute { .. } | Action::Reply { .. })
}

/// Returns what an operation does to which lease, if it is one of the specification.
fn about(op: &Op) -> Option<(&'static str, LeaseId)> {
    match &op.command {
        Command::Acquire(acquire) => Some(("acquire", acquire.claim.lease)),
        Command::Renew(renew) => Some(("renew", renew.lease)),
        Command::Release(release) => Some(("release", release.claim.lease)),
        _ => None,
    }
}
