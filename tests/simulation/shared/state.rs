//! Reads the state of a shared name from the keys of a server's store, as Redis would have them.

use std::collections::BTreeMap;

use leasehold_engine::protocol::{ClientId, LeaseId, LockKey};
use leasehold_engine::time::ServerTime;
use leasehold_engine::{FencingToken, MemoryServer};

use crate::drain::Offer;
use crate::line::lease_of_claim;
use crate::world::World;

/// The widths of the fields of a stored record or permit, in characters.
const TOKEN: usize = 16;
const CLIENT: usize = 16;
const UNITS: usize = 10;
const SLOT: usize = 4;
const LEASE: usize = 32;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct State {
    pub(crate) capacity: u32,
    pub(crate) epoch: u32,
    pub(crate) permits: BTreeMap<LeaseId, Permit>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Permit {
    pub(crate) token: FencingToken,
    pub(crate) client: ClientId,
    pub(crate) weight: u32,
    pub(crate) slots: Vec<u16>,
    /// When it expires unless it is renewed.
    pub(crate) until: ServerTime,
}

/// The state of a shared name before and after a command.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) before: Option<State>,
    pub(crate) after: Option<State>,
    /// The leases in line after the command.
    pub(crate) line: Vec<LeaseId>,
}

impl Change {
    /// Returns the permits that the command granted, in the order of their tokens.
    pub(crate) fn admitted(&self) -> Vec<(LeaseId, Permit)> {
        let before = self.before.as_ref();
        let after = self.after.iter().flat_map(|state| &state.permits);
        let is_new = |(lease, permit): &(&LeaseId, &Permit)| {
            let before = before.and_then(|state| state.permits.get(lease));
            before.is_none_or(|before| before.token != permit.token)
        };
        let mut admitted: Vec<_> = after
            .filter(is_new)
            .map(|(lease, permit)| (*lease, permit.clone()))
            .collect();
        admitted.sort_by_key(|(_, permit)| permit.token);
        admitted
    }

    /// Returns the permits that were alive and are gone.
    pub(crate) fn ended(&self, now: ServerTime) -> Vec<Offer> {
        let after = |lease| Some(self.after.as_ref()?.permits.get(lease)?.token);
        let before = self.before.iter().flat_map(|state| state.living(now));
        before
            .filter(|(lease, permit)| after(*lease) != Some(permit.token))
            .map(|(lease, permit)| (*lease, permit.token))
            .collect()
    }
}

impl State {
    fn read(store: &MemoryServer, now: ServerTime, key: &LockKey) -> Option<Self> {
        let (fields, _) = store.lock_value(now, key)?;
        let (_, record) = fields.iter().find(|(field, _)| field == "s")?;
        let until = store.holders_value(now, key).map(|(members, _)| members);
        let until: BTreeMap<_, _> = until.into_iter().flatten().collect();
        let permit = |(lease, value): &(String, String)| {
            let millis = u64::try_from(*until.get(lease)?).ok()?;
            let permit = Permit::read(value, record.starts_with('s'), millis)?;
            Some((lease.parse().ok()?, permit))
        };
        let permits = fields.iter().filter(|(field, _)| field.len() == LEASE);
        Some(Self {
            capacity: record.get(1..=UNITS)?.parse().ok()?,
            epoch: record.get(1 + UNITS..=2 * UNITS)?.parse().ok()?,
            permits: permits.filter_map(permit).collect(),
        })
    }

    /// Returns the permits that have not expired.
    pub(crate) fn living(&self, now: ServerTime) -> impl Iterator<Item = (&LeaseId, &Permit)> {
        let permits = self.permits.iter();
        permits.filter(move |(_, permit)| permit.is_alive(now))
    }

    pub(crate) fn used(&self, now: ServerTime) -> u32 {
        self.living(now).map(|(_, permit)| permit.weight).sum()
    }
}

impl Permit {
    fn read(value: &str, has_slots: bool, until: u64) -> Option<Self> {
        let (token, rest) = value.split_at_checked(TOKEN)?;
        let (client, rest) = rest.split_at_checked(CLIENT)?;
        let (weight, rest) = rest.split_at_checked(UNITS)?;
        let weight = weight.parse().ok()?;
        let slots = if has_slots { weight } else { 0 };
        let slot = |place| rest.get(place * SLOT..(place + 1) * SLOT)?.parse().ok();
        Some(Self {
            token: FencingToken::new(token.parse().ok()?).ok()?,
            client: ClientId(u64::from_str_radix(client, 16).ok()?),
            weight,
            slots: (0..usize::try_from(slots).ok()?).map_while(slot).collect(),
            until: ServerTime::from_millis(until),
        })
    }

    pub(crate) fn is_alive(&self, now: ServerTime) -> bool {
        self.until.millis() >= now.millis()
    }
}

/// Returns the weight of a stored claim, which stands behind its kind.
pub(crate) fn weight_of_claim(claim: &str) -> Option<u32> {
    claim.get(76..76 + UNITS)?.parse().ok()
}

impl World {
    /// Returns a server's state of a name; `None` if the name is not shared or the server knows nothing of it.
    pub(crate) fn state_at(&self, server: usize, key: &LockKey) -> Option<State> {
        self.plan.kind(key)?;
        State::read(&self.servers[server].store, self.time_of(server), key)
    }

    /// Returns what a command did to a shared name that had this state before it.
    pub(crate) fn change_of(&self, server: usize, key: &LockKey, before: Option<State>) -> Change {
        let store = &self.servers[server].store;
        let line = store.line_value(self.time_of(server), key);
        let line = line.map(|(members, _)| members).unwrap_or_default();
        let lease = |(claim, ..): &(String, u64, ServerTime)| lease_of_claim(claim);
        Change {
            before,
            after: self.state_at(server, key),
            line: line.iter().filter_map(lease).collect(),
        }
    }

    pub(crate) fn state_of(&self, key: &LockKey) -> Option<State> {
        self.state_at(self.server_of(key), key)
    }

    /// True if the store has a lock or a living permit for this lease.
    pub(crate) fn has(&self, key: &LockKey, (lease, token): Offer) -> bool {
        let now = self.time_at(key);
        let permit = self.state_of(key);
        let permit = permit.and_then(|state| state.permits.get(&lease).cloned());
        let permit = permit.filter(|permit| permit.token == token && permit.is_alive(now));
        permit.is_some() || self.stored(key) == Some((lease, token))
    }

    /// Returns all that holds a lock or a part of it, by the store.
    pub(crate) fn all_stored(&self, server: usize, key: &LockKey) -> Vec<Offer> {
        let (state, now) = (self.state_at(server, key), self.time_of(server));
        let living = state.iter().flat_map(|state| state.living(now));
        let living = living.map(|(lease, permit)| (*lease, permit.token));
        living.chain(self.stored_at(server, key)).collect()
    }
}
