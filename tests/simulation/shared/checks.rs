//! The promises of shared names.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_engine::engine::{Acquired, LockSpec};
use leasehold_engine::protocol::{
    Admit, Claim, Command, Extend, ForceRelease, LeaseId, LockKey, Reply, Vacate,
};
use leasehold_engine::{Error, FencingToken, LeaseEvent, Share, Sharing};

use super::state::{Change, Permit, State};
use crate::checks::{Checks, Valid};
use crate::line::Step;
use crate::network::lease_of;
use crate::world::World;

/// The checks' own record of shared names.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// Writers whose programs want to read instead.
    pub(crate) readers: BTreeSet<LeaseId>,
    /// The permits that were granted.
    granted: BTreeMap<(LockKey, FencingToken), Granted>,
    /// The slots that holders were told.
    told: BTreeMap<(LockKey, FencingToken), Box<[u16]>>,
    /// The permits that were valid at some host.
    seen: BTreeSet<(LockKey, FencingToken)>,
    /// The last token of each slot.
    slots: BTreeMap<(LockKey, u16), FencingToken>,
    /// The token of each name's last writer.
    writers: BTreeMap<LockKey, FencingToken>,
    /// The state of each name after its last command.
    last: BTreeMap<LockKey, State>,
    /// The least capacity that each name ever had.
    least: BTreeMap<LockKey, u32>,
}

/// A permit when it was granted.
#[derive(Copy, Clone, Debug)]
struct Granted {
    weight: u32,
    capacity: u32,
    generation: Option<FencingToken>,
}

/// Checks of the commands that servers execute.
impl Checks {
    /// Checks the effect of a command on a shared name.
    pub(crate) fn executed_shared(&mut self, step: &Step, change: &Change, remembers: bool) {
        let Some(key) = step.command.key() else {
            return;
        };
        self.check_memory(step, change, remembers);
        if let (Some(before), Some(after)) = (&change.before, &change.after) {
            self.check_others(step, before, after);
        }
        let mut foreign = change.ended(step.time);
        foreign.retain(|(lease, token)| !may_end(step.command, *lease, *token));
        let promise = match step.command {
            Command::Resize(_) => "resize",
            _ => "I1",
        };
        self.ensure(promise, foreign.is_empty(), || {
            format!("{:?} ended {foreign:?}", step.command)
        });
        if let Command::ForceRelease(_) = step.command {
            for ended in change.ended(step.time) {
                self.disturb(key, Some(ended));
                self.saw("force-released");
                self.saw("a permit was ended by force");
            }
        }
        let admitted = change.admitted();
        if let Some(after) = &change.after {
            for permit in &admitted {
                self.check_admission(step, after, permit);
            }
            let least = self
                .known
                .least
                .entry(key.clone())
                .or_insert(after.capacity);
            *least = after.capacity.min(*least);
            self.known.last.insert(key.clone(), after.clone());
        }
        self.follow_shared_line(step, &admitted);
    }

    /// Checks that the store still has what it had after the last command.
    fn check_memory(&mut self, step: &Step, change: &Change, remembers: bool) {
        let Some(key) = step.command.key() else {
            return;
        };
        let Some(last) = self.known.last.get(key).cloned() else {
            return;
        };
        let known = |lease| Some(change.before.as_ref()?.permits.get(lease)?.token);
        let forgotten = last
            .living(step.time)
            .find(|(lease, permit)| known(lease) != Some(permit.token));
        self.ensure("I1", forgotten.is_none(), || {
            format!("the store forgot the permit {forgotten:?}")
        });
        let capacity = change.before.as_ref().map(|state| state.capacity);
        if capacity.is_none() && !remembers {
            self.forget_name(key);
            return self.saw("a shared name was forgotten");
        }
        self.ensure("capacity", capacity == Some(last.capacity), || {
            format!("the capacity was {} and is {capacity:?}", last.capacity)
        });
    }

