//! The holders of shared names, with functions named like those of `protocol/lua/rest/share.lua` and operations
//! named as in `protocol/ops`.

use std::sync::Arc;
use std::time::Duration;

use super::MemoryServer;
use super::holders::Holders;
use super::keys::{Hash, expired, expiry};
use super::line::First;
use super::steps::{is_due, is_marked, kept_until, longer, longer_if, next_token};
use crate::error::{Error, ErrorKind};
use crate::protocol::limits::{MOST_ADMITTED, MOST_CLEARED, TOKEN_LENGTH, UNITS_LENGTH};
use crate::protocol::ops::admit::stored_slots;
use crate::protocol::{
    Acquire, Admission, Admit, Claim, ClientId, Counter, Extend, Grant, Inspect, LeaseId, LockKey,
    News, PermitState, Release, Reply, Resize, SharedState, Vacate,
};
use crate::share::{Share, Sharing};
use crate::time::ServerTime;
use crate::token::FencingToken;

/// The fields that only the hash of a shared name has.
#[derive(Clone, Debug)]
pub(super) struct Record {
    state: State,
    permits: Vec<Permit>,
}

#[derive(Copy, Clone, Debug)]
struct State {
    sharing: Sharing,
    capacity: u32,
    epoch: u32,
    generation: Option<FencingToken>,
}

#[derive(Clone, Debug)]
struct Permit {
    lease: LeaseId,
    token: FencingToken,
    client: ClientId,
    label: String,
    weight: u32,
    slots: Box<[u16]>,
}

/// The operation in whose call waiters are admitted.
#[derive(Default)]
struct Asker<'a> {
    /// The claim of an acquisition: those behind it are not admitted.
    own: Option<&'a Claim>,
    /// The client of a release, which is told of the first permit that one of its own leases gets.
    client: Option<ClientId>,
    handed: Option<Reply>,
    /// True if the capacity has just changed. Waiters whose weight is above it must hear of it, even if nothing is
    /// free.
    is_resized: bool,
}

/// The operations.
impl MemoryServer {
    pub(super) fn admit(&mut self, now: ServerTime, admit: &Admit) -> Result<Reply, Error> {
        let Admit(Acquire {
            key, claim, waits, ..
        }) = admit;
        let share = claim.owner.share().ok_or_else(no_share)?;
        let mut state = self.read(now, key, (share.sharing(), share.capacity()))?;
        let kept = (claim.ttl, claim.counter);
        match self.find(key, claim.lease) {
            Some((_, until)) if expired(now, until) => {
                self.drop_permit(key, claim.lease);
            }
            Some((token, _)) => {
                let expires = self.extend_permit(now, key, claim.lease, kept);
                let admission = self.admission(key, claim.lease);
                return Ok(Reply::Admitted(Grant { token, expires }, admission));
            }
            None => {}
        }
        if share.weight() > state.capacity {
            self.leave_line(key, claim);
            let capacity = state.capacity;
            return Ok(Reply::Excess { capacity });
        }
        let mut asker = Asker {
            own: Some(claim),
            ..Asker::default()
        };
        let is_next = match self.serve_shared(now, key, &mut state, &mut asker) {
            First::Unknown => {
                let (expires, place) = (expiry(now, Duration::ZERO), None);
                return Ok(Reply::Busy { expires, place });
            }
            First::Nobody => true,
            First::Alive(first) => first.is_same(claim),
        };
        if is_next && self.used(key) + share.weight() <= state.capacity {
            let grant = self.take_part(now, key, &mut state, (claim, claim.ttl))?;
            self.leave_line(key, claim);
            return Ok(Reply::Admitted(grant, self.admission(key, claim.lease)));
        }
        let mut place = None;
        if *waits {
            match self.wait_in_line(now, key, claim) {
                Ok(own) => place = own,
                Err(waiting) => return Ok(Reply::Full { waiting }),
            }
        }
        let soonest = self.holders(key).and_then(|holders| holders.until.first());
        // One call may leave some that have expired: the next one removes more.
        let now = expiry(now, Duration::ZERO);
        let expires = soonest.map_or(now, |(until, _)| (*until).max(now));
        Ok(Reply::Busy { expires, place })
    }

