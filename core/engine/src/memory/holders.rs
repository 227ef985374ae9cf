//! The key of a shared name that has its holders, ordered by their expiry, and its free slots.

use super::keys::expired;
use crate::protocol::LeaseId;
use crate::time::ServerTime;

/// The value of the holders' key. Both lists are in order, as a sorted set is. They are no maps, of which each kind
/// is several kilobytes of WebAssembly.
#[derive(Clone, Debug, Default)]
pub(super) struct Holders {
    /// The expiry and the lease of each permit.
    pub(super) until: Vec<(ServerTime, LeaseId)>,
    /// The slots that were used before and are free.
    pub(super) free: Vec<u16>,
    pub(super) used: u32,
    /// The expiry of the key, not of the permits.
    pub(super) expires: Option<ServerTime>,
}

impl Holders {
    /// Returns the expiry of a lease's permit, which may have passed.
    pub(super) fn until(&self, lease: LeaseId) -> Option<ServerTime> {
        let of_lease = |held: &&(ServerTime, LeaseId)| held.1 == lease;
        self.until.iter().find(of_lease).map(|(until, _)| *until)
    }

    /// Sets the expiry of a lease's permit.
    pub(super) fn hold(&mut self, lease: LeaseId, until: ServerTime) {
        self.end(lease);
        let place = self.until.partition_point(|held| *held < (until, lease));
        self.until.insert(place, (until, lease));
    }

    /// Removes a lease, and returns its expiry and itself if it was there.
    pub(super) fn end(&mut self, lease: LeaseId) -> Option<(ServerTime, LeaseId)> {
        let place = self.until.iter().position(|(_, held)| *held == lease)?;
        Some(self.until.remove(place))
    }

    /// Takes the lowest free slots.
    pub(super) fn pick(&mut self, weight: u32, capacity: u32) -> Box<[u16]> {
        let mut unused = self.used as usize + self.free.len();
        let below = self
            .free
            .partition_point(|slot| u32::from(*slot) < capacity);
        let mut slots: Vec<u16> = self.free.drain(..below.min(weight as usize)).collect();
        while slots.len() < weight as usize {
            slots.extend(u16::try_from(unused));
            unused += 1;
        }
        slots.into()
    }

    pub(super) fn is_expired(&self, now: ServerTime) -> bool {
        self.expires.is_some_and(|expires| expired(now, expires))
    }

    pub(super) fn times(&mut self) -> impl Iterator<Item = &mut ServerTime> {
        let until = self.until.iter_mut().map(|(until, _)| until);
        until.chain(self.expires.as_mut())
    }

    /// Returns the members and scores of the key, in order, and the expiry of the key.
    pub(super) fn value(&self) -> (Vec<(String, i64)>, Option<ServerTime>) {
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let used = [("u".to_owned(), -i64::from(self.used))];
        let free = self
            .free
            .iter()
            .map(|slot| (format!("{slot:04}"), i64::from(*slot)));
        let until = self.until.iter();
        let until = until.map(|(until, lease)| (lease.to_string(), signed(until.millis())));
        let mut members: Vec<_> = used.into_iter().chain(free).chain(until).collect();
        members.sort_by(|one, other| (one.1, &one.0).cmp(&(other.1, &other.0)));
        (members, self.expires)
    }
}
