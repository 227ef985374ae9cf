//! Traces of real engines and their server in the terms of `spec/Single.tla`. TLC then checks that each is a behavior
//! of the specification, and refuses those of an engine or server with a fault.
//!
//! No time passes in these worlds: the specification counts in ticks, which would have to be those of the engine.
//! `cargo xtask spec` writes the traces with the test [`write`] and runs TLC.

use std::collections::BTreeMap;

use leasehold_engine::Error;
use leasehold_engine::engine::RequestId;
use leasehold_engine::protocol::{Command, LeaseId, Op, Reply};

use crate::EMPTY;
use crate::faults::Fault;
use crate::program::Client;
use crate::search::hash;
use crate::world::{Action, Plan, Request, World, name, shown};

/// The number of traces of the code, and of a world with a fault.
const TRACES: u64 = 200;
const FAULTY: u64 = 50;
/// The greatest number of actions of a trace.
const ACTIONS: usize = 40;

/// The worlds whose traces are written, by the names of their instances in `xtask/src/spec/instances.rs`.
const WORLDS: &[(&str, Plan)] = &[
    ("traces", TRACED),
    ("traces-anybody", of(Fault::ReleasesAnybody)),
    ("traces-forgotten", of(Fault::LeavesForgotten)),
    ("traces-last-first", of(Fault::LastFirst)),
    ("traces-same-ids", of(Fault::LeaseIdsAgain)),
    ("traces-same-token", of(Fault::TokensStandStill)),
    ("traces-twice", of(Fault::RepeatsCountTwice)),
];

const TRACED: Plan = Plan {
    clients: 3,
    calls: 2,
    tries: true,
    repeats: 2,
    cancels: 2,
    crashes: 1,
    ..EMPTY
};

const fn of(fault: Fault) -> Plan {
    Plan { fault, ..TRACED }
}

/// Writes the module `TraceData` of the world that the environment names into the file that it names.
#[test]
#[ignore = "cargo xtask spec runs it"]
fn write() {
    let variable = |name| std::env::var(name).expect("cargo xtask spec sets it");
    let of = variable("LEASEHOLD_TRACES_OF");
    let known = WORLDS.iter().find(|(name, _)| *name == of);
    let (_, plan) = known.unwrap_or_else(|| panic!("there is no world `{of}`"));
    let is_faulty = plan.fault != Fault::None;
    let traces: Vec<_> = (0..if is_faulty { FAULTY } else { TRACES })
        .map(|seed| Walk::new(*plan).walk(seed))
        .collect();
    let text = format!(
        "---- MODULE TraceData ----\nTraces == <<\n{}\n>>\n====\n",
        traces.join(",\n")
    );
    std::fs::write(variable("LEASEHOLD_TRACES_TO"), text).expect("the folder exists");
}

/// Without a fault no promise is broken on these walks either.
#[test]
fn walks_keep_every_promise() {
    for seed in 0..TRACES {
        let mut walk = Walk::new(TRACED);
        walk.walk(seed);
        assert!(walk.is_kept, "seed {seed}");
    }
}

/// A walk through a world, and what it looks like in the specification.
struct Walk {
    world: World,
    /// The lease of each acquisition: the name of its process, and its number there.
    leases: BTreeMap<LeaseId, (String, usize)>,
    /// The tokens that the server gave, and what they are in the specification.
    tokens: BTreeMap<u64, i64>,
    /// The attempts of each process, and the number of each: by its lease and request.
    attempts: BTreeMap<String, usize>,
    numbers: BTreeMap<(LeaseId, RequestId), usize>,
    events: Vec<String>,
    is_kept: bool,
}

impl Walk {
    fn new(plan: Plan) -> Self {
        Self {
            world: World::new(plan, false),
            leases: BTreeMap::new(),
            tokens: BTreeMap::new(),
            attempts: BTreeMap::new(),
            numbers: BTreeMap::new(),
            events: Vec::new(),
            is_kept: true,
        }
    }

    /// Does actions at random. Returns the trace as a TLA+ sequence.
    fn walk(&mut self, seed: u64) -> String {
        for step in 0..ACTIONS {
            let actions = self.world.actions();
            let Some(at) = hash(&(seed, step)).checked_rem(actions.len() as u64) else {
                break;
            };
            self.act(actions[usize::try_from(at).expect("an index is small")]);
            if !self.is_kept {
                break;
            }
        }
        format!("<<{}>>", self.events.join(",\n"))
    }

