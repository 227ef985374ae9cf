//! The model, and models that are wrong on purpose.

mod flaw;

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_engine::protocol::{
    BatchReply, Claim, ClientId, Command, Counter, LeaseId, LockKey, Op, Push, Release, Reply,
};
use leasehold_engine::time::ServerTime;
use leasehold_engine::{FencingToken, MemoryServer, Owner, StoredTenure};

use crate::real::Entry;
use crate::samples::{self, FLOOR, FRACTION};
pub(crate) use flaw::Flaw;

/// A [`MemoryServer`], with or without a flaw.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    memory: MemoryServer,
    flaw: Flaw,
    listening: BTreeSet<ClientId>,
}

/// A waiter: its member of the line, when it arrived (microseconds), and until when it counts as alive
/// (milliseconds).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) member: String,
    pub(crate) arrival: u64,
    pub(crate) live_until: u64,
}

impl Place {
    pub(crate) fn is_dead(&self, now: ServerTime) -> bool {
        self.live_until < now.millis()
    }
}

impl Model {
    pub(crate) fn new(flaw: Flaw) -> Self {
        Self {
            memory: MemoryServer::new(),
            flaw,
            listening: BTreeSet::new(),
        }
    }

    pub(crate) fn is_flawed(&self) -> bool {
        self.flaw != Flaw::Nothing
    }

    /// Returns the holder's token.
    pub(crate) fn token_of(&self, now: ServerTime, key: &LockKey) -> Option<FencingToken> {
        former_token(&self.memory, now, key)
    }

    /// Returns the holder's lease.
    pub(crate) fn lease_of(&self, now: ServerTime, key: &LockKey) -> Option<LeaseId> {
        Some(self.tenure(now, key)?.lease)
    }

    pub(crate) fn tenure(&self, now: ServerTime, key: &LockKey) -> Option<&StoredTenure> {
        self.memory.tenure(now, key)
    }

    /// True if the lock is free because a tenure expired and none has replaced it.
    pub(crate) fn has_outlived(&self, now: ServerTime, key: &LockKey) -> bool {
        let value = self.memory.lock_value(now, key);
        let fields = value.map_or(0, |(fields, _)| fields.len());
        fields > 1 && self.tenure(now, key).is_none()
    }

    /// Returns the last token that the lock remembers.
    pub(crate) fn last_token(&self, now: ServerTime, key: &LockKey) -> Option<u64> {
        self.memory.last_token(now, key)
    }

    /// Returns the claim of the first waiter, dead or alive.
    pub(crate) fn first_in_line(&self, now: ServerTime, key: &LockKey) -> Option<Claim> {
        self.line(now, key)
            .first()
            .map(|place| claim(&place.member))
    }

    /// Returns the claim of the first live waiter.
    pub(crate) fn next_in_line(&self, now: ServerTime, key: &LockKey) -> Option<Claim> {
        let line = self.line(now, key);
        let next = line.iter().find(|place| !place.is_dead(now));
        next.map(|place| claim(&place.member))
    }

    /// Returns all waiters in order.
    pub(crate) fn line(&self, now: ServerTime, key: &LockKey) -> Vec<Place> {
        let line = self.memory.line_value(now, key);
        let place = |(member, arrival, live_until): (String, u64, ServerTime)| Place {
            member,
            arrival,
            live_until: live_until.millis(),
        };
        let members = line.map(|(members, _)| members).unwrap_or_default();
        members.into_iter().map(place).collect()
    }

    pub(crate) fn flush(&mut self) {
        self.memory.flush();
    }

    pub(crate) fn delete(&mut self, key: &LockKey) {
        self.memory.delete(key);
    }

    /// Deletes the line of a lock that a non-waiter holds. Returns true if that was possible.
    pub(crate) fn delete_line(&mut self, now: ServerTime, key: &LockKey) -> bool {
        let line = self.line(now, key);
        let claims: Vec<Claim> = line.iter().map(|place| claim(&place.member)).collect();
        let holder = self.lease_of(now, key);
        if holder.is_none() || claims.iter().any(|claim| holder == Some(claim.lease)) {
            return false;
        }
        for claim in claims {
            let key = key.clone();
            let token = None;
            let leave = samples::batch([Command::Release(Release {
                key,
                claim,
                token,
                completes: false,
            })]);
            let left = self.memory.execute(now, &leave);
            assert_eq!(left.replies, [Ok(Reply::Taken)], "the claim only waits");
        }
        true
    }

    pub(crate) fn listen(&mut self, client: ClientId, on: bool) {
        if on {
            self.memory.subscribe(client);
            self.listening.insert(client);
        } else {
            self.memory.unsubscribe(client);
            self.listening.remove(&client);
        }
    }