    pub(super) fn extend_shared(
        &mut self,
        now: ServerTime,
        Extend { renew, reads }: &Extend,
    ) -> Result<Reply, Error> {
        let found = self.find(&renew.key, renew.lease);
        if !found.is_some_and(|(token, until)| token == renew.token && !expired(now, until)) {
            return Ok(Reply::Gone);
        }
        let kept = (renew.ttl, renew.counter);
        let expires = self.extend_permit(now, &renew.key, renew.lease, kept);
        if *reads {
            self.downgrade(now, &renew.key, renew.lease)?;
        }
        Ok(Reply::Renewed { expires })
    }

    pub(super) fn vacate(&mut self, now: ServerTime, vacate: &Vacate) -> Result<Reply, Error> {
        let Vacate(Release { key, claim, .. }) = vacate;
        let share = claim.owner.share().ok_or_else(no_share)?;
        let mut state = self.read(now, key, (share.sharing(), share.capacity()))?;
        let was_held = self.drop_permit(key, claim.lease);
        if !was_held {
            self.leave_line(key, claim);
        }
        let mut asker = Asker {
            client: was_held.then_some(claim.client),
            ..Asker::default()
        };
        if self.hash(now, key).is_some() {
            self.serve_shared(now, key, &mut state, &mut asker);
        }
        Ok(match asker.handed {
            Some(handed) => handed,
            None if was_held => Reply::Released,
            None => Reply::Gone,
        })
    }

    pub(super) fn resize(&mut self, now: ServerTime, resize: &Resize) -> Result<Reply, Error> {
        let Resize {
            key,
            sharing,
            capacity,
            counter,
        } = resize;
        let mut state = self.read(now, key, (*sharing, *capacity))?;
        let hash = self.hash(now, key);
        if hash.is_none() || state.capacity != *capacity {
            (state.capacity, state.epoch) = (*capacity, state.epoch + 1);
            let kept = kept_until(now, *counter, Duration::ZERO);
            let (last, expires) =
                hash.map_or((0, kept), |hash| (hash.last, longer(hash.expires, kept)));
            self.store(key, &state, (last, true, expires));
            let mut asker = Asker {
                is_resized: true,
                ..Asker::default()
            };
            self.serve_shared(now, key, &mut state, &mut asker);
        }
        let epoch = state.epoch;
        Ok(Reply::Resized { epoch })
    }
}

/// The operations that concern all names.
impl MemoryServer {
    pub(super) fn has_holders(&self, now: ServerTime, key: &LockKey) -> bool {
        let latest = self.holders(key).and_then(|holders| holders.until.last());
        latest.is_some_and(|(until, _)| !expired(now, *until))
    }

    pub(super) fn shared_state(&self, now: ServerTime, key: &LockKey) -> Option<SharedState> {
        let record = self.hash(now, key)?.share.as_deref()?;
        let (mut used, mut held, mut holders) = (0, 0, Vec::new());
        for (until, lease) in self.holders(key).map_or(&[][..], |holders| &holders.until) {
            let Some(permit) = record.permit(*lease).filter(|_| !expired(now, *until)) else {
                continue;
            };
            (used, held) = (used + permit.weight, held + 1);
            if holders.len() < Inspect::MOST_NAMED {
                holders.push(PermitState {
                    token: permit.token,
                    expires: *until,
                    weight: permit.weight,
                    slots: permit.slots.clone(),
                    by: permit.label.clone(),
                });
            }
        }
        let State {
            sharing,
            capacity,
            epoch,
            generation,
        } = record.state;
        Some(SharedState {
            sharing,
            capacity,
            epoch,
            generation,
            used,
            held,
            holders,
        })
    }

    /// Ends the permit with this token. Returns `None` if the name is not shared.
    pub(super) fn force_shared(
        &mut self,
        now: ServerTime,
        key: &LockKey,
        token: FencingToken,
    ) -> Option<Reply> {
        let State {
            sharing, capacity, ..
        } = self.hash(now, key)?.share.as_ref()?.state;
        let mut state = self.read(now, key, (sharing, capacity)).ok()?;
        let permits = &self.hash(now, key)?.share.as_ref()?.permits;
        let found = permits.iter().find(|permit| permit.token == token);
        let Some((lease, client)) = found.map(|permit| (permit.lease, permit.client)) else {
            return Some(Reply::Gone);
        };
        self.publish(client, lease, News::Revoked { token });
        self.drop_permit(key, lease);
        self.serve_shared(now, key, &mut state, &mut Asker::default());
        Some(Reply::Released)
    }
}

