//! The operations, by the names of `protocol/ops`: each does what its Lua there does.

use std::time::Duration;

use super::MemoryServer;
use super::keys::{Keys, Lock, expired, expiry};
use super::line::First;
use crate::error::Error;
use crate::protocol::{
    Acquire, Command, ForceRelease, Grant, Inspect, Inspected, List, News, Reclaim, Release, Renew,
    Reply,
};
use crate::time::ServerTime;
use crate::token::FencingToken;

impl MemoryServer {
    pub(super) fn apply(&mut self, now: ServerTime, command: &Command) -> Result<Reply, Error> {
        if let Some(key) = command.key() {
            self.expire(now, key);
        }
        match command {
            Command::Acquire(acquire) => self.acquire(now, acquire),
            Command::Renew(renew) => Ok(self.renew(now, renew)),
            Command::Release(release) => Ok(self.release(now, release)),
            Command::ForceRelease(force_release) => Ok(self.force_release(now, force_release)),
            Command::Inspect(inspect) => Ok(self.inspect(now, inspect)),
            Command::List(list) => Ok(self.list(now, list)),
        }
    }

    fn acquire(&mut self, now: ServerTime, acquire: &Acquire) -> Result<Reply, Error> {
        let Acquire {
            key, claim, ttl, ..
        } = acquire;
        if let Some(lock) = self.lock_mut(key) {
            if lock.lease == claim.lease {
                let (token, expires) = (lock.token, lock.extend(now, *ttl));
                return Ok(Reply::Held(Grant { token, expires }));
            }
            let (client, lease, token) = (lock.client, lock.lease, lock.token);
            let yields = lock.yields_to(claim);
            if yields && acquire.reclaims == Reclaim::Ask {
                return Ok(Reply::Reclaimable { token });
            }
            if yields && acquire.reclaims == Reclaim::From(token) {
                let grant = self.take(now, key, claim, *ttl)?;
                self.publish(client, lease, News::Superseded { token });
                self.leave_line(key, claim);
                return Ok(Reply::Held(grant));
            }
        } else {
            match self.first_in_line(now, key) {
                First::Alive(first) if !first.is_same(claim) => {
                    self.grant(now, key, &first)?;
                }
                First::Unknown => {
                    let (expires, place) = (Some(expiry(now, Duration::ZERO)), None);
                    return Ok(Reply::Busy { expires, place });
                }
                first => {
                    let grant = self.take(now, key, claim, *ttl)?;
                    if let First::Alive(_) = first {
                        self.leave_line(key, claim);
                    }
                    return Ok(Reply::Held(grant));
                }
            }
        }
        let mut place = None;
        if acquire.waits {
            match self.wait_in_line(now, key, claim) {
                Ok(own) => place = own,
                Err(waiting) => return Ok(Reply::Full { waiting }),
            }
        }
        let expires = self.lock(key).map(|lock| lock.expires);
        Ok(Reply::Busy { expires, place })
    }

    fn renew(&mut self, now: ServerTime, renew: &Renew) -> Reply {
        match self.lock_mut(&renew.key) {
            None => Reply::Gone,
            Some(lock) if lock.lease != renew.lease || lock.token != renew.token => Reply::Taken,
            Some(lock) => Reply::Renewed {
                expires: lock.extend(now, renew.ttl),
            },
        }
    }

    fn release(&mut self, now: ServerTime, Release { key, claim }: &Release) -> Reply {
        let holder = self.lock(key).map(|lock| lock.lease);
        if holder == Some(claim.lease) {
            self.free(now, key);
            return Reply::Released;
        }
        self.leave_line(key, claim);
        if holder.is_some() {
            return Reply::Taken;
        }
        self.free(now, key);
        Reply::Gone
    }

    fn force_release(&mut self, now: ServerTime, force_release: &ForceRelease) -> Reply {
        let ForceRelease { key, token } = force_release;
        let holder = self
            .lock(key)
            .map(|lock| (lock.client, lock.lease, lock.token));
        if holder.is_some_and(|(.., held)| held != *token) {
            return Reply::Taken;
        }
        self.free(now, key);
        let Some((client, lease, token)) = holder else {
            return Reply::Gone;
        };
        self.publish(client, lease, News::Revoked { token });
        Reply::Released
    }

    fn inspect(&self, now: ServerTime, Inspect { key }: &Inspect) -> Reply {
        let holder = self.lock(key).map(Lock::holder);
        let last_token = match &holder {
            Some(holder) => Some(holder.token),
            None => self
                .token_value(now, key)
                .and_then(|(last, _)| FencingToken::new(last).ok()),
        };
        let line = self.names.get(key).and_then(|keys| keys.line.as_ref());
        let (waiting, line) = line.map(|line| line.look(now)).unwrap_or_default();
        Reply::Inspected(Inspected {
            holder,
            last_token,
            waiting,
            line,
        })
    }

    /// The whole walk in one step: there is no cursor to go on from.
    fn list(&self, now: ServerTime, List { pattern, cursor }: &List) -> Reply {
        let is_held = |keys: &Keys| {
            let lock = keys.lock.as_ref();
            lock.is_some_and(|lock| !expired(now, lock.expires))
        };
        let held = self.names.iter().filter(|(_, keys)| is_held(keys));
        let names = held.filter_map(|(key, _)| pattern.name_of(&key.lock()));
        let names = if *cursor == 0 {
            names.collect()
        } else {
            Vec::new()
        };
        Reply::Listed {
            cursor: None,
            names,
        }
    }
}