    /// Returns the pushes to each client since the last call.
    pub(crate) fn take_pushes(&mut self) -> Vec<(ClientId, Push)> {
        let mut pushes = self.memory.take_pushes();
        let (flaw, listening) = (self.flaw, &self.listening);
        pushes.retain_mut(|(client, push)| flaw.lets_through(push, listening.contains(client)));
        pushes
    }

    /// Returns the lock's key as the real server should have it.
    pub(crate) fn lock(&self, now: ServerTime, key: &LockKey) -> Option<Entry> {
        let (fields, expires) = self.memory.lock_value(now, key)?;
        let lines = fields
            .iter()
            .map(|(field, value)| format!("{field} {value}\n"));
        let (value, expires) = (lines.collect(), expires.map(ServerTime::millis));
        Some(Entry { value, expires })
    }

    /// Returns the line's key as the real server should have it.
    pub(crate) fn line_key(&self, now: ServerTime, key: &LockKey) -> Option<Entry> {
        let (_, expires) = self.memory.line_value(now, key)?;
        let line = self.line(now, key);
        let marks = line
            .iter()
            .map(|place| (place.live_until, format!("a{}", place.member)));
        let places = line
            .iter()
            .map(|place| (place.arrival, place.member.clone()));
        let mut set: Vec<_> = marks.chain(places).collect();
        set.sort();
        let lines = set
            .iter()
            .map(|(score, member)| format!("{score} {member}\n"));
        let (value, expires) = (lines.collect(), Some(expires.millis()));
        Some(Entry { value, expires })
    }

    /// Frees the lock without a line and sets its last token, as of a tenure at that time.
    pub(crate) fn set_last(&mut self, now: ServerTime, key: &LockKey, last: u64) {
        // The sweep then counts from the present and not from the future's time.
        self.memory.execute(now, &[]);
        // By then the line has expired.
        let later = now + Duration::from_secs(3_600);
        self.memory
            .execute(later, &samples::batch([samples::inspect(key)]));
        self.memory.delete(key);
        let then = ServerTime::from_micros(last);
        let acquire = Command::Acquire(samples::acquire(key, 0, FLOOR));
        let tenure = samples::batch([acquire, samples::release(key, 0)]);
        self.memory.execute(then, &tenure);
    }

    pub(crate) fn execute(&mut self, now: ServerTime, batch: &[Op]) -> BatchReply {
        if self.flaw == Flaw::Nothing {
            return self.memory.execute(now, batch);
        }
        if self.flaw != Flaw::ActsLate && batch.iter().any(|op| now > op.not_after) {
            return self.memory.execute(now, batch);
        }
        let replies = batch.iter().map(|op| self.flawed(now, op)).collect();
        let time = Some(now);
        BatchReply { time, replies }
    }
}

fn former_token(memory: &MemoryServer, now: ServerTime, key: &LockKey) -> Option<FencingToken> {
    Some(memory.tenure(now, key)?.token)
}

/// Reads a member of a line that a random claim took.
pub(crate) fn claim(member: &str) -> Claim {
    // The parts of a member have fixed lengths.
    let mut rest = member;
    let mut next = |length| {
        let (part, others) = rest.split_at(length);
        rest = others;
        part
    };
    let [ttl, window, retention, lease, client, kind] = [11, 5, 11, 32, 16, 1].map(&mut next);
    let label = rest;
    let millis = |digits: &str| {
        let whole = Duration::from_millis(digits.parse().expect("the time is a number"));
        whole + FRACTION
    };
    let owner = match kind {
        "r" => Owner::reclaimable(label),
        _ => Owner::labelled(label),
    };
    Claim {
        lease: lease.parse().expect("a lease ID is a number"),
        client: ClientId(u64::from_str_radix(client, 16).expect("a client ID is a number")),
        owner: owner.expect("the model's labels are valid"),
        counter: match retention {
            "00000000000" => Counter::Dense,
            _ => Counter::ClockFloor {
                retention: millis(retention),
            },
        },
        ttl: millis(ttl),
        window: millis(window),
    }
}

/// Returns the member of the line for a claim.
pub(crate) fn member(claim: &Claim) -> String {
    let retention = match claim.counter {
        Counter::Dense => 0,
        Counter::ClockFloor { retention } => retention.as_millis(),
    };
    let Claim { lease, client, .. } = claim;
    let window = claim.window.min(Claim::LONGEST_WINDOW).as_millis();
    let (ttl, label) = (claim.ttl.as_millis(), claim.owner.label());
    let kind = if claim.owner.is_reclaimable() {
        'r'
    } else {
        'l'
    };
    format!("{ttl:011}{window:05}{retention:011}{lease}{client}{kind}{label}")
}