/// The steps.
impl MemoryServer {
    /// Reads the state of a shared name, and removes holders whose leases have expired. The capacity is that of a
    /// name without data.
    fn read(
        &mut self,
        now: ServerTime,
        key: &LockKey,
        (sharing, capacity): (Sharing, u32),
    ) -> Result<State, Error> {
        let state = match self.hash(now, key) {
            Some(Hash {
                share: Some(record),
                ..
            }) if record.state.sharing == sharing => record.state,
            Some(hash) => {
                let used_for = hash.share.as_ref().map(|record| record.state.sharing);
                return Err(other_use(used_for, Some(sharing)));
            }
            None => {
                self.remove_holders(key);
                State {
                    sharing,
                    capacity,
                    epoch: 1,
                    generation: None,
                }
            }
        };
        if self.holders(key).is_none()
            && let Some(record) = self.record_mut(key)
        {
            // Their set of holders was deleted.
            record.permits.clear();
        }
        for _ in 0..MOST_CLEARED {
            let soonest = self.holders(key).and_then(|holders| holders.until.first());
            match soonest {
                Some((until, lease)) if expired(now, *until) => self.drop_permit(key, *lease),
                _ => break,
            };
        }
        Ok(state)
    }

    fn holders(&self, key: &LockKey) -> Option<&Holders> {
        self.names.get(key)?.holders.as_deref()
    }

    fn used(&self, key: &LockKey) -> u32 {
        self.holders(key).map_or(0, |holders| holders.used)
    }

    fn permit(&self, key: &LockKey, lease: LeaseId) -> Option<&Permit> {
        let record = self.names.get(key)?.hash.as_ref()?.share.as_ref()?;
        record.permit(lease)
    }

    fn record_mut(&mut self, key: &LockKey) -> Option<&mut Record> {
        self.hash_mut(key)?.share.as_deref_mut()
    }

    /// Returns the token of a lease's permit and the expiry of the lease, which may have passed.
    fn find(&self, key: &LockKey, lease: LeaseId) -> Option<(FencingToken, ServerTime)> {
        let until = self.holders(key)?.until(lease)?;
        Some((self.permit(key, lease)?.token, until))
    }

    /// Ends a permit and frees its slots. Returns false if the lease has none.
    fn drop_permit(&mut self, key: &LockKey, lease: LeaseId) -> bool {
        let permit = self.record_mut(key).and_then(|record| {
            let of_lease = |permit: &Permit| permit.lease == lease;
            let place = record.permits.iter().position(of_lease)?;
            Some(record.permits.swap_remove(place))
        });
        let keys = self.names.get_mut(key);
        let Some(holders) = keys.and_then(|keys| keys.holders.as_deref_mut()) else {
            return false;
        };
        if holders.end(lease).is_none() {
            return false;
        }
        if let Some(permit) = permit {
            holders.used = holders.used.saturating_sub(permit.weight);
            for slot in permit.slots {
                let place = holders.free.partition_point(|free| *free < slot);
                holders.free.insert(place, slot);
            }
        }
        if holders.used == 0 {
            self.remove_holders(key);
        }
        true
    }

    fn store(
        &mut self,
        key: &LockKey,
        state: &State,
        (last, is_brief, expires): (u64, bool, Option<ServerTime>),
    ) {
        let keys = self.names.entry(key.clone()).or_default();
        let former = keys.hash.take().and_then(|hash| hash.share);
        let permits = former.map(|record| record.permits).unwrap_or_default();
        let state = *state;
        keys.hash = Some(Hash {
            last,
            is_brief,
            job: None,
            tenure: None,
            share: Some(Box::new(Record { state, permits })),
            expires,
        });
    }

