//! Of which locks the server is to say at once when somebody else changes them. A server says so of
//! keys that were read, once: until the next change, or until one of the holder's own writes.

use std::time::Duration;

use crate::engine::ctx::Ctx;
use crate::engine::io::{Output, ServerId};
use crate::engine::table::{Id, Table};
use crate::engine::timers::Timed;
use crate::protocol::{HalfId, LockKey};
use crate::time::Timestamp;

/// Leases that live for less are renewed often enough.
pub(super) const LEAST_TTL: Duration = Duration::from_secs(1);

/// How often a lease is looked at from one renewal to the next. Who waits for a lock may change its
/// key, too, and the holder must not do much for that.
pub(crate) const MOST_LOOKS: u8 = 3;

/// So long after its beginning the key of a lease is read. What is released sooner costs nothing, and the
/// keys of many are read together.
pub(super) const SOON: Duration = Duration::from_millis(30);

/// The most keys that are read in one command.
pub(crate) const MOST_KEYS: usize = 128;

#[derive(Debug)]
pub(crate) struct Watch {
    /// The servers that say of what is read when it changes.
    servers: Vec<ServerId>,
    /// Whose keys are to be read next. They may have been given up by then.
    due: Vec<HalfId>,
    /// When.
    pub(super) wake: Timestamp,
    /// Whose key was read last, of each key.
    read: Table<KeyId, HalfId>,
    /// What is being read.
    reading: Vec<(ServerId, Vec<LockKey>)>,
}

/// A hash. If two keys have the same one, only of the later is heard at once.
#[derive(Copy, Clone, Debug)]
struct KeyId(u64);

impl Default for Watch {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            due: Vec::new(),
            wake: Timestamp::NEVER,
            read: Table::default(),
            reading: Vec::new(),
        }
    }
}

impl Watch {
    /// This server says so from now on.
    pub(super) fn begin(&mut self, server: ServerId) {
        if !self.servers.contains(&server) {
            self.servers.push(server);
        }
    }

    /// Whether this server says so.
    pub(super) fn is_told(&self, server: ServerId) -> bool {
        self.servers.contains(&server)
    }

    /// The key of this lease is read soon.
    pub(super) fn want(&mut self, cx: &mut Ctx, id: HalfId) {
        self.due.push(id);
        if self.wake == Timestamp::NEVER {
            cx.timers.set(Timed::Watch, &mut self.wake, cx.now + SOON);
        }
    }

    /// Whose keys are to be read now.
    pub(super) fn take_due(&mut self, cx: &mut Ctx) -> Vec<HalfId> {
        cx.timers
            .set(Timed::Watch, &mut self.wake, Timestamp::NEVER);
        std::mem::take(&mut self.due)
    }

    /// This lease is to hear of changes of its key, once that is [read](Self::read).
    pub(super) fn hear(&mut self, key: &LockKey, id: HalfId) {
        self.read.insert(KeyId::new(key), id);
    }

    /// Reads a key, together with others, at [`flush`](Self::flush) at the latest.
    pub(super) fn read(&mut self, cx: &mut Ctx, (server, key): (ServerId, &LockKey)) {
        let place = self.reading.iter().position(|(to, _)| *to == server);
        let place = place.unwrap_or_else(|| {
            self.reading.push((server, Vec::new()));
            self.reading.len() - 1
        });
        let keys = &mut self.reading[place].1;
        keys.push(key.clone());
        if keys.len() >= MOST_KEYS {
            let keys = std::mem::take(keys);
            cx.push(Output::Watch { server, keys });
        }
    }

    pub(super) fn flush(&mut self, cx: &mut Ctx) {
        for (server, keys) in std::mem::take(&mut self.reading) {
            if !keys.is_empty() {
                cx.push(Output::Watch { server, keys });
            }
        }
    }

    /// Who is to look because this key has changed.
    pub(super) fn changed(&mut self, key: &LockKey) -> Option<HalfId> {
        self.read.take(&KeyId::new(key))
    }

    /// Who is to look because everything has changed.
    pub(super) fn all_changed(&mut self) -> Vec<HalfId> {
        let read = std::mem::take(&mut self.read);
        read.values().copied().collect()
    }

    /// This lease is over.
    pub(super) fn forget(&mut self, key: &LockKey, id: HalfId) {
        let key = KeyId::new(key);
        if self.read.get(&key) == Some(&id) {
            self.read.take(&key);
        }
    }

    /// How many keys there are whose changes are heard.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.read.len()
    }
}

impl KeyId {
    /// FNV-1a.
    fn new(key: &LockKey) -> Self {
        let bytes = key.lock().bytes();
        Self(bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        }))
    }
}

impl Id for KeyId {
    fn number(self) -> u64 {
        self.0
    }

    fn of(number: u64) -> Self {
        Self(number)
    }
}
