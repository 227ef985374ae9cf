//! An in-memory lock store, the model of the lock script.

mod holders;
mod keys;
mod line;
mod mark;
mod ops;
mod share;
mod steps;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::error::Error;
use crate::protocol::{
    self, BatchReply, ClientId, Command, LockKey, Op, Push, Reply, read_call, write_reply,
};
use crate::time::ServerTime;
pub use keys::StoredTenure;
use keys::{Keys, expired};
use mark::Mark;

/// An in-memory store that executes the protocol's commands as a Redis with the lock script does.
///
/// The script is tested against it, and `memory://` stores and the simulation run on it. It has no clock and
/// does no I/O: the caller passes the server's time.
///
/// ```
/// use leasehold_engine::protocol::{Command, Inspect, LockKey, Op, Reply};
/// use leasehold_engine::time::ServerTime;
/// use leasehold_engine::{MemoryServer, Name};
///
/// let mut server = MemoryServer::new();
/// let key = LockKey::new("ns", &Name::new("n")?)?;
/// let now = ServerTime::from_millis(1_000);
/// let inspect = Op { command: Command::Inspect(Inspect { key }), not_after: now };
/// let answer = server.execute(now, &[inspect]);
/// assert!(matches!(&answer.replies[..], [Ok(Reply::Inspected(seen))] if seen.holder.is_none()));
/// # Ok::<(), leasehold_engine::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemoryServer {
    names: BTreeMap<LockKey, Keys>,
    /// The marks of namespaces, if this is one of several servers.
    marks: BTreeMap<LockKey, Mark>,
    /// The number of the process.
    process: u64,
    /// Sorted by id.
    subscribers: Vec<ClientId>,
    pushes: Vec<(ClientId, Push)>,
    /// Above this many names, the next batch first drops the expired ones.
    sweep_at: usize,
}

/// Batches, subscriptions, and fault injection for tests.
impl MemoryServer {
    /// Returns an empty store.
    ///
    /// ```
    /// use leasehold_engine::protocol::LockKey;
    /// use leasehold_engine::time::ServerTime;
    /// use leasehold_engine::{MemoryServer, Name};
    ///
    /// let key = LockKey::new("ns", &Name::new("orders/42")?)?;
    /// assert_eq!(MemoryServer::new().tenure(ServerTime::from_millis(1_000), &key), None);
    /// # Ok::<(), leasehold_engine::Error>(())
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Executes a batch in order, all at one moment of the server's clock.
    ///
    /// After the earliest `not_after` of its operations it does nothing, and every reply is [`Reply::Late`].
    /// A batch of releases alone is the exception: releases do no harm however late.
    ///
    /// ```
    #[doc = include_str!("memory/doc_setup.txt")]
    /// // A client holds the lock and releases it.
    /// use leasehold_engine::protocol::Reply;
    ///
    /// let done = server.execute(now, &[release]);
    /// assert_eq!(done.replies, [Ok(Reply::Released)]);
    /// # Ok::<(), leasehold_engine::Error>(())
    /// ```
    pub fn execute(&mut self, now: ServerTime, batch: &[Op]) -> BatchReply {
        self.sweep(now);
        let is_timeless = protocol::is_timeless(batch);
        let is_late = !is_timeless && batch.iter().any(|op| now > op.not_after);
        let mut nothing_done = is_late.then_some(Reply::Late);
        let mut replies = Vec::with_capacity(batch.len());
        for op in batch {
            if nothing_done.is_some() {
                break;
            }
            let reply = self.apply(now, &op.command);
            if matches!(reply, Ok(Reply::Forgot)) {
                nothing_done = Some(Reply::Forgot);
            }
            replies.push(reply);
        }
        if let Some(reply) = nothing_done {
            replies = vec![Ok(reply); batch.len()];
        }
        let reads_time = |(op, reply): (&Op, &Result<Reply, Error>)| {
            !matches!(
                (&op.command, reply),
                (Command::Release(_), Ok(Reply::Released))
            )
        };
        let reads_time = !is_timeless || batch.iter().zip(&replies).any(reads_time);
        let time = reads_time.then_some(now);
        BatchReply { time, replies }
    }