    /// Gives a part of the name, which is free, to a claim for this time.
    fn take_part(
        &mut self,
        now: ServerTime,
        key: &LockKey,
        state: &mut State,
        (claim, time): (&Claim, Duration),
    ) -> Result<Grant, Error> {
        let share = claim.owner.share().ok_or_else(no_share)?;
        let hash = self.hash(now, key);
        let last = hash.map_or(0, |hash| hash.last);
        let token = next_token(now, last, claim.counter)?;
        if share.is_writer() {
            state.generation = Some(token);
        }
        let kept = kept_until(now, claim.counter, time);
        let is_due = is_due(now, hash, (claim.counter, time));
        let key_expires = hash.map_or(kept, |hash| longer_if(is_due, hash.expires, kept));
        let is_brief = is_marked(now, token, claim.counter);
        self.store(key, state, (token.get(), is_brief, key_expires));
        let expires = expiry(now, time);
        let keys = self.names.entry(key.clone()).or_default();
        let former = keys.holders.as_ref();
        let holders_expire =
            former.map_or(kept, |holders| longer_if(is_due, holders.expires, kept));
        let holders = keys.holders.get_or_insert_default();
        let slots = if share.sharing() == Sharing::Slots {
            holders.pick(share.weight(), state.capacity)
        } else {
            Box::default()
        };
        holders.used += share.weight();
        holders.hold(claim.lease, expires);
        holders.expires = holders_expire;
        let permit = Permit {
            lease: claim.lease,
            token,
            client: claim.client,
            label: claim.owner.label().to_owned(),
            weight: share.weight(),
            slots,
        };
        if let Some(record) = self.record_mut(key) {
            record.permits.push(permit);
        }
        Ok(Grant { token, expires })
    }

    /// Makes a writer a reader, and admits the waiters that fit now. Does nothing for a reader.
    fn downgrade(&mut self, now: ServerTime, key: &LockKey, lease: LeaseId) -> Result<(), Error> {
        let mut state = self.read(now, key, (Sharing::Access, 0))?;
        let permits = self.record_mut(key).map(|record| &mut record.permits);
        let permit = permits.and_then(|all| all.iter_mut().find(|permit| permit.lease == lease));
        let freed = permit.map_or(0, |permit| std::mem::replace(&mut permit.weight, 1) - 1);
        let keys = self.names.get_mut(key);
        if let Some(holders) = keys.and_then(|keys| keys.holders.as_deref_mut()) {
            holders.used = holders.used.saturating_sub(freed);
        }
        if freed > 0 {
            self.serve_shared(now, key, &mut state, &mut Asker::default());
        }
        Ok(())
    }

    fn admission(&self, key: &LockKey, lease: LeaseId) -> Admission {
        let hash = self.names.get(key).and_then(|keys| keys.hash.as_ref());
        let state = hash
            .and_then(|hash| hash.share.as_ref())
            .map(|record| record.state);
        let slots = self.permit(key, lease).map(|permit| permit.slots.clone());
        Admission {
            capacity: state.map_or(0, |state| state.capacity),
            epoch: state.map_or(0, |state| state.epoch),
            generation: state.and_then(|state| state.generation),
            slots: slots.unwrap_or_default(),
        }
    }

    /// Extends a permit to this time to live, unless it already lasts longer. Returns its expiry.
    fn extend_permit(
        &mut self,
        now: ServerTime,
        key: &LockKey,
        lease: LeaseId,
        (ttl, counter): (Duration, Counter),
    ) -> ServerTime {
        let (until, kept) = (expiry(now, ttl), kept_until(now, counter, ttl));
        let Some(keys) = self.names.get_mut(key) else {
            return until;
        };
        let (Some(hash), Some(holders)) = (&mut keys.hash, &mut keys.holders) else {
            return until;
        };
        if let Some(held) = holders.until(lease).filter(|held| *held >= until) {
            return held;
        }
        holders.hold(lease, until);
        hash.expires = longer(hash.expires, kept);
        holders.expires = longer(holders.expires, kept);
        until
    }

