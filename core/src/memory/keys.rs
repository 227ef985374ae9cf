//! What is stored of one name.

use std::time::Duration;

use super::MemoryServer;
use super::line::Line;
use crate::name::Owner;
use crate::protocol::{Claim, ClientId, Holder, LeaseId, LockKey};
use crate::time::ServerTime;
use crate::token::FencingToken;

/// What is stored of one name. With none of the three the name is not in the map.
#[derive(Clone, Debug, Default)]
pub(super) struct Keys {
    pub(super) lock: Option<Box<Lock>>,
    pub(super) counter: Option<TokenCounter>,
    pub(super) line: Option<Box<Line>>,
}

#[derive(Clone, Debug)]
pub(super) struct Lock {
    pub(super) lease: LeaseId,
    pub(super) client: ClientId,
    pub(super) token: FencingToken,
    pub(super) owner: Owner,
    pub(super) expires: ServerTime,
}

#[derive(Clone, Debug)]
pub(super) struct TokenCounter {
    pub(super) last: u64,
    pub(super) expires: Option<ServerTime>,
}

/// Looking up and forgetting.
impl MemoryServer {
    pub(super) fn lock(&self, key: &LockKey) -> Option<&Lock> {
        self.names.get(key)?.lock.as_deref()
    }

    pub(super) fn lock_mut(&mut self, key: &LockKey) -> Option<&mut Lock> {
        self.names.get_mut(key)?.lock.as_deref_mut()
    }

    pub(super) fn remove_lock(&mut self, key: &LockKey) {
        self.update(key, |keys| keys.lock = None);
    }

    pub(super) fn drop_empty_line(&mut self, key: &LockKey) {
        self.update(key, |keys| {
            keys.line.take_if(|line| line.is_empty());
        });
    }

    pub(super) fn expire(&mut self, now: ServerTime, key: &LockKey) {
        self.update(key, |keys| keys.expire(now));
    }

    /// Drops what has expired, whenever there are twice as many names as after the last time.
    pub(super) fn sweep(&mut self, now: ServerTime) {
        if self.names.len() <= self.sweep_at {
            return;
        }
        self.names.retain(|_, keys| {
            keys.expire(now);
            keys.counter.take_if(|counter| counter.is_expired(now));
            !keys.is_empty()
        });
        self.sweep_at = self.names.len() * 2 + 1_024;
    }

    /// Changes what is stored of a name, and forgets the name if nothing is left.
    fn update(&mut self, key: &LockKey, change: impl FnOnce(&mut Keys)) {
        if let Some(keys) = self.names.get_mut(key) {
            change(keys);
            if keys.is_empty() {
                self.names.remove(key);
            }
        }
    }
}

impl Keys {
    /// Drops the lock and the line. An expired counter may stay, because whoever reads it checks.
    pub(super) fn expire(&mut self, now: ServerTime) {
        self.lock.take_if(|lock| expired(now, lock.expires));
        self.line.take_if(|line| expired(now, line.expires()));
    }

    /// Until when each of them is kept, or counts.
    pub(super) fn times(&mut self) -> impl Iterator<Item = &mut ServerTime> {
        let lock = self.lock.iter_mut().map(|lock| &mut lock.expires);
        let counter = self.counter.iter_mut();
        let counter = counter.filter_map(|counter| counter.expires.as_mut());
        let line = self.line.iter_mut().flat_map(|line| line.times());
        lock.chain(counter).chain(line)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock.is_none() && self.counter.is_none() && self.line.is_none()
    }
}

impl TokenCounter {
    pub(super) fn is_expired(&self, now: ServerTime) -> bool {
        self.expires.is_some_and(|expires| expired(now, expires))
    }
}

impl Lock {
    pub(super) fn yields_to(&self, claim: &Claim) -> bool {
        self.owner.is_reclaimable() && self.owner == claim.owner && self.client != claim.client
    }

    pub(super) fn holder(&self) -> Holder {
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
pub(super) fn expired(now: ServerTime, expires: ServerTime) -> bool {
    now.millis() > expires.millis()
}

pub(super) fn expiry(now: ServerTime, ttl: Duration) -> ServerTime {
    let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
    ServerTime::from_millis(now.millis().saturating_add(millis))
}