    /// Checks that a command changes only what belongs to its own lease.
    fn check_others(&mut self, step: &Step, before: &State, after: &State) {
        let (resizes, asker) = (
            matches!(step.command, Command::Resize(_)),
            lease_of(step.command),
        );
        let same = (before.capacity, before.epoch) == (after.capacity, after.epoch);
        self.ensure("capacity", same || resizes, || {
            format!("{:?} changed the capacity: {before:?}", step.command)
        });
        if !same {
            self.saw("resized");
            if after.used(step.time) > after.capacity {
                self.saw("shrank below what is held");
            }
            let next = after.epoch == before.epoch + 1 && after.capacity != before.capacity;
            self.ensure("capacity", next, || {
                format!("{before:?} was resized to {after:?}")
            });
        }
        for (lease, old) in before.living(step.time) {
            let Some(new) = after
                .permits
                .get(lease)
                .filter(|new| new.token == old.token)
            else {
                continue;
            };
            let own = asker == Some(*lease);
            self.ensure("I5", new.until == old.until || own, || {
                format!("{:?} extended {lease}: {old:?}", step.command)
            });
            self.ensure("I4", new.until >= old.until, || {
                format!("{:?} cut {lease} short: {old:?}", step.command)
            });
            self.ensure("slots", new.slots == old.slots, || {
                format!("{:?} changed the slots of {lease}: {old:?}", step.command)
            });
            let reads = matches!(step.command, Command::Extend(Extend { reads: true, .. }));
            let wanted = self.known.readers.contains(lease) || self.dead.contains(lease);
            let downgraded = own && reads && wanted && new.weight == 1;
            if new.weight != old.weight {
                self.saw("a writer became a reader");
                self.ensure("I1", downgraded, || {
                    format!("{:?} changed the weight of {lease}: {old:?}", step.command)
                });
            }
        }
    }

    /// Checks one permit that a command granted, against all permits that the store has.
    fn check_admission(&mut self, step: &Step, after: &State, (lease, permit): &(LeaseId, Permit)) {
        let Some(key) = step.command.key() else {
            return;
        };
        let Permit { token, weight, .. } = *permit;
        let used = after.used(step.time);
        self.ensure("I1", used <= after.capacity, || {
            format!("{lease} was admitted with {permit:?}, and {used} are held: {after:?}")
        });
        let last = self.all_granted(key).last().map(|granted| granted.token);
        self.ensure("I2", last.is_none_or(|last| last < token), || {
            format!("token {token} was granted after {last:?} on {key:?}")
        });
        let older = after.permits.values().filter(|other| other.token < token);
        let taken: BTreeSet<_> = older.flat_map(|other| &other.slots).collect();
        let free = (0..).filter(|slot| !taken.contains(slot));
        let lowest: Vec<_> = free.take(permit.slots.len()).collect();
        let below = lowest.iter().all(|slot| u32::from(*slot) < after.capacity);
        self.ensure("slots", permit.slots == lowest && below, || {
            format!("{lease} got {permit:?}, and the lowest free slots are {lowest:?}: {after:?}")
        });
        for slot in &permit.slots {
            let before = self.known.slots.insert((key.clone(), *slot), token);
            self.ensure("I2", before.is_none_or(|before| before < token), || {
                format!("token {token} was granted after {before:?} for slot {slot} of {key:?}")
            });
        }
        let granted = Granted {
            weight,
            capacity: after.capacity,
            generation: self.known.writers.get(key).copied(),
        };
        self.known.granted.insert((key.clone(), token), granted);
        if weight == Share::MAX_UNITS {
            self.known.writers.insert(key.clone(), token);
            self.saw("a writer was admitted");
        }
        self.begins(key, (*lease, token), false);
        self.saw("granted a part");
        self.saw("granted");
    }

    /// Notes that a name's data was lost.
    pub(crate) fn forget_name(&mut self, key: &LockKey) {
        self.known.last.remove(key);
        self.known.writers.remove(key);
    }

    /// Notes the state of a name that something other than a command changed.
    pub(crate) fn knows(&mut self, key: &LockKey, state: Option<State>) {
        if let Some(state) = state {
            self.known.last.insert(key.clone(), state);
        } else {
            self.forget_name(key);
        }
    }
}

/// True if the command may end the permit of this lease.
fn may_end(command: &Command, lease: LeaseId, token: FencingToken) -> bool {
    match command {
        Command::Vacate(Vacate(release)) => release.claim.lease == lease,
        Command::ForceRelease(ForceRelease { token: meant, .. }) => *meant == token,
        _ => false,
    }
}

/// Checks of what programs are told.
impl Checks {
    /// Checks what the holder of a part is told of it.
    pub(crate) fn told_of_part(&mut self, spec: &LockSpec, acquired: &Acquired) {
        let Some(share) = spec.owner.share() else {
            return;
        };
        let (key, token) = (spec.key.clone(), acquired.token);
        let granted = self.known.granted.get(&(key.clone(), token)).copied();
        let (Some(granted), Some(told)) = (granted, &acquired.admission) else {
            return self.ensure("calls", false, || format!("{acquired:?} is no permit"));
        };
        let slots = if share.sharing() == Sharing::Slots {
            granted.weight
        } else {
            0
        };
        self.ensure("slots", told.slots.len() == slots as usize, || {
            format!("a permit of {} units is told of {told:?}", granted.weight)
        });
        let least = if share.is_writer() {
            Some(token)
        } else {
            granted.generation
        };
        if share.sharing() == Sharing::Access {
            self.saw(if least.is_some() {
                "told of the last writer"
            } else {
                "told of no writer"
            });
            self.ensure("generation", told.generation == least, || {
                format!("{token} is told of {told:?}, and the last writer was {least:?}")
            });
        }
        self.known.told.insert((key, token), told.slots.clone());
    }

