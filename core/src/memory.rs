//! A lock store in memory.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::name::Owner;
use crate::protocol::{
    Acquire, BatchReply, ClientId, Command, Counter, Held, Holder, LeaseId, LockKey, Op, Reply,
};
use crate::time::ServerTime;
use crate::token::FencingToken;

/// Executes the protocol's commands at a given server time, as a Redis with the lock script
/// would: the model that the script is tested against, the store of `memory://`, and the server
/// of the simulation. It has no clock and does no I/O.
///
/// ```
/// use leasehold::protocol::{Command, LockKey, Op, Reply};
/// use leasehold::time::ServerTime;
/// use leasehold::{MemoryServer, Name};
///
/// let mut server = MemoryServer::new();
/// let key = LockKey::new("ns", &Name::new("n")?)?;
/// let now = ServerTime::from_millis(1_000);
/// let inspect = Op { command: Command::Inspect { key }, not_after: now };
/// let answer = server.execute(now, &[inspect]);
/// assert_eq!(answer.replies, [Ok(Reply::Inspected { holder: None, last_token: None })]);
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemoryServer {
    locks: BTreeMap<LockKey, Lock>,
    counters: BTreeMap<LockKey, TokenCounter>,
    sweep_at: usize,
}

#[derive(Clone, Debug)]
struct Lock {
    lease: LeaseId,
    client: ClientId,
    token: FencingToken,
    owner: Owner,
    expires: ServerTime,
}

#[derive(Clone, Debug)]
struct TokenCounter {
    last: u64,
    expires: Option<ServerTime>,
}

impl MemoryServer {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Executes a batch at a moment of the server's clock, in order.
    pub fn execute(&mut self, now: ServerTime, batch: &[Op]) -> BatchReply {
        self.sweep(now);
        let replies = batch
            .iter()
            .map(|op| {
                if now > op.not_after {
                    Ok(Reply::Late)
                } else {
                    self.apply(now, &op.command)
                }
            })
            .collect();
        BatchReply { time: now, replies }
    }

    /// Forgets everything, as `FLUSHALL` does.
    pub fn flush(&mut self) {
        *self = Self::default();
    }

    /// Frees a lock as `DEL` on its key does; its counter stays.
    pub fn delete(&mut self, key: &LockKey) {
        self.locks.remove(key);
    }

    /// The lock's key as Redis would have it: its value, and when it expires.
    pub fn lock_value(&self, now: ServerTime, key: &LockKey) -> Option<(String, ServerTime)> {
        let lock = self
            .locks
            .get(key)
            .filter(|lock| !expired(now, lock.expires))?;
        let Lock {
            lease,
            client,
            token,
            owner,
            expires,
        } = lock;
        let kind = if owner.is_reclaimable() { 'r' } else { 'l' };
        Some((
            format!("{lease}:{client}:{token}:{kind}:{}", owner.label()),
            *expires,
        ))
    }

    /// The token counter's key as Redis would have it: its value, and when it expires.
    pub fn token_value(&self, now: ServerTime, key: &LockKey) -> Option<(u64, Option<ServerTime>)> {
        let counter = self.counters.get(key)?;
        let alive = !counter.expires.is_some_and(|expires| expired(now, expires));
        alive.then_some((counter.last, counter.expires))
    }

    fn apply(&mut self, now: ServerTime, command: &Command) -> Result<Reply, Error> {
        let key = command.key();
        if self
            .locks
            .get(key)
            .is_some_and(|lock| expired(now, lock.expires))
        {
            self.locks.remove(key);
        }
        match command {
            Command::Acquire(acquire) => self.acquire(now, acquire),
            Command::Renew {
                lease, token, ttl, ..
            } => Ok(self.renew(now, key, (*lease, *token), *ttl)),
            Command::Release { lease, .. } => Ok(self.release(key, *lease)),
            Command::ForceRelease { .. } => Ok(Reply::ForceReleased(
                self.locks.remove(key).map(|lock| lock.holder()),
            )),
            Command::Inspect { .. } => Ok(self.inspect(now, key)),
        }
    }