    fn act(&mut self, action: Action) {
        let mut events = self.described(action);
        let asking = |world: &World| -> Vec<bool> {
            let clients = world.clients.iter();
            clients.map(|client| client.asking.is_some()).collect()
        };
        let (asked, sent) = (asking(&self.world), self.world.requests.len());
        let sent = sent - usize::from(matches!(action, Action::Execute { .. }));
        self.is_kept = self.world.apply(action).is_ok();
        if let Action::Acquire { client, .. } = action {
            self.name_lease(client);
        }
        if let Action::Reply { .. } = action {
            // A caller that does not wait and is refused gives up, in the terms of the specification.
            let refused = (0..asked.len()).filter(|client| {
                let state = &self.world.clients[*client];
                asked[*client] && state.asking.is_none() && state.held.is_none()
            });
            let gives_up =
                |client| format!("do |-> \"cancel\", c |-> \"{}\"", self.process(client));
            events.extend(refused.map(gives_up));
        }
        let mut attempts = Vec::new();
        let sent = self.world.requests[sent..].to_vec();
        for Request { sent, .. } in &sent {
            let ops = sent.batch.iter();
            attempts.extend(ops.filter_map(|op| self.sent(op, sent.request)));
        }
        // An attempt that leaves together with a release was due before it.
        let is_end = matches!(action, Action::Release { .. } | Action::Cancel { .. });
        let (first, then) = if is_end {
            (attempts, events)
        } else {
            (events, attempts)
        };
        self.note(&[first, then].concat());
    }

    /// Returns the events of an action. It has none if it only lets an engine send something.
    fn described(&self, action: Action) -> Vec<String> {
        let of = |client| format!("c |-> \"{}\"", self.process(client));
        match action {
            Action::Release { client } => vec![format!("do |-> \"release\", {}", of(client))],
            Action::Cancel { client } if self.has_asked(client) => {
                vec![format!("do |-> \"cancel\", {}", of(client))]
            }
            Action::Execute { request } | Action::Repeat { request } => {
                let sent = &self.world.requests[request].sent;
                let ops = sent.batch.iter();
                ops.map(|op| self.arrived(op, sent.request)).collect()
            }
            Action::Reply { reply } => {
                let (sent, reply) = &self.world.replies[reply];
                let each = sent.batch.iter().zip(&reply.replies);
                each.map(|(op, reply)| self.replied(op, reply)).collect()
            }
            Action::Push { push } => {
                let (.., push) = &self.world.pushes[push];
                let mut leases = self.leases.keys();
                let lease = leases.find(|lease| lease.half() == push.lease);
                lease.map(|lease| self.pushed(*lease)).into_iter().collect()
            }
            Action::Acquire { .. } | Action::Cancel { .. } | Action::Crash { .. } => Vec::new(),
            Action::Pass { .. } | Action::Flush { .. } => panic!("no time passes"),
        }
    }

    /// True if a client has a call for which its engine has sent something. An engine may wait for a release first.
    fn has_asked(&self, client: usize) -> bool {
        let asking = self.world.clients[client].asking;
        asking.is_some_and(|(_, of)| self.numbers.keys().any(|(lease, _)| *lease == of))
    }

    fn arrived(&self, op: &Op, request: RequestId) -> String {
        let (kind, lease) = operation(&op.command);
        let number = self.numbers.get(&(lease, request)).unwrap_or(&0);
        let lease = self.lease(lease);
        format!("do |-> \"arrive\", op |-> \"{kind}\", serial |-> {number}, lease |-> {lease}")
    }

    /// A release may be answered with the lease that has the lock now: in the specification, a push says that.
    fn replied(&self, op: &Op, reply: &Result<Reply, Error>) -> String {
        if let Ok(Reply::HandedOver { lease, .. }) = reply {
            return self.pushed(*lease);
        }
        let (_, lease) = operation(&op.command);
        let (lease, kind) = (self.lease(lease), shown(reply));
        let kind = kind.split(',').next().unwrap_or_default();
        format!("do |-> \"reply\", kind |-> \"{kind}\", lease |-> {lease}")
    }