    /// Admits waiters in order while the first of them fits, up to a limit. Returns the first waiter that was not
    /// admitted, or nobody if nothing is free.
    fn serve_shared(
        &mut self,
        now: ServerTime,
        key: &LockKey,
        state: &mut State,
        asker: &mut Asker<'_>,
    ) -> First {
        let mut first = First::Nobody;
        for _ in 0..MOST_ADMITTED {
            if self.used(key) >= state.capacity && !asker.is_resized {
                return First::Nobody;
            }
            first = self.first_in_line(now, key, Some(state.sharing));
            let First::Alive(claim) = &first else {
                return first;
            };
            let weight = claim.owner.share().map_or(1, Share::weight);
            let fits = self.used(key) + weight <= state.capacity;
            let is_own = asker.own.is_some_and(|own| own.is_same(claim));
            if is_own || weight <= state.capacity && !fits {
                return first;
            }
            if !fits {
                self.send_away(key, claim);
            } else if asker.client == Some(claim.client) && asker.handed.is_none() {
                asker.handed = self.hand_over(now, key, state, claim);
            } else {
                self.admit_waiter(now, key, state, claim);
            }
        }
        first
    }

    /// Has a waiter whose weight is above the capacity ask again.
    fn send_away(&mut self, key: &LockKey, claim: &Claim) {
        self.leave_line(key, claim);
        if let Ok(token) = FencingToken::new(1) {
            self.publish(claim.client, claim.lease, News::Completed { token });
        }
    }

    /// Admits a waiter of the client that asks. Returns the reply that tells that client.
    fn hand_over(
        &mut self,
        now: ServerTime,
        key: &LockKey,
        state: &mut State,
        claim: &Claim,
    ) -> Option<Reply> {
        let grant = self.take_part(now, key, state, (claim, claim.ttl)).ok()?;
        self.leave_line(key, claim);
        Some(Reply::HandedOver {
            lease: claim.lease,
            grant,
            admission: Some(Arc::new(self.admission(key, claim.lease))),
        })
    }

    fn admit_waiter(&mut self, now: ServerTime, key: &LockKey, state: &mut State, claim: &Claim) {
        let window = claim.window.min(Claim::LONGEST_WINDOW);
        let Ok(grant) = self.take_part(now, key, state, (claim, window)) else {
            return;
        };
        self.leave_line(key, claim);
        let expires = expiry(now, window / 2);
        let (grant, time) = (Grant { expires, ..grant }, now);
        let heard = self.publish(claim.client, claim.lease, News::Granted { grant, time });
        let keys = self.names.get_mut(key);
        if !heard && let Some(holders) = keys.and_then(|keys| keys.holders.as_deref_mut()) {
            holders.hold(claim.lease, expires);
        }
    }
}

impl Record {
    pub(super) fn sharing(&self) -> Sharing {
        self.state.sharing
    }

    fn permit(&self, lease: LeaseId) -> Option<&Permit> {
        self.permits.iter().find(|permit| permit.lease == lease)
    }

    /// Returns the fields of the hash that only a shared name has.
    pub(super) fn fields(&self) -> Vec<(String, String)> {
        let State {
            sharing,
            capacity,
            epoch,
            generation,
        } = self.state;
        let generation = generation.map_or(0, FencingToken::get);
        let record = format!(
            "{}{capacity:0UNITS_LENGTH$}{epoch:0UNITS_LENGTH$}{generation:0TOKEN_LENGTH$}",
            sharing.kind()
        );
        let permits = self.permits.iter().map(|permit| {
            let Permit {
                lease,
                token,
                client,
                label,
                weight,
                slots,
            } = permit;
            let slots = stored_slots(slots);
            let token = token.get();
            let value =
                format!("{token:0TOKEN_LENGTH$}{client}{weight:0UNITS_LENGTH$}{slots}{label}");
            (lease.to_string(), value)
        });
        std::iter::once(("s".to_owned(), record))
            .chain(permits)
            .collect()
    }
}

/// Returns the error for a name that is used in another way, as the script words it.
pub(super) fn other_use(used_for: Option<Sharing>, wanted: Option<Sharing>) -> Error {
    let name = |sharing: Option<Sharing>| match sharing {
        None => "a lock or a job",
        Some(Sharing::Slots) => "a semaphore",
        Some(Sharing::Units) => "a quota",
        Some(Sharing::Access) => "readers and writers",
    };
    let (used_for, wanted) = (name(used_for), name(wanted));
    let text = format!("WRONGTYPE the name is used for {used_for}, not for {wanted}");
    Error::new(ErrorKind::WrongType, text)
}

/// Returns the error for a claim without a share, which no engine sends.
fn no_share() -> Error {
    Error::new(
        ErrorKind::Store,
        "ERR leasehold: the claim asks for no part",
    )
}