    fn acquire(&mut self, now: ServerTime, acquire: &Acquire) -> Result<Reply, Error> {
        let mut token = None;
        if let Some(lock) = self.locks.get(&acquire.key) {
            if lock.lease == acquire.lease {
                token = Some(lock.token);
            } else if !lock.yields_to(acquire) {
                return Ok(Reply::Busy {
                    expires: Some(lock.expires),
                });
            }
        }
        let token = match token {
            Some(token) => token,
            None => self.next_token(now, &acquire.key, acquire.counter)?,
        };
        let expires = expiry(now, acquire.ttl);
        let lock = Lock {
            lease: acquire.lease,
            client: acquire.client,
            token,
            owner: acquire.owner.clone(),
            expires,
        };
        self.locks.insert(acquire.key.clone(), lock);
        Ok(Reply::Held(Held { token, expires }))
    }

    fn renew(
        &mut self,
        now: ServerTime,
        key: &LockKey,
        tenure: (LeaseId, FencingToken),
        ttl: Duration,
    ) -> Reply {
        match self.locks.get_mut(key) {
            None => Reply::Gone,
            Some(lock) if (lock.lease, lock.token) != tenure => Reply::Taken,
            Some(lock) => {
                lock.expires = expiry(now, ttl);
                Reply::Renewed {
                    expires: lock.expires,
                }
            }
        }
    }

    fn release(&mut self, key: &LockKey, lease: LeaseId) -> Reply {
        match self.locks.get(key) {
            None => Reply::Gone,
            Some(lock) if lock.lease != lease => Reply::Taken,
            Some(_) => {
                self.locks.remove(key);
                Reply::Released
            }
        }
    }

    fn inspect(&self, now: ServerTime, key: &LockKey) -> Reply {
        let holder = self.locks.get(key).map(Lock::holder);
        let last_token = match &holder {
            Some(holder) => Some(holder.token),
            None => self
                .token_value(now, key)
                .and_then(|(last, _)| FencingToken::new(last).ok()),
        };
        Reply::Inspected { holder, last_token }
    }

    fn next_token(
        &mut self,
        now: ServerTime,
        key: &LockKey,
        counter: Counter,
    ) -> Result<FencingToken, Error> {
        let last = self.token_value(now, key).map_or(0, |(last, _)| last);
        let (next, expires) = match counter {
            Counter::Dense => (last + 1, None),
            Counter::ClockFloor { retention } => (
                (last + 1).max(now.as_micros()),
                Some(expiry(now, retention)),
            ),
        };
        let token = FencingToken::new(next)
            .map_err(|_| Error::new(ErrorKind::Store, "the token counter is used up"))?;
        self.counters.insert(
            key.clone(),
            TokenCounter {
                last: next,
                expires,
            },
        );
        Ok(token)
    }

    /// Drops what has expired whenever the store has doubled since the last time.
    fn sweep(&mut self, now: ServerTime) {
        if self.locks.len() + self.counters.len() <= self.sweep_at {
            return;
        }
        self.locks.retain(|_, lock| !expired(now, lock.expires));
        self.counters
            .retain(|_, counter| !counter.expires.is_some_and(|at| expired(now, at)));
        self.sweep_at = (self.locks.len() + self.counters.len()) * 2 + 1_024;
    }
}

impl Lock {
    fn yields_to(&self, acquire: &Acquire) -> bool {
        self.owner.is_reclaimable() && self.owner == acquire.owner && self.client != acquire.client
    }

    fn holder(&self) -> Holder {
        let Lock {
            token,
            owner,
            expires,
            ..
        } = self;
        Holder {
            token: *token,
            expires: Some(*expires),
            owner: owner.clone(),
        }
    }
}

/// Redis counts in whole milliseconds, and a key lives through the one it expires in.
fn expired(now: ServerTime, expires: ServerTime) -> bool {
    now.millis() > expires.millis()
}

fn expiry(now: ServerTime, ttl: Duration) -> ServerTime {
    let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
    ServerTime::from_millis(now.millis().saturating_add(millis))
}