    /// Executes a call of the [script](crate::protocol::SCRIPT) as a server would.
    ///
    /// Takes the script's keys and arguments, and returns its result. Returns `None` if
    /// [`encode`](crate::protocol::encode) makes no such call.
    ///
    /// ```
    #[doc = include_str!("memory/doc_setup.txt")]
    /// // A client holds the lock and releases it.
    /// use leasehold_engine::protocol::{Reply, decode, encode};
    ///
    /// let (batch, call) = ([release.clone()], encode(&[release]));
    /// let returned = server.call(now, call.keys(), call.args()).unwrap();
    /// assert_eq!(decode(&batch, &returned)?.replies, [Ok(Reply::Released)]);
    /// # Ok::<(), leasehold_engine::Error>(())
    /// ```
    pub fn call<'a>(
        &mut self,
        now: ServerTime,
        keys: impl Iterator<Item = &'a str>,
        args: impl Iterator<Item = &'a str>,
    ) -> Option<Vec<String>> {
        let batch = read_call(keys, args)?;
        let reply = self.execute(now, &batch);
        Some(write_reply(&batch, &reply))
    }

    /// Starts collecting a client's pushes, which [`take_pushes`](Self::take_pushes) returns.
    ///
    /// ```
    #[doc = include_str!("memory/doc_setup.txt")]
    /// // Client 1 holds the lock, and client 2 waits for it.
    /// server.subscribe(ClientId(2));
    /// server.execute(now, &[release]);
    /// assert_eq!(server.take_pushes().len(), 1);
    /// # Ok::<(), leasehold_engine::Error>(())
    /// ```
    pub fn subscribe(&mut self, client: ClientId) {
        if let Err(place) = self.subscribers.binary_search(&client) {
            self.subscribers.insert(place, client);
        }
    }

    /// Stops collecting a client's pushes, as if its connection had broken.
    ///
    /// ```
    #[doc = include_str!("memory/doc_setup.txt")]
    /// // Client 1 holds the lock, and client 2 waits for it.
    /// server.subscribe(ClientId(2));
    /// server.unsubscribe(ClientId(2));
    /// server.execute(now, &[release]);
    /// assert!(server.take_pushes().is_empty());
    /// # Ok::<(), leasehold_engine::Error>(())
    /// ```
    pub fn unsubscribe(&mut self, client: ClientId) {
        if let Ok(place) = self.subscribers.binary_search(&client) {
            self.subscribers.remove(place);
        }
    }

    /// Returns the pushes for subscribed clients since the last call, oldest first.
    ///
    /// ```
    #[doc = include_str!("memory/doc_setup.txt")]
    /// // Client 1 holds the lock, and client 2 waits for it.
    /// server.subscribe(ClientId(2));
    /// server.execute(now, &[release]);
    /// let pushes = server.take_pushes();
    /// assert!(matches!(pushes[..], [(ClientId(2), _)]));
    /// assert!(server.take_pushes().is_empty());
    /// # Ok::<(), leasehold_engine::Error>(())
    /// ```
    pub fn take_pushes(&mut self) -> Vec<(ClientId, Push)> {
        std::mem::take(&mut self.pushes)
    }

    /// Deletes all locks, tokens and lines of waiters, as `FLUSHALL` does.
    ///
    /// ```
    #[doc = include_str!("memory/doc_setup.txt")]
    /// // A client holds the lock.
    /// server.flush();
    /// assert_eq!(server.tenure(now, &key), None);
    /// assert_eq!(server.last_token(now, &key), None);
    /// # Ok::<(), leasehold_engine::Error>(())
    /// ```
    pub fn flush(&mut self) {
        self.names.clear();
        self.marks.clear();
    }

    /// Makes this server another process with this number, which has loaded all data of the one before.
    ///
    /// A quorum recognizes such a server as one that may have forgotten something.
    ///
    /// ```
    #[doc = include_str!("memory/doc_setup.txt")]
    /// // A client holds the lock.
    /// use leasehold_engine::protocol::{Enter, Incarnation, Reply, Terms};
    ///
    /// let terms = Terms { longest: Duration::from_secs(60), remember: vec![], watch: vec![], forget: vec![] };
    /// let enter = Enter { key: key.mark(), incarnation: Incarnation(1), terms: Some(terms) };
    /// let check = Enter { terms: None, ..enter.clone() };
    /// let run = |server: &mut MemoryServer, enter: &Enter| {
    ///     let op = Op { command: Command::Enter(enter.clone()), not_after: now };
    ///     server.execute(now, &[op]).replies.remove(0)
    /// };
    /// assert!(matches!(run(&mut server, &enter), Ok(Reply::Entered(_))));
    /// assert_eq!(run(&mut server, &check), Ok(Reply::Intact));
    /// server.begin_anew(2);
    /// assert_eq!(run(&mut server, &check), Ok(Reply::Forgot));
    /// # Ok::<(), leasehold_engine::Error>(())
    /// ```
    pub fn begin_anew(&mut self, process: u64) {
        self.process = process;
    }

    /// Frees a lock as `DEL` on its key does: forgets its last token, and keeps its line.
    ///
    /// ```
    #[doc = include_str!("memory/doc_setup.txt")]
    /// // A client holds the lock.
    /// server.delete(&key);
    /// assert_eq!(server.tenure(now, &key), None);
    /// assert_eq!(server.last_token(now, &key), None);
    /// # Ok::<(), leasehold_engine::Error>(())
    /// ```
    pub fn delete(&mut self, key: &LockKey) {
        self.remove_hash(key);
    }

    /// Deletes the key of a shared name's holders, as `DEL` does.
    ///
    /// ```
    #[doc = include_str!("memory/doc_setup.txt")]
    /// // A client holds the lock, which is not shared.
    /// server.delete_holders(&key);
    /// assert!(server.tenure(now, &key).is_some());
    /// # Ok::<(), leasehold_engine::Error>(())
    /// ```
    pub fn delete_holders(&mut self, key: &LockKey) {
        self.remove_holders(key);
    }

    /// Takes over a name's data from another server, at one moment of each one's clock, as when a cluster's
    /// slot moves.
    ///
    /// Remaining times are kept, in whole milliseconds.
    ///
    /// ```
    #[doc = include_str!("memory/doc_setup.txt")]
    /// // A client holds the lock for 30 s; the other server's clock is an hour ahead.
    /// let (mut other, there) = (MemoryServer::new(), now + Duration::from_secs(3_600));
    /// other.take_over(there, &key, (&mut server, now));
    /// assert_eq!(server.tenure(now, &key), None);
    /// let tenure = other.tenure(there, &key).unwrap();
    /// assert_eq!(tenure.expires, there + Duration::from_secs(30));
    /// # Ok::<(), leasehold_engine::Error>(())
    /// ```
    pub fn take_over(
        &mut self,
        now: ServerTime,
        key: &LockKey,
        (other, then): (&mut Self, ServerTime),
    ) {
        if let Some(mut keys) = other.names.remove(key) {
            let shift = |time: &mut ServerTime| {
                let millis = (time.millis() + now.millis()).saturating_sub(then.millis());
                *time = ServerTime::from_millis(millis);
            };
            keys.times().for_each(shift);
            self.names.insert(key.clone(), keys);
        }
    }

    /// Returns the tenure that holds a lock.
    ///
    /// ```
    #[doc = include_str!("memory/doc_setup.txt")]
    /// // A client holds the lock for 30 s.
    /// let tenure = server.tenure(now, &key).unwrap();
    /// assert_eq!(tenure.owner.label(), "me");
    /// assert_eq!(tenure.expires, now + Duration::from_secs(30));
    /// # Ok::<(), leasehold_engine::Error>(())
    /// ```
    pub fn tenure(&self, now: ServerTime, key: &LockKey) -> Option<&StoredTenure> {
        let tenure = self.hash(now, key)?.tenure.as_deref();
        tenure.filter(|tenure| tenure.is_held(now))
    }

    /// Returns the last token of a name, if it is remembered.
    ///
    /// ```
    #[doc = include_str!("memory/doc_setup.txt")]
    /// // A client holds the lock.
    /// assert_eq!(server.last_token(now, &key), Some(now.as_micros()));
    /// # Ok::<(), leasehold_engine::Error>(())
    /// ```
    pub fn last_token(&self, now: ServerTime, key: &LockKey) -> Option<u64> {
        self.hash(now, key).map(|hash| hash.last)
    }

    /// Returns a lock's key as Redis would have it, except for the mark that there may be waiters.
    ///
    /// The fields of the hash are in order. The second value is the key's expiry; `None` with dense tokens.
    ///
    /// ```
    #[doc = include_str!("memory/doc_setup.txt")]
    /// // A client holds the lock.
    /// let (fields, expires) = server.lock_value(now, &key).unwrap();
    /// assert_eq!(fields[1], ("t".into(), "0000000001000000+".into()));
    /// assert!(expires > Some(now + Duration::from_secs(60)));
    /// # Ok::<(), leasehold_engine::Error>(())
    /// ```
    pub fn lock_value(&self, now: ServerTime, key: &LockKey) -> Option<HashValue> {
        let hash = self.hash(now, key)?;
        Some((hash.fields(), hash.expires))
    }

    /// Returns a line's key in decoded form: the waiting claims, and the key's expiry.
    ///
    /// Each claim has its arrival in microseconds and the time until which it counts as alive.
    ///
    /// ```
    #[doc = include_str!("memory/doc_setup.txt")]
    /// // Client 1 holds the lock, and client 2 waits for it.
    /// let (claims, _) = server.line_value(now, &key).unwrap();
    /// let (_, arrival, alive_until) = &claims[0];
    /// assert_eq!(*arrival, now.as_micros());
    /// assert_eq!(*alive_until, now + Duration::from_secs(12));
    /// # Ok::<(), leasehold_engine::Error>(())
    /// ```
    pub fn line_value(&self, now: ServerTime, key: &LockKey) -> Option<LineValue> {
        let line = self.names.get(key)?.line.as_ref()?;
        let there = !line.is_empty() && !expired(now, line.expires());
        there.then(|| (line.members(), line.expires()))
    }

    /// Returns the key of a shared name's holders as Redis would have it: its members with their scores, in order,
    /// and its expiry.
    ///
    /// ```
    #[doc = include_str!("memory/doc_setup.txt")]
    /// // A client holds the lock, which is not shared.
    /// assert_eq!(server.holders_value(now, &key), None);
    /// # Ok::<(), leasehold_engine::Error>(())
    /// ```
    pub fn holders_value(&self, now: ServerTime, key: &LockKey) -> Option<SetValue> {
        let holders = self.names.get(key)?.holders.as_ref()?;
        (!holders.is_expired(now)).then(|| holders.value())
    }
}

/// Members with their scores, and the key's expiry.
type SetValue = (Vec<(String, i64)>, Option<ServerTime>);

/// Fields with their values, and the key's expiry.
type HashValue = (Vec<(String, String)>, Option<ServerTime>);

/// Claims with their two scores, and the key's expiry.
type LineValue = (Vec<(String, u64, ServerTime)>, ServerTime);
