//! Traces of one server in the terms of `spec/Single.tla`.
//!
//! Time passes in whole ticks, at whose end the engines hear of it. No time of the code is a multiple of [`TICK`], so no bound is
//! met exactly, where the code and the specification round differently.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use leasehold_engine::Error;
use leasehold_engine::engine::RequestId;
use leasehold_engine::protocol::{Command, LeaseId, Op, Reply};
use leasehold_engine::testing::ms;
use leasehold_engine::time::Timestamp;

use crate::EMPTY;
use crate::program::Client;
use crate::search::hash;
use crate::world::{Action, Plan, Request, Wakes, World, name, shown};

/// The greatest number of actions of a trace.
const ACTIONS: usize = 40;
/// A tick of the specification in milliseconds. `spec/Traces.cfg` has the times of the code in ticks, rounded up.
const TICK: u64 = 101;
/// How many ticks may pass at once. Among them are the timeout of a request and the time to live.
const TICKS: [u8; 4] = [1, 6, 10, 20];
/// How long a waiter counts as alive.
const WINDOW: Duration = ms(2_400);

/// A world in which no time passes.
pub(super) const TRACED: Plan = Plan {
    clients: 3,
    calls: 2,
    tries: true,
    repeats: 2,
    cancels: 2,
    crashes: 1,
    ..EMPTY
};

pub(super) const TIMED: Plan = Plan {
    renews: true,
    steps: &[TICK],
    passes: 250,
    wakes: Wakes::AtTheEnd,
    faster: 0,
    crashes: 0,
    ..TRACED
};

/// Returns how many ticks this time has, rounded up.
fn ticks(time: Duration) -> u128 {
    time.as_micros().div_ceil(u128::from(TICK) * 1_000)
}

/// What a program knows of its call and of its lease.
struct Known {
    asks: bool,
    deadline: Option<Timestamp>,
}

impl Known {
    fn of(client: &Client) -> Self {
        Self {
            asks: client.asking.is_some(),
            deadline: client.held.as_ref().map(|held| held.deadline),
        }
    }
}

/// A walk through a world, and what it looks like in the specification.
pub(super) struct Walk {
    world: World,
    /// The lease of each acquisition: the name of its process, and its number there.
    leases: BTreeMap<LeaseId, (String, usize)>,
    /// The tokens that the server gave, and what they are in the specification.
    tokens: BTreeMap<u64, i64>,
    /// The attempts of each process, and the number of each: by its lease and request.
    counts: BTreeMap<String, usize>,
    numbers: BTreeMap<(LeaseId, RequestId), usize>,
    events: Vec<String>,
    /// How many ticks have passed.
    ticks: i64,
    pub(super) is_kept: bool,
    /// True if nothing more is noted.
    is_over: bool,
}

impl Walk {
    pub(super) fn new(plan: Plan) -> Self {
        Self {
            world: World::new(plan, false),
            leases: BTreeMap::new(),
            tokens: BTreeMap::new(),
            counts: BTreeMap::new(),
            numbers: BTreeMap::new(),
            events: Vec::new(),
            ticks: 0,
            is_kept: true,
            is_over: false,
        }
    }

    /// Does actions at random. Returns the trace as a TLA+ sequence.
    pub(super) fn walk(&mut self, seed: u64) -> String {
        for step in 0..ACTIONS {
            let actions = self.world.actions();
            let Some(at) = hash(&(seed, step)).checked_rem(actions.len() as u64) else {
                break;
            };
            let action = actions[usize::try_from(at).expect("an index is small")];
            if self.is_late(action) {
                continue;
            }
            let times = match action {
                Action::Pass { .. } => TICKS[step % TICKS.len()],
                _ => 1,
            };
            for _ in 0..times {
                if !self.is_over && self.world.actions().contains(&action) {
                    self.act(action);
                }
            }
            if self.is_over {
                break;
            }
        }
        format!("<<{}>>", self.events.join(",\n"))
    }

    /// True for a reply past the time of its request. It is lost in these walks: the engine may have given up, or not.
    fn is_late(&self, action: Action) -> bool {
        let Action::Reply { reply } = action else {
            return false;
        };
        let now = self.world.host.server_now();
        let mut ops = self.world.replies[reply].0.batch.iter();
        ops.any(|op| op.not_after < now)
    }

