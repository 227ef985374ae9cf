//! A lock store in memory.

mod line;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::name::Owner;
use crate::protocol::{
    Acquire, BatchReply, Claim, ClientId, Command, Counter, ForceRelease, Grant, Holder, Inspect,
    Inspected, LeaseId, List, LockKey, News, Op, Pattern, Push, Reclaim, Release, Renew, Reply,
};
use crate::time::ServerTime;
use crate::token::FencingToken;
use line::{First, Line};

/// Executes the protocol's commands in memory, as a Redis with the lock script would. The script is
/// tested against it, `memory://` stores and the simulation run on it. It has no clock and does no I/O:
/// each call is given the server's time.
///
/// ```
/// use leasehold::protocol::{Command, Inspect, LockKey, Op, Reply};
/// use leasehold::time::ServerTime;
/// use leasehold::{MemoryServer, Name};
///
/// let mut server = MemoryServer::new();
/// let key = LockKey::new("ns", &Name::new("n")?)?;
/// let now = ServerTime::from_millis(1_000);
/// let inspect = Op { command: Command::Inspect(Inspect { key }), not_after: now };
/// let answer = server.execute(now, &[inspect]);
/// assert!(matches!(&answer.replies[..], [Ok(Reply::Inspected(seen))] if seen.holder.is_none()));
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemoryServer {
    names: BTreeMap<LockKey, Keys>,
    /// Sorted.
    subscribers: Vec<ClientId>,
    pushes: Vec<(ClientId, Push)>,
    /// With more names than this the next batch first drops what has expired.
    sweep_at: usize,
}

/// What is stored of one name. With none of the three the name is not in the map.
#[derive(Clone, Debug, Default)]
struct Keys {
    lock: Option<Box<Lock>>,
    counter: Option<TokenCounter>,
    line: Option<Box<Line>>,
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

/// Batches, subscriptions, and what a test does to a server.
impl MemoryServer {
    /// An empty store.
    ///
    /// ```
    /// use leasehold::protocol::LockKey;
    /// use leasehold::time::ServerTime;
    /// use leasehold::{MemoryServer, Name};
    ///
    /// let key = LockKey::new("ns", &Name::new("orders/42")?)?;
    /// assert_eq!(MemoryServer::new().lock_value(ServerTime::from_millis(1_000), &key), None);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Executes a batch in order, all at one moment of the server's clock. An operation whose
    /// `not_after` is past does nothing, and its reply is [`Reply::Late`].
    ///
    /// ```
    #[doc = include_str!("memory/doc_setup.txt")]
    /// // A client holds the lock and releases it.
    /// use leasehold::protocol::Reply;
    ///
    /// let done = server.execute(now, &[release]);
    /// assert_eq!(done.replies, [Ok(Reply::Released)]);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
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

    /// From now on there are pushes for a client, to be had from [`take_pushes`](Self::take_pushes).
    ///
    /// ```
    #[doc = include_str!("memory/doc_setup.txt")]
    /// // Client 1 holds the lock, and client 2 waits for it.
    /// server.subscribe(ClientId(2));
    /// server.execute(now, &[release]);
    /// assert_eq!(server.take_pushes().len(), 1);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn subscribe(&mut self, client: ClientId) {
        if let Err(place) = self.subscribers.binary_search(&client) {
            self.subscribers.insert(place, client);
        }
    }

