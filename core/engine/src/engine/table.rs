//! A map of IDs.

use std::marker::PhantomData;

use crate::protocol::HalfId;

/// A key of a [`Table`]: a number that the engine or its host counts, or random bits, so that no one can
/// force collisions.
pub trait Id: Copy {
    /// Returns the ID as a number.
    fn number(self) -> u64;
    /// Creates the ID from its number.
    fn of(number: u64) -> Self;
}

/// A map of IDs for the engine and its hosts. It is fast and returns its memory after a burst. Its order of
/// iteration is arbitrary, and the same in every run.
///
/// ```
/// use leasehold_engine::engine::{CallId, Table};
///
/// let mut table = Table::default();
/// table.insert(CallId(7), "seven");
/// assert_eq!(table.get(&CallId(7)), Some(&"seven"));
/// assert_eq!(table.take(&CallId(7)), Some("seven"));
/// assert!(table.is_empty());
/// ```
#[derive(Debug)]
pub struct Table<K, V> {
    places: Places,
    values: Vec<V>,
    ids: PhantomData<K>,
}

impl<K: Id, V> Table<K, V> {
    /// Returns the value of an ID.
    pub fn get(&self, id: &K) -> Option<&V> {
        self.values.get(self.places.of(id.number())?)
    }

    /// Returns the value of an ID, mutably.
    pub fn get_mut(&mut self, id: &K) -> Option<&mut V> {
        self.values.get_mut(self.places.of(id.number())?)
    }

    /// Returns true if the ID has a value.
    pub fn contains_key(&self, id: &K) -> bool {
        self.places.of(id.number()).is_some()
    }

    /// Sets the value of an ID, and drops the one before.
    pub fn insert(&mut self, id: K, value: V) {
        match self.places.find(id.number()) {
            Ok(place) => self.values[place] = value,
            Err(free) => self.add(id, free, value),
        }
    }

    /// Returns the value of an ID. Inserts a new one if there is none.
    pub fn get_or_insert_with(&mut self, id: K, new: impl FnOnce() -> V) -> &mut V {
        let place = self.places.find(id.number()).unwrap_or_else(|free| {
            self.add(id, free, new());
            self.values.len() - 1
        });
        &mut self.values[place]
    }

    /// Removes and returns the value of an ID.
    pub fn take(&mut self, id: &K) -> Option<V> {
        let place = self.places.take(id.number())?;
        let value = self.values.swap_remove(place);
        if let Some(less) = self.places.give_back() {
            self.values.shrink_to(less);
        }
        Some(value)
    }

    /// Returns the IDs.
    pub fn keys(&self) -> impl Iterator<Item = K> {
        self.places.ids.iter().map(|id| K::of(*id))
    }

    /// Returns the IDs with their values.
    pub fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.keys().zip(&self.values)
    }

    /// Returns the values.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.values.iter()
    }

    /// Returns the values, mutably.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.values.iter_mut()
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns true if the table is empty.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    fn add(&mut self, id: K, free: usize, value: V) {
        self.places.add(id.number(), free);
        if self.values.len() == self.values.capacity() {
            self.values.reserve_exact(more(self.values.len()));
        }
        self.values.push(value);
    }
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self {
            places: Places::default(),
            values: Vec::new(),
            ids: PhantomData,
        }
    }
}

/// The index of each ID's value. One type for all tables, so that a browser loads its code once. The standard
/// library's map would take several times as much code.
#[derive(Debug, Default)]
struct Places {
    /// The IDs of the values, in their order.
    ids: Vec<u64>,
    /// A hash table with open addressing: indexes of values. Its length is zero or a power of two. An ID is
    /// in the first free slot at or after its home.
    slots: Vec<u32>,
}

const FREE: u32 = u32::MAX;

/// The number of slots up to which no memory is freed.
const SMALL: usize = 64;
const FEWEST: usize = 8;
const MANY: usize = 1024;

impl Places {
    fn of(&self, id: u64) -> Option<usize> {
        self.find(id).ok()
    }

    /// Returns the index of the ID's value, or the free slot for the ID.
    fn find(&self, id: u64) -> Result<usize, usize> {
        let slot = self.slot(id)?;
        Ok(self.slots[slot] as usize)
    }

    /// Appends an ID that has no value yet, and puts it into the free slot that was found for it.
    fn add(&mut self, id: u64, free: usize) {
        let place = self.ids.len();
        if place == self.ids.capacity() {
            self.ids.reserve_exact(more(place));
        }
        self.ids.push(id);
        if self.ids.len() > self.slots.len() / 8 * 7 {
            self.resize((self.slots.len() * 2).max(FEWEST));
        } else {
            self.slots[free] = slot_of(place);
        }
    }

