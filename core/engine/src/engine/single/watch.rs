//! The locks whose keys the server watches, so that it reports at once when another client changes them. Each
//! read of a key lets the server report one change, the next. A write by the holder itself ends the watch
//! without a report.

use std::time::Duration;

use crate::engine::ctx::Ctx;
use crate::engine::io::{Output, ServerId};
use crate::engine::table::{Id, Table};
use crate::engine::timers::Timed;
use crate::protocol::{HalfId, LockKey};
use crate::time::Timestamp;

/// The shortest time to live to watch. Shorter leases are renewed often enough.
pub(super) const LEAST_TTL: Duration = Duration::from_secs(1);

/// The most checks of a lease between two renewals. Waiters may change the key too, and the holder must not
/// do much work for that.
pub(crate) const MOST_CHECKS: u8 = 3;

/// How long after its start a lease's key is read. A lock that is released sooner costs nothing, and the keys
/// of many locks are read together.
pub(super) const SOON: Duration = Duration::from_millis(30);

/// The most keys in one read.
pub(crate) const MOST_KEYS: usize = 128;

#[derive(Debug)]
pub(crate) struct Watch {
    /// The servers that report changes of the keys that they were asked to read.
    servers: Vec<ServerId>,
    /// The leases whose keys are to be read next. Some may have ended by then.
    due: Vec<HalfId>,
    /// The time of the next read.
    pub(super) wake: Timestamp,
    /// The lease that read each key last.
    read: Table<KeyId, HalfId>,
    /// The keys that the next [`Output::Watch`] of each server names.
    reading: Vec<(ServerId, Vec<LockKey>)>,
}

/// A hash of a key. If two keys share a hash, only changes of the later one are noticed at once.
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
    /// Records that this server reports changes from now on.
    pub(super) fn begin(&mut self, server: ServerId) {
        if !self.servers.contains(&server) {
            self.servers.push(server);
        }
    }

    /// True if this server reports changes.
    pub(super) fn is_told(&self, server: ServerId) -> bool {
        self.servers.contains(&server)
    }

    /// Schedules a read of this lease's key.
    pub(super) fn want(&mut self, cx: &mut Ctx, id: HalfId) {
        self.due.push(id);
        if self.wake == Timestamp::NEVER {
            cx.timers.set(Timed::Watch, &mut self.wake, cx.now + SOON);
        }
    }

    /// Returns the leases whose keys are to be read now.
    pub(super) fn take_due(&mut self, cx: &mut Ctx) -> Vec<HalfId> {
        cx.timers
            .set(Timed::Watch, &mut self.wake, Timestamp::NEVER);
        std::mem::take(&mut self.due)
    }

    /// Notes that this lease is to learn of changes of its key, once the key is [read](Self::read).
    pub(super) fn hear(&mut self, key: &LockKey, id: HalfId) {
        self.read.insert(KeyId::new(key), id);
    }

    /// Adds a key to the next read, which is sent by [`flush`](Self::flush) at the latest.
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

    /// Returns the lease that has to check its lock because this key has changed.
    pub(super) fn changed(&mut self, key: &LockKey) -> Option<HalfId> {
        self.read.take(&KeyId::new(key))
    }

    /// Returns all leases that have to check their locks because any key may have changed.
    pub(super) fn all_changed(&mut self) -> Vec<HalfId> {
        let read = std::mem::take(&mut self.read);
        read.values().copied().collect()
    }

    /// Forgets a lease that has ended.
    pub(super) fn forget(&mut self, key: &LockKey, id: HalfId) {
        let key = KeyId::new(key);
        if self.read.get(&key) == Some(&id) {
            self.read.take(&key);
        }
    }

    /// The number of watched keys.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.read.len()
    }
}

impl KeyId {
    /// Hashes the key with FNV-1a.
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