    /// From now on there are no pushes for a client, as if its connection had broken.
    ///
    /// ```
    #[doc = include_str!("memory/doc_setup.txt")]
    /// // Client 1 holds the lock, and client 2 waits for it.
    /// server.subscribe(ClientId(2));
    /// server.unsubscribe(ClientId(2));
    /// server.execute(now, &[release]);
    /// assert!(server.take_pushes().is_empty());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn unsubscribe(&mut self, client: ClientId) {
        if let Ok(place) = self.subscribers.binary_search(&client) {
            self.subscribers.remove(place);
        }
    }

    /// The pushes for subscribed clients since this was last called, oldest first.
    ///
    /// ```
    #[doc = include_str!("memory/doc_setup.txt")]
    /// // Client 1 holds the lock, and client 2 waits for it.
    /// server.subscribe(ClientId(2));
    /// server.execute(now, &[release]);
    /// let pushes = server.take_pushes();
    /// assert!(matches!(pushes[..], [(ClientId(2), _)]));
    /// assert!(server.take_pushes().is_empty());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn take_pushes(&mut self) -> Vec<(ClientId, Push)> {
        std::mem::take(&mut self.pushes)
    }

    /// Forgets all locks, tokens and lines, as `FLUSHALL` does.
    ///
    /// ```
    #[doc = include_str!("memory/doc_setup.txt")]
    /// // A client holds the lock.
    /// server.flush();
    /// assert_eq!(server.lock_value(now, &key), None);
    /// assert_eq!(server.token_value(now, &key), None);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn flush(&mut self) {
        self.names.clear();
    }

    /// Frees a lock as `DEL` on its key does; its token counter and its line stay.
    ///
    /// ```
    #[doc = include_str!("memory/doc_setup.txt")]
    /// // A client holds the lock.
    /// server.delete(&key);
    /// assert_eq!(server.lock_value(now, &key), None);
    /// assert!(server.token_value(now, &key).is_some());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn delete(&mut self, key: &LockKey) {
        self.remove_lock(key);
    }

    /// The lock's key as Redis would have it: its value, and when it expires.
    ///
    /// ```
    #[doc = include_str!("memory/doc_setup.txt")]
    /// // A client holds the lock for 30 s.
    /// let (value, expires) = server.lock_value(now, &key).unwrap();
    /// assert!(value.ends_with(":me"));
    /// assert_eq!(expires, now + Duration::from_secs(30));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn lock_value(&self, now: ServerTime, key: &LockKey) -> Option<(String, ServerTime)> {
        let lock = self.lock(key).filter(|lock| !expired(now, lock.expires))?;
        let Lock {
            lease,
            client,
            token,
            owner,
            expires,
        } = lock;
        let (kind, label) = (owner.kind(), owner.label());
        Some((format!("{lease}:{client}:{token}:{kind}:{label}"), *expires))
    }

    /// The token counter's key as Redis would have it: the last token, and when the key expires;
    /// never, with dense tokens.
    ///
    /// ```
    #[doc = include_str!("memory/doc_setup.txt")]
    /// // A client holds the lock.
    /// let (last, expires) = server.token_value(now, &key).unwrap();
    /// assert_eq!(last, now.as_micros());
    /// assert_eq!(expires, Some(now + Duration::from_secs(60)));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn token_value(&self, now: ServerTime, key: &LockKey) -> Option<(u64, Option<ServerTime>)> {
        let counter = self.names.get(key)?.counter.as_ref()?;
        let alive = !counter.is_expired(now);
        alive.then_some((counter.last, counter.expires))
    }

    /// The two keys of the line as Redis would have them: the claims that wait, each with its arrival in
    /// microseconds and the time until which it counts as alive; and when both keys expire.
    ///
    /// ```
    #[doc = include_str!("memory/doc_setup.txt")]
    /// // Client 1 holds the lock, and client 2 waits for it.
    /// let (claims, _) = server.line_value(now, &key).unwrap();
    /// let (_, arrival, alive_until) = &claims[0];
    /// assert_eq!(*arrival, now.as_micros());
    /// assert_eq!(*alive_until, now + Duration::from_secs(12));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn line_value(&self, now: ServerTime, key: &LockKey) -> Option<LineValue> {
        let line = self.names.get(key)?.line.as_ref()?;
        let there = !line.is_empty() && !expired(now, line.expires());
        there.then(|| (line.members(), line.expires()))
    }
}

/// Claims with their two scores, and when their keys expire.
type LineValue = (Vec<(String, u64, ServerTime)>, ServerTime);

