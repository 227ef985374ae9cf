//! The in-memory server: the model of the script.

mod keys;
mod line;
mod mark;
mod ops;
mod steps;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::protocol::{
    self, BatchReply, ClientId, LockKey, Op, Push, Reply, read_call, write_reply,
};
use crate::time::ServerTime;
pub use keys::StoredTenure;
use keys::{Keys, expired};
use mark::Mark;

/// Executes the protocol's commands in memory, as a Redis server with the lock script would. It is the model
/// that the script is tested against, and the store of `memory://` URLs and of the simulation. It has no
/// clock and does no I/O: each call gets the server's time.
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
    /// For each namespace its incarnation record, if this is a server of a quorum.
    marks: BTreeMap<LockKey, Mark>,
    /// The number of the process that this server simulates.
    process: u64,
    /// Sorted, for binary search.
    subscribers: Vec<ClientId>,
    pushes: Vec<(ClientId, Push)>,
    /// With more names than this, the next batch first drops expired ones.
    sweep_at: usize,
}

/// Batches, subscriptions, and fault injection.
impl MemoryServer {
    /// Makes an empty store.
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

    /// Executes a batch in order, all at one time of the server's clock. Past the earliest `not_after` of its
    /// operations it does nothing, and every reply is [`Reply::Late`]. A batch of only releases is never
    /// late, because releases are harmless however late they run.
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
            if reply == Ok(Reply::Forgot) {
                nothing_done = Some(Reply::Forgot);
            }
            replies.push(reply);
        }
        if let Some(reply) = nothing_done {
            replies = vec![Ok(reply); batch.len()];
        }
        let is_common = replies.iter().all(|reply| reply == &Ok(Reply::Released));
        let time = (!is_timeless || !is_common).then_some(now);
        BatchReply { time, replies }
    }

    /// Executes a call of the [script](crate::protocol::SCRIPT) as a server would: takes its keys and
    /// arguments, and returns what the script returns. Returns `None` for a call that
    /// [`encode`](crate::protocol::encode) never makes.
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

    /// Subscribes a client: its pushes from now on can be taken by [`take_pushes`](Self::take_pushes).
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

    /// Ends a client's subscription, as if its connection had broken.
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

    /// Drops all locks, tokens and lines, as `FLUSHALL` does.
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

    /// Simulates a restart as the process of this number, with all data loaded. Servers of a quorum then
    /// begin a new incarnation, because a new process may have forgotten something.
    ///
    /// ```
    #[doc = include_str!("memory/doc_setup.txt")]
    /// // A client holds the lock.
    /// use leasehold_engine::protocol::{Enter, Incarnation, Reply, Terms};
    ///
    /// let terms = Terms { longest: Duration::from_secs(60), remember: vec![], watch: vec![], forget: vec![]
    /// }; let enter = Enter { key: key.mark(), incarnation: Incarnation(1), terms: Some(terms) }; let check =
    /// Enter { terms: None, ..enter.clone() }; let run = |server: &mut MemoryServer, enter: &Enter| { let op
    /// = Op { command: Command::Enter(enter.clone()), not_after: now }; server.execute(now,
    /// &[op]).replies.remove(0) }; assert!(matches!(run(&mut server, &enter), Ok(Reply::Entered(_))));
    /// assert_eq!(run(&mut server, &check), Ok(Reply::Intact)); server.begin_anew(2); assert_eq!(run(&mut
    /// server, &check), Ok(Reply::Forgot));
    /// # Ok::<(), leasehold_engine::Error>(())
    /// ```
    pub fn begin_anew(&mut self, process: u64) {
        self.process = process;
    }

    /// Frees a lock as `DEL` on its key does: its last token is forgotten, and its line stays.
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

    /// Moves the data of a name here from another server, as when a cluster slot moves. The times are the
    /// current clocks of both servers; remaining times stay the same, in whole milliseconds.
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

    /// Returns the last token of a name, if the server remembers it.
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

    /// Returns the lock's key as Redis would have it, except for the waiting flags: the fields of the hash in
    /// order, and when the key expires, which is never with dense tokens.
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

    /// Returns the content of the line's key: the waiting claims, each with its arrival in microseconds and
    /// the time until which the waiter counts as alive; and when the key expires.
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
}

/// The fields of a hash with their values, and when the key expires.
type HashValue = (Vec<(String, String)>, Option<ServerTime>);

/// Claims with their two scores, and when the key expires.
type LineValue = (Vec<(String, u64, ServerTime)>, ServerTime);
