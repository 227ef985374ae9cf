//! Plans in which names are semaphores, quotas, locks for readers and writers, and ordinary locks.

use std::collections::BTreeMap;

use leasehold_engine::protocol::{Counter, LockKey};
use leasehold_engine::{Owner, Share, Sharing};

use crate::plan::Plan;
use crate::random::Random;
use crate::sabotage::Sabotage;

/// How a name is shared.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Kind {
    pub(crate) sharing: Sharing,
    /// The capacity that most clients ask for.
    pub(crate) capacity: u32,
}

impl Plan {
    pub(crate) fn sharing(random: &mut Random, sabotage: Sabotage) -> Self {
        Self::single(random, sabotage).with_kinds(random)
    }

    pub(crate) fn sharing_cluster(random: &mut Random, sabotage: Sabotage) -> Self {
        Self::cluster(random, sabotage).with_kinds(random)
    }

    pub(crate) fn with_kinds(self, random: &mut Random) -> Self {
        let only = self.sabotage.sharing();
        let (mut kinds, mut keys) = (BTreeMap::new(), self.keys().into_iter());
        // At least one name is shared.
        kinds.extend(keys.next().map(|key| (key, Kind::any(random, only))));
        for key in keys {
            if random.chance(70) {
                kinds.insert(key, Kind::any(random, only));
            }
        }
        Self {
            kinds,
            locks_per_host: random.between(2, 4),
            counter: match self.counter {
                // A completed tick is nothing here.
                counter if !self.jobs => counter,
                _ => Counter::ClockFloor {
                    retention: Self::LONG_RETENTION,
                },
            },
            jobs: false,
            ages: random.chance(30),
            reclaimable: 0,
            ..self
        }
    }

    /// Returns how a name is shared; `None` for a lock.
    pub(crate) fn kind(&self, key: &LockKey) -> Option<Kind> {
        self.kinds.get(key).copied()
    }

    /// True if the store keeps what it knows of a name to the end of the run.
    pub(crate) fn remembers(&self) -> bool {
        match self.counter {
            Counter::Dense => true,
            Counter::ClockFloor { retention } => retention >= Self::LONG_RETENTION,
        }
    }
}

impl Kind {
    /// Returns the owner of a handle, and true if it insists on its capacity.
    pub(crate) fn part(self, random: &mut Random, host: usize) -> (Owner, bool) {
        let mut capacity = self.capacity;
        if random.chance(15) {
            // A client of another version.
            capacity = Self::capacity(random, self.sharing);
        }
        let most = capacity.min(if random.chance(30) { 5 } else { 1 });
        let weight = u32::try_from(random.between(1, most.into())).unwrap_or(1);
        let share = match self.sharing {
            Sharing::Slots => Share::slots(weight, capacity),
            Sharing::Units => Share::units(weight, capacity),
            Sharing::Access if random.chance(35) => Ok(Share::writer()),
            Sharing::Access => Ok(Share::reader()),
        };
        let share = share.expect("a part within the bounds");
        let owner = Owner::sharing(format!("host-{host}"), share);
        (owner.expect("the label is short"), random.chance(5))
    }

    fn any(random: &mut Random, only: Option<Sharing>) -> Self {
        let all = [
            Sharing::Slots,
            Sharing::Slots,
            Sharing::Units,
            Sharing::Access,
        ];
        let any = random.pick(&all).unwrap_or(Sharing::Slots);
        let sharing = only.unwrap_or(any);
        Self {
            sharing,
            capacity: Self::capacity(random, sharing),
        }
    }

    /// Returns a capacity, from 1.
    pub(crate) fn capacity(random: &mut Random, sharing: Sharing) -> u32 {
        let most = match sharing {
            Sharing::Slots => 5,
            Sharing::Units => 12,
            Sharing::Access => 1,
        };
        u32::try_from(random.between(1, most)).unwrap_or(1)
    }
}