    fn act(&mut self, action: Action) {
        let mut events = self.described(action);
        let before: Vec<_> = self.world.clients.iter().map(Known::of).collect();
        let tenure = self.world.stored(0).tenure;
        let sent = self.world.requests.len();
        let sent = sent - usize::from(matches!(action, Action::Execute { .. }));
        let (releaser, receiver) = (self.releaser(action), self.receiver(action));
        self.is_kept = self.world.apply(action).is_ok();
        let is_handed_over = self.world.stored(0).tenure != tenure && self.holder() == releaser;
        // A lock that is handed over to the client that releases it lasts for its time to live, as that hears of it for
        // sure. The specification has no such case.
        let is_unknown = self.is_timed() && releaser.is_some() && is_handed_over;
        self.is_over = !self.is_kept || is_unknown;
        if is_unknown {
            return;
        }
        match action {
            Action::Acquire { client, .. } => self.name_lease(client),
            Action::Execute { .. } | Action::Repeat { .. } => self.tell_who_hears(&mut events),
            Action::Pass { .. } => self.ticks += 1,
            _ => {}
        }
        if let Some(before) = receiver.map(|client| &before[client])
            && receiver.map(|client| self.known(client).deadline) == Some(before.deadline)
        {
            // A renewal that only asks whether the server has the lock.
            for event in &mut events {
                *event = event.replace("\"renewed\"", "\"checked\"");
            }
        }
        if let Action::Reply { .. } | Action::Pass { .. } = action {
            events.extend(self.ends(&before));
        }
        let attempts = self.attempts(sent);
        // An attempt that leaves together with a release was due before it.
        let is_end = matches!(action, Action::Release { .. } | Action::Cancel { .. });
        let (first, then) = if is_end {
            (attempts, events)
        } else {
            (events, attempts)
        };
        self.note(&[first, then].concat());
    }

    fn known(&self, client: usize) -> Known {
        Known::of(&self.world.clients[client])
    }

    /// Adds to the arrival of requests whether the client that the lock was handed to hears of it: then the lock lasts for the
    /// whole window.
    fn tell_who_hears(&self, events: &mut [String]) {
        let expires = self.world.stored(0).expires;
        let left = expires.map(|at| at.since(self.world.host.server_now()));
        let heard = if left > Some(WINDOW / 2) {
            "TRUE"
        } else {
            "FALSE"
        };
        for event in events {
            let _ = write!(event, ", heard |-> {heard}");
        }
    }

    /// Returns the calls and leases that have ended. A caller that is refused, or has waited long enough, gives up in the terms
    /// of the specification. A lease that a reply ends is no event of its own.
    fn ends(&self, before: &[Known]) -> Vec<String> {
        let mut events = Vec::new();
        for (client, before) in before.iter().enumerate() {
            let after = self.known(client);
            let ends = match (before.asks, before.deadline) {
                _ if after.asks || after.deadline.is_some() => continue,
                (true, _) => "cancel",
                (_, Some(deadline)) if deadline <= self.world.host.now => "lose",
                _ => continue,
            };
            events.push(format!(
                "do |-> \"{ends}\", c |-> \"{}\"",
                self.process(client)
            ));
        }
        events
    }

    /// Returns the attempts among the requests from this one on.
    fn attempts(&mut self, first: usize) -> Vec<String> {
        let mut attempts = Vec::new();
        let requests = self.world.requests[first..].to_vec();
        for Request { sent, .. } in &requests {
            // A batch that arrives past the time of one of its operations does nothing.
            let not_after = sent.batch.iter().map(|op| op.not_after).min();
            let patience = not_after.map(|at| ticks(at.since(self.world.host.server_now())));
            let ops = sent.batch.iter();
            attempts.extend(ops.filter_map(|op| self.sent(op, sent.request, patience?)));
        }
        attempts
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
                let now = self.world.host.server_now();
                // A release that arrives late together with another request does nothing, so it counts as lost.
                let is_release = |op: &Op| matches!(op.command, Command::Release(_));
                let is_late = sent.batch.iter().any(|op| op.not_after < now);
                let is_late = is_late && !sent.batch.iter().all(is_release);
                let is_lost = |op: &Op| is_late && is_release(op);
                let ops = sent.batch.iter().filter(|op| !is_lost(op));
                ops.map(|op| self.arrived(op, sent.request)).collect()
            }
            Action::Reply { reply } => {
                let (sent, reply) = &self.world.replies[reply];
                let each = sent.batch.iter().zip(&reply.replies);
                each.map(|(op, reply)| self.replied(op, reply, sent.request))
                    .collect()
            }
            Action::Push { push } => {
                let (.., push) = &self.world.pushes[push];
                let mut leases = self.leases.keys();
                let lease = leases.find(|lease| lease.half() == push.lease);
                lease.map(|lease| self.pushed(*lease)).into_iter().collect()
            }
            Action::Pass { .. } => vec!["do |-> \"tick\"".to_owned()],
            Action::Acquire { .. } | Action::Cancel { .. } | Action::Crash { .. } => Vec::new(),
            Action::Flush { .. } => panic!("no data is lost"),
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
    fn replied(&self, op: &Op, reply: &Result<Reply, Error>, request: RequestId) -> String {
        if let Ok(Reply::HandedOver { lease, .. }) = reply {
            return self.pushed(*lease);
        }
        let (_, lease) = operation(&op.command);
        let number = self.numbers.get(&(lease, request)).unwrap_or(&0);
        let (lease, kind) = (self.lease(lease), shown(reply));
        let kind = kind.split(',').next().unwrap_or_default();
        format!("do |-> \"reply\", kind |-> \"{kind}\", serial |-> {number}, lease |-> {lease}")
    }

