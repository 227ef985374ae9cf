//! Reads what happened to a host, in short forms to compare with.

use std::time::Duration;

use super::{Answer, Host, Sent, Told};
use crate::engine::{Acquired, CallId, LockId};
use crate::error::{Error, ErrorKind};
use crate::event::LeaseEvent;
use crate::name::Name;
use crate::protocol::{Command, LockKey};
use crate::time::{ServerTime, Timestamp};

impl Host {
    /// Forgets the batches, answers and events so far.
    pub fn forget(&mut self) {
        self.log.clear();
        self.done.clear();
        for locker in &mut self.lockers {
            locker.events.clear();
        }
    }

    pub fn grant(&self, call: CallId) -> Acquired {
        match self.outcome(call) {
            Answer::Acquire(Ok(Some(grant))) => grant.clone(),
            other => panic!("{call:?} was not granted: {other:?}"),
        }
    }

    pub fn outcome(&self, call: CallId) -> &Answer {
        let answered = self.done.get(&call);
        let (_, answer) = answered.unwrap_or_else(|| panic!("{call:?} was not answered"));
        answer
    }

    pub fn failure(&self, call: CallId) -> &Error {
        self.outcome(call).error().expect("the call failed")
    }

    pub fn error(&self, call: CallId) -> ErrorKind {
        self.failure(call).kind()
    }

    /// Returns when a call was answered.
    pub fn answered(&self, call: CallId) -> Timestamp {
        self.done[&call].0
    }

    pub fn is_open(&self, call: CallId) -> bool {
        !self.done.contains_key(&call)
    }

    /// Returns the kinds of the operations that were sent, in order.
    pub fn ops(&self) -> Vec<&'static str> {
        self.log
            .iter()
            .flat_map(|sent| &sent.batch)
            .map(|op| kind(&op.command))
            .collect()
    }

    /// Returns the number of operations in each pending batch.
    pub fn sizes(&self) -> Vec<usize> {
        self.pending.iter().map(|sent| sent.batch.len()).collect()
    }

    /// Returns when each batch was sent.
    pub fn times(&self) -> Vec<Timestamp> {
        self.log.iter().map(|sent| sent.at).collect()
    }

    /// Returns the events in short form.
    pub fn told(&self) -> Vec<String> {
        self.events.iter().map(|told| short(&told.event)).collect()
    }

    /// Returns the newest event in short form.
    pub fn told_last(&self) -> String {
        short(&self.last_told().event)
    }

    /// Counts the events with this short form.
    pub fn told_times(&self, what: &str) -> usize {
        self.told().iter().filter(|told| *told == what).count()
    }

    /// Returns when each batch with an operation of this kind was sent.
    pub fn times_of(&self, what: &str) -> Vec<Timestamp> {
        let has = |sent: &&Sent| sent.batch.iter().any(|op| kind(&op.command) == what);
        self.log.iter().filter(has).map(|sent| sent.at).collect()
    }

    /// Counts the operations of this kind that were sent.
    pub fn count(&self, what: &str) -> usize {
        self.ops().into_iter().filter(|op| *op == what).count()
    }

    /// Returns true if the engine says that the lock is held now.
    pub fn is_held(&self, lock: LockId) -> bool {
        self.engine.held(self.now, lock).next().is_some()
    }

    /// Returns the deadline of a held lock.
    pub fn held_until(&self, lock: LockId) -> Timestamp {
        let held = self.engine.held(self.now, lock).next();
        let (_, event) = held.expect("the lock is held");
        match event {
            LeaseEvent::Acquired { remaining, .. } => self.now + remaining,
            other => panic!("{other:?} does not say that the lock is held"),
        }
    }

    /// Returns when the lock expires at the first server.
    pub fn expiry(&self, lock: LockId) -> Option<ServerTime> {
        let tenure = self.servers[0].tenure(self.server_now(), &key(lock));
        tenure.map(|tenure| tenure.expires)
    }

    /// Counts the lock's waiters at the first server, dead or alive.
    pub fn waiting(&self, lock: LockId) -> usize {
        let line = self.servers[0].line_value(self.server_now(), &key(lock));
        line.map_or(0, |(members, _)| members.len())
    }

    /// Returns the newest event.
    pub fn last_told(&self) -> &Told {
        self.events.last().expect("an event came")
    }
}

pub fn key(lock: LockId) -> LockKey {
    key_of(&name_of(lock))
}

pub fn name_of(lock: LockId) -> Name {
    Name::new(format!("lock-{}", lock.0)).expect("a short name is valid")
}

pub fn key_of(name: &Name) -> LockKey {
    LockKey::new("test", name).expect("a short namespace is valid")
}

pub fn kind(command: &Command) -> &'static str {
    match command {
        Command::Acquire(_) => "acquire",
        Command::Accept(_) => "accept",
        Command::Renew(_) => "renew",
        Command::Release(_) => "release",
        Command::Retire(_) => "retire",
        Command::ForceRelease(_) => "force-release",
        Command::AskYield(_) => "ask-yield",
        Command::Inspect(_) => "inspect",
        Command::List(_) => "list",
        Command::Enter(_) => "enter",
        Command::Admit(_) => "admit",
        Command::Extend(_) => "extend",
        Command::Vacate(_) => "vacate",
        Command::Resize(_) => "resize",
    }
}

fn short(event: &LeaseEvent) -> String {
    match event {
        LeaseEvent::Waiting { position, .. } => match position {
            Some(place) => format!("waiting {place}"),
            None => "waiting".to_owned(),
        },
        LeaseEvent::Acquired { token, .. } => format!("acquired {token}"),
        LeaseEvent::Begun { tick, .. } => format!("begun {tick}"),
        LeaseEvent::Missed { first, ticks, .. } => format!("missed {ticks} from {first}"),
        LeaseEvent::Completed { tick, .. } => format!("completed {tick}"),
        LeaseEvent::CapacityDiffers {
            capacity, wanted, ..
        } => format!("capacity {capacity}, not {wanted}"),
        LeaseEvent::Renewed { .. } => "renewed".to_owned(),
        LeaseEvent::AtRisk { .. } => "at risk".to_owned(),
        LeaseEvent::Wanted { by, .. } => format!("wanted by {by}"),
        LeaseEvent::Lost { reason, .. } => format!("lost: {}", reason.code()),
        LeaseEvent::Released { token, .. } => format!("released {token}"),
        LeaseEvent::Passed { token, .. } => format!("passed {token}"),
        LeaseEvent::ClockDrift { drift_margin } => format!("drift {drift_margin}"),
        LeaseEvent::Quarantined { server, .. } => format!("server {server} is in quarantine"),
        LeaseEvent::Readmitted { server } => format!("server {server} votes again"),
        LeaseEvent::Lagged { missed } => format!("lagged {missed}"),
    }
}

/// Returns the remaining time that an event reports.
pub fn remaining(event: &LeaseEvent) -> Option<Duration> {
    match event {
        LeaseEvent::Acquired { remaining, .. }
        | LeaseEvent::Renewed { remaining, .. }
        | LeaseEvent::AtRisk { remaining, .. } => Some(*remaining),
        _ => None,
    }
}
