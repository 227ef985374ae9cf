//! What the operations are made of: the functions of `protocol/lua`, by the same names.

use std::num::NonZeroU32;
use std::time::Duration;

use super::MemoryServer;
use super::keys::{Lock, TokenCounter, expiry};
use super::line::First;
use crate::error::{Error, ErrorKind};
use crate::protocol::{Claim, ClientId, Counter, Grant, LeaseId, LockKey, News, Push};
use crate::time::ServerTime;
use crate::token::FencingToken;

impl MemoryServer {
    pub(super) fn take(
        &mut self,
        now: ServerTime,
        key: &LockKey,
        claim: &Claim,
        time: Duration,
    ) -> Result<Grant, Error> {
        let token = self.next_token(now, key, claim.counter)?;
        let expires = expiry(now, time);
        let lock = Lock {
            lease: claim.lease,
            client: claim.client,
            token,
            owner: claim.owner.clone(),
            expires,
        };
        self.names.entry(key.clone()).or_default().lock = Some(Box::new(lock));
        Ok(Grant { token, expires })
    }

    pub(super) fn next_token(
        &mut self,
        now: ServerTime,
        key: &LockKey,
        counter: Counter,
    ) -> Result<FencingToken, Error> {
        let known = self.token_value(now, key);
        let last = known.map_or(0, |(last, _)| last);
        let (next, expires) = match counter {
            Counter::Dense => (last + 1, None),
            Counter::ClockFloor { retention } => (
                (last + 1).max(now.as_micros()),
                // A counter that was to be kept for ever is kept, also after a client of another kind.
                known
                    .is_none_or(|(_, expires)| expires.is_some())
                    .then(|| expiry(now, retention)),
            ),
        };
        let token = FencingToken::new(next)
            .map_err(|_| Error::new(ErrorKind::Store, "the token counter is used up"))?;
        let keys = self.names.entry(key.clone()).or_default();
        keys.counter = Some(TokenCounter {
            last: next,
            expires,
        });
        Ok(token)
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

    pub(super) fn first_in_line(&mut self, now: ServerTime, key: &LockKey) -> First {
        let keys = self.names.get_mut(key);
        let Some(line) = keys.and_then(|keys| keys.line.as_mut()) else {
            return First::Nobody;
        };
        let first = line.first(now);
        self.drop_empty_line(key);
        first
    }

    pub(super) fn grant(
        &mut self,
        now: ServerTime,
        key: &LockKey,
        claim: &Claim,
    ) -> Result<(), Error> {
        let window = claim.window.min(Claim::LONGEST_WINDOW);
        let token = self.take(now, key, claim, window)?.token;
        self.leave_line(key, claim);
        let expires = expiry(now, window / 2);
        let (grant, time) = (Grant { token, expires }, now);
        let heard = self.publish(claim.client, claim.lease, News::Granted { grant, time });
        if let Some(lock) = self.lock_mut(key)
            && !heard
        {
            lock.expires = expires;
        }
        Ok(())
    }

    pub(super) fn free(&mut self, now: ServerTime, key: &LockKey) {
        let granted = match self.first_in_line(now, key) {
            First::Alive(first) => self.grant(now, key, &first).is_ok(),
            First::Nobody | First::Unknown => false,
        };
        if !granted {
            self.remove_lock(key);
        }
    }

    /// Takes a place in line, or confirms it. If the line is full, how many wait.
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

impl Lock {
    /// Makes it last so long, if it would not anyway; returns until when it lasts.
    pub(super) fn extend(&mut self, now: ServerTime, ttl: Duration) -> ServerTime {
        self.expires = self.expires.max(expiry(now, ttl));
        self.expires
    }
}
