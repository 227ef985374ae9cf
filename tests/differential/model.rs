//! The model, and models that are wrong on purpose.

use leasehold::protocol::{
    Acquire, BatchReply, ClientId, Command, Counter, Held, LockKey, Op, Reply,
};
use leasehold::time::ServerTime;
use leasehold::{Error, FencingToken, MemoryServer, Owner};

use crate::real::Entry;
use crate::samples::{self, FLOOR};

/// What is wrong with a model.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Flaw {
    Nothing,
    /// A renewal of a free lock takes it.
    RenewalTakesGone,
    /// Tokens just count.
    NoClockFloor,
    /// `not_after` is not looked at.
    ActsLate,
    /// Anybody's release frees the lock.
    ReleasesForOthers,
    /// A retry of an acquisition gets a new token.
    RetryTakesNewToken,
    /// A reclaim keeps its former self's token.
    ReclaimKeepsToken,
    /// A renewal says that it extended the lock, and does not.
    ForgetsRenewals,
    /// A release says that it freed the lock, and does not.
    KeepsReleased,
}

impl Flaw {
    pub(crate) const ALL: [Flaw; 8] = [
        Flaw::RenewalTakesGone,
        Flaw::NoClockFloor,
        Flaw::ActsLate,
        Flaw::ReleasesForOthers,
        Flaw::RetryTakesNewToken,
        Flaw::ReclaimKeepsToken,
        Flaw::ForgetsRenewals,
        Flaw::KeepsReleased,
    ];
}

/// A [`MemoryServer`], with a flaw or without.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    memory: MemoryServer,
    flaw: Flaw,
}

impl Model {
    pub(crate) fn new(flaw: Flaw) -> Self {
        let memory = MemoryServer::new();
        Self { memory, flaw }
    }

    /// The token of who has the lock.
    pub(crate) fn token_of(&self, now: ServerTime, key: &LockKey) -> Option<FencingToken> {
        former_token(&self.memory, now, key)
    }

    pub(crate) fn flush(&mut self) {
        self.memory.flush();
    }

    pub(crate) fn delete(&mut self, key: &LockKey) {
        self.memory.delete(key);
    }

    /// The lock's key as the real server should have it.
    pub(crate) fn lock(&self, now: ServerTime, key: &LockKey) -> Option<Entry> {
        let (value, expires) = self.memory.lock_value(now, key)?;
        let expires = Some(expires.millis());
        Some(Entry { value, expires })
    }

    /// The counter's key as the real server should have it.
    pub(crate) fn token(&self, now: ServerTime, key: &LockKey) -> Option<Entry> {
        let (last, expires) = self.memory.token_value(now, key)?;
        let value = last.to_string();
        let expires = expires.map(ServerTime::millis);
        Some(Entry { value, expires })
    }

    /// Frees the lock and sets its counter to at least this: an acquisition at a time so far in
    /// the future.
    pub(crate) fn raise_counter(&mut self, now: ServerTime, key: &LockKey, floor: u64) {
        // The sweep is then done for a long time, and not at the future's time.
        self.memory.execute(now, &[]);
        self.memory.delete(key);
        let acquire = Command::Acquire(samples::acquire(key, 0, FLOOR));
        let then = ServerTime::from_micros(floor);
        self.memory.execute(then, &samples::batch([acquire]));
        self.memory.delete(key);
    }

    pub(crate) fn execute(&mut self, now: ServerTime, batch: &[Op]) -> BatchReply {
        if self.flaw == Flaw::Nothing {
            return self.memory.execute(now, batch);
        }
        let replies = batch.iter().map(|op| self.flawed(now, op)).collect();
        BatchReply { time: now, replies }
    }

    fn flawed(&mut self, now: ServerTime, op: &Op) -> Result<Reply, Error> {
        let mut op = op.clone();
        let before = self.memory.clone();
        match (&mut op.command, self.flaw) {
            (_, Flaw::ActsLate) => op.not_after = now,
            (Command::Acquire(acquire), Flaw::NoClockFloor) => acquire.counter = Counter::Dense,
            (Command::Acquire(acquire), Flaw::RetryTakesNewToken) => {
                let own = acquire.lease.to_string();
                let lock = self.memory.lock_value(now, &acquire.key);
                if now <= op.not_after && lock.is_some_and(|(value, _)| value.starts_with(&own)) {
                    self.memory.delete(&acquire.key);
                }
            }
            _ => {}
        }
        let reply = self.one(now, op.clone());
        match (self.flaw, &op.command, &reply) {
            (
                Flaw::RenewalTakesGone,
                Command::Renew {
                    key, lease, ttl, ..
                },
                Ok(Reply::Gone),
            ) => {
                let owner = Owner::labelled("renewal").expect("a valid label");
                let command = Command::Acquire(Acquire {
                    key: key.clone(),
                    lease: *lease,
                    ttl: *ttl,
                    client: ClientId(1),
                    owner,
                    counter: FLOOR,
                });
                match self.one(now, Op { command, ..op })? {
                    Reply::Held(Held { expires, .. }) => Ok(Reply::Renewed { expires }),
                    other => Ok(other),
                }
            }
            (Flaw::ReleasesForOthers, Command::Release { key, .. }, Ok(Reply::Taken)) => {
                self.memory.delete(key);
                Ok(Reply::Released)
            }
            (Flaw::ReclaimKeepsToken, Command::Acquire(acquire), Ok(Reply::Held(held))) => {
                let token = former_token(&before, now, &acquire.key).unwrap_or(held.token);
                Ok(Reply::Held(Held { token, ..*held }))
            }
            (Flaw::ForgetsRenewals, Command::Renew { .. }, Ok(Reply::Renewed { .. }))
            | (Flaw::KeepsReleased, Command::Release { .. }, Ok(Reply::Released)) => {
                self.memory = before;
                reply
            }
            _ => reply,
        }
    }

    fn one(&mut self, now: ServerTime, op: Op) -> Result<Reply, Error> {
        let mut answer = self.memory.execute(now, &[op]);
        answer.replies.pop().expect("one reply to one operation")
    }
}

fn former_token(memory: &MemoryServer, now: ServerTime, key: &LockKey) -> Option<FencingToken> {
    let (value, _) = memory.lock_value(now, key)?;
    value.split(':').nth(2)?.parse().ok()
}
