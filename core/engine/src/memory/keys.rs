//! The stored data of one name.

use std::time::Duration;

use super::MemoryServer;
use super::holders::Holders;
use super::line::Line;
use super::share::Record;
use crate::name::Owner;
use crate::protocol::limits::{EXPIRY_LENGTH, TICK_LENGTH, TOKEN_LENGTH};
use crate::protocol::{Claim, ClientId, CompletedTick, Holder, LeaseId, LockKey, YieldRequest};
use crate::time::ServerTime;
use crate::token::FencingToken;

/// The stored data of one name. A name without data is not in the map.
#[derive(Clone, Debug, Default)]
pub(super) struct Keys {
    pub(super) hash: Option<Hash>,
    pub(super) line: Option<Box<Line>>,
    pub(super) holders: Option<Box<Holders>>,
}

/// The value of the lock's key.
#[derive(Clone, Debug)]
pub(super) struct Hash {
    pub(super) last: u64,
    /// True if the last token does not tell when the key's expiry was set: the key may expire soon, the token
    /// was ahead of the clock's step, or a renewal raised it.
    pub(super) is_brief: bool,
    /// The completed tick, if the name is a job's.
    pub(super) job: Option<Done>,
    /// The record and the permits, if the name is shared.
    pub(super) share: Option<Box<Record>>,
    /// The tenure stays after it expired, until the next one replaces it.
    pub(super) tenure: Option<Box<StoredTenure>>,
    /// The expiry of the key, not of the tenure.
    pub(super) expires: Option<ServerTime>,
}

/// The last completed tick of a job, if one was completed.
pub(super) type Done = Option<CompletedTick>;

/// The current tenure of a lock, or an expired one, as [`MemoryServer`] stores it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredTenure {
    /// The ID of the acquisition.
    pub lease: LeaseId,
    /// The client that holds the lock.
    pub client: ClientId,
    /// The fencing token.
    pub token: FencingToken,
    /// The holder's owner or label, as others see it.
    pub owner: Owner,
    /// When the tenure expires.
    pub expires: ServerTime,
    /// The last request to its holder to yield. Its time may have passed.
    pub request: Option<YieldRequest>,
}

/// Lookups and removals.
impl MemoryServer {
    pub(super) fn hash(&self, now: ServerTime, key: &LockKey) -> Option<&Hash> {
        let hash = self.names.get(key)?.hash.as_ref()?;
        (!hash.is_expired(now)).then_some(hash)
    }

    pub(super) fn hash_mut(&mut self, key: &LockKey) -> Option<&mut Hash> {
        self.names.get_mut(key)?.hash.as_mut()
    }

    pub(super) fn remove_hash(&mut self, key: &LockKey) {
        self.update(key, |keys| keys.hash = None);
    }

    pub(super) fn remove_tenure(&mut self, key: &LockKey) {
        if let Some(hash) = self.hash_mut(key) {
            hash.tenure = None;
        }
    }

    pub(super) fn drop_empty_line(&mut self, key: &LockKey) {
        self.update(key, |keys| {
            keys.line.take_if(|line| line.is_empty());
        });
    }

    pub(super) fn remove_holders(&mut self, key: &LockKey) {
        self.update(key, |keys| keys.holders = None);
    }

    pub(super) fn expire(&mut self, now: ServerTime, key: &LockKey) {
        self.update(key, |keys| keys.expire(now));
    }

    /// Drops expired data whenever there are twice as many names as after the last time.
    pub(super) fn sweep(&mut self, now: ServerTime) {
        if self.names.len() <= self.sweep_at {
            return;
        }
        self.names.retain(|_, keys| {
            keys.expire(now);
            !keys.is_empty()
        });
        self.sweep_at = self.names.len() * 2 + 1_024;
    }

    /// Changes the data of a name, and removes the name if nothing is left.
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
    pub(super) fn expire(&mut self, now: ServerTime) {
        self.hash.take_if(|hash| hash.is_expired(now));
        self.line.take_if(|line| expired(now, line.expires()));
        self.holders.take_if(|holders| holders.is_expired(now));
    }

    /// Returns all times of the name: expiries, and until when waiters count as alive.
    pub(super) fn times(&mut self) -> impl Iterator<Item = &mut ServerTime> {
        let hash = self.hash.iter_mut().flat_map(|hash| {
            let tenure = hash.tenure.iter_mut().map(|tenure| &mut tenure.expires);
            tenure.chain(hash.expires.as_mut())
        });
        let line = self.line.iter_mut().flat_map(|line| line.times());
        let holders = self.holders.iter_mut().flat_map(|holders| holders.times());
        hash.chain(line).chain(holders)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.hash.is_none() && self.line.is_none() && self.holders.is_none()
    }
}

impl Hash {
    fn is_expired(&self, now: ServerTime) -> bool {
        self.expires.is_some_and(|expires| expired(now, expires))
    }

    pub(super) fn fields(&self) -> Vec<(String, String)> {
        let mark = if self.is_brief { "+" } else { "" };
        let tenure = self.tenure.iter().map(|tenure| {
            let StoredTenure {
                lease,
                client,
                token,
                owner,
                expires,
                request,
            } = &**tenure;
            let (expires, kind, label) = (expires.millis(), owner.kind(), owner.stored());
            let token = token.get();
            let asked = if request.is_some() { "y" } else { "" };
            (
                format!("{lease}{token:016}{asked}"),
                format!("{expires:013}{client}{kind}{label}"),
            )
        });
        let last = ("t".to_owned(), format!("{:016}{mark}", self.last));
        let done = self
            .job
            .iter()
            .map(|done| ("d".to_owned(), stored(done.as_ref())));
        let request = self.tenure.iter().filter_map(|tenure| {
            let YieldRequest { until, by } = tenure.request.as_ref()?;
            Some(("y".to_owned(), format!("{:013}{}", until.millis(), by)))
        });
        let share = self.share.iter().flat_map(|record| record.fields());
        let fields = tenure.chain([last]).chain(done).chain(request);
        fields.chain(share).collect()
    }
}

/// Returns the last completed tick as it is stored.
fn stored(done: Option<&CompletedTick>) -> String {
    let (token, tick, at, by) = done.map_or((0, 0, 0, ""), |done| {
        (
            done.token.get(),
            done.tick.get(),
            done.at.millis(),
            &*done.by,
        )
    });
    format!("{token:0TOKEN_LENGTH$}{tick:0TICK_LENGTH$}{at:0EXPIRY_LENGTH$}{by}")
}

impl StoredTenure {
    pub(super) fn is_held(&self, now: ServerTime) -> bool {
        !expired(now, self.expires)
    }

    /// Returns the request to the holder to yield, unless its time has passed.
    pub(super) fn wanted(&self, now: ServerTime) -> Option<&YieldRequest> {
        let request = self.request.as_ref();
        request.filter(|request| !expired(now, request.until))
    }

    pub(super) fn yields_to(&self, claim: &Claim) -> bool {
        self.owner.is_reclaimable() && self.owner == claim.owner && self.client != claim.client
    }

    pub(super) fn holder(&self) -> Holder {
        Holder {
            token: self.token,
            expires: self.expires,
            owner: self.owner.clone(),
        }
    }
}

/// Returns true if a key or tenure with this expiry is over. As in Redis, it exists through its last whole
/// millisecond.
pub(super) fn expired(now: ServerTime, expires: ServerTime) -> bool {
    now.millis() > expires.millis()
}

pub(super) fn expiry(now: ServerTime, ttl: Duration) -> ServerTime {
    let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
    ServerTime::from_millis(now.millis().saturating_add(millis))
}