    fn pushed(&self, lease: LeaseId) -> String {
        format!("do |-> \"push\", lease |-> {}", self.lease(lease))
    }

    /// Returns the event of an attempt that leaves. A release is no attempt: it leaves when the program ends its lease or
    /// its call.
    fn sent(&mut self, op: &Op, request: RequestId, patience: u128) -> Option<String> {
        let (_, lease) = operation(&op.command);
        let what = match &op.command {
            Command::Acquire(acquire) if acquire.waits => "\"ask\", waits |-> TRUE",
            Command::Acquire(_) => "\"ask\", waits |-> FALSE",
            Command::Renew(_) => "\"renew\"",
            _ => return None,
        };
        let (process, _) = &self.leases[&lease];
        let number = self.counts.entry(process.clone()).or_default();
        *number += 1;
        self.numbers.insert((lease, request), *number);
        let lease = self.lease(lease);
        Some(format!(
            "do |-> {what}, lease |-> {lease}, patience |-> {patience}"
        ))
    }

    /// Notes events, and what the server and the clients know after the last of them.
    fn note(&mut self, events: &[String]) {
        let Some((last, before)) = events.split_last() else {
            return;
        };
        self.events
            .extend(before.iter().map(|event| format!("[{event}]")));
        let stored = self.world.stored(0);
        let now = self.world.host.server_now();
        let holder = match stored.tenure {
            Some((lease, token)) => format!("<<{}, {}>>", self.lease(lease), self.counted(token)),
            None => "<<>>".to_owned(),
        };
        let mut line = stored.line;
        line.retain(|(.., until)| until.millis() >= now.millis());
        line.sort_by_key(|(_, arrival, _)| *arrival);
        let waiting = line
            .iter()
            .map(|(claim, ..)| self.lease(lease_of_claim(claim)));
        let waiting: Vec<_> = waiting.collect();
        let (mut clients, mut deadlines) = (Vec::new(), Vec::new());
        for client in 0..self.world.clients.len() {
            let process = self.process(client);
            let state = &self.world.clients[client];
            let (held, asks) = (state.held.as_ref(), self.has_asked(client));
            let deadline = held.map_or(0, |held| ticks(held.deadline.since(self.world.host.now)));
            deadlines.push(format!("{process} |-> {deadline}"));
            let shown = match held.map(|held| held.token) {
                Some(token) => format!("<<\"held\", {}>>", self.counted(token)),
                None if asks => "<<\"asking\", 0>>".to_owned(),
                None => "<<\"idle\", 0>>".to_owned(),
            };
            clients.push(format!("{process} |-> {shown}"));
        }
        let (waiting, clients) = (waiting.join(", "), clients.join(", "));
        let mut state =
            format!("holder |-> {holder}, line |-> <<{waiting}>>, clients |-> [{clients}]");
        if self.is_timed() {
            let expires = stored.expires.map_or(0, |at| ticks(at.since(now)));
            let alive = line
                .iter()
                .map(|(.., until)| ticks(until.since(now)).to_string());
            let (alive, deadlines) = (alive.collect::<Vec<_>>().join(", "), deadlines.join(", "));
            let _ = write!(
                state,
                ", expires |-> {expires}, alive |-> <<{alive}>>, deadlines |-> [{deadlines}]"
            );
        }
        self.events.push(format!("[{last}, {state}]"));
    }

    fn is_timed(&self) -> bool {
        self.world.plan.passes > 0
    }

    /// Returns the process that has the lock.
    fn holder(&self) -> Option<String> {
        let (lease, _) = self.world.stored(0).tenure?;
        self.leases.get(&lease).map(|(process, _)| process.clone())
    }

    /// Returns the process whose release the server executes in this action.
    fn releaser(&self, action: Action) -> Option<String> {
        let (Action::Execute { request } | Action::Repeat { request }) = action else {
            return None;
        };
        let ops = self.world.requests[request].sent.batch.iter();
        let mut released = ops.map(|op| operation(&op.command));
        let (_, lease) = released.find(|(kind, _)| *kind == "release")?;
        Some(self.leases[&lease].0.clone())
    }

    /// Returns the client to which a reply comes in this action.
    fn receiver(&self, action: Action) -> Option<usize> {
        let Action::Reply { reply } = action else {
            return None;
        };
        Some(self.world.replies[reply].0.locker)
    }

    /// Returns the token that the specification gives: they count on, from the ticks that have passed. Those of the server
    /// also count on, from its clock.
    fn counted(&mut self, token: u64) -> i64 {
        let now = self.world.host.server_now().as_micros();
        let (last, number) = self
            .tokens
            .last_key_value()
            .map_or((0, 0), |(token, number)| (*token, *number));
        let next = now.max(last + 1);
        let expected = (number + 1).max(self.ticks + 1);
        let number = expected + token.cast_signed() - next.cast_signed();
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
