//! The steps of the operations, named like the functions of `protocol/lua`.

use std::num::NonZeroU32;
use std::time::Duration;

use super::MemoryServer;
use super::keys::{Hash, StoredTenure, expiry};
use super::line::First;
use crate::error::{Error, ErrorKind};
use crate::protocol::limits::{
    KEPT_LONGER_MS, KEPT_STEP_MS, LEAST_PLAIN_RETENTION_MS, MOST_APART_US, MOST_PLAIN_TTL_MS,
};
use crate::protocol::{Claim, ClientId, Counter, Grant, LeaseId, LockKey, News, Push, Retire};
use crate::share::{Share, Sharing};
use crate::time::ServerTime;
use crate::token::FencingToken;

impl MemoryServer {
    pub(super) fn take(
        &mut self,
        now: ServerTime,
        key: &LockKey,
        (claim, time): (&Claim, Duration),
        proposed: Option<FencingToken>,
    ) -> Result<Grant, Error> {
        let hash = self.hash(now, key);
        let last = hash.map_or(0, |hash| hash.last);
        let is_near = |token: &u64| token.abs_diff(now.as_micros()) < MOST_APART_US;
        let proposed = proposed.map(FencingToken::get).filter(is_near);
        let clock = proposed.map_or(now, ServerTime::from_micros);
        let token = next_token(clock, last, claim.counter)?;
        let kept = kept_until(now, claim.counter, time);
        let is_due = is_due(clock, hash, (claim.counter, time));
        let key_expires = hash.map_or(kept, |hash| longer_if(is_due, hash.expires, kept));
        let is_brief = is_marked(clock, token, claim.counter);
        let expires = expiry(now, time);
        let tenure = StoredTenure {
            lease: claim.lease,
            client: claim.client,
            token,
            owner: claim.owner.clone(),
            expires,
            request: None,
        };
        let job = hash.and_then(|hash| hash.job.clone());
        self.names.entry(key.clone()).or_default().hash = Some(Hash {
            last: token.get(),
            is_brief,
            job: job.or_else(|| claim.owner.tick().map(|_| None)),
            share: None,
            tenure: Some(Box::new(tenure)),
            expires: key_expires,
        });
        Ok(Grant { token, expires })
    }

    /// Extends the current tenure to this time to live, unless it already lasts longer. Returns its expiry.
    pub(super) fn extend(
        &mut self,
        now: ServerTime,
        key: &LockKey,
        (counter, ttl): (Counter, Duration),
        is_common: bool,
    ) -> ServerTime {
        let until = expiry(now, ttl);
        let Some(hash) = self.hash_mut(key) else {
            return until;
        };
        let kept = hash.expires;
        let Some(tenure) = hash.tenure.as_deref_mut() else {
            return until;
        };
        if until > tenure.expires {
            let same_step = step_of(tenure.expires) == step_of(until);
            tenure.expires = until;
            let is_set = is_common && same_step;
            if counter == Counter::Dense && is_common && !is_set {
                let least = expiry(now, Duration::from_millis(KEPT_LONGER_MS));
                hash.expires = longer(kept, Some(least));
            } else if counter != Counter::Dense && !(is_set && is_plain(counter, ttl)) {
                hash.expires = longer(kept, kept_until(now, counter, ttl));
            }
        }
        tenure.expires
    }

    /// Ends the current tenure and keeps its name taken for this time.
    pub(super) fn keep_taken(
        &mut self,
        now: ServerTime,
        key: &LockKey,
        (counter, time): (Counter, Duration),
    ) {
        let Some(hash) = self.hash_mut(key) else {
            return;
        };
        hash.expires = longer(hash.expires, kept_until(now, counter, time));
        if let Some(tenure) = hash.tenure.as_deref_mut() {
            (tenure.lease, tenure.client) = (Retire::NO_LEASE, Retire::NO_CLIENT);
            tenure.owner = tenure.owner.as_label();
            (tenure.expires, tenure.request) = (expiry(now, time), None);
        }
    }

    /// Raises the last token to a floor. The tenure keeps its own token.
    pub(super) fn raise(&mut self, key: &LockKey, floor: FencingToken) {
        if let Some(hash) = self.hash_mut(key)
            && hash.last < floor.get()
        {
            hash.last = floor.get();
            hash.is_brief = true;
        }
    }

    pub(super) fn publish(&mut self, client: ClientId, lease: LeaseId, news: News) -> bool {
        let heard = self.subscribers.binary_search(&client).is_ok();
        if heard {
            self.pushes.push((client, Push::new(lease, news)));
        }
        heard
    }

    pub(super) fn leave_line(&mut self, key: &LockKey, claim: &Claim) {
        if let Some(keys) = self.names.get_mut(key)
            && let Some(line) = &mut keys.line
        {
            line.leave(claim);
            self.drop_empty_line(key);
        }
    }