    /// Removes an ID, and moves the last one to its index.
    fn take(&mut self, id: u64) -> Option<usize> {
        let slot = self.slot(id).ok()?;
        let place = self.slots[slot];
        if let Some(Ok(last)) = self.ids.last().map(|last| self.slot(*last)) {
            self.slots[last] = place;
        }
        self.ids.swap_remove(place as usize);
        self.free(slot);
        Some(place as usize)
    }

    /// Frees memory after a burst. Returns the new capacity if it changes.
    fn give_back(&mut self) -> Option<usize> {
        let (all, used) = (self.slots.len(), self.ids.len());
        let is_burst_over = all > SMALL && used < all / 8;
        is_burst_over.then(|| {
            self.resize(all / 4);
            self.ids.shrink_to(all / 4);
            all / 4
        })
    }

    /// Returns the slot of an ID, or the free slot for it.
    fn slot(&self, id: u64) -> Result<usize, usize> {
        let last = self.slots.len().checked_sub(1).ok_or(0_usize)?;
        let mut slot = self.home(id);
        loop {
            let place = self.slots[slot];
            if place == FREE {
                return Err(slot);
            }
            if self.ids[place as usize] == id {
                return Ok(slot);
            }
            slot = (slot + 1) & last;
        }
    }

    /// Frees a slot. Later IDs move up, so that a search can stop at a free slot.
    fn free(&mut self, mut free: usize) {
        let last = self.slots.len() - 1;
        let mut slot = (free + 1) & last;
        while self.slots[slot] != FREE {
            let home = self.home(self.ids[self.slots[slot] as usize]);
            let from_home = slot.wrapping_sub(home) & last;
            if from_home >= slot.wrapping_sub(free) & last {
                self.slots[free] = self.slots[slot];
                free = slot;
            }
            slot = (slot + 1) & last;
        }
        self.slots[free] = FREE;
    }

    fn resize(&mut self, slots: usize) {
        self.slots = vec![FREE; slots];
        for place in 0..self.ids.len() {
            // No ID has a slot yet.
            if let Err(free) = self.slot(self.ids[place]) {
                self.slots[free] = slot_of(place);
            }
        }
    }

    /// Returns the slot where the search for an ID begins: the first bits of its hash. Fibonacci hashing
    /// spreads consecutive numbers far apart.
    fn home(&self, id: u64) -> usize {
        let hash = (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32;
        let bits = self.slots.len().trailing_zeros();
        (hash >> (u32::BITS - bits)) as usize
    }
}

/// Returns an index in the form that a slot stores.
fn slot_of(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(FREE)
}

/// Returns how many elements a full vector grows by. A large one grows by less than the standard library's
/// would, since there may be a hundred thousand elements.
fn more(len: usize) -> usize {
    if len < MANY {
        len.max(FEWEST)
    } else {
        len / 16
    }
}

impl Id for u64 {
    fn number(self) -> u64 {
        self
    }

    fn of(number: u64) -> Self {
        number
    }
}

impl Id for HalfId {
    fn number(self) -> u64 {
        self.0
    }

    fn of(number: u64) -> Self {
        Self(number)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Catches a burst whose memory is kept as long as the locker lives.
    #[test]
    fn a_burst_gives_its_memory_back() {
        let mut table = Table::<u64, u64>::default();
        for id in 0..100_000 {
            table.insert(id, id);
        }
        for id in 1..100_000 {
            assert_eq!(table.take(&id), Some(id));
        }
        assert_eq!(table.take(&1), None);
        assert_eq!((table.len(), table.get(&0)), (1, Some(&0)));
        let kept = table.values.capacity().max(table.places.slots.len());
        assert!(kept < 2 * SMALL, "{kept}");
    }

    /// Catches an entry that is lost, or found under another ID, when one before it is removed.
    #[test]
    fn a_table_does_what_a_map_does() {
        let (mut table, mut map) = (Table::<u64, u64>::default(), BTreeMap::new());
        let mut random = 7_u64;
        for round in 0..200_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            // Few IDs, then many, then few again.
            let id = (random >> 33) % if round / 50_000 == 1 { 9_000 } else { 50 };
            match (random >> 60) % 3 {
                0 => assert_eq!(table.take(&id), map.remove(&id)),
                1 => {
                    table.insert(id, round);
                    map.insert(id, round);
                }
                _ => {
                    let one = *table.get_or_insert_with(id, || round);
                    assert_eq!(one, *map.entry(id).or_insert(round));
                }
            }
            assert_eq!(
                (table.get(&id), table.contains_key(&id)),
                (map.get(&id), map.contains_key(&id))
            );
            assert_eq!((table.len(), table.is_empty()), (map.len(), map.is_empty()));
        }
        let all: BTreeMap<_, _> = table.iter().map(|(id, value)| (id, *value)).collect();
        assert_eq!(all, map);
    }
}