    fn pushed(&self, lease: LeaseId) -> String {
        format!("do |-> \"push\", lease |-> {}", self.lease(lease))
    }

    /// Returns the event of an attempt that leaves. A release is no attempt: it leaves when the program ends its lease or
    /// its call.
    fn sent(&mut self, op: &Op, request: RequestId) -> Option<String> {
        let (_, lease) = operation(&op.command);
        let what = match &op.command {
            Command::Acquire(acquire) if acquire.waits => "\"ask\", waits |-> TRUE",
            Command::Acquire(_) => "\"ask\", waits |-> FALSE",
            Command::Renew(_) => "\"renew\"",
            _ => return None,
        };
        let (process, _) = &self.leases[&lease];
        let number = self.attempts.entry(process.clone()).or_default();
        *number += 1;
        self.numbers.insert((lease, request), *number);
        Some(format!("do |-> {what}, lease |-> {}", self.lease(lease)))
    }

    /// Notes events, and what the server and the clients know after the last of them.
    fn note(&mut self, events: &[String]) {
        let Some((last, before)) = events.split_last() else {
            return;
        };
        self.events
            .extend(before.iter().map(|event| format!("[{event}]")));
        let stored = self.world.stored(0);
        let holder = match stored.tenure {
            Some((lease, token)) => format!("<<{}, {}>>", self.lease(lease), self.counted(token)),
            None => "<<>>".to_owned(),
        };
        let mut line = stored.line;
        line.sort_by_key(|(_, arrival, _)| *arrival);
        let line: Vec<_> = line
            .iter()
            .map(|(claim, ..)| self.lease(lease_of_claim(claim)))
            .collect();
        let mut clients = Vec::new();
        for client in 0..self.world.clients.len() {
            let process = self.process(client);
            let state = &self.world.clients[client];
            let (held, asks) = (state.held.as_ref(), self.has_asked(client));
            let shown = match held.map(|held| held.token) {
                Some(token) => format!("<<\"held\", {}>>", self.counted(token)),
                None if asks => "<<\"asking\", 0>>".to_owned(),
                None => "<<\"idle\", 0>>".to_owned(),
            };
            clients.push(format!("{process} |-> {shown}"));
        }
        let (line, clients) = (line.join(", "), clients.join(", "));
        let state = format!("holder |-> {holder}, line |-> <<{line}>>, clients |-> [{clients}]");
        self.events.push(format!("[{last}, {state}]"));
    }

    /// Returns the token that the specification gives: they count from 1, as no time passes there. Those of the server
    /// also count on, from its clock after each connection, which takes a moment.
    fn counted(&mut self, token: u64) -> i64 {
        let now = self.world.host.server_now().as_micros();
        let (last, number) = self
            .tokens
            .last_key_value()
            .map_or((0, 0), |(token, number)| (*token, *number));
        let next = now.max(last + 1);
        let number = number + 1 + token.cast_signed() - next.cast_signed();
        *self.tokens.entry(token).or_insert(number)
    }

    /// Returns the name of a process: that of its client, and how often this crashed.
    fn process(&self, client: usize) -> String {
        let Client { lives, .. } = &self.world.clients[client];
        format!("{}{lives}", name(client))
    }

    fn name_lease(&mut self, client: usize) {
        let process = self.process(client);
        let known = self.leases.values().filter(|(of, _)| *of == process);
        let number = known.count() + 1;
        if let Some((_, lease)) = self.world.clients[client].asking {
            self.leases.insert(lease, (process, number));
        }
    }

    fn lease(&self, lease: LeaseId) -> String {
        let (process, number) = &self.leases[&lease];
        format!("<<\"{process}\", {number}>>")
    }
}

/// Returns what the specification calls an operation, and its lease.
fn operation(command: &Command) -> (&'static str, LeaseId) {
    match command {
        Command::Acquire(acquire) => ("acquire", acquire.claim.lease),
        Command::Renew(renew) => ("renew", renew.lease),
        Command::Release(release) => ("release", release.claim.lease),
        other => panic!("the specification has no {other:?}"),
    }
}

/// Returns the lease of a stored claim. It stands behind three times, of 11, 5 and 11 digits.
fn lease_of_claim(claim: &str) -> LeaseId {
    let lease = claim.get(27..59).and_then(|lease| lease.parse().ok());
    lease.expect("a claim has a lease")
}