    /// Checks that a holder is told of another capacity only if it asked for this one.
    pub(crate) fn told_of_capacity(
        &mut self,
        host: usize,
        share: Option<Share>,
        event: &LeaseEvent,
    ) {
        let own = share.map(Share::capacity);
        let LeaseEvent::CapacityDiffers {
            capacity, wanted, ..
        } = event
        else {
            return;
        };
        let differs = own == Some(*wanted) && capacity != wanted;
        self.saw("told of another capacity");
        self.ensure("calls", differs, || {
            format!("host {host}: {own:?} is asked for, and {event:?}")
        });
    }

    /// True if a call for a part may be refused with this capacity in force at some time.
    pub(crate) fn may_refuse(&self, spec: &LockSpec) -> bool {
        let least = self.known.least.get(&spec.key);
        let exceeds = |share: Share| least.is_some_and(|least| share.weight() > *least);
        spec.owner.share().is_some_and(exceeds) || spec.strict
    }
}

/// Checks of all hosts together.
impl World {
    /// Checks I1 for the permits of a shared name that are valid now by their own deadlines.
    ///
    /// A permit that is valid now was valid when a later one was granted. So each permit and the valid ones
    /// before it take at most the capacity that was in force when it was granted. Only the beginning of a
    /// permit can break this.
    pub(crate) fn check_permits(&mut self, host: usize, key: &LockKey, mut valid: Vec<Valid>) {
        let seen = &mut self.checks.known.seen;
        let mut own = valid.iter().filter(|permit| permit.host == host);
        if !own.any(|permit| seen.insert((key.clone(), permit.token))) {
            return;
        }
        valid.sort_by_key(|permit| permit.token);
        for (place, new) in valid.iter().enumerate() {
            let granted = self.checks.known.granted.get(&(key.clone(), new.token));
            let Some(granted) = granted.copied() else {
                return self.checks.ensure("I1", false, || {
                    format!("{new:?} is valid and was never granted")
                });
            };
            let mut older = valid[..place].to_vec();
            older.retain(|old| !self.checks.was_disturbed(key, old.token, new.token));
            if !older.iter().chain([new]).any(|permit| permit.host == host) {
                continue;
            }
            let weights = older.iter().map(|old| self.weight_of(key, *old));
            let used = granted.weight + weights.sum::<u32>();
            self.checks.ensure("I1", used <= granted.capacity, || {
                format!(
                    "{new:?} was granted when the capacity was {}; beside {older:?} {used} are held",
                    granted.capacity
                )
            });
            self.check_slots(key, *new, &older);
            if !older.is_empty() {
                self.checks.saw("several permits were valid");
            }
        }
    }

    fn check_slots(&mut self, key: &LockKey, new: Valid, older: &[Valid]) {
        let known = &self.checks.known;
        let of = |permit: Valid| known.told.get(&(key.clone(), permit.token));
        let shared = older.iter().find(|old| {
            let (old, new) = (of(**old), of(new));
            let mut pairs = old.into_iter().flatten();
            pairs.any(|slot| new.is_some_and(|new| new.contains(slot)))
        });
        let shared = shared.copied();
        self.checks.ensure("I1", shared.is_none(), || {
            format!("{new:?} and {shared:?} both have a valid permit for a slot of {key:?}")
        });
    }

    fn weight_of(&self, key: &LockKey, permit: Valid) -> u32 {
        if self.checks.known.readers.contains(&permit.lease) {
            return 1;
        }
        let granted = &self.checks.known.granted;
        let granted = granted.get(&(key.clone(), permit.token));
        granted.map_or(0, |granted| granted.weight)
    }
}

/// Returns the claim of a command that asks for a part, or gives one up.
pub(crate) fn claim_of(command: &Command) -> Option<&Claim> {
    match command {
        Command::Admit(Admit(acquire)) => Some(&acquire.claim),
        Command::Vacate(Vacate(release)) => Some(&release.claim),
        _ => None,
    }
}

/// True if a command changed a shared name, so that it must not come late.
pub(crate) fn acts(reply: &Result<Reply, Error>) -> bool {
    matches!(reply, Ok(Reply::Admitted(..) | Reply::Resized { .. }))
}