    /// Returns the first waiter that is alive and waits for this use of the name.
    pub(super) fn first_in_line(
        &mut self,
        now: ServerTime,
        key: &LockKey,
        sharing: Option<Sharing>,
    ) -> First {
        let Some(keys) = self.names.get_mut(key) else {
            return First::Nobody;
        };
        let done = keys.hash.as_ref().and_then(|hash| hash.job.clone());
        let Some(line) = &mut keys.line else {
            return First::Nobody;
        };
        let (done, mut over) = (done.flatten(), Vec::new());
        let first = line.first(now, |claim| {
            let is_other = claim.owner.share().map(Share::sharing) != sharing;
            let done = done.as_ref().filter(|done| done.includes(claim));
            let token = if is_other {
                FencingToken::new(1).ok()
            } else {
                done.map(|done| done.token)
            };
            over.extend(token.map(|token| (claim.client, claim.lease, token)));
            token.is_some()
        });
        self.drop_empty_line(key);
        for (client, lease, token) in over {
            self.publish(client, lease, News::Completed { token });
        }
        first
    }

    pub(super) fn grant(
        &mut self,
        now: ServerTime,
        key: &LockKey,
        claim: &Claim,
        asker: Option<ClientId>,
    ) -> Result<Option<Grant>, Error> {
        let window = claim.window.min(Claim::LONGEST_WINDOW);
        let is_own = asker == Some(claim.client);
        let time = if is_own { claim.ttl } else { window };
        let grant = self.take(now, key, (claim, time), None)?;
        self.leave_line(key, claim);
        if is_own {
            return Ok(Some(grant));
        }
        let expires = expiry(now, window / 2);
        let (grant, time) = (Grant { expires, ..grant }, now);
        let heard = self.publish(claim.client, claim.lease, News::Granted { grant, time });
        if !heard && let Some(tenure) = self.hash_mut(key).and_then(|hash| hash.tenure.as_mut()) {
            tenure.expires = expires;
        }
        Ok(None)
    }

    /// Frees the lock and serves the line. Returns the new lease if it belongs to the client that asks.
    pub(super) fn serve(
        &mut self,
        now: ServerTime,
        key: &LockKey,
        asker: Option<ClientId>,
    ) -> Option<(LeaseId, Grant)> {
        self.remove_tenure(key);
        let First::Alive(first) = self.first_in_line(now, key, None) else {
            return None;
        };
        let granted = self.grant(now, key, &first, asker);
        granted.ok()?.map(|grant| (first.lease, grant))
    }

    /// Takes a place in line, or confirms it. If the line is full, returns the number of waiters as `Err`.
    pub(super) fn wait_in_line(
        &mut self,
        now: ServerTime,
        key: &LockKey,
        claim: &Claim,
    ) -> Result<Option<NonZeroU32>, u32> {
        let keys = self.names.entry(key.clone()).or_default();
        let line = keys.line.get_or_insert_default();
        line.wait(now, claim).map(NonZeroU32::new)
    }
}

pub(super) fn next_token(
    now: ServerTime,
    last: u64,
    counter: Counter,
) -> Result<FencingToken, Error> {
    let next = match counter {
        Counter::Dense => last + 1,
        Counter::ClockFloor { .. } => (last + 1).max(now.as_micros()),
    };
    let used_up = |_| Error::new(ErrorKind::Store, "the token counter is used up");
    FencingToken::new(next).map_err(used_up)
}

/// Returns when the key of a tenure that begins now expires, or `None` for never.
pub(super) fn kept_until(now: ServerTime, counter: Counter, time: Duration) -> Option<ServerTime> {
    let Counter::ClockFloor { retention } = counter else {
        return None;
    };
    let longer = if is_brief(counter) || time > MOST_PLAIN_TTL {
        time
    } else {
        Duration::from_millis(KEPT_LONGER_MS)
    };
    Some(expiry(now, whole(retention) + whole(longer)))
}

pub(super) fn longer_if(
    is_due: bool,
    one: Option<ServerTime>,
    other: Option<ServerTime>,
) -> Option<ServerTime> {
    if is_due { longer(one, other) } else { one }
}

pub(super) fn longer(one: Option<ServerTime>, other: Option<ServerTime>) -> Option<ServerTime> {
    one.zip(other).map(|(one, other)| one.max(other))
}

fn is_brief(counter: Counter) -> bool {
    let least = Duration::from_millis(LEAST_PLAIN_RETENTION_MS);
    matches!(counter, Counter::ClockFloor { retention } if retention < least)
}

/// Returns true if the expiry of the key must be set for a tenure or a permit that begins now.
pub(super) fn is_due(
    clock: ServerTime,
    hash: Option<&Hash>,
    (counter, time): (Counter, Duration),
) -> bool {
    let is_set = |hash: &Hash| !hash.is_brief && is_in_step(clock, hash.last);
    !hash.is_some_and(is_set) || !is_plain(counter, time)
}

/// Returns true if the token does not tell in which step of the clock the key's expiry was set.
pub(super) fn is_marked(clock: ServerTime, token: FencingToken, counter: Counter) -> bool {
    counter != Counter::Dense && !is_in_step(clock, token.get()) || is_brief(counter)
}

/// Returns true if the expiry of the key is set only once per step of the clock.
fn is_plain(counter: Counter, time: Duration) -> bool {
    let is_floor = counter != Counter::Dense;
    is_floor && !is_brief(counter) && whole(time) <= MOST_PLAIN_TTL
}

const MOST_PLAIN_TTL: Duration = Duration::from_millis(MOST_PLAIN_TTL_MS);

pub(super) fn whole(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

fn is_in_step(clock: ServerTime, token: u64) -> bool {
    step_of(ServerTime::from_micros(token)) == step_of(clock)
}

fn step_of(time: ServerTime) -> u64 {
    time.millis() / KEPT_STEP_MS
}