/// The operations.
impl MemoryServer {
    fn apply(&mut self, now: ServerTime, command: &Command) -> Result<Reply, Error> {
        if let Some(key) = command.key() {
            self.expire(now, key);
        }
        match command {
            Command::Acquire(acquire) => self.acquire(now, acquire),
            Command::Renew(Renew {
                key,
                lease,
                token,
                ttl,
            }) => Ok(self.renew(now, key, (*lease, *token), *ttl)),
            Command::Release(Release { key, claim }) => Ok(self.release(now, key, claim)),
            Command::ForceRelease(ForceRelease { key, token }) => {
                Ok(self.force_release(now, key, *token))
            }
            Command::Inspect(Inspect { key }) => Ok(self.inspect(now, key)),
            Command::List(List { pattern, cursor }) => Ok(self.list(now, pattern, *cursor)),
        }
    }

    fn acquire(&mut self, now: ServerTime, acquire: &Acquire) -> Result<Reply, Error> {
        let Acquire {
            key, claim, ttl, ..
        } = acquire;
        if let Some(lock) = self.lock_mut(key) {
            if lock.lease == claim.lease {
                lock.expires = lock.expires.max(expiry(now, *ttl));
                let (token, expires) = (lock.token, lock.expires);
                return Ok(Reply::Held(Grant { token, expires }));
            }
            let (client, lease, token) = (lock.client, lock.lease, lock.token);
            let yields = lock.yields_to(claim);
            if yields && acquire.reclaims == Reclaim::Ask {
                return Ok(Reply::Reclaimable { token });
            }
            if yields && acquire.reclaims == Reclaim::From(token) {
                let held = self.take(now, key, claim, *ttl)?;
                self.publish(client, lease, News::Superseded { token });
                self.leave(key, claim);
                return Ok(Reply::Held(held));
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
                    let held = self.take(now, key, claim, *ttl)?;
                    if let First::Alive(_) = first {
                        self.leave(key, claim);
                    }
                    return Ok(Reply::Held(held));
                }
            }
        }
        let mut place = None;
        if acquire.waits {
            let keys = self.names.entry(key.clone()).or_default();
            let line = keys.line.get_or_insert_default();
            match line.wait(now, claim) {
                Ok(own) => place = NonZeroU32::new(own),
                Err(waiting) => return Ok(Reply::Full { waiting }),
            }
        }
        let expires = self.lock(key).map(|lock| lock.expires);
        Ok(Reply::Busy { expires, place })
    }

    fn renew(
        &mut self,
        now: ServerTime,
        key: &LockKey,
        tenure: (LeaseId, FencingToken),
        ttl: Duration,
    ) -> Reply {
        match self.lock_mut(key) {
            None => Reply::Gone,
            Some(lock) if (lock.lease, lock.token) != tenure => Reply::Taken,
            Some(lock) => {
                lock.expires = lock.expires.max(expiry(now, ttl));
                Reply::Renewed {
                    expires: lock.expires,
                }
            }
        }
    }

    fn release(&mut self, now: ServerTime, key: &LockKey, claim: &Claim) -> Reply {
        let holder = self.lock(key).map(|lock| lock.lease);
        if holder == Some(claim.lease) {
            self.free(now, key);
            return Reply::Released;
        }
        self.leave(key, claim);
        if holder.is_some() {
            return Reply::Taken;
        }
        self.free(now, key);
        Reply::Gone
    }

    fn force_release(&mut self, now: ServerTime, key: &LockKey, token: FencingToken) -> Reply {
        let holder = self
            .lock(key)
            .map(|lock| (lock.client, lock.lease, lock.token));
        if holder.is_some_and(|(.., held)| held != token) {
            return Reply::Taken;
        }
        self.free(now, key);
        let Some((client, lease, token)) = holder else {
            return Reply::Gone;
        };
        self.publish(client, lease, News::Revoked { token });
        Reply::Released
    }

    fn inspect(&self, now: ServerTime, key: &LockKey) -> Reply {
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
    fn list(&self, now: ServerTime, pattern: &Pattern, cursor: u64) -> Reply {
        let is_held = |keys: &Keys| {
            let lock = keys.lock.as_ref();
            lock.is_some_and(|lock| !expired(now, lock.expires))
        };
        let held = self.names.iter().filter(|(_, keys)| is_held(keys));
        let names = held.filter_map(|(key, _)| pattern.name_of(&key.lock()));
        let names = if cursor == 0 {
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

/// What the operations are made of. A step that the script has too is named as its function there.
impl MemoryServer {
    fn take(
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

    fn grant(&mut self, now: ServerTime, key: &LockKey, claim: &Claim) -> Result<(), Error> {
        let window = claim.window.min(Claim::LONGEST_WINDOW);
        let token = self.take(now, key, claim, window)?.token;
        self.leave(key, claim);
        let expires = expiry(now, window / 2);
        let (held, time) = (Grant { token, expires }, now);
        let heard = self.publish(claim.client, claim.lease, News::Granted { held, time });
        if let Some(lock) = self.lock_mut(key)
            && !heard
        {
            lock.expires = expires;
        }
        Ok(())
    }

    fn free(&mut self, now: ServerTime, key: &LockKey) {
        let granted = match self.first_in_line(now, key) {
            First::Alive(first) => self.grant(now, key, &first).is_ok(),
            First::Nobody | First::Unknown => false,
        };
        if !granted {
            self.remove_lock(key);
        }
    }

    fn first_in_line(&mut self, now: ServerTime, key: &LockKey) -> First {
        let keys = self.names.get_mut(key);
        let Some(line) = keys.and_then(|keys| keys.line.as_mut()) else {
            return First::Nobody;
        };
        let first = line.first(now);
        self.drop_empty_line(key);
        first
    }

    fn leave(&mut self, key: &LockKey, claim: &Claim) {
        if let Some(keys) = self.names.get_mut(key)
            && let Some(line) = &mut keys.line
        {
            line.leave(claim);
            self.drop_empty_line(key);
        }
    }

    fn drop_empty_line(&mut self, key: &LockKey) {
        self.update(key, |keys| {
            keys.line.take_if(|line| line.is_empty());
        });
    }

    fn lock(&self, key: &LockKey) -> Option<&Lock> {
        self.names.get(key)?.lock.as_deref()
    }

    fn lock_mut(&mut self, key: &LockKey) -> Option<&mut Lock> {
        self.names.get_mut(key)?.lock.as_deref_mut()
    }

    fn remove_lock(&mut self, key: &LockKey) {
        self.update(key, |keys| keys.lock = None);
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

    fn publish(&mut self, client: ClientId, lease: LeaseId, news: News) -> bool {
        let heard = self.subscribers.binary_search(&client).is_ok();
        if heard {
            self.pushes.push((client, Push::new(lease, news)));
        }
        heard
    }

    fn next_token(
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

    fn expire(&mut self, now: ServerTime, key: &LockKey) {
        self.update(key, |keys| keys.expire(now));
    }

    /// Drops what has expired, whenever there are twice as many names as after the last time.
    fn sweep(&mut self, now: ServerTime) {
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
}

impl Keys {
    /// Drops the lock and the line. An expired counter may stay, because whoever reads it checks.
    fn expire(&mut self, now: ServerTime) {
        self.lock.take_if(|lock| expired(now, lock.expires));
        self.line.take_if(|line| expired(now, line.expires()));
    }

    fn is_empty(&self) -> bool {
        self.lock.is_none() && self.counter.is_none() && self.line.is_none()
    }
}

impl TokenCounter {
    fn is_expired(&self, now: ServerTime) -> bool {
        self.expires.is_some_and(|expires| expired(now, expires))
    }
}

impl Lock {
    fn yields_to(&self, claim: &Claim) -> bool {
        self.owner.is_reclaimable() && self.owner == claim.owner && self.client != claim.client
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
