//! A map of ids.

use rustc_hash::FxHashMap;

use crate::protocol::HalfId;

/// What a [`Table`] finds things by: a number that the engine or its host counts, or random bits, so
/// that nobody can choose them to collide.
pub trait Id: Copy {
    /// As a number.
    fn number(self) -> u64;
}

/// A map of ids, for the engine and its hosts: quick, and it gives its memory back after a burst. It
/// iterates in an order without a meaning, but in the same one in every run.
///
/// ```
/// use leasehold::engine::{CallId, Table};
///
/// let mut table = Table::default();
/// table.insert(CallId(7), "seven");
/// assert_eq!(table.get(&CallId(7)), Some(&"seven"));
/// assert_eq!(table.take(&CallId(7)), Some("seven"));
/// assert!(table.is_empty());
/// ```
#[derive(Debug)]
pub struct Table<K, V> {
    /// Of all tables of one type, so that a browser loads its code once.
    places: Places,
    entries: Vec<(K, V)>,
}

/// Where in the entries each id is.
type Places = FxHashMap<u64, usize>;

/// Up to this capacity no memory is given back.
const SMALL: usize = 64;

impl<K: Id, V> Table<K, V> {
    /// What is under an id.
    pub fn get(&self, id: &K) -> Option<&V> {
        let place = *self.places.get(&id.number())?;
        self.entries.get(place).map(|(_, value)| value)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, id: &K) -> Option<&mut V> {
        let place = *self.places.get(&id.number())?;
        self.entries.get_mut(place).map(|(_, value)| value)
    }

    /// Whether there is something under an id.
    pub fn contains_key(&self, id: &K) -> bool {
        self.places.contains_key(&id.number())
    }

    /// Puts something under an id, in the place of what was there.
    pub fn insert(&mut self, id: K, value: V) {
        match self.get_mut(&id) {
            Some(old) => *old = value,
            None => self.add(id, value),
        }
    }

    /// What is under an id; if that is nothing, something new is put there.
    pub fn get_or_insert_with(&mut self, id: K, new: impl FnOnce() -> V) -> &mut V {
        if !self.contains_key(&id) {
            self.add(id, new());
        }
        self.get_mut(&id)
            .expect("it is there, or was just put there")
    }

    /// Takes out what is under an id.
    pub fn take(&mut self, id: &K) -> Option<V> {
        let place = self.places.remove(&id.number())?;
        let (_, value) = self.entries.swap_remove(place);
        if let Some((moved, _)) = self.entries.get(place) {
            self.places.insert(moved.number(), place);
        }
        let (length, capacity) = (self.entries.len(), self.entries.capacity());
        if let Some(less) = give_back(&mut self.places, length, capacity) {
            self.entries.shrink_to(less);
        }
        Some(value)
    }

    /// The ids.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.entries.iter().map(|(id, _)| id)
    }

    /// What there is, each with its id.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().map(|(id, value)| (id, value))
    }

    /// What there is.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.iter().map(|(_, value)| value)
    }

    /// The same, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.entries.iter_mut().map(|(_, value)| value)
    }

    /// How much there is.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn add(&mut self, id: K, value: V) {
        self.places.insert(id.number(), self.entries.len());
        self.entries.push((id, value));
    }
}

/// Gives memory back after a burst. Returns the capacity from now on, if it changes. Of all tables one
/// function, as above.
fn give_back(places: &mut Places, length: usize, capacity: usize) -> Option<usize> {
    let less = capacity / 4;
    let is_burst_over = capacity > SMALL && length < capacity / 8;
    is_burst_over.then(|| {
        places.shrink_to(less);
        less
    })
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self {
            places: Places::default(),
            entries: Vec::new(),
        }
    }
}

impl Id for u64 {
    fn number(self) -> u64 {
        self
    }
}

impl Id for HalfId {
    fn number(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Catches a burst whose memory is kept for as long as the locker lives.
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
        let kept = table.entries.capacity().max(table.places.capacity());
        assert!(kept < 2 * SMALL, "{kept}");
    }

    /// Catches an entry that is lost, or found under another's id, when one before it is taken out.
    #[test]
    fn it_does_what_a_map_does() {
        let (mut table, mut map) = (Table::<u64, u64>::default(), BTreeMap::new());
        let mut random = 7_u64;
        for round in 0..20_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let id = (random >> 33) % 50;
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
        let all: BTreeMap<_, _> = table.iter().map(|(id, value)| (*id, *value)).collect();
        assert_eq!(all, map);
    }
}
